/** A small picture of a few points of one or more series. */
import { setAttributes } from "../../lib/dom";
import type { FindingCurve } from "../../protocol/types";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [96, 18];

/** Steps from left to right, values from bottom to top; a gap where a value is not finite. All have the same scale. */
export function sparkline(...curves: readonly FindingCurve[]): SVGSVGElement {
  const finite = curves.flatMap(({ values }) => values.filter((value) => value !== null));
  const all = curves.flatMap(({ steps }) => steps);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const [from, to] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 0];
  const x = (step: number) => 1 + ((step - from) / (to - from || 1)) * (WIDTH - 2);
  const y = (value: number) => HEIGHT - 2 - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 4);
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, { width: WIDTH, height: HEIGHT, "aria-hidden": "true", class: "smdw-sparkline" });
  for (const { steps, values } of curves) {
    let path = "";
    let isDrawing = false;
    steps.forEach((step, i) => {
      const value = values[i] ?? null;
      if (value !== null) path += `${isDrawing ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`;
      isDrawing = value !== null;
    });
    const line = document.createElementNS(SVG, "path");
    setAttributes(line, { d: path });
    svg.append(line);
  }
  return svg;
}
