/** Axes and grids. */
import type { Scale, Tick } from "../lib/scale";
import { line, type Pen } from "./pen";
import type { Theme } from "./theme";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
/** Centres a 1-pixel line on a pixel. */
export const crisp = (v: number) => Math.round(v) + 0.5;

/** Number of labels that fit into a length. */
const room = (pixels: number, each: number) => Math.max(2, Math.floor(pixels / each));

export function bottomAxis(pen: Pen, box: Box, scale: Scale, theme: Theme, label = ""): void {
  const y = box.y + box.height;
  line(pen, box.x, crisp(y), box.x + box.width, crisp(y), { stroke: theme.rule });
  const labelWidth = label ? pen.measure(label, { fill: "" }) + 10 : 0;
  let free = box.x - 20;
  for (const tick of scale.ticks(room(box.width, 58))) {
    const x = scale(tick.value);
    if (x < box.x - 1 || x > box.x + box.width + 1) continue;
    line(pen, crisp(x), y, crisp(x), y + 4, { stroke: theme.rule });
    const half = pen.measure(tick.label, { fill: "" }) / 2;
    if (x - half < free || x + half > box.x + box.width - labelWidth + (label ? 0 : 24)) continue;
    free = x + half + 8;
    pen.text(x, y + 6, tick.label, { fill: theme.ink2, align: "center", baseline: "top" });
  }
  if (label) pen.text(box.x + box.width, y + 6, label, { fill: theme.ink2, align: "right", baseline: "top" });
}

interface LeftOptions {
  grid?: boolean;
  format?: (tick: Tick) => string;
  /** integer ticks only */
  whole?: boolean;
}

export function leftAxis(pen: Pen, box: Box, scale: Scale, theme: Theme, options: LeftOptions = {}): void {
  const { grid = true, format = (tick: Tick) => tick.label, whole = false } = options;
  for (const tick of scale.ticks(room(box.height, 34))) {
    if (whole && !Number.isInteger(tick.value)) continue;
    const y = scale(tick.value);
    if (y < box.y - 1 || y > box.y + box.height + 1) continue;
    if (grid) line(pen, box.x, crisp(y), box.x + box.width, crisp(y), { stroke: theme.grid });
    pen.text(box.x - 6, y, format(tick), { fill: theme.ink2, align: "right", baseline: "middle", maxWidth: box.x - 4 });
  }
}

/** Text in the middle of an empty picture. */
export function message(pen: Pen, width: number, height: number, text: string, theme: Theme): void {
  pen.text(width / 2, height / 2, text, {
    fill: theme.ink2,
    align: "center",
    baseline: "middle",
    maxWidth: width - 24,
    size: 12,
  });
}
