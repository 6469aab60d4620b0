/** Colours of values that are not finite, of series and of modes. */
import { NOT_FINITE_COLOURS } from "./colour-maps";

/**
 * Colours of NaN and infinities, distinct from every colour map: violet, orange, blue. The violet is far from blue and
 * red for all kinds of colour vision.
 */
export type NotFinite = keyof typeof NOT_FINITE_COLOURS;
const rgbOf = (hex: string): [number, number, number] => {
  const value = Number.parseInt(hex, 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
};
export const NOT_FINITE: Record<NotFinite, [number, number, number]> = {
  nan: rgbOf(NOT_FINITE_COLOURS.nan),
  posInf: rgbOf(NOT_FINITE_COLOURS.posInf),
  negInf: rgbOf(NOT_FINITE_COLOURS.negInf),
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
