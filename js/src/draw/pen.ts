/** The drawing interface. The same drawing code writes to a canvas (screen, PNG) and to SVG text. */
import { defined } from "../lib/defined";
import { escapeInvisible } from "../lib/escape-text";
import type { Theme } from "./theme";

export interface Size {
  width: number;
  height: number;
}
export interface PaintStyle {
  fill?: string;
  stroke?: string;
  width?: number;
  dash?: readonly number[];
  opacity?: number;
}
export interface TextStyle {
  fill: string;
  size?: number;
  align?: "left" | "center" | "right";
  baseline?: "top" | "middle" | "bottom" | "alphabetic";
  mono?: boolean;
  bold?: boolean;
  /** truncate to this many pixels */
  maxWidth?: number;
}
/** RGBA pixels. */
export interface Pixels {
  data: Uint8ClampedArray<ArrayBuffer>;
  width: number;
  height: number;
}

export interface Pen {
  rect(x: number, y: number, width: number, height: number, style: PaintStyle): void;
  /** Points as x0, y0, x1, y1, …; NaN starts a new subpath. */
  path(points: ArrayLike<number>, style: PaintStyle, close?: boolean): void;
  text(x: number, y: number, text: string, style: TextStyle): void;
  /** Stretches pixels over a rectangle without blurring single cells. */
  image(pixels: Pixels, x: number, y: number, width: number, height: number): void;
  clip(x: number, y: number, width: number, height: number, draw: () => void): void;
  /**
   * Draws a part that does not depend on the step. A canvas redraws it only when an item of `keys` (compared by
   * identity), the size or the theme changes.
   */
  cached(keys: readonly unknown[], draw: (pen: Pen) => void): void;
  measure(text: string, style: TextStyle): number;
}

export type Drawing = (pen: Pen, size: Size, theme: Theme) => void;

/** Centres a 1-pixel line on a pixel. */
export const crisp = (v: number) => Math.round(v) + 0.5;

export const line = (pen: Pen, x1: number, y1: number, x2: number, y2: number, style: PaintStyle) =>
  pen.path([x1, y1, x2, y2], style);

function font(theme: Theme, style: TextStyle): string {
  return `${style.bold ? "600 " : ""}${style.size ?? 11}px ${style.mono ? theme.mono : theme.font}`;
}

const MOST_WIDTHS = 500;

/** A cached part of a canvas drawing. */
interface CachedLayer {
  inputs: readonly unknown[];
  canvas: HTMLCanvasElement;
  pen: CanvasPen;
}

export class CanvasPen implements Pen {
  /** by order in the drawing */
  readonly #layers: CachedLayer[] = [];
  #layerIndex = 0;
  #ratio = 1;
  #size: Size = { width: 0, height: 0 };
  #scratch: HTMLCanvasElement | undefined;
  #last: Pixels | undefined;
  /** the font set on the canvas; setting it is slow */
  #font = "";
  /** of texts; measuring is slow, and axes have the same labels in most frames */
  readonly #widths = new Map<string, number>();
  #theme: Theme | undefined;
  constructor(private readonly c: CanvasRenderingContext2D) {}

