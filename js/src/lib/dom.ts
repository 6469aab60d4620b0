/** Creates DOM elements. Text is only assigned to `textContent`, so that names from a run cannot inject markup. */

import { escapeInvisible } from "./escape-text";
import { Memo } from "./memo";

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined>;

/** `h("button", { class: "smdw-button", "aria-label": "play" }, "Play")`. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const el = document.createElement(tag);
  setAttributes(el, attributes);
  for (const child of children) if (child) el.append(typeof child === "string" ? escapeInvisible(child) : child);
  return el;
}

export function setAttributes(el: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) el.removeAttribute(name);
    else {
      // Escape only text that people read, not an option's value.
      const escaped = name === "title" || name.startsWith("aria-") ? escapeInvisible(String(value)) : String(value);
      if (el.getAttribute(name) !== escaped) el.setAttribute(name, escaped);
    }
  }
}

/** Sets the text only if it differs, so that screen readers and selections are not disturbed. */
export function setText(el: Element, value: string): void {
  const escaped = escapeInvisible(value);
  if (el.textContent !== escaped) el.textContent = escaped;
}

/** Gives the element the width of its widest text, so that its neighbours do not move when the text changes. */
export function reserveWidth(el: HTMLElement, texts: readonly string[]): void {
  el.classList.add("smdw-steady");
  setAttributes(el, { "data-widest": texts.join("\n") });
}

export function setVisible(el: HTMLElement, shown: boolean): void {
  if (el.hidden === shown) el.hidden = !shown;
}

const SVG = "http://www.w3.org/2000/svg";

/** A 16-pixel icon from path data. */
export function icon(d: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true", class: "smdw-icon" });
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  svg.append(path);
  return svg;
}

export const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  stop: "M3.5 3.5h9v9h-9z",
  more: "M2 7h2.4v2.4H2zM6.8 7h2.4v2.4H6.8zM11.6 7H14v2.4h-2.4z",
  previous: "M10.500 2.500v11L3.500 8z",
  next: "M5.500 2.500v11l7-5.500z",
  plus: "M7 3h2v4h4v2H9v4H7V9H3V7h4z",
  minus: "M3 7h10v2H3z",
  fit: "M2 2h5v1.6H3.6V7H2zM9 2h5v5h-1.6V3.6H9zM2 9h1.6v3.4H7V14H2zM12.4 9H14v5H9v-1.6h3.4z",
  rerun:
    "M8 3a5 5 0 1 0 4.9 6h-1.7A3.4 3.4 0 1 1 8 4.6c.9 0 1.7.4 2.3 1L8.5 7.400H13V2.900l-1.500 1.500A5 5 0 0 0 8 3z",
  full: "M2 2h5v1.6H4.700l2.600 2.600-1.100 1.100L3.600 4.700V7H2zM14 14H9v-1.600h2.300L8.700 9.800l1.100-1.100 2.600 2.600V9H14z",
  swap: "M10 2.500l3.500 3L10 8.500V6.400H3V4.600h7zM6 7.500v2.100h7v1.800H6v2.100L2.500 10.500z",
  close: "M4.100 3L8 6.900 11.900 3 13 4.100 9.100 8 13 11.900 11.900 13 8 9.100 4.100 13 3 11.900 6.900 8 3 4.100z",
} as const;

export function iconButton(
  name: keyof typeof ICONS,
  label: string,
  onClick: () => void,
  signal: AbortSignal,
): HTMLButtonElement {
  const button = h(
    "button",
    { type: "button", class: "smdw-button smdw-icon-button", "aria-label": label, title: label },
    icon(ICONS[name]),
  );
  button.addEventListener("click", onClick, { signal });
  return button;
}

export function textButton(label: string, onClick: () => void, signal: AbortSignal): HTMLButtonElement {
  const button = h("button", { type: "button", class: "smdw-button" }, label);
  button.addEventListener("click", onClick, { signal });
  return button;
}

/** A native select element. */
export class Select {
  readonly el: HTMLSelectElement;
  readonly #options = new Memo();
  constructor(label: string, onChange: (value: string) => void, signal: AbortSignal) {
    this.el = h("select", { class: "smdw-select", "aria-label": label, title: label });
    this.el.addEventListener("change", () => onChange(this.el.value), { signal });
  }
  update(options: readonly (readonly [value: string, label: string])[], value: string): void {
    if (this.#options.changed(options))
      this.el.replaceChildren(...options.map(([v, label]) => h("option", { value: v }, clip(label))));
    if (this.el.value !== value) this.el.value = value;
  }
}
const clip = (label: string) => (label.length > 60 ? `${label.slice(0, 28)}\u2026${label.slice(-28)}` : label);

/** Buttons of which exactly one is pressed. */
export class Segments<T extends string> {
  readonly el: HTMLElement;
  readonly #buttons = new Map<T, HTMLButtonElement>();
  constructor(
    label: string,
    options: readonly (readonly [T, string])[],
    onChange: (value: T) => void,
    signal: AbortSignal,
  ) {
    this.el = h("div", { class: "smdw-segments", role: "group", "aria-label": label });
    for (const [value, name] of options) {
      const button = textButton(name, () => onChange(value), signal);
      this.#buttons.set(value, button);
      this.el.append(button);
    }
  }
  update(value: T): void {
    for (const [each, button] of this.#buttons) setAttributes(button, { "aria-pressed": String(each === value) });
  }
}

/** A toggle button. */
export class Toggle {
  readonly el: HTMLButtonElement;
  constructor(label: string, onChange: (on: boolean) => void, signal: AbortSignal) {
    this.el = h("button", { type: "button", class: "smdw-button smdw-toggle", "aria-pressed": "false" }, label);
    this.el.addEventListener("click", () => onChange(this.el.getAttribute("aria-pressed") !== "true"), { signal });
  }
  update(on: boolean): void {
    setAttributes(this.el, { "aria-pressed": String(on) });
  }
}

/** A labelled control in a panel's menu. */
export function field(label: string, control: HTMLElement): HTMLElement {
  return h("label", { class: "smdw-field" }, h("span", {}, label), control);
}

/** The element with the focus in the same document or shadow tree. */
export const focusedNear = (el: Element): Element | null => (el.getRootNode() as Document | ShadowRoot).activeElement;

/** Calls a function after each change of an element's size. */
export function onResize(el: Element, resized: () => void, signal: AbortSignal): void {
  const observer = new ResizeObserver(resized);
  observer.observe(el);
  signal.addEventListener("abort", () => observer.disconnect());
}

/** Sends the following events of a pointer to an element, also when it leaves the element. */
export function capturePointer(el: Element, { pointerId }: PointerEvent): void {
  try {
    el.setPointerCapture(pointerId);
  } catch {
    // the pointer was released meanwhile
  }
}
