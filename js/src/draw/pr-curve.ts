/** Draws precision over recall. */

import type { PrCurve } from "../data/pr-curve";
import { defined } from "../lib/defined";
import { linear, type Scale } from "../lib/scale";
import { type Box, bottomAxis, leftAxis, message } from "./axes";
import type { Pen, Size } from "./pen";
import type { Theme } from "./theme";

export interface PrPicture {
  curve: PrCurve | undefined;
  /** index of the threshold that is read; -1: none */
  hover: number;
  colour: string;
  emptyMessage: string;
}

export function layoutPr(size: Size): { box: Box; x: Scale; y: Scale } {
  const height = Math.max(16, size.height - 34);
  // Nearly square, as both axes have the same range.
  const box = { x: 40, y: 8, width: Math.max(20, Math.min(size.width - 54, 2.2 * height)), height };
  return {
    box,
    x: linear(0, 1, [box.x, box.x + box.width]),
    y: linear(0, 1, [box.y + box.height, box.y]),
  };
}

export function drawPr(pen: Pen, size: Size, theme: Theme, picture: PrPicture): void {
  const { curve, colour } = picture;
  if (!curve) return message(pen, size.width, size.height, picture.emptyMessage, theme);
  const { box, x, y } = layoutPr(size);
  pen.cached([curve, colour], (paper) => {
    leftAxis(paper, box, y, theme);
    bottomAxis(paper, box, x, theme, "recall");
    const points = Array.from(curve.recall, (recall, i) => [x(recall), y(defined(curve.precision[i]))]);
    const bottom = y(0);
    const [first, last] = [points[0]?.[0] ?? box.x, points.at(-1)?.[0] ?? box.x];
    paper.path([...points.flat(), last, bottom, first, bottom], { fill: colour, opacity: 0.1 }, true);
    paper.path(points.flat(), { stroke: colour, width: 1.75 });
    paper.text(box.x + 6, box.y + box.height - 10, "precision", { fill: theme.ink2, baseline: "middle" });
  });
  const i = picture.hover;
  if (i < 0) return;
  const [px, py] = [x(defined(curve.recall[i])), y(defined(curve.precision[i]))];
  pen.path([px, box.y, px, box.y + box.height], { stroke: theme.ink2, dash: [2, 3] });
  pen.path([box.x, py, box.x + box.width, py], { stroke: theme.ink2, dash: [2, 3] });
  pen.rect(px - 4.5, py - 4.5, 9, 9, { fill: theme.surface });
  pen.rect(px - 3, py - 3, 6, 6, { fill: colour });
}
