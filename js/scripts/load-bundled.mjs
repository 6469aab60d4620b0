import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const js = dirname(dirname(fileURLToPath(import.meta.url)));

/** Bundles a TypeScript module of this folder, such as "src/lib/map-rows.ts", and imports it into Node. */
export async function loadBundled(path) {
  const { outputFiles } = await build({
    entryPoints: [join(js, path)],
    bundle: true,
    write: false,
    format: "esm",
    platform: "node",
  });
  const code = Buffer.from(outputFiles[0].contents).toString("base64");
  return import(`data:text/javascript;base64,${code}`);
}
