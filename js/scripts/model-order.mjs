// Writes the model order of the names in each line of the input, so that a test can compare it with that of Python.
// A line is {"names": [...], "collections": {...}}.
import { createInterface } from "node:readline";
import { loadBundled } from "./load-bundled.mjs";

const { MapModel } = await loadBundled("src/lib/map-rows.ts");
for await (const line of createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY })) {
  const { names, collections } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(new MapModel(names, new Map(Object.entries(collections))).order)}\n`);
}
