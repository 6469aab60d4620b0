/** The two values that are compared: A is the tensor in view, B that of the trait `compare`. */

import type { TensorView } from "../data/tensor-view";
import { equal } from "../lib/equal";
import type { Traits, View } from "../protocol/types";
import { isComparing } from "./comparison";
import type { Scene } from "./scene";

/** Half a period of blinking, in milliseconds: 1 Hz. */
export const BLINK_MS = 500;

export const reducedMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** What is shown now: A and B in turn while blinking, by the clock, so that all views of a widget are in step. */
export function shownView(traits: Traits, now = performance.now()): View {
  if (!isComparing(traits)) return "a";
  if (traits.view !== "blink") return traits.view;
  return !reducedMotion() && Math.floor(now / BLINK_MS) % 2 ? "b" : "a";
}

/** The scene of parts that show one value or both: `main` is what they show, `compared` what they show next to it. */
export function viewed(scene: Scene): Scene {
  const view = shownView(scene.traits);
  if (view === "a") return { ...scene, compared: undefined };
  if (view !== "b" || !scene.compared) return scene;
  const { run, tensor, worker } = scene.compared;
  return {
    ...scene,
    main: scene.compared,
    compared: undefined,
    traits: { ...scene.traits, run, tensor, worker },
  };
}

/** Why A − B is not possible; empty if it is, or if not all is known yet. */
export function differenceFault(a: TensorView | undefined, b: TensorView | undefined): string {
  if (!a || !b) return "";
  for (const [name, { frames, savedStep, statisticsOnly, frame }] of [
    ["A", a],
    ["B", b],
  ] as const) {
    const { plan } = frames;
    if (statisticsOnly) return `Not in this file: only statistics of ${name}`;
    if (!plan) continue;
    if (plan.form === "text") return `${name} is text, which cannot be subtracted`;
    if (plan.form === "histogram") return `${name} is a logged histogram, which has no cells`;
    if (Number.isNaN(savedStep)) return `${name} is not saved at this step or before it`;
    if (plan.reduced) return `Of ${name} only reductions were saved, no cells`;
    if (frame?.sampled) return `Of ${name} only a sample was kept at this step, no cells`;
    if (frame?.error) return `${name} cannot be read: ${frame.error.message}`;
  }
  const [first, second] = [a, b].map(({ frame, frames }) => frame?.shape ?? frames.plan?.shape);
  if (!first || !second || equal(first, second)) return "";
  const written = (shape: number[]) => shape.join(" \u00d7 ") || "one number";
  return `Different shapes, so cells cannot be subtracted: A is ${written(first)}, B ${written(second)}`;
}

/** The traits after A and B have changed places. */
export function swapped(scene: Scene): Partial<Traits> | undefined {
  const { main: a, compared: b } = scene;
  if (!a || !b || Number.isNaN(b.savedStep) || Number.isNaN(a.savedStep)) return undefined;
  return {
    run: b.run,
    tensor: b.tensor,
    worker: b.worker,
    step: b.savedStep,
    follow: false,
    compare: {
      ...(a.run === b.run ? {} : { run: a.run }),
      ...(a.tensor === b.tensor ? {} : { tensor: a.tensor }),
      ...(a.worker === b.worker ? {} : { worker: a.worker }),
      step: a.savedStep,
    },
  };
}
