// Checks the imports of src/ (type imports too) against the layer table of docs/front-end.md, and that no import circle exists.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const IMPORT = /(?:\bfrom\s*|\bimport\s*\(?\s*)["'](\.[^"']*)["']/g;
const ROW = /^\| `([a-z/]+)\/` \|([^|]*)\|/gm;

/**
 * Layer names with the layers each may import, from the tables. `src` is the top level, which may import every layer.
 * A folder in a layer, such as `widgets/map`, may also import what its layer may, and the layer's own modules import its folders.
 */
export function layersOf(markdown) {
  const layers = new Map();
  for (const [, name, allowed] of markdown.matchAll(ROW))
    layers.set(name, new Set([name, ...[...allowed.matchAll(/`([a-z/]+)\/`/g)].map((match) => match[1])]));
  for (const [name, allowed] of layers) {
    const layer = dirname(name);
    if (layer === ".") continue;
    for (const other of layers.get(layer)) if (!other.startsWith(layer)) allowed.add(other);
    layers.get(layer).add(name);
  }
  if (layers.has("src")) layers.set("src", new Set(layers.keys()));
  return layers;
}

/** Modules by path relative to src, each with the modules it imports. */
export function importsOf(sources) {
  const graph = new Map();
  for (const [path, text] of sources) {
    const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
    const targets = [...code.matchAll(IMPORT)].map(([, spec]) => `${resolve("/", dirname(path), spec).slice(1)}.ts`);
    graph.set(path, targets);
  }
  return graph;
}

const layerOf = (path) => (path.includes("/") ? dirname(path) : "src");

/** One line per violation. */
export function violations(graph, layers) {
  const found = [];
  for (const [path, targets] of graph) {
    const allowed = layers.get(layerOf(path));
    if (!allowed) found.push(`${path}: layer ${layerOf(path)}/ is not in the table of docs/front-end.md`);
    for (const target of targets) {
      if (!graph.has(target)) found.push(`${path}: imports ${target}, which does not exist`);
      else if (allowed && !allowed.has(layerOf(target)))
        found.push(`${path}: layer ${layerOf(path)}/ may not import ${target}`);
    }
  }
  const done = new Set();
  const walk = (path, trail) => {
    const start = trail.indexOf(path);
    if (start >= 0) return void found.push(`import circle: ${[...trail.slice(start), path].join(" -> ")}`);
    if (done.has(path)) return;
    for (const target of graph.get(path) ?? []) walk(target, [...trail, path]);
    done.add(path);
  };
  for (const path of graph.keys()) walk(path, []);
  return found;
}

export function check() {
  const src = join(root, "src");
  const files = readdirSync(src, { recursive: true }).filter((path) => path.endsWith(".ts"));
  const sources = files.map((path) => [
    relative(src, join(src, path)).split(sep).join("/"),
    readFileSync(join(src, path), "utf8"),
  ]);
  const layers = layersOf(readFileSync(join(root, "..", "docs", "front-end.md"), "utf8"));
  return violations(importsOf(sources), layers);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = check();
  for (const line of found) console.error(line);
  if (found.length) process.exitCode = 1;
}
