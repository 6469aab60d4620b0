/** Colour maps as tables of 256 colours, readable with colour vision deficiency. */

export type Table = Uint8Array; // 256 * 3

const STOPS: Record<string, string> = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  magma: "000004 180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf",
  cividis: "00204d 00336f 39486b 575c6d 707173 8a8779 a69d75 c4b56c e4cf5b ffea46",
  grey: "101010 f4f4f4",
  "blue-red": "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f",
  "purple-green": "40004b 762a83 9970ab c2a5cf e7d4e8 f7f7f7 d9f0d3 a6dba0 5aae61 1b7837 00441b",
  // On a dark page the centre of a diverging colour map is dark.
  "blue-red dark": "b5dcff 64b0f0 3580c8 275587 203348 1a1c20 44271d 7c3c20 bb592c ec8349 ffc49b",
  "purple-green dark": "e5c6ee b78bc6 8a58a0 5c3670 35213f 1a1c20 1b3322 235435 338351 5fb578 b3e6ba",
  density: "ffffff d6e6f4 abcfe6 6fb0d7 3b8bc2 1764ab 08306b",
  "density dark": "14171b 17324f 1c4f7f 2a74ad 4f9ed0 93c9ea e9f6ff",
};

/** Choices in menu order. */
export const PALETTES = ["auto", "viridis", "magma", "cividis", "grey", "blue-red", "purple-green"] as const;

const isDiverging = (name: string) => name === "blue-red" || name === "purple-green";

/** Resolves "auto" for values from `lo` to `hi`. */
export function choose(name: string, lo: number, hi: number): string {
  if (name !== "auto") return STOPS[name] ? name : "viridis";
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
  const stops = ((dark && STOPS[`${name} dark`]) || STOPS[name] || STOPS.viridis || "")
    .split(" ")
    .map((hex) => Number.parseInt(hex, 16));
  if (middle && isDiverging(name)) stops[stops.length >> 1] = Number.parseInt(middle, 16);
  const out = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const t = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(t), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      const shift = 16 - 8 * c;
      const a = ((stops[k] as number) >> shift) & 255;
      const b = ((stops[k + 1] as number) >> shift) & 255;
      out[3 * i + c] = Math.round(a + (b - a) * (t - k));
    }
  }
  return out;
}

/**
 * Colours of NaN and infinities, distinct from every colour map: violet, orange, blue. The violet is far from blue and
 * red for all kinds of colour vision.
 */
export type NotFinite = "nan" | "posInf" | "negInf";
export const NOT_FINITE: Record<NotFinite, [number, number, number]> = {
  nan: [150, 0, 255],
  posInf: [255, 140, 0],
  negInf: [0, 160, 255],
};

/** Colours of runs, workers and statistics (Okabe and Ito's, brighter on dark pages). */
export function series(i: number, dark: boolean): string {
  const list = dark
    ? ["#6cb8f0", "#f0a04b", "#3fc79a", "#e08fc0", "#f2d04b", "#a8b4ff", "#c9c9c9"]
    : ["#0072b2", "#c8540a", "#00795a", "#a8477f", "#8f6a00", "#4a57b8", "#555555"];
  return list[i % list.length] as string;
}

/** Colour of a mode by its number (1 TRAIN, 2 EVAL, 3 PREDICT, 4 GLOBAL). */
export function modeColour(mode: number, dark: boolean): string {
  if (mode === 4 || mode === 0) return dark ? "#a3a8ae" : "#6b7178";
  return series(mode - 1, dark);
}
