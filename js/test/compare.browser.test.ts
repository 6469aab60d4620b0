import { afterEach, describe, expect, test, vi } from "vitest";
import { valueRef } from "../src/data/difference";
import type { TensorView } from "../src/data/tensor-view";
import { layoutHeatmap } from "../src/draw/heatmap";
import { NOT_FINITE } from "../src/lib/colour";
import { num } from "../src/lib/format";
import { encode } from "../src/protocol/packet";
import type { Form, Traits } from "../src/protocol/types";
import { $, button, frame, key, loaded, type MountedWidget, open, pixel, until } from "./helpers";

const GRADIENT = { tensor: "gradient/fc1.weight", step: 720, compare: { step: 710 } };
let shown: MountedWidget | undefined;
afterEach(() => {
  vi.restoreAllMocks();
  shown?.close();
  shown = undefined;
});
const inspect = async (traits: Partial<Traits> = {}, options = {}) => {
  shown = open({ _kind: "explorer", inspect: true, follow: false, step: 600, ...traits }, { width: 1200, ...options });
  const { session } = shown;
  await until(() => session.scene().main?.frame && !session.scene().main?.pending && !session.connection.requests.size);
  await loaded(shown.el);
  return shown;
};
const rows = (el: Element) => [...el.querySelectorAll<HTMLElement>(".smdw-change[tabindex]")];
const cells = (row: Element) => [...row.children].map((cell) => cell.textContent);
const title = (el: Element, panel: string) => $(el, `.smdw-panel-${panel} .smdw-title`).textContent;
const canvasOf = (el: Element, which = "") => $<HTMLCanvasElement>(el, `.smdw-figure-heatmap${which} canvas`);

describe("A − B", () => {
  test("of two steps is exact at rest, and lists the cells that changed most with their values over steps", async () => {
    const { el, session, source } = await inspect();
    // Without B, it is the saved step before.
    button(el, "A\u2212B").click();
    expect(session.state.all()).toMatchObject({ compare: { offset: -1 }, view: "diff" });
    await until(() => rows(el).length === 12);
    expect(title(el, "heatmap")).toBe("A \u2212 B, cell by cell");
    expect(title(el, "histogram")).toBe("Values: A above, B below");
    // The answer equals NumPy's; see test_differences.py.
    const { main, compared } = session.scene();
    const [exact] = session.store.differences(valueRef(main as TensorView), valueRef(compared as TensorView));
    expect(rows(el).map((row) => cells(row).slice(0, 3))).toEqual(
      exact?.changed.map(({ index, a, b }) => [`[${index.join(", ")}]`, num(b, 3), num(a, 3)]),
    );
    expect(cells(rows(el)[0] as Element)[0]).toBe("[0, 7]");
    await until(() => el.querySelectorAll(".smdw-life").length === 8);
    expect($(el, ".smdw-panel-changed .smdw-readout").textContent).toMatch(/^189 of 5,376 cells changed/);
    expect(source.missing).toEqual([]);
    expect(source.requests.filter(({ what }) => what === "diff" || what === "life")).toHaveLength(2);
  });

  test("has the surface's colour where nothing changed, and NaN has its own", async () => {
    const { el } = await inspect({ ...GRADIENT, view: "diff" });
    await until(() => rows(el).length === 12);
    const canvas = canvasOf(el);
    const size = { width: canvas.clientWidth, height: canvas.clientHeight };
    const box = layoutHeatmap([0, 48, 0, 112], size);
    const at = (row: number, col: number) =>
      pixel(canvas, box.x + ((col + 0.5) * box.width) / 112, box.y + ((row + 0.5) * box.height) / 48)
        .slice(0, 3)
        .join();
    await until(() => at(0, 0) === NOT_FINITE.nan.join());
    const surface = (row: number, col: number) =>
      at(row, col)
        .split(",")
        .every((channel) => Number(channel) >= 250);
    await until(() => Array.from({ length: 112 }, (_, col) => surface(5, col)).some(Boolean));
  });

  test("is estimated from pooled values while the pointer is down, without a request", async () => {
    const { el, session, source, model } = await inspect({ compare: { step: 300 }, view: "diff" });
    await until(() => rows(el).length === 12 && !session.connection.requests.size);
    await until(() => el.querySelectorAll(".smdw-life").length === 8);
    const asked = source.requests.length;
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    for (const step of [610, 640, 900]) {
      model.set("step", step);
      await frame();
      await frame();
      expect($(el, ".smdw-panel-heatmap .smdw-readout").textContent).toMatch(/^\u2248 from pooled values/);
      // The list stays, with a note.
      expect(rows(el)).toHaveLength(12);
      expect($(el, ".smdw-panel-changed .smdw-note").textContent).toBe("of an earlier step");
    }
    expect(source.requests.length).toBe(asked);
    vi.useRealTimers();
  });

  test("is not possible with other shapes, and says why; histograms still compare", async () => {
    const { el, session } = await inspect();
    const plan = (tensor: string, dtype: string, form: Form, shape: number[]) =>
      encode(
        {
          kind: "plan",
          ...{ run: 0, tensor, worker: "", dtype, shape, form },
          ...{ bytes: 4, collections: [], workers: ["worker_0"], reduced: false, errors: {} },
        },
        { step: ["f8", [2], [0, 600]] },
      );
    session.store.addPackets([
      plan("fc2.weight", "float32", "number", [32, 48]),
      plan("tokens", "str", "text", [4, 6]),
    ]);
    session.state.set({ compare: { tensor: "fc2.weight" } });
    const diff = button(el, "A\u2212B");
    await until(() => diff.disabled);
    expect(diff.title).toBe("Different shapes, so cells cannot be subtracted: A is 48 \u00d7 112, B 32 \u00d7 48");
    key($(el, ".smdw-explorer"), "m");
    expect(session.state.get("view")).toBe("side");
    expect(title(el, "histogram")).toBe("Values: A above, B below");
    session.state.set({ compare: { step: 0, tensor: "tokens" } });
    await until(() => /B is text, which cannot be subtracted/.test(diff.title));
    session.state.set({ compare: { step: 0 } });
    await until(() => !diff.disabled);
  });
});

