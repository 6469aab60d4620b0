/** Texts about a frame. */

import { type Frame, finiteness } from "../../data/frames";
import type { Store } from "../../data/store";
import { defined } from "../../lib/defined";
import { count, num, plural } from "../../lib/format";
import { MODES } from "../../protocol/types";
import type { Scene } from "../../session/scene";

/** "TRAIN step 12", or "step 12" for a step without a mode. */
export function stepName(store: Store, run: number, step: number): string {
  const at = store.modeOf(run, step);
  return at && at.mode !== 4 ? `${MODES[at.mode]} step ${count(at.modeStep)}` : `step ${count(step)}`;
}

/** Why a panel has nothing to draw; empty while the data is on its way. */
export function emptyReason(scene: Scene, what: string): string {
  const shown = scene.main;
  const plan = shown?.frames.plan;
  if (!shown) return noTensorReason(scene);
  if (shown.statisticsOnly && what !== "statistic") return "Not in this file: statistics only";
  if (shown.frame?.error) return "Unreadable at this step";
  if (Number.isNaN(shown.savedStep) && plan) return shown.neverSaved ? "Not saved in this mode" : "Not saved yet";
  if (plan?.form === "text") return `No ${what} for text`;
  if (plan?.reduced) return "Only reductions saved";
  if (shown.frame?.counts?.[0] === 0) return "Empty tensor";
  if (shown.frame?.sampled) return "Only a sample is kept";
  if (shown.exported) return "Not in this file";
  return scene.failure;
}

function noTensorReason({ run, traits, failure }: Scene): string {
  if (run && run.steps.length === 0)
    return run.head.status === "running" ? "No step saved yet. New steps appear here." : "The run has no steps";
  return traits.tensor ? failure : "No tensor selected";
}

/** "from a sample of 4,096 of 102,400 elements"; empty of a whole value. */
export function sampleText(frame: Frame | undefined): string {
  if (!frame?.sampled) return "";
  const all = (frame.shape ?? []).reduce((a, b) => a * b, 1);
  return `from a sample of ${count(frame.sampled.elements)} of ${plural(all, "element")}`;
}

/** Counts of NaN and infinities. */
export const notFiniteCounts = (frame: Frame): string[] =>
  ["NaN", "+Inf", "\u2212Inf"].flatMap((name, i) => {
    const n = finiteness(frame).others[i];
    return n ? [`${count(n)} ${name}`] : [];
  });

/** Summary statistics of a frame in one line. With a NaN they would all be NaN, so percentiles are shown instead. */
export function frameSummary(frame: Frame | undefined): string {
  const s = frame?.stats;
  if (!s) return "";
  if (!frame.counts?.[0]) return "no values";
  const bad = notFiniteCounts(frame);
  if (bad.length && !finiteness(frame).finite) return `no finite values   ${bad.join("   ")}`;
  const p = frame.percentiles;
  const at = (q: number) => num(p?.values[p.q.indexOf(q)] ?? Number.NaN);
  if (p && (Number.isNaN(s[2]) || Number.isNaN(s[0])))
    return `5% ${at(5)}   median ${at(50)}   95% ${at(95)}   ${bad.join("   ")}`;
  return `min ${num(defined(s[0]))}   mean ${num(defined(s[2]))}   max ${num(defined(s[1]))}   std ${num(defined(s[4]))}`;
}

export function describeFrame(frame: Frame | undefined): string {
  const s = frame?.stats;
  const c = frame?.counts;
  if (!s || !c) return "No values loaded.";
  const bad = notFiniteCounts(frame);
  const { finite } = finiteness(frame);
  const which = bad.length ? `Not finite: ${bad.join(", ")}.` : "All finite.";
  const sample = sampleText(frame);
  if (sample) {
    const p = frame.percentiles;
    const at = (q: number) => num(p?.values[p.q.indexOf(q)] ?? Number.NaN);
    return `Estimated ${sample}: 5% ${at(5)}, median ${at(50)}, 95% ${at(95)}. ${which}`;
  }
  if (Number.isNaN(s[0]))
    return `${plural(defined(c[0]), "value")}, ${finite ? count(finite) : "none"} of them finite. ${which}`;
  return `${plural(defined(c[0]), "value")} from ${num(defined(s[0]))} to ${num(defined(s[1]))}, mean ${num(defined(s[2]))}, standard deviation ${num(defined(s[4]))}. ${which}`;
}
