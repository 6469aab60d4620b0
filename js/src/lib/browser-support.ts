/** What the widgets ask of a browser. One that lacks it is told so, in the place where the widget would be. */
import { h } from "./dom";

const NEEDED: Record<string, () => boolean> = {
  "Array.prototype.findLast": () => "findLast" in Array.prototype,
  "Object.hasOwn": () => "hasOwn" in Object,
  ResizeObserver: () => "ResizeObserver" in globalThis,
  IntersectionObserver: () => "IntersectionObserver" in globalThis,
  "drawing on a canvas": () => "CanvasRenderingContext2D" in globalThis,
};

/** What this browser lacks. */
export function missingFeatures(): string[] {
  return Object.keys(NEEDED).filter((name) => !NEEDED[name]?.());
}

/** Says in the widget's place what is missing, and what to do. */
export function showUnsupported(el: HTMLElement, missing: readonly string[]): void {
  const text =
    `This browser is too old for the widget: it lacks ${missing.join(", ")}. ` +
    "OpenRequest the page in Chrome or Edge 111, Firefox 115, Safari 16.4, or newer.";
  while (el.firstChild) el.firstChild.remove();
  el.appendChild(h("p", { class: "smdw-empty", role: "alert" }, text));
}