describe("a click on a changed cell", () => {
  test("selects it in all pictures", async () => {
    const { el, session } = await inspect({ view: "diff", compare: { offset: -1 } });
    await until(() => rows(el).length === 12);
    const row = rows(el)[2] as HTMLElement;
    const [r, c] = JSON.parse(String(cells(row)[0])) as number[] as [number, number];
    row.click();
    expect(session.state.get("selection")).toEqual({ kind: "cells", rows: [r, r + 1], cols: [c, c + 1] });
    await until(() => rows(el)[2]?.getAttribute("aria-selected") === "true");
    rows(el)[2]?.focus();
    key(rows(el)[2] as HTMLElement, "ArrowDown");
    key(rows(el)[3] as HTMLElement, "Enter");
    await until(() => rows(el)[3]?.getAttribute("aria-selected") === "true");
    expect(rows(el)[2]?.getAttribute("aria-selected")).toBe("false");
  });
});

describe("views", () => {
  test("A, B and both are obeyed by every part", async () => {
    const { el, session } = await inspect({ ...GRADIENT });
    await until(() => title(el, "histogram") === "Values: A above, B below");
    const counts = () => $(el, ".smdw-chips").textContent ?? "";
    const second = $(el, ".smdw-second");
    expect(second.hidden).toBe(false);
    expect(title(el, "heatmap")).toBe("Heat map: A left, B right");
    button(el, "B").click();
    await until(() => /NaN146 /.test(counts()));
    expect(second.hidden).toBe(true);
    expect(title(el, "histogram")).toBe("Histogram");
    expect($(el, ".smdw-panel-histogram canvas").getAttribute("aria-label")).toContain("at step 710");
    button(el, "A").click();
    await until(() => /NaN73 /.test(counts()));
    expect($(el, ".smdw-panel-histogram canvas").getAttribute("aria-label")).toContain("at step 720");
    expect(session.state.get("compare")).toEqual({ step: 710 });
  });

  test("blink shows A and B in turn; with reduced motion the key switches", async () => {
    const { el, session } = await inspect({ ...GRADIENT });
    const explorer = $(el, ".smdw-explorer");
    key(explorer, "v");
    expect(session.state.get("view")).toBe("blink");
    const label = () => $(el, ".smdw-panel-histogram canvas").getAttribute("aria-label") ?? "";
    for (const step of [720, 710, 720]) await until(() => label().includes(`at step ${step}`), `step ${step}`);
    key(explorer, "v");
    expect(session.state.get("view")).toBe("side");
    const media = window.matchMedia.bind(window);
    vi.spyOn(window, "matchMedia").mockImplementation((query) =>
      query.includes("reduced-motion") ? ({ matches: true } as MediaQueryList) : media(query),
    );
    key(explorer, "v");
    expect(session.state.get("view")).toBe("b");
    key(explorer, "v");
    expect(session.state.get("view")).toBe("a");
  });

  test("keys set B, swap A and B, and open A − B", async () => {
    const { el, session } = await inspect({ step: 300 });
    const explorer = $(el, ".smdw-explorer");
    key(explorer, "c");
    await until(() => session.state.get("compare").step === 300);
    session.state.set({ step: 600 });
    key(explorer, "m");
    expect(session.state.get("view")).toBe("diff");
    await until(() => rows(el).length === 12);
    key(explorer, "x");
    expect(session.state.all()).toMatchObject({ step: 300, compare: { step: 600 } });
    await until(() => $(el, ".smdw-compare-b").textContent === "B = step 600");
    key(explorer, "x");
    key(explorer, "m");
    expect(session.state.all()).toMatchObject({ step: 600, compare: { step: 300 }, view: "side" });
  });

  test("another run has its colour, and B's fields set each part of its place", async () => {
    const { el, session } = await inspect({}, { runs: 2 });
    const set = (label: string, value: string) => {
      const control = $<HTMLInputElement | HTMLSelectElement>(el, `[aria-label='${label}']`);
      control.value = value;
      control.dispatchEvent(new Event("change"));
    };
    button(el, "Compare with").click();
    await until(() => el.querySelectorAll("[aria-label='Run of B'] option").length === 2);
    set("Run of B", "1");
    await until(() => /B: \S*mlp-slow/.test($(el, ".smdw-panel-histogram .smdw-legend").textContent ?? ""));
    set("Tensor of B", "fc2.weight");
    set("Step number of B", "300");
    expect(session.state.get("compare")).toEqual({ run: 1, tensor: "fc2.weight", step: 300 });
    set("Step of B", "-1");
    set("Tensor of B", "no such tensor");
    expect($(el, ".smdw-compare-fault").textContent).toBe("No tensor no such tensor in this run");
    set("Tensor of B", "");
    set("Run of B", "");
    expect(session.state.get("compare")).toEqual({ offset: -1 });
    button(el, "Stop comparing").click();
    expect(session.state.get("compare")).toEqual({});
  });
});
