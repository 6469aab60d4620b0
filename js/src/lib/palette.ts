/** Colour maps as tables of 256 colours, readable with colour vision deficiency. */
import { COLOUR_MAPS } from "./colour-maps";
import { defined } from "./defined";

export type Table = Uint8Array; // 256 * 3

/** Choices in menu order. */
export const PALETTES = ["auto", "viridis", "magma", "cividis", "grey", "blue-red", "purple-green"] as const;

const isDiverging = (name: string) => name === "blue-red" || name === "purple-green";

/** Resolves "auto" for values from `lo` to `hi`. */
export function choose(name: string, lo: number, hi: number): string {
  if (name !== "auto") return COLOUR_MAPS[name] ? name : "viridis";
  return lo < 0 && hi > 0 ? "blue-red" : "viridis";
}

/** Range of the colour scale. A diverging colour map is centred at zero. */
export function colourDomain(name: string, lo: number, hi: number): [number, number] {
  if (!Number.isFinite(lo) || !Number.isFinite(hi)) return [0, 1];
  if (!isDiverging(name)) return lo === hi ? [lo - 0.5, hi + 0.5] : [lo, hi];
  const end = Math.max(Math.abs(lo), Math.abs(hi)) || 1;
  return [-end, end];
}

/** `middle`: the middle colour of a diverging colour map, such as that of the surface. */
export function table(name: string, dark: boolean, middle?: string): Table {
  const stops = ((dark && COLOUR_MAPS[`${name} dark`]) || COLOUR_MAPS[name] || COLOUR_MAPS.viridis || "")
    .split(" ")
    .map((hex) => Number.parseInt(hex, 16));
  if (middle && isDiverging(name)) stops[stops.length >> 1] = Number.parseInt(middle, 16);
  const out = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const t = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(t), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      const shift = 16 - 8 * c;
      const a = (defined(stops[k]) >> shift) & 255;
      const b = (defined(stops[k + 1]) >> shift) & 255;
      out[3 * i + c] = Math.round(a + (b - a) * (t - k));
    }
  }
  return out;
}
