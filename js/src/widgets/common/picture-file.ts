/** A part of a widget as a picture file: what it shows, with a caption above. */
import { CanvasPen, type Drawing, type Pen, type Pixels, type Size } from "../../draw/pen";
import { SvgPen } from "../../draw/svg-pen";
import type { Theme } from "../../draw/theme";
import { h } from "../../lib/dom";
import { Figure } from "./figure";

export interface Caption {
  title: string;
  /** step, units, run */
  text: string;
  /** the colours of the picture, if its legend is not in the picture */
  scale?: { table: Uint8Array; low: string; high: string; nan: string } | undefined;
}

/** Drawings of figures, pixels of other canvases, boxes and texts, at their places in the picture. */
interface Place {
  x: number;
  y: number;
  size: Size;
}
interface Snapshot {
  size: Size;
  figures: (Place & { drawing: Drawing })[];
  images: (Place & { pixels: Pixels })[];
  marks: Drawing;
}

const HEAD = 44;
const MARGIN = 12;
const RATIO = 2;
/** Elements whose background is part of the picture. */
const BOXES = ".smdw-playhead, .smdw-thumb, .smdw-swatch, .smdw-map-nan, .smdw-map-fired";
/** Elements whose text is not. */
const CONTROLS =
  "button:not(.smdw-lane-label *, .smdw-lane-label), .smdw-lane-more, select, input, .smdw-popover, .smdw-sr, .smdw-menu, .smdw-corner, .smdw-state, [hidden]";

export function svgOf(el: HTMLElement, caption: Caption, theme: Theme): string {
  const { size, figures, images, marks } = snapshot(el);
  const pen = new SvgPen(size, theme, dataUrl);
  for (const { x, y, size: own, pixels } of images) pen.image(pixels, x, y, own.width, own.height);
  figures.forEach(({ x, y, size: own, drawing }, i) => {
    const inner = new SvgPen(own, theme, dataUrl, `f${i}c`);
    drawing(inner, own, theme);
    pen.nest(inner, x, y);
  });
  marks(pen, size, theme);
  drawCaption(pen, size, theme, caption);
  return pen.toString();
}

export async function pngOf(el: HTMLElement, caption: Caption, theme: Theme): Promise<Blob | undefined> {
  const { size, figures, images, marks } = snapshot(el);
  const canvas = h("canvas");
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  const pen = new CanvasPen(context);
  pen.begin(size.width, size.height, RATIO, theme);
  pen.rect(0, 0, size.width, size.height, { fill: theme.surface });
  for (const { x, y, size: own, pixels } of images) pen.image(pixels, x, y, own.width, own.height);
  for (const { x, y, size: own, drawing } of figures) {
    const inner = h("canvas");
    const part = inner.getContext("2d");
    if (!part) continue;
    const innerPen = new CanvasPen(part);
    innerPen.begin(own.width, own.height, RATIO, theme);
    drawing(innerPen, own, theme);
    context.drawImage(inner, x, y, own.width, own.height);
  }
  marks(pen, size, theme);
  drawCaption(pen, size, theme, caption);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(blob ?? undefined)));
}

function drawCaption(pen: Pen, { width }: Size, theme: Theme, { title, text, scale }: Caption) {
  const room = width - 2 * MARGIN;
  const legend = scale ? Math.min(260, room / 2) : 0;
  pen.text(MARGIN, 18, title, { fill: theme.ink, size: 13, bold: true, maxWidth: room - legend });
  pen.text(MARGIN, 35, text, { fill: theme.ink2, size: 11, maxWidth: room });
  if (!scale) return;
  const bar = 88;
  const quiet = { fill: theme.ink2, size: 11 } as const;
  let x = width - MARGIN - pen.measure("NaN", quiet);
  pen.text(x, 18, "NaN", quiet);
  x -= 14;
  pen.rect(x, 9, 10, 10, { fill: scale.nan });
  x -= 12 + pen.measure(scale.high, quiet);
  pen.text(x, 18, scale.high, quiet);
  x -= bar + 6;
  for (let i = 0; i < 22; i++) {
    const at = 3 * Math.round((i / 21) * 255);
    pen.rect(x + i * 4, 9, 4.3, 10, { fill: `rgb(${scale.table.slice(at, at + 3).join()})` });
  }
  pen.text(x - 6, 18, scale.low, { ...quiet, align: "right" });
}

