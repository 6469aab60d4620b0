/** Colours of the Run Map's cells. */

import { defined } from "./defined";
import { type Table, table } from "./palette";

/** "diverging": the middle is the usual value; the others rise. */
export type MapScale = "diverging" | "size" | "share";

/** Of m values merged, one of them is expected to be this far from the usual one by chance in a hundredth of the cells. */
export const chance = (m: number): number => Math.sqrt(2 * Math.log(100 * Math.max(1, m)));
/** From here on a surprise has the strongest colour. */
export const STRONGEST = 12;

export interface MapPalette {
  scale: MapScale;
  table: Table;
  /** five steps of lightness for pages with forced colours */
  steps: boolean;
}

export function mapPalette(scale: MapScale, dark: boolean, forced?: readonly [Rgb, Rgb]): MapPalette {
  const names = { diverging: "blue-red", size: "cividis", share: "density" } as const;
  if (!forced) return { scale, table: table(names[scale], dark), steps: false };
  return { scale, table: stepTable(scale, ...forced), steps: true };
}

export type Rgb = readonly [number, number, number];

/** Five steps from the page's colour to that of its text, outwards from the middle of a diverging scale. */
function stepTable(scale: MapScale, from: Rgb, to: Rgb): Table {
  const out = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const t = scale === "diverging" ? Math.abs(i - 127.5) / 127.5 : i / 255;
    const step = Math.min(4, Math.floor(t * 5)) / 4;
    for (let c = 0; c < 3; c++)
      out[3 * i + c] = Math.round(defined(from[c]) + (defined(to[c]) - defined(from[c])) * step);
  }
  return out;
}

/** How surprising: 0 what chance explains among `m` values, ±1 the strongest. */
export function surpriseStrength(surprise: number, m: number): number {
  const usual = Math.min(chance(m), STRONGEST - 1);
  const t = (Math.abs(surprise) - usual) / (STRONGEST - usual);
  return t <= 0 ? 0 : Math.sign(surprise) * Math.min(1, t);
}
