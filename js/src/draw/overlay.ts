/** Draws curves of many runs over each other, each with a band around it. */

import type { Envelope } from "../data/run-curves";
import { defined } from "../lib/defined";
import { log } from "../lib/log-scale";
import { linear, type Scale } from "../lib/scale";
import { type Box, bottomAxis, leftAxis, message } from "./axes";
import { drawNotFinite } from "./not-finite";
import { line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

export interface OverlayLine extends Envelope {
  colour: string;
  dash?: readonly number[];
  /** first step that is not finite */
  notFinite: number;
}

export interface OverlayLayout {
  box: Box;
  x: Scale;
  y: Scale;
}

export function layoutOverlay(lines: readonly OverlayLine[], size: Size, logY: boolean): OverlayLayout | undefined {
  let [x0, y0] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  let [x1, y1] = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const each of lines)
    each.x.forEach((x, i) => {
      x0 = Math.min(x0, x);
      x1 = Math.max(x1, x);
      for (const value of [defined(each.lo[i]), defined(each.hi[i])]) {
        if (!Number.isFinite(value) || (logY && value <= 0)) continue;
        y0 = Math.min(y0, value);
        y1 = Math.max(y1, value);
      }
    });
  if (x0 > x1 || y0 > y1) return undefined;
  const box = { x: 52, y: 8, width: Math.max(20, size.width - 60), height: Math.max(16, size.height - 34) };
  const up: [number, number] = [box.y + box.height, box.y];
  const room = (y1 - y0) * 0.05;
  return {
    box,
    x: linear(x0, x1, [box.x, box.x + box.width]),
    y: logY ? log(y0 / 1.1, y1 * 1.1, up) : linear(y0 - room, y1 + room, up),
  };
}

export function drawOverlay(
  pen: Pen,
  size: Size,
  theme: Theme,
  lines: readonly OverlayLine[],
  options: { logY: boolean; at: number; empty: string },
): void {
  const layout = layoutOverlay(lines, size, options.logY);
  if (!layout) return message(pen, size.width, size.height, options.empty, theme);
  const { box, x, y } = layout;
  leftAxis(pen, box, y, theme);
  pen.clip(box.x, box.y - 3, box.width + 1, box.height + 6, () => {
    const floor = y.domain[0];
    const height = (value: number) => y(options.logY ? Math.max(value, floor) : value);
    for (const each of lines)
      for (const band of bands(each, x, height)) pen.path(band, { fill: each.colour, opacity: 0.16 }, true);
    for (const each of lines) {
      const points = each.x.flatMap((step, i) => [x(step), height(defined(each.mid[i]))]);
      pen.path(points, { stroke: each.colour, width: 1.6, dash: each.dash ?? [] });
      // A value between two gaps has no line.
      each.mid.forEach((value, i) => {
        const lone = !Number.isFinite(each.mid[i - 1] ?? Number.NaN) && !Number.isFinite(each.mid[i + 1] ?? Number.NaN);
        if (lone && Number.isFinite(value))
          pen.rect(x(defined(each.x[i])) - 2, height(value) - 2, 4, 4, { fill: each.colour });
      });
    }
  });
  const bad = lines.filter((each) => Number.isFinite(each.notFinite));
  drawNotFinite(
    pen,
    bad.map((each) => ({
      kind: "nan" as const,
      first: each.notFinite,
      last: Math.max(each.notFinite, x.domain[1]),
      open: true,
    })),
    box,
    x,
    theme,
  );
  if (Number.isFinite(options.at))
    line(pen, x(options.at), box.y, x(options.at), box.y + box.height, { stroke: theme.ink2 });
  bottomAxis(pen, box, x, theme, "step");
}

/** Outlines of the parts without a gap. */
function bands({ x, lo, hi }: Envelope, px: Scale, py: (value: number) => number): number[][] {
  const out: number[][] = [];
  let from = 0;
  for (let i = 0; i <= x.length; i++) {
    if (i < x.length && Number.isFinite(lo[i])) continue;
    if (i - from > 1) {
      const points: number[] = [];
      for (let k = from; k < i; k++) points.push(px(defined(x[k])), py(defined(hi[k])));
      for (let k = i - 1; k >= from; k--) points.push(px(defined(x[k])), py(defined(lo[k])));
      out.push(points);
    }
    from = i + 1;
  }
  return out;
}
