// @vitest-environment node
import { expect, test } from "vitest";
import { check, importsOf, layersOf, violations } from "../scripts/check-layers.mjs";

const LAYERS = layersOf("| `lib/` | | |\n| `data/` | `lib/` | |\n| `src/` | all layers | |\n");
const of = (sources: Record<string, string>) => violations(importsOf(Object.entries(sources)), LAYERS);

test("src/ follows the layer table of docs/front-end.md", () => {
  expect(check()).toEqual([]);
});

test("an import of a layer that is not allowed is reported, type imports included", () => {
  expect(of({ "data/a.ts": 'import { b } from "../lib/b";', "lib/b.ts": "" })).toEqual([]);
  expect(of({ "lib/a.ts": 'import type { B } from "../data/b";', "data/b.ts": "" })).toEqual([
    "lib/a.ts: layer lib/ may not import data/b.ts",
  ]);
  expect(of({ "main.ts": 'const a = import("./lib/a");', "lib/a.ts": "" })).toEqual([]);
});

test("an import circle is reported with its path", () => {
  const circle = { "lib/a.ts": 'import "./b";', "lib/b.ts": 'export * from "./c";', "lib/c.ts": 'import "./a";' };
  expect(of(circle)).toEqual(["import circle: lib/a.ts -> lib/b.ts -> lib/c.ts -> lib/a.ts"]);
});

test("a layer that is not in the table and a missing module are reported", () => {
  expect(of({ "other/a.ts": "" })).toEqual(["other/a.ts: layer other/ is not in the table of docs/front-end.md"]);
  expect(of({ "lib/a.ts": 'import "./b";' })).toEqual(["lib/a.ts: imports lib/b.ts, which does not exist"]);
});

test("a folder in a layer imports the folders of its row and what the layer may import", () => {
  const table =
    "| `lib/` | | |\n| `data/` | | |\n| `widgets/` | `lib/` | |\n| `widgets/common/` | | |\n| `widgets/map/` | `widgets/common/` | |\n";
  const folders = (sources: Record<string, string>) => violations(importsOf(Object.entries(sources)), layersOf(table));
  const modules = { "lib/a.ts": "", "widgets/common/part.ts": "", "data/store.ts": "" };
  expect(
    folders({
      ...modules,
      "widgets/map/view.ts": 'import "../common/part"; import "../../lib/a";',
      "widgets/layouts.ts": 'import "./map/view";',
    }),
  ).toEqual([]);
  expect(folders({ ...modules, "widgets/common/box.ts": 'import "../../data/store";' })).toEqual([
    "widgets/common/box.ts: layer widgets/common/ may not import data/store.ts",
  ]);
  expect(folders({ "widgets/map/view.ts": "", "widgets/common/part.ts": 'import "../map/view";' })).toEqual([
    "widgets/common/part.ts: layer widgets/common/ may not import widgets/map/view.ts",
  ]);
});