/** Reads what an element shows. Hidden parts and controls are left out. */
function snapshot(el: HTMLElement): Snapshot {
  const root = el.getBoundingClientRect();
  const figures: Snapshot["figures"] = [];
  const images: Snapshot["images"] = [];
  const marks: ((pen: Pen) => void)[] = [];
  const placed = (rect: DOMRect): Place => ({
    x: rect.left - root.left,
    y: rect.top - root.top + HEAD,
    size: { width: rect.width, height: rect.height },
  });
  for (const canvas of el.querySelectorAll("canvas")) {
    const rect = canvas.getBoundingClientRect();
    if (!isVisible(canvas, el, rect)) continue;
    const drawing = Figure.of(canvas)?.drawing;
    if (drawing) figures.push({ ...placed(rect), drawing });
    else {
      const data = canvas.width && canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data;
      if (data) images.push({ ...placed(rect), pixels: { data, width: canvas.width, height: canvas.height } });
    }
  }
  for (const box of el.querySelectorAll<HTMLElement>(BOXES)) {
    const rect = box.getBoundingClientRect();
    if (!isVisible(box, el, rect)) continue;
    const fill = getComputedStyle(box).backgroundColor;
    const { x, y, size } = placed(rect);
    marks.push((pen) => pen.rect(x, y, size.width, size.height, { fill }));
  }
  const write = (text: string, parent: Element, rect: DOMRect) => {
    if (!isVisible(parent, el, rect)) return;
    const style = getComputedStyle(parent);
    const { x, y, size } = placed(rect);
    const maxWidth = Math.max(size.width, 8) + 2;
    const shown = Math.min(maxWidth, parent.getBoundingClientRect().right - rect.left + 2);
    marks.push((pen) =>
      pen.text(x, y + size.height / 2, text, {
        fill: style.color,
        size: Number.parseFloat(style.fontSize),
        bold: Number(style.fontWeight) >= 600,
        baseline: "middle",
        maxWidth: shown,
      }),
    );
  };
  const texts = document.createTreeWalker(el, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const parent = node.parentElement;
    const text = node.textContent?.trim();
    if (!parent || !text || parent.closest(CONTROLS)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    write(text, parent, range.getBoundingClientRect());
  }
  for (const choice of el.querySelectorAll<HTMLSelectElement>(".smdw-lane-label select"))
    write(choice.selectedOptions[0]?.textContent ?? "", choice, choice.getBoundingClientRect());
  const size = { width: root.width, height: root.height + HEAD };
  return {
    size,
    figures,
    images,
    marks: (pen) => {
      for (const mark of marks) mark(pen);
    },
  };
}

/** Whether the middle of an element's box is inside of all that cut it off. */
function isVisible(el: Element, root: Element, rect: DOMRect): boolean {
  if (rect.width < 1 || rect.height < 1 || getComputedStyle(el).visibility === "hidden") return false;
  const x = rect.left + Math.min(rect.width, 8) / 2;
  const y = rect.top + rect.height / 2;
  for (let at: Element | null = el.parentElement; at && root.contains(at); at = at.parentElement) {
    if (at !== root && getComputedStyle(at).overflow === "visible") continue;
    const box = at.getBoundingClientRect();
    if (x < box.left - 1 || x > box.right + 1 || y < box.top - 1 || y > box.bottom + 1) return false;
  }
  return true;
}

function dataUrl(pixels: Pixels): string {
  const canvas = h("canvas", { width: pixels.width, height: pixels.height });
  canvas.getContext("2d")?.putImageData(new ImageData(pixels.data, pixels.width, pixels.height), 0, 0);
  return canvas.toDataURL();
}
