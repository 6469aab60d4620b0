/** Draws a matrix as colours: the pooled image of a frame, and over it a tile of exact cells while zoomed in. */

import { type Image, imageValue } from "../data/frames";
import type { CellWindow } from "../data/matrix";
import { NOT_FINITE } from "../lib/colour";
import { defined } from "../lib/defined";
import { count, num } from "../lib/format";
import type { Table } from "../lib/palette";
import { linear } from "../lib/scale";
import { type Box, message } from "./axes";
import { crisp, line, type Pen, type Pixels, type Size } from "./pen";
import type { Theme } from "./theme";

export interface Layer {
  pixels: Pixels;
  /** cells that the pixels cover */
  covers: CellWindow;
}

export interface HeatmapPicture {
  /** from coarse to fine; later layers cover earlier ones */
  layers: readonly Layer[];
  window: CellWindow;
  table: Table;
  domain: [number, number];
  /** no finite value: the colour bar is omitted */
  blank?: boolean;
  /** a logged image: no colour bar, and the aspect ratio is kept */
  rgba?: boolean;
  hover: readonly [row: number, col: number] | undefined;
  marked: CellWindow | undefined;
  dim: boolean;
  emptyMessage: string;
  margins?: Margins;
}

/** Converts values to RGBA pixels with a colour table. NaN and infinities get separate colours. */
export function colourPixels(image: Image, table: Table, domain: [number, number]): Pixels {
  const { width, height } = image;
  if (image.rgba) return { data: Uint8ClampedArray.from(image.data), width, height };
  const data = new Uint8ClampedArray(width * height * 4);
  const out = new Uint32Array(data.buffer);
  // 8-bit codes have 256 colours: compute each once.
  if (image.data instanceof Uint8Array) {
    const codes = { ...image, data: Uint8Array.from({ length: 256 }, (_, code) => code) };
    const colours = Uint32Array.from({ length: 256 }, (_, code) => colourOf(imageValue(codes, code), table, domain));
    for (let i = 0; i < out.length; i++) out[i] = defined(colours[defined(image.data[i])]);
  } else for (let i = 0; i < out.length; i++) out[i] = colourOf(imageValue(image, i), table, domain);
  return { data, width, height };
}

