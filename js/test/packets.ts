/** Packets that tests need and no recording contains. */
import { codeOf } from "../src/data/survey";
import { encode } from "../src/protocol/packet";
import type { CatalogHead, RuleInfo, SurveyHead } from "../src/protocol/types";

/** A packet of rules with outcomes by step. */
export function rulesPacket(
  rules: { info?: Partial<RuleInfo>; outcomes: Record<number, number> }[],
  append = false,
): ArrayBuffer {
  const arrays: Parameters<typeof encode>[1] = {};
  const infos = rules.map(({ info, outcomes }, i): RuleInfo => {
    const steps = Object.keys(outcomes).map(Number);
    arrays[`${i}.step`] = ["f8", [steps.length], steps];
    arrays[`${i}.outcome`] = ["u1", [steps.length], Object.values(outcomes)];
    return {
      id: "0/Overfit",
      name: "Overfit",
      class: "Overfit",
      run: 0,
      status: "InProgress",
      active: true,
      paused: false,
      done: steps.length,
      total: steps.length,
      message: "",
      params: [],
      firings: [],
      firings_total: 0,
      ...info,
    };
  });
  return encode({ kind: "rules", append, rules: infos }, arrays);
}

/** Steps of a run after `from` up to `last`, every 10 global steps as in the recorded runs: every tenth is EVAL. */
export function stepsPacket(from: number, last: number, head: Partial<CatalogHead> = {}): ArrayBuffer {
  const steps = Array.from({ length: Math.floor((last - from) / 10) }, (_, i) => from + 10 * (i + 1));
  const evals = (step: number) => Math.floor((step + 10) / 100);
  const modeStep = (step: number) => (step % 100 === 90 ? evals(step) - 1 : step / 10 - evals(step)) * 10;
  return encode(
    {
      kind: "catalog",
      run: 0,
      name: "mlp",
      path: "runs/mlp",
      status: "running",
      message: "",
      workers: ["worker_0", "worker_1"],
      last_write: null,
      restarted_at: null,
      colour: 0,
      append: true,
      tensors: [],
      collections: {},
      ...head,
    },
    {
      step: ["f8", [steps.length], steps],
      mode: ["u1", [steps.length], steps.map((step) => (step % 100 === 90 ? 2 : 1))],
      mode_step: ["f8", [steps.length], steps.map(modeStep)],
    },
  );
}

/** Values of the statistic by tensor and bin; NaN was not saved. */
export function surveyPacket(
  tensors: number[],
  values: ArrayLike<number>[],
  {
    poster = false,
    flag,
    n,
    ...head
  }: Partial<SurveyHead> & { poster?: boolean; flag?: ArrayLike<number>[]; n?: number } = {},
): ArrayBuffer {
  const stat = head.stat ?? "surprise";
  const bins = values[0]?.length ?? 0;
  const shape = [tensors.length, bins];
  const codes = values.flatMap((row) => Array.from(row, (value) => codeOf(stat, value)));
  const arrays: Parameters<typeof encode>[1] = {
    tensor: ["u4", [tensors.length], tensors],
    flag: ["u1", shape, (flag ?? values.map((row) => new Uint8Array(row.length))).flatMap((row) => Array.from(row))],
  };
  if (poster) arrays.shown = ["u1", shape, codes.map((code) => (code ? Math.max(1, code >> 8) : 0))];
  else {
    for (const name of ["lo", "mid", "hi"]) arrays[name] = ["u2", shape, codes];
    arrays.n = ["u2", shape, codes.map((code) => (code ? (n ?? 1) : 0))];
  }
  return encode(
    {
      kind: "survey",
      run: 0,
      worker: "",
      mode: "",
      stat,
      level: 0,
      first: 0,
      edition: 0,
      append: true,
      ...head,
    },
    arrays,
  );
}
