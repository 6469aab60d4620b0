/** Texts about a frame that several panels show. */
import { type Frame, finiteness } from "../data/frames";
import type { TensorView } from "../data/tensor-view";
import { count, num } from "../lib/format";

/** Why there is no picture. */
export function emptyReason(shown: TensorView | undefined, what: string): string {
  const plan = shown?.frames.plan;
  if (!shown) return "choose a tensor";
  if (shown.frame?.error) return shown.frame.error.message;
  if (Number.isNaN(shown.savedStep) && plan)
    return shown.neverSaved ? "never saved in this mode" : "nothing saved up to this step";
  if (plan?.form === "text") return `text has no ${what}`;
  if (plan?.reduced) return "only reductions of this tensor were saved";
  if (shown.frame?.counts?.[0] === 0) return "the tensor is empty";
  return shown.frame ? `the ${what} is on its way` : "waiting for the first frame";
}

/** What is not finite, by its names. */
const others = (frame: Frame) =>
  ["NaN", "+Inf", "\u2212Inf"].flatMap((name, i) => {
    const n = finiteness(frame).others[i];
    return n ? [`${count(n)} ${name}`] : [];
  });

/** mean, std and the extremes of a frame in one line; of values that hold a NaN they would all be NaN, so the middle ones. */
export function frameSummary(frame: Frame | undefined): string {
  const s = frame?.stats;
  if (!s) return "";
  if (!frame.counts?.[0]) return "no values";
  const bad = others(frame);
  if (bad.length && !finiteness(frame).finite) return `no finite value   ${bad.join("   ")}`;
  const p = frame.percentiles;
  const at = (q: number) => num(p?.values[p.q.indexOf(q)] ?? Number.NaN);
  if (Number.isNaN(s[2]) && p) return `5% ${at(5)}   median ${at(50)}   95% ${at(95)}   ${bad.join("   ")}`;
  return `min ${num(s[0] as number)}   mean ${num(s[2] as number)}   max ${num(s[1] as number)}   std ${num(s[4] as number)}`;
}

export function describeFrame(frame: Frame | undefined): string {
  const s = frame?.stats;
  const c = frame?.counts;
  if (!s || !c) return "No values here yet.";
  const bad = others(frame);
  const { finite } = finiteness(frame);
  const which = bad.length ? `Not finite: ${bad.join(", ")}.` : "All finite.";
  if (Number.isNaN(s[0]))
    return `${count(c[0] as number)} values, ${finite ? count(finite) : "none"} of them finite. ${which}`;
  return `${count(c[0] as number)} values from ${num(s[0] as number)} to ${num(s[1] as number)}, mean ${num(s[2] as number)}, standard deviation ${num(s[4] as number)}. ${which}`;
}