const LITTLE = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;
const rgba = (r: number, g: number, b: number) =>
  (LITTLE ? (255 << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | 255) >>> 0;

function colourOf(value: number, table: Table, [lo, hi]: [number, number]): number {
  if (!Number.isFinite(value))
    return rgba(...NOT_FINITE[Number.isNaN(value) ? "nan" : value > 0 ? "posInf" : "negInf"]);
  const t = ((value - lo) * 255) / (hi - lo || 1);
  const k = 3 * (t <= 0 ? 0 : t >= 255 ? 255 : Math.round(t));
  return rgba(defined(table[k]), defined(table[k + 1]), defined(table[k + 2]));
}

/** Pixels beside the cells: row numbers, and the colour bar. */
export interface Margins {
  left: number;
  right: number;
}
export const MARGINS: Margins = { left: 44, right: 84 };
/** Of two heat maps side by side, the first has the row numbers and the second the colour bar. */
export const BESIDE: readonly [Margins, Margins] = [
  { left: 44, right: 6 },
  { left: 6, right: 84 },
];

/** Pixels above the cells, for the title of the rows. */
const TOP = 20;
/** Minimum pixels per cell and in total for long, narrow matrices. */
const LEAST = { cell: 24, all: 96 };

/**
 * Position of the cells. Cells are square, but a long, narrow matrix is widened to LEAST. A logged image keeps its
 * aspect ratio.
 */
export function layoutHeatmap(window: CellWindow, size: Size, rgba = false, margins = MARGINS): Box {
  const rows = Math.max(window[1] - window[0], 1e-9);
  const cols = Math.max(window[3] - window[2], 1e-9);
  const most = {
    width: Math.max(20, size.width - margins.left - margins.right),
    height: Math.max(16, size.height - TOP - 22),
  };
  const side = Math.min(most.width / cols, most.height / rows);
  const least = (cells: number, room: number) => (rgba ? 0 : Math.min(room, LEAST.all, LEAST.cell * cells) / cells);
  const cellWidth = Math.max(side, least(cols, most.width));
  const cellHeight = Math.max(side, least(rows, most.height));
  return { x: margins.left, y: TOP, width: Math.max(2, cellWidth * cols), height: Math.max(2, cellHeight * rows) };
}

export function drawHeatmap(pen: Pen, size: Size, theme: Theme, picture: HeatmapPicture): void {
  if (!picture.layers.length) return message(pen, size.width, size.height, picture.emptyMessage, theme, "plane");
  const { margins = MARGINS } = picture;
  const box = layoutHeatmap(picture.window, size, picture.rgba, margins);
  const [r0, r1, c0, c1] = picture.window;
  const toX = (col: number) => box.x + ((col - c0) / (c1 - c0)) * box.width;
  const toY = (row: number) => box.y + ((row - r0) / (r1 - r0)) * box.height;
  pen.clip(box.x, box.y, box.width, box.height, () => {
    for (const { pixels, covers } of picture.layers)
      pen.image(
        pixels,
        toX(covers[2]),
        toY(covers[0]),
        toX(covers[3]) - toX(covers[2]),
        toY(covers[1]) - toY(covers[0]),
      );
    if (picture.dim) pen.rect(box.x, box.y, box.width, box.height, { fill: theme.surface, opacity: 0.35 });
    if (picture.marked) {
      const [m0, m1, m2, m3] = picture.marked;
      pen.rect(toX(m2), toY(m0), toX(m3) - toX(m2), toY(m1) - toY(m0), { stroke: theme.surface, width: 3 });
      pen.rect(toX(m2), toY(m0), toX(m3) - toX(m2), toY(m1) - toY(m0), { stroke: theme.ink, width: 1.5, dash: [4, 3] });
    }
    if (picture.hover) {
      const [row, col] = picture.hover;
      const w = Math.max(3, toX(col + 1) - toX(col));
      const h = Math.max(3, toY(row + 1) - toY(row));
      pen.rect(toX(col), toY(row), w, h, { stroke: theme.surface, width: 3 });
      pen.rect(toX(col), toY(row), w, h, { stroke: theme.ink, width: 1.5 });
    }
  });
  const key = [...picture.window, ...picture.domain, picture.table, picture.blank, picture.rgba, margins];
  pen.cached(key, (paper) => {
    paper.rect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1, { stroke: theme.rule });
    drawCellTicks(paper, box, picture.window, theme, margins.left === MARGINS.left);
    if (!picture.blank && !picture.rgba && margins.right === MARGINS.right) legend(paper, box, size, theme, picture);
  });
}

/** At most as many cells as fit, always with the first and, if there is room, the last. A label is at its cell's centre. */
export function cellTicks(lo: number, hi: number, pixels: number, room: (cell: number) => number): number[] {
  const [first, last] = [Math.max(0, Math.ceil(lo - 0.5)), Math.ceil(hi - 0.5) - 1];
  const each = room(last);
  const ticks = linear(lo - 0.5, hi - 0.5, [0, pixels])
    .ticks(Math.max(1, Math.floor(pixels / each)))
    .map((tick) => tick.value)
    .filter((cell) => Number.isInteger(cell) && cell >= first && cell <= last);
  if (ticks.length > 1 || last <= first) return ticks;
  const distance = ((last - first) / (hi - lo)) * pixels;
  return distance >= (room(first) + each) / 2 ? [first, last] : [first];
}

