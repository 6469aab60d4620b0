/** A theme with known colours, for tests of drawing. */
import type { Theme } from "../src/draw/theme";

export const theme: Theme = {
  dark: false,
  forced: false,
  contrast: false,
  ink: "#000",
  ink2: "#555",
  rule: "#bbb",
  grid: "#eee",
  surface: "#fff",
  accent: "#06c",
  error: "#c00",
  warn: "#a60",
  incident: "#62c",
  font: "sans-serif",
  mono: "monospace",
};
