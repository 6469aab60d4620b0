// Serves the demo page: `npm run demo`. `node scripts/demo.mjs --out folder` writes it to a folder.
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const at = process.argv.indexOf("--out");
const options = {
  absWorkingDir: root,
  entryPoints: [
    { in: "demo/main.ts", out: "main" },
    { in: "src/widget.css", out: "widget" },
  ],
  bundle: true,
  format: "esm",
  sourcemap: "inline",
};
if (at >= 0) {
  const out = process.argv[at + 1];
  mkdirSync(out, { recursive: true });
  await esbuild.build({ ...options, outdir: out });
  copyFileSync(join(root, "demo/index.html"), join(out, "index.html"));
} else {
  const context = await esbuild.context({ ...options, outdir: join(root, "demo") });
  const { hosts, port } = await context.serve({ servedir: join(root, "demo"), host: "127.0.0.1" });
  console.log(`http://${hosts[0]}:${port}/`);
}