function drawCellTicks(pen: Pen, box: Box, [r0, r1, c0, c1]: CellWindow, theme: Theme, rows: boolean) {
  for (const cell of cellTicks(c0, c1, box.width, (each) => pen.measure(count(each), { fill: "" }) + 12)) {
    const x = box.x + ((cell + 0.5 - c0) / (c1 - c0)) * box.width;
    line(pen, crisp(x), box.y + box.height, crisp(x), box.y + box.height + 3, { stroke: theme.rule });
    pen.text(x, box.y + box.height + 6, count(cell), { fill: theme.ink2, align: "center", baseline: "top" });
  }
  if (!rows) return;
  const title = { fill: theme.ink2, align: "right", size: 10 } as const;
  pen.text(box.x - 6, box.y + box.height + 7, "column", { ...title, baseline: "top", maxWidth: 38 });
  pen.text(box.x - 6, box.y - 9, "row", title);
  for (const cell of cellTicks(r0, r1, box.height, () => 20)) {
    const y = box.y + ((cell + 0.5 - r0) / (r1 - r0)) * box.height;
    pen.text(box.x - 6, y, count(cell), { fill: theme.ink2, align: "right", baseline: "middle", maxWidth: 38 });
  }
}

/** Pixels between two labels of the colour bar. */
const LABEL = 14;

function legend(pen: Pen, box: Box, size: Size, theme: Theme, { table, domain }: HeatmapPicture) {
  const x = box.x + box.width + 10;
  const height = Math.min(Math.max(96, box.height), size.height - 30);
  const bands = 64;
  for (let i = 0; i < bands; i++) {
    const k = 3 * Math.round((255 * (bands - 1 - i)) / (bands - 1));
    const top = box.y + Math.round((i * height) / bands);
    const bottom = box.y + Math.round(((i + 1) * height) / bands);
    pen.rect(x, top, 8, bottom - top, { fill: `rgb(${table[k]},${table[k + 1]},${table[k + 2]})` });
  }
  const scale = linear(domain[0], domain[1], [box.y + height, box.y]);
  // Both limits, so that values can be read off, and round numbers where they leave room.
  const ends = [domain[1], domain[0]].map((value) => ({ value, y: scale(value) }));
  const between = scale
    .ticks(Math.max(2, Math.floor(height / 36)))
    .map(({ value }) => ({ value, y: scale(value) }))
    .filter(({ y }) => ends.every((end) => Math.abs(end.y - y) >= LABEL));
  for (const { value, y } of domain[0] < domain[1] ? [...ends, ...between] : ends.slice(1)) {
    line(pen, x + 8, crisp(y), x + 11, crisp(y), { stroke: theme.rule });
    pen.text(x + 13, Math.min(Math.max(y, box.y + 5), box.y + height - 4), num(value, 3), {
      fill: theme.ink2,
      baseline: "middle",
      maxWidth: size.width - x - 13,
    });
  }
}

/** The cell at a pixel, or undefined. */
export function cellAt(window: CellWindow, box: Box, px: number, py: number): [number, number] | undefined {
  const [r0, r1, c0, c1] = window;
  if (px < box.x || py < box.y || px >= box.x + box.width || py >= box.y + box.height) return undefined;
  return [
    Math.floor(r0 + ((py - box.y) / box.height) * (r1 - r0)),
    Math.floor(c0 + ((px - box.x) / box.width) * (c1 - c0)),
  ];
}

/** Clamps a window to the matrix, with at least two cells per axis if the matrix has them. */
export function clampWindow([r0, r1, c0, c1]: CellWindow, rows: number, cols: number): CellWindow {
  const axis = (lo: number, hi: number, n: number): [number, number] => {
    const size = Math.min(n, Math.max(Math.min(2, n), hi - lo));
    const start = Math.min(Math.max(0, (lo + hi - size) / 2), n - size);
    return [start, start + size];
  };
  return [...axis(r0, r1, rows), ...axis(c0, c1, cols)] as unknown as CellWindow;
}

export function zoomWindow(
  window: CellWindow,
  by: number,
  at: readonly [number, number],
  rows: number,
  cols: number,
): CellWindow {
  const [r0, r1, c0, c1] = window;
  const [row, col] = at;
  return clampWindow(
    [row - (row - r0) * by, row + (r1 - row) * by, col - (col - c0) * by, col + (c1 - col) * by],
    rows,
    cols,
  );
}
