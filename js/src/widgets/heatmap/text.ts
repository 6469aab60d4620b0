/** Texts about the cells of a heat map, and its values as rows of a file. */
import { type Image, imageValue, pixelText } from "../../data/frames";
import { indexText, type Matrix, tileImage, within } from "../../data/matrix";
import type { Store } from "../../data/store";
import { equal } from "../../lib/equal";
import { count, minusSigns, num, truncate } from "../../lib/format";
import type { Pool } from "../../protocol/types";
import type { Rows } from "../common/panel";
import { coversWindow, type HeatmapContent, isPooled } from "./content";

export const POOLS = [
  ["maxabs", "Max magnitude"],
  ["mean", "Mean"],
  ["min", "Minimum"],
  ["max", "Maximum"],
] as const;

type Cell = readonly [row: number, col: number];
type Span = readonly [number, number];

const poolName = (pool: Pool): string => (POOLS.find(([each]) => each === pool)?.[1] ?? "").toLowerCase();

/** Readout of the cell under the pointer: its exact value if loaded, else the pooled value. */
export function readoutText(content: HeatmapContent, store: Store, hover: Cell | undefined): string {
  const { matrix: m, image, tile } = content;
  const { main, traits } = content.scene;
  if (m && content.differences) return differenceText(content, m, hover);
  if (!m || !main || !hover) {
    if (image?.rgba) return `${count(m?.cols ?? 0)} \u00d7 ${count(m?.rows ?? 0)} pixels`;
    return image ? `${cellsText(content)}${isPooled(content) ? `, pooled by ${poolName(traits.pool)}` : ""}` : "";
  }
  const [row, col] = hover;
  const index = indexText(m, row, col);
  const exact = exactValue(content, store, hover);
  if (exact !== undefined) return `${index} = ${exact}`;
  const part = tile && within(tile.head.rows, row) && within(tile.head.cols, col) ? tile : undefined;
  const shown = part ? tileImage(part) : image;
  if (!shown) return index;
  const { at, cells } = pixelAt(shown, part?.head.rows ?? [0, m.rows], part?.head.cols ?? [0, m.cols], hover);
  if (shown.rgba) return `row ${count(row)}, column ${count(col)}: ${cells > 1 ? "about " : ""}${pixelText(shown, at)}`;
  const of = cells > 1 ? `  (${poolName(traits.pool)} of about ${count(cells)} cells)` : "";
  return `${index} \u2248 ${num(imageValue(shown, at), 5)}${of}`;
}

/** The value of a cell if it is loaded; that of an image is a pixel. */
export function exactValue({ scene, matrix: m, image }: HeatmapContent, store: Store, [row, col]: Cell) {
  const { main } = scene;
  if (!m || !main || image?.rgba) return undefined;
  const known = store.values(
    (head) =>
      head.run === main.run &&
      head.tensor === main.tensor &&
      head.worker === main.worker &&
      head.step === main.savedStep &&
      equal(head.axes, m.axes) &&
      equal(head.fixed, m.fixed) &&
      within(head.rows, row) &&
      within(head.cols, col),
  )?.head;
  return known && minusSigns(truncate(known.cells[row - known.rows[0]]?.[col - known.cols[0]] ?? "", 80));
}

/** Readout of A − B; "≈" while it is estimated from pooled values. */
function differenceText(content: HeatmapContent, m: Matrix, hover: Cell | undefined): string {
  const { differences = [], window } = content;
  const exact = differences.some(({ image, head }) => image && coversWindow(head.image, window));
  const about = exact ? "" : "\u2248 from pooled values   ";
  if (!hover) return content.image ? `${about}${cellsText(content)}` : "";
  const [row, col] = hover;
  const part = differences.find(
    ({ image, head }) => image && head.image && within(head.image.rows, row) && within(head.image.cols, col),
  );
  const image = part?.image ?? content.image;
  if (!image) return indexText(m, row, col);
  const { at, cells } = pixelAt(
    image,
    part?.head.image?.rows ?? [0, m.rows],
    part?.head.image?.cols ?? [0, m.cols],
    hover,
  );
  const of = cells > 1 ? `  (largest of about ${count(cells)} cells)` : "";
  return `${about}${indexText(m, row, col)} A \u2212 B \u2248 ${num(imageValue(image, at), 4)}${of}`;
}

/** The pixel of an image of rows and columns that has a cell, and about how many cells it has. */
function pixelAt(image: Image, rows: Span, cols: Span, [row, col]: Cell) {
  const [high, wide] = [rows[1] - rows[0], cols[1] - cols[0]];
  const r = Math.floor(((row - rows[0]) / high) * image.height);
  const c = Math.floor(((col - cols[0]) / wide) * image.width);
  return { at: r * image.width + c, cells: Math.round((high / image.height) * (wide / image.width)) };
}

/** Number of cells in view, and of all cells while zoomed. */
function cellsText({ matrix: m, window: [r0, r1, c0, c1] }: HeatmapContent): string {
  const all = `${count(m?.rows ?? 0)} \u00d7 ${count(m?.cols ?? 0)}`;
  const shown = [r1 - r0, c1 - c0].map((size) => count(Math.max(1, Math.round(size)))).join(" \u00d7 ");
  return shown === all ? `${all} cells` : `${shown} of ${all} cells`;
}

/** The sharpest image as rows of a file: one per pixel. */
export function fileRows(content: HeatmapContent): Rows | undefined {
  const { matrix: m } = content;
  const tile = content.tile && tileImage(content.tile);
  const image = tile ?? content.image;
  if (!image || !m) return undefined;
  const head = tile ? content.tile?.head : undefined;
  const [rows, cols]: [Span, Span] = [head?.rows ?? [0, m.rows], head?.cols ?? [0, m.cols]];
  const value = isPooled(content) && !head?.exact ? content.scene.traits.pool : "value";
  const out: Rows = [["first_row", "first_column", ...(image.rgba ? ["red", "green", "blue", "alpha"] : [value])]];
  for (let r = 0; r < image.height; r++)
    for (let c = 0; c < image.width; c++) {
      const at = r * image.width + c;
      out.push([
        Math.floor(rows[0] + (r * (rows[1] - rows[0])) / image.height),
        Math.floor(cols[0] + (c * (cols[1] - cols[0])) / image.width),
        ...(image.rgba ? image.data.subarray(4 * at, 4 * at + 4) : [imageValue(image, at)]),
      ]);
    }
  return out;
}
