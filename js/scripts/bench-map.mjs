// Measures the Run Map in Chromium, on runs made in the page. Prints JSON; tests/benchmarks/bench_map.py compares it with the targets.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { chromium as playwright } from "playwright";
import { CHROMIUM_ARGS, chromium } from "./chromium.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), "bench-map-"));

/** Style sheets as text, as Vite imports them. */
const inline = {
  name: "inline",
  setup(build) {
    build.onResolve({ filter: /\?inline$/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.replace("?inline", "")),
      namespace: "text",
    }));
    build.onLoad({ filter: /.*/, namespace: "text" }, ({ path }) => ({
      contents: readFileSync(path, "utf8"),
      loader: "text",
    }));
  },
};
const { outputFiles } = await esbuild.build({
  absWorkingDir: root,
  entryPoints: ["test/map-bench.ts"],
  bundle: true,
  minify: true,
  format: "esm",
  write: false,
  plugins: [inline],
});
writeFileSync(join(folder, "bench.js"), outputFiles[0].contents);
const script = readFileSync(join(folder, "bench.js"), "utf8").replaceAll("</script", "<\\/script");
writeFileSync(join(folder, "index.html"), `<!doctype html><body><script type="module">${script}</script>`);

const browser = await playwright.launch({ executablePath: chromium(), args: CHROMIUM_ARGS });
try {
  const page = await browser.newPage({ viewport: { width: 1040, height: 400 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`file://${join(folder, "index.html")}`);
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    const { usedSize, backingStorageSize = 0 } = await cdp.send("Runtime.getHeapUsage");
    return (usedSize + backingStorageSize) / 2 ** 20;
  };
  const result = {};
  for (const name of ["small", "hover", "drag", "zoom", "large"])
    result[name] = await page.evaluate((each) => window.bench[each](), name);
  result.large["heap MB"] = await heap();
  console.log(JSON.stringify({ ...result, errors }));
} finally {
  await browser.close();
  rmSync(folder, { recursive: true });
}
