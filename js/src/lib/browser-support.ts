/** Checks that the browser has the features the widgets need. */
import { h } from "./dom";

const NEEDED: Record<string, () => boolean> = {
  "Array.prototype.findLast": () => "findLast" in Array.prototype,
  "Object.hasOwn": () => "hasOwn" in Object,
  ResizeObserver: () => "ResizeObserver" in globalThis,
  IntersectionObserver: () => "IntersectionObserver" in globalThis,
  "canvas drawing": () => "CanvasRenderingContext2D" in globalThis,
};

/** Names of the missing features. */
export function missingFeatures(): string[] {
  return Object.keys(NEEDED).filter((name) => !NEEDED[name]?.());
}

/** Replaces the widget with a message that lists the missing features. */
export function showUnsupported(el: HTMLElement, missing: readonly string[]): void {
  const text =
    `Unsupported browser: missing ${missing.join(", ")}. ` +
    "Use Chrome or Edge 111, Firefox 115, Safari 16.4, or newer.";
  while (el.firstChild) el.firstChild.remove();
  el.appendChild(h("p", { class: "smdw-empty", role: "alert" }, text));
}
