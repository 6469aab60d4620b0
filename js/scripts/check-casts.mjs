// Counts the casts `as number` of src/. An index that is in range needs none: `defined(steps[i])` of lib/defined.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const MOST = 60;
const src = join(dirname(dirname(fileURLToPath(import.meta.url))), "src");
let casts = 0;
for (const path of readdirSync(src, { recursive: true }).filter((file) => file.endsWith(".ts")))
  casts += readFileSync(join(src, path), "utf8").match(/\bas number\b/g)?.length ?? 0;
if (casts > MOST) {
  console.error(`src/ has ${casts} casts "as number"; at most ${MOST} are permitted. Use defined() of lib/defined.`);
  process.exitCode = 1;
}
