// Evaluates queries, so that a test can compare both evaluators: `node scripts/query.mjs tables.json < queries`, where tables.json
// has "tables" as tests/vectors/query.json, and each line of the input is {"table": "tensors" or "runs", "text": "..."}. Writes one
// line with the answer, in the format of the cases there, for each line.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { loadBundled } from "./load-bundled.mjs";

const { answer, tableOf } = await loadBundled("test/query-cases.ts");
const { tables } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const known = { tensors: tableOf(tables, "tensors"), runs: tableOf(tables, "runs") };
for await (const line of createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY })) {
  const { table, text } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(answer(known[table], text))}\n`);
}
