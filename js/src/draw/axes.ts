/** Axes and grids. */
import type { Scale, Tick } from "../lib/scale";
import { crisp, line, type Pen } from "./pen";
import type { Theme } from "./theme";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

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

type Outline = "bars" | "plane" | "lines";

/** Writes why there is no picture. Without a text, the picture is on its way: draws a quiet outline of one. */
export function message(
  pen: Pen,
  width: number,
  height: number,
  text: string,
  theme: Theme,
  outline: Outline = "lines",
): void {
  if (!text) return drawOutline(pen, width, height, theme, outline);
  pen.text(width / 2, height / 2, text, {
    fill: theme.ink2,
    align: "center",
    baseline: "middle",
    maxWidth: width - 24,
    size: 12,
  });
}

/** Heights of the bars of an outline, as shares. */
const BARS = [0.1, 0.22, 0.4, 0.62, 0.84, 1, 0.92, 0.7, 0.46, 0.28, 0.14, 0.06];

function drawOutline(pen: Pen, width: number, height: number, theme: Theme, outline: Outline): void {
  const [left, right, top, bottom] = [44, width - 12, 16, height - 28];
  const [wide, high] = [right - left, bottom - top];
  if (wide < 40 || high < 24) return;
  const fill = { fill: theme.grid };
  if (outline === "plane") pen.rect(left, top, wide, high, fill);
  else if (outline === "lines")
    for (const share of [0.2, 0.5, 0.8]) pen.rect(left, top + share * high - 4, wide, 8, fill);
  else {
    const each = wide / BARS.length;
    BARS.forEach((share, i) => {
      pen.rect(left + i * each + 2, bottom - share * high, each - 4, share * high, fill);
    });
    pen.rect(left, bottom, wide, 1, { fill: theme.rule });
  }
}
