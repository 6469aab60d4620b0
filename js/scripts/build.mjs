// Bundles src/ into the Python package: loader.js, which each widget carries, and parts.json, the parts that a page loads on
// first need. The output is reproducible.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(root, "..", "python", "smdwidgets", "static");
const SETTINGS = {
  absWorkingDir: root,
  bundle: true,
  format: "esm",
  platform: "browser",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};
/** What a notebook and an exported page begin with. */
const ENTRIES = ["src/widget.ts", "src/exported-page.ts"];

/** Licence texts of the packages in the bundle, for the wheel. */
function licences(metafile) {
  const names = new Set();
  for (const { inputs } of Object.values(metafile.outputs))
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      const match = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
      if (match && bytesInOutput > 0) names.add(match[1]);
    }
  const texts = [...names].sort().map((name) => {
    const folder = join(root, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} is bundled but has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return texts.length ? texts.join(`\n${"-".repeat(80)}\n\n`) : "The bundle contains no third-party code.\n";
}

/** Names of the parts by output file: the module that is imported, or a number for modules that several parts share. */
function partNames(outputs) {
  const names = new Map();
  const shared = [];
  for (const [path, { entryPoint, inputs }] of Object.entries(outputs))
    if (entryPoint) names.set(path, entryPoint.replace(/^src\/|\.ts$/g, ""));
    else shared.push([Object.keys(inputs).sort()[0], path]);
  shared.sort();
  for (const [i, [, path]] of shared.entries()) names.set(path, `s${i}`);
  return names;
}

const IMPORT = /^import(?:\{([^}]*)\}from)?"\.\/([^"]+)";/;
const EXPORT = /export\{([^}]*)\};?\s*$/;
/** "a as b,c" as the inside of a pattern or an object. */
const pairs = (list, swapped) =>
  list
    .split(",")
    .filter(Boolean)
    .map((each) => {
      const [name, alias = name] = each.split(" as ");
      return swapped ? `${alias}:${name}` : `${name}:${alias}`;
    })
    .join();

/** A module as a call that defines a part: imports are arguments, exports what the function returns. */
function asPart(name, code, nameOf) {
  const needs = [];
  const patterns = [];
  let body = code.trim();
  for (let match = IMPORT.exec(body); match; match = IMPORT.exec(body)) {
    needs.push(nameOf(match[2]));
    patterns.push(`{${pairs(match[1] ?? "", false)}}`);
    body = body.slice(match[0].length);
  }
  const exported = EXPORT.exec(body);
  body = body.replace(EXPORT, "").replace(/\bimport\("\.\/([^"]+)"\)/g, (_, file) => `__load("${nameOf(file)}")`);
  if (/(?:^|[;}\n])(?:import|export)[{"*\s]/.test(body))
    throw new Error(`${name}: an import or export was not understood`);
  const result = `return{${pairs(exported?.[1] ?? "", true)}}`;
  return {
    needs,
    js: `define("${name}",${JSON.stringify(needs)},(${["__load", ...patterns]})=>{${body}${result}});\n`,
  };
}

/** The style sheets, in the order of the cascade, each with the module that it belongs to. */
export const styleSheets = () =>
  [...readFileSync(join(root, "src/widget.css"), "utf8").matchAll(/@import "\.\/(.+)"; \/\* (.+) \*\//g)].map(
    ([, path, module]) => ({ path, module }),
  );

/** The loader, the content of parts.json, and what esbuild says about its output. */
export async function bundle() {
  const { metafile, outputFiles } = await esbuild.build({
    ...SETTINGS,
    entryPoints: ENTRIES,
    outdir: "out",
    splitting: true,
    minify: true,
    metafile: true,
    write: false,
  });
  const names = partNames(metafile.outputs);
  const nameOf = (file) => names.get(`out/${file}`);
  const files = {};
  const needs = {};
  const later = {};
  const partOf = new Map();
  for (const { path, text } of outputFiles) {
    const output = `out/${basename(path)}`;
    const { inputs, imports } = metafile.outputs[output];
    const name = names.get(output);
    const part = asPart(name, text, nameOf);
    files[`${name}.js`] = part.js;
    needs[name] = part.needs;
    later[name] = imports.filter(({ kind }) => kind === "dynamic-import").map((each) => names.get(each.path));
    for (const input of Object.keys(inputs)) partOf.set(input.replace(/^src\/|\.ts$/g, ""), name);
  }
  // Their names sort in the order of the cascade.
  const styles = {};
  for (const [i, { path, module }] of styleSheets().entries()) {
    const part = partOf.get(module);
    if (!part) throw new Error(`${path}: there is no module ${module}`);
    const { code } = await esbuild.transform(readFileSync(join(root, "src", path), "utf8"), {
      ...{ loader: "css", minify: true, target: SETTINGS.target.slice(1), charset: "utf8" },
    });
    const name = `${String(i).padStart(2, "0")}-${basename(path)}`;
    files[name] = code;
    styles[part] = [...(styles[part] ?? []), name];
  }
  const small = async (entry) => {
    const define = { VERSION: '"@VERSION@"' };
    const built = await esbuild.build({ ...SETTINGS, entryPoints: [entry], minify: true, write: false, define });
    return built.outputFiles[0].text;
  };
  files["parts.js"] = await small("src/parts.ts");
  const loader = await small("src/loader.ts");
  const sorted = Object.fromEntries(Object.entries(files).sort(([a], [b]) => (a < b ? -1 : 1)));
  const version = createHash("sha256")
    .update(JSON.stringify([loader, sorted]))
    .digest("hex")
    .slice(0, 16);
  for (const [name, text] of Object.entries(sorted)) sorted[name] = text.replaceAll("@VERSION@", version);
  const content = { version, needs, later, styles, files: sorted };
  return { loader: loader.replaceAll("@VERSION@", version), content, metafile };
}

async function build() {
  const { loader, content, metafile } = await bundle();
  rmSync(out, { recursive: true, force: true }); // remove files of earlier versions
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "loader.js"), loader);
  writeFileSync(join(out, "parts.json"), `${JSON.stringify(content, null, 1)}\n`);
  writeFileSync(join(out, "LICENSES.txt"), licences(metafile));
  const sizes = Object.entries({ "loader.js": loader, ...content.files }).map(([name, text]) => [
    name,
    Buffer.byteLength(text),
  ]);
  for (const [name, bytes] of sizes.sort(([, a], [, b]) => b - a).slice(0, 10))
    console.log(`${name}  ${(bytes / 1024).toFixed(1)} KB`);
  const total = sizes.reduce((sum, [, bytes]) => sum + bytes, 0);
  console.log(`${sizes.length} files  ${(total / 1024).toFixed(1)} KB`);
}

async function watch() {
  // One module with everything, which anywidget reloads when it changes.
  const context = await esbuild.context({
    ...SETTINGS,
    entryPoints: [
      { in: "src/widget.ts", out: "widget" },
      { in: "src/widget.css", out: "widget" },
    ],
    outdir: out,
    sourcemap: "inline",
    logLevel: "info",
  });
  await context.watch();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await (process.argv.includes("--watch") ? watch() : build());