  /** Starts a new picture of the given size. */
  begin(width: number, height: number, ratio: number, theme: Theme): void {
    const { canvas } = this.c;
    const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== hgt) {
      canvas.width = w;
      canvas.height = hgt;
      this.#font = "";
    }
    this.#theme = theme;
    this.#layerIndex = 0;
    this.#size = { width, height };
    this.#ratio = ratio;
    this.c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.c.clearRect(0, 0, width, height);
  }

  #paint(style: PaintStyle, draw: (fill: boolean) => void) {
    const { c } = this;
    c.globalAlpha = style.opacity ?? 1;
    if (style.fill) {
      c.fillStyle = style.fill;
      draw(true);
    }
    if (style.stroke) {
      c.strokeStyle = style.stroke;
      c.lineWidth = style.width ?? 1;
      c.setLineDash(style.dash ? [...style.dash] : []);
      draw(false);
    }
    c.globalAlpha = 1;
  }

  rect(x: number, y: number, width: number, height: number, style: PaintStyle): void {
    this.#paint(style, (fill) =>
      fill ? this.c.fillRect(x, y, width, height) : this.c.strokeRect(x, y, width, height),
    );
  }

  path(points: ArrayLike<number>, style: PaintStyle, close = false): void {
    const { c } = this;
    c.beginPath();
    let down = false;
    for (let i = 0; i + 1 < points.length; i += 2) {
      const x = defined(points[i]);
      const y = defined(points[i + 1]);
      if (Number.isNaN(x) || Number.isNaN(y)) down = false;
      else if (down) c.lineTo(x, y);
      else {
        c.moveTo(x, y);
        down = true;
      }
    }
    if (close) c.closePath();
    c.lineJoin = "round";
    this.#paint(style, (fill) => (fill ? c.fill() : c.stroke()));
  }

  text(x: number, y: number, text: string, style: TextStyle): void {
    const { c } = this;
    this.#setFont(style);
    c.fillStyle = style.fill;
    c.textAlign = style.align ?? "left";
    c.textBaseline = style.baseline ?? "alphabetic";
    c.fillText(
      truncateToWidth(text, style.maxWidth, (part) => c.measureText(part).width),
      x,
      y,
    );
  }

  image(pixels: Pixels, x: number, y: number, width: number, height: number): void {
    this.#scratch ??= document.createElement("canvas");
    const scratch = this.#scratch;
    if (scratch.width !== pixels.width || scratch.height !== pixels.height) {
      scratch.width = pixels.width;
      scratch.height = pixels.height;
      this.#last = undefined;
    }
    if (this.#last !== pixels) {
      scratch.getContext("2d")?.putImageData(new ImageData(pixels.data, pixels.width, pixels.height), 0, 0);
      this.#last = pixels;
    }
    // Blend only when several values fall on one pixel.
    this.c.imageSmoothingEnabled = pixels.width > width * 1.5 || pixels.height > height * 1.5;
    this.c.drawImage(scratch, x, y, width, height);
  }

  clip(x: number, y: number, width: number, height: number, draw: () => void): void {
    this.c.save();
    this.c.beginPath();
    this.c.rect(x, y, width, height);
    this.c.clip();
    const font = this.#font;
    draw();
    this.c.restore();
    this.#font = font;
  }

  cached(keys: readonly unknown[], draw: (pen: Pen) => void): void {
    const at = this.#layerIndex++;
    const { width, height } = this.#size;
    const inputs = [...keys, width, height, this.#ratio, this.#theme];
    let layer = this.#layers[at];
    if (!layer || layer.inputs.length !== inputs.length || layer.inputs.some((each, i) => each !== inputs[i])) {
      const canvas = layer?.canvas ?? document.createElement("canvas");
      const context = canvas.getContext("2d");
      if (!context) return draw(this);
      layer = { inputs, canvas, pen: layer?.pen ?? new CanvasPen(context) };
      this.#layers[at] = layer;
      layer.pen.begin(width, height, this.#ratio, this.#theme as Theme);
      draw(layer.pen);
    }
    this.c.save();
    this.c.setTransform(1, 0, 0, 1, 0, 0);
    this.c.drawImage(layer.canvas, 0, 0);
    this.c.restore();
  }

  #setFont(style: TextStyle) {
    const wanted = font(this.#theme as Theme, style);
    if (wanted === this.#font) return;
    this.#font = wanted;
    this.c.font = wanted;
  }

  measure(text: string, style: TextStyle): number {
    const key = `${font(this.#theme as Theme, style)} ${text}`;
    let width = this.#widths.get(key);
    if (width === undefined) {
      this.#setFont(style);
      width = this.c.measureText(text).width;
      if (this.#widths.size === MOST_WIDTHS) this.#widths.clear();
      this.#widths.set(key, width);
    }
    return width;
  }
}

export function truncateToWidth(
  given: string,
  maxWidth: number | undefined,
  measure: (text: string) => number,
): string {
  const text = escapeInvisible(given.slice(0, 200));
  if (maxWidth === undefined || measure(text.slice(0, 200)) <= maxWidth) return text.slice(0, 200);
  let lo = 0;
  let hi = Math.min(text.length, 200);
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (measure(`${text.slice(0, mid)}\u2026`) <= maxWidth) lo = mid;
    else hi = mid - 1;
  }
  return lo ? `${text.slice(0, lo)}\u2026` : "";
}
