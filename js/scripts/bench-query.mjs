// Measures the evaluation of queries on 5,000 tensors. Prints milliseconds as JSON; the target is 16 ms.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const js = dirname(dirname(fileURLToPath(import.meta.url)));
const options = { bundle: true, write: false, format: "esm", platform: "node" };
const { outputFiles } = await build({ entryPoints: [join(js, "test/query-bench.ts")], ...options });
const code = Buffer.from(outputFiles[0].contents).toString("base64");
const { measure } = await import(`data:text/javascript;base64,${code}`);
const rounded = Object.entries(measure()).map(([text, ms]) => [text, Math.round(ms * 100) / 100]);
console.log(JSON.stringify(Object.fromEntries(rounded), null, 2));
