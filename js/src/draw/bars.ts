/** Draws counts as bars without axes. */
import { defined } from "../lib/defined";
import type { Box } from "./axes";
import type { Pen } from "./pen";
import type { Theme } from "./theme";

export type Column = ArrayLike<number>;

export function drawBars(pen: Pen, theme: Theme, counts: Column, box: Box): void {
  let top = 1;
  for (let i = 0; i < counts.length; i++) top = Math.max(top, defined(counts[i]));
  const points = [box.x, box.y + box.height];
  const width = box.width / counts.length;
  for (let i = 0; i < counts.length; i++) {
    const y = box.y + box.height * (1 - defined(counts[i]) / top);
    points.push(box.x + i * width, y, box.x + (i + 1) * width, y);
  }
  points.push(box.x + box.width, box.y + box.height);
  pen.path(points, { fill: theme.accent, opacity: 0.75 }, true);
  pen.rect(box.x, box.y + box.height, box.width, 1, { fill: theme.grid });
}
