// Bundles src/widget.ts, src/widget.css and src/loader.ts into the Python package. The output is reproducible.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(root, "..", "python", "smdwidgets", "static");
const watch = process.argv.includes("--watch");

/** Licence texts of the packages in the bundle, for the wheel. */
function licences(metafile) {
  const names = new Set();
  for (const { inputs } of Object.values(metafile.outputs))
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      const found = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
      if (found && bytesInOutput > 0) names.add(found[1]);
    }
  const parts = [...names].sort().map((name) => {
    const folder = join(root, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} is bundled but has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return parts.length ? parts.join(`\n${"-".repeat(80)}\n\n`) : "The bundle contains no third-party code.\n";
}

const options = {
  absWorkingDir: root,
  entryPoints: [
    { in: "src/widget.ts", out: "widget" },
    { in: "src/widget.css", out: "widget" },
    { in: "src/loader.ts", out: "loader" },
  ],
  outdir: relative(root, out),
  bundle: true,
  format: "esm",
  platform: "browser",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
};

if (watch) {
  const context = await esbuild.context({ ...options, minify: false, sourcemap: "inline", logLevel: "info" });
  await context.watch();
} else {
  rmSync(out, { recursive: true, force: true }); // remove files of earlier versions
  const { metafile } = await esbuild.build(options);
  writeFileSync(join(out, "LICENSES.txt"), licences(metafile));
  for (const [path, { bytes }] of Object.entries(metafile.outputs))
    console.log(`${path}  ${(bytes / 1024).toFixed(1)} KB`);
}
