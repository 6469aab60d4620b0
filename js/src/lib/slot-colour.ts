/** The fixed colours of runs, and of the two values that are compared. */
import { series } from "./colour";

/** Whatever knows the number of a run's colour. */
export interface RunColours {
  colourOf(run: number): number;
}

export const runColour = (runs: RunColours, run: number, dark: boolean): string => series(runs.colourOf(run), dark);

/** Colours of A and B: those of their runs if the runs differ, else blue and orange. */
export function slotColours(
  a: { run: number } | undefined,
  b: { run: number } | undefined,
  runs: RunColours,
  dark: boolean,
): [string, string] {
  const own: [string, string] = [series(0, dark), series(1, dark)];
  if (!a || !b || a.run === b.run) return own;
  const [first, second] = [runColour(runs, a.run, dark), runColour(runs, b.run, dark)];
  // There are fewer colours than runs.
  return first === second ? own : [first, second];
}
