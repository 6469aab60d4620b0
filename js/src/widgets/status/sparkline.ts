/** A small picture of a few points. */
import { setAttributes } from "../../lib/dom";
import type { FindingCurve } from "../../protocol/types";

const [WIDTH, HEIGHT] = [96, 18];

/** Steps from left to right, values from bottom to top; a gap where a value is not finite. */
export function sparkline({ steps, values }: FindingCurve): SVGSVGElement {
  const finite = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const [from = 0, to = 0] = [steps[0], steps.at(-1)];
  const x = (step: number) => 1 + ((step - from) / (to - from || 1)) * (WIDTH - 2);
  const y = (value: number) => HEIGHT - 2 - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 4);
  let path = "";
  let isDrawing = false;
  steps.forEach((step, i) => {
    const value = values[i] ?? null;
    if (value !== null) path += `${isDrawing ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`;
    isDrawing = value !== null;
  });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  setAttributes(svg, { width: WIDTH, height: HEIGHT, "aria-hidden": "true", class: "smdw-sparkline" });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  setAttributes(line, { d: path });
  svg.append(line);
  return svg;
}
