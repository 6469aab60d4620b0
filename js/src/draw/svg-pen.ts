/** A pen that writes SVG. */

import { defined } from "../lib/defined";
import { type PaintStyle, type Pen, type Pixels, type Size, type TextStyle, truncateToWidth } from "./pen";
import type { Theme } from "./theme";

// Characters that XML does not allow. A tensor name may contain them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: matching them is the purpose
const NOT_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g;
const xml = (text: string) => text.replace(NOT_XML, "").replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const px = (n: number) => String(Math.round(n * 100) / 100);

/** Writes SVG text. `pixels` converts an image to a data URL. */
export class SvgPen implements Pen {
  readonly #out: string[] = [];
  #clips = 0;
  constructor(
    private readonly size: Size,
    private readonly theme: Theme,
    private readonly pixels: (pixels: Pixels) => string,
    /** of the ids in the text, which are unique in a file */
    private readonly prefix = "c",
  ) {}

  /** Places another picture in this one. */
  nest(inner: SvgPen, x: number, y: number): void {
    this.#out.push(inner.toString().replace("<svg ", `<svg x="${px(x)}" y="${px(y)}" `));
  }

  #attributes(style: PaintStyle): string {
    return [
      ` fill="${xml(style.fill ?? "none")}"`,
      style.stroke ? ` stroke="${xml(style.stroke)}" stroke-width="${style.width ?? 1}" stroke-linejoin="round"` : "",
      style.dash?.length ? ` stroke-dasharray="${style.dash.join(" ")}"` : "",
      style.opacity === undefined ? "" : ` opacity="${style.opacity}"`,
    ].join("");
  }

  rect(x: number, y: number, width: number, height: number, style: PaintStyle): void {
    this.#out.push(
      `<rect x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${px(height)}"${this.#attributes(style)}/>`,
    );
  }

  path(points: ArrayLike<number>, style: PaintStyle, close = false): void {
    let d = "";
    let down = false;
    for (let i = 0; i + 1 < points.length; i += 2) {
      const x = defined(points[i]);
      const y = defined(points[i + 1]);
      if (Number.isNaN(x) || Number.isNaN(y)) down = false;
      else {
        d += `${down ? "L" : "M"}${px(x)} ${px(y)}`;
        down = true;
      }
    }
    if (d) this.#out.push(`<path d="${d}${close ? "Z" : ""}"${this.#attributes(style)}/>`);
  }

  text(x: number, y: number, text: string, style: TextStyle): void {
    const anchor = { left: "start", center: "middle", right: "end" }[style.align ?? "left"];
    const size = style.size ?? 11;
    const shift = { top: 0.8, middle: 0.32, bottom: -0.2, alphabetic: 0 }[style.baseline ?? "alphabetic"] * size;
    const shown = truncateToWidth(text, style.maxWidth, (part) => this.measure(part, style));
    this.#out.push(
      `<text x="${px(x)}" y="${px(y + shift)}" text-anchor="${anchor}" font-size="${size}" font-family="${xml(style.mono ? this.theme.mono : this.theme.font)}"${style.bold ? ' font-weight="600"' : ""} fill="${xml(style.fill)}">${xml(shown)}</text>`,
    );
  }

  image(pixels: Pixels, x: number, y: number, width: number, height: number): void {
    this.#out.push(
      `<image x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${px(height)}" preserveAspectRatio="none" image-rendering="pixelated" href="${xml(this.pixels(pixels))}"/>`,
    );
  }

  clip(x: number, y: number, width: number, height: number, draw: () => void): void {
    const id = `${this.prefix}${this.#clips++}`;
    this.#out.push(
      `<clipPath id="${id}"><rect x="${px(x)}" y="${px(y)}" width="${px(width)}" height="${px(height)}"/></clipPath><g clip-path="url(#${id})">`,
    );
    draw();
    this.#out.push("</g>");
  }

  cached(_keys: readonly unknown[], draw: (pen: Pen) => void): void {
    draw(this);
  }

  measure(text: string, style: TextStyle): number {
    return text.length * (style.size ?? 11) * (style.mono ? 0.6 : 0.54);
  }

  toString(): string {
    const { width, height } = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${px(width)} ${px(height)}" width="${px(width)}" height="${px(height)}"><rect width="100%" height="100%" fill="${xml(this.theme.surface)}"/>${this.#out.join("")}</svg>`;
  }
}
