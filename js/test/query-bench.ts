/** Evaluates queries on 5,000 tensors, as the page does. scripts/bench-query.mjs prints the result. */
import { codeOf, Surveys } from "../src/data/survey";
import { surveyColumns } from "../src/data/survey-columns";
import { MapModel } from "../src/lib/map-rows";
import type { MapStat } from "../src/protocol/types";
import { parse } from "../src/query/parse";
import { tensorWords } from "../src/query/tensors";
import { TensorTable } from "../src/session/query-results";
import { mapStatOf } from "../src/session/query-view";

const TENSORS = 5000;
const BINS = 128;
const QUERIES = [
  "layers.*.q_proj",
  "/^layers\\.(1|2)\\d+\\.(q|k)_proj\\.weight$/",
  "layers.*.q_proj | l2 | top 12 by change",
  "| size | worst > 0.5 | sort by last asc",
  "@weights | sort by name desc",
];

/** By query, the median in milliseconds of 15 evaluations; "first": with the columns, once. */
export function measure(): Record<string, number> {
  const parts = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "norm"];
  const names = Array.from({ length: TENSORS }, (_, i) => `layers.${Math.floor(i / 8)}.${parts[i % 8]}.weight`);
  const collections = new Map([["weights", names.map((_, i) => i)]]);
  const surveys = new Surveys();
  for (const stat of ["size", "l2"] as const) surveys.add(headOf(stat), blocks(stat));
  const find = (statistic: string) => {
    const survey = surveys.find(0, "", "", mapStatOf(statistic) as MapStat);
    if (!survey) throw new Error(statistic);
    return surveyColumns(survey, TENSORS);
  };
  const model = new MapModel(names, collections);
  const once = (text: string) => {
    const start = performance.now();
    const query = parse(text, tensorWords(collections.keys()));
    new TensorTable(model, { collections }, find).evaluate(query);
    return performance.now() - start;
  };
  const first = once(QUERIES[2] as string);
  const median = (text: string) => Array.from({ length: 15 }, () => once(text)).sort((a, b) => a - b)[7] as number;
  return { first, ...Object.fromEntries(QUERIES.map((text) => [text, median(text)])) };
}

const headOf = (stat: MapStat) =>
  ({ kind: "survey", run: 0, worker: "", mode: "", stat, level: 2, first: 0, edition: 0, append: false }) as const;

function blocks(stat: MapStat) {
  const shape = [TENSORS, BINS];
  const codes = Uint16Array.from({ length: TENSORS * BINS }, (_, i) => codeOf(stat, 0.01 + ((i * 7919) % 997) / 500));
  const block = (data: Uint8Array | Uint16Array | Uint32Array, of = shape) => ({ data, shape: of });
  return {
    tensor: block(
      Uint32Array.from({ length: TENSORS }, (_, i) => i),
      [TENSORS],
    ),
    lo: block(codes),
    mid: block(codes),
    hi: block(codes),
    n: block(new Uint16Array(TENSORS * BINS).fill(1)),
    flag: block(new Uint8Array(TENSORS * BINS)),
  };
}
