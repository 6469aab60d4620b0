import { afterEach, expect, test, vi } from "vitest";
import { truth } from "../demo/recorded";
import { layoutHeatmap } from "../src/draw/heatmap";
import { NOT_FINITE } from "../src/lib/colour";
import type { PanelName, Traits } from "../src/protocol/types";
import { $, button, frame, key, type MountedWidget, open, pixel, pointer, until } from "./helpers";

let shown: MountedWidget | undefined;
afterEach(() => {
  vi.useRealTimers();
  shown?.close();
});
const ALL: PanelName[] = ["histogram", "heatmap", "history", "statistics", "values"];
const inspect = async (traits: Partial<Traits> = {}, options = {}) => {
  shown = open({ _kind: "inspector", follow: false, step: 600, panels: ALL, ...traits }, options);
  await until(
    () => shown?.session.store.findFrames(0, (traits.tensor as string) ?? "fc1.weight", "")?.loadedSteps().length,
  );
  return shown;
};
const panel = (name: string) => $(shown?.el as HTMLElement, `.smdw-panel-${name}`);
const readout = (name: string) => panel(name).querySelector(".smdw-readout")?.textContent ?? "";

test("panels show the values of the current step, and a drag sends no requests", async () => {
  const { el, session, source, model } = await inspect();
  await until(
    () =>
      session.store.findFrames(0, "fc1.weight", "")?.loadedSteps().length === 121 && !session.connection.requests.size,
  );
  await until(() => /mean/.test(readout("histogram")));
  await new Promise((resolve) => setTimeout(resolve, 350));
  const asked = source.requests.length;
  // On a slow machine a drag can pause long enough to send a request; fake timers prevent that.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  for (const step of [10, 300, 1200, 640]) {
    model.set("step", step);
    await frame();
    await frame();
    const { max } = truth(`0/fc1.weight/${step}`);
    expect(readout("histogram")).toContain(`max ${Number(max.toPrecision(4))}`);
  }
  expect(source.requests.length).toBe(asked);
  vi.useRealTimers();
  expect($(el, ".smdw-facts").textContent).toContain("float32");
  expect($(el, ".smdw-name").textContent).toBe("fc1.weight");
});

test("a step change redraws the cursor only; a change of the curves' inputs redraws them", async () => {
  const { session, model } = await inspect({ panels: ["history", "statistics"] });
  await until(
    () =>
      session.store.findFrames(0, "fc1.weight", "")?.loadedSteps().length === 121 && !session.connection.requests.size,
  );
  for (let i = 0; i < 4; i++) await frame();
  const line = vi.spyOn(CanvasRenderingContext2D.prototype, "lineTo");
  const drawn = async (trait: string, value: unknown) => {
    line.mockClear();
    model.set(trait, value);
    await frame();
    await frame();
    return line.mock.calls.length;
  };
  expect(await drawn("step", 300)).toBeGreaterThan(0);
  expect(await drawn("step", 310)).toBeLessThan(20);
  expect(await drawn("range", [100, 900])).toBeGreaterThan(100);
  expect(await drawn("step", 320)).toBeLessThan(20);
  expect(await drawn("stats", ["mean", "max"])).toBeGreaterThan(100);
  line.mockRestore();
});

test("each event of a drag is shown in the next frame", async () => {
  const { el, session } = await inspect();
  await until(() => session.store.findFrames(0, "fc1.weight", "")?.loadedSteps().length === 121);
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-track canvas");
  pointer(canvas, "pointerdown", 12, 20);
  const drawn: string[] = [];
  for (let x = 12; x < 400; x += 8) {
    pointer(canvas, "pointermove", x, 20);
    await frame();
    // the frame after the event already shows its step
    await Promise.resolve();
    drawn.push(`${$(el, "[role=slider]").getAttribute("aria-valuenow")}=${shown?.model.get("step")}`);
  }
  pointer(canvas, "pointerup", 400, 20);
  expect(drawn.every((pair) => pair.split("=")[0] === pair.split("=")[1])).toBe(true);
});

test("NaN and infinities are counted, marked and not in a bin", async () => {
  const { el } = await inspect({ tensor: "gradient/fc1.weight", step: 720, palette: "viridis" });
  const { nan, inf, size } = truth("0/gradient/fc1.weight/720");
  await until(() => $(el, ".smdw-chips").textContent?.includes(`NaN${nan} `));
  expect($(el, ".smdw-chip").classList.contains("smdw-bad")).toBe(true);
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-heatmap canvas");
  const box = layoutHeatmap([0, 48, 0, 112], { width: canvas.clientWidth, height: canvas.clientHeight });
  // the first cell is infinite at this step
  await until(
    () =>
      pixel(canvas, box.x + 1, box.y + 1)
        .slice(0, 3)
        .join() === NOT_FINITE.posInf.join(),
  );
  const held = shown?.session.store.findFrames(0, "gradient/fc1.weight", "")?.frames.get(720);
  const hist = held?.histograms.get("linear/shared");
  expect((hist?.counts.reduce((a, b) => a + b, 0) ?? 0) + (hist?.below ?? 0) + (hist?.above ?? 0)).toBe(
    size - nan - inf,
  );
});

test("the readout shows the exact value under the pointer", async () => {
  const { el } = await inspect({ tensor: "fc3.weight" });
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-heatmap canvas");
  await until(() => /cells/.test(readout("heatmap")));
  const box = layoutHeatmap([0, 10, 0, 32], { width: canvas.clientWidth, height: canvas.clientHeight });
  pointer(canvas, "pointermove", box.x + (box.width * 5.5) / 32, box.y + (box.height * 3.5) / 10);
  await until(() => /^\[3, 5\] \u2248/.test(readout("heatmap")));
  const exact = truth("0/fc3.weight/600").cells["3, 5"] as number;
  const text = await until(() => /^\[3, 5\] = (.*)$/.exec(readout("heatmap"))?.[1]);
  expect(Math.fround(Number(text))).toBe(Math.fround(exact));
});

test("zooming requests a tile when idle, keys reach every cell, a drag selects cells", async () => {
  const { el, session, source } = await inspect();
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-heatmap canvas");
  await until(() => /cells/.test(readout("heatmap")));
  canvas.focus();
  key(canvas, "+");
  key(canvas, "+");
  expect(session.state.get("zoom")).toHaveLength(4);
  await until(() =>
    source.requests.some((question) => question.what === "tile" && question.rows[1] - question.rows[0] <= 13),
  );
  await until(() => session.store.tile((head) => head.exact));
  key(canvas, "ArrowDown");
  await until(() => /^\[\d+, \d+\]/.test(readout("heatmap")));
  key(canvas, "0");
  expect(session.state.get("zoom")).toEqual([]);
  await frame();
  pointer(canvas, "pointerdown", 60, 20);
  pointer(canvas, "pointermove", 120, 60);
  pointer(canvas, "pointerup", 120, 60);
  expect(session.state.get("selection")).toMatchObject({ kind: "cells" });
});

test("a change of bins requests their frames once; other options request nothing", async () => {
  const { el, session, source } = await inspect({ panels: ["histogram", "history"] });
  await until(() => !session.connection.requests.size);
  const asked = () => source.requests.filter((question) => question.what === "frames").length;
  const before = asked();
  button(el, "Symlog").click();
  await until(() => session.store.findFrames(0, "fc1.weight", "")?.frameAt(600)?.histograms.has("symlog/shared"));
  expect(asked()).toBe(before + 1);
  await until(() => !session.connection.requests.size);
  button(el, "Log counts").click();
  button(el, "Ridge").click();
  await frame();
  await frame();
  expect(session.state.get("history")).toBe("ridge");
  expect(asked()).toBe(before + 1);
});

test("any two axes of a 4-d tensor can be displayed", async () => {
  const { el, session } = await inspect({ tensor: "conv1.weight" });
  await until(() => !$(el, ".smdw-slice").hidden);
  const select = $<HTMLSelectElement>(el, "[aria-label='Row axis']");
  select.value = "0";
  select.dispatchEvent(new Event("change"));
  expect(session.state.get("axes")).toEqual([0, 3]);
  await until(() => session.store.findFrames(0, "conv1.weight", "")?.frameAt(600)?.images.has("0,3/,0,0,/maxabs"));
  const index = await until(() => el.querySelector<HTMLInputElement>("[data-axis='1']"));
  index.value = "99";
  index.dispatchEvent(new Event("change", { bubbles: true }));
  expect(session.state.get("fixed")).toEqual([0, 2, 0, 0]);
});

test("the table shows exact values of the visible rows at the current step", async () => {
  const { session } = await inspect({ panels: ["values"] });
  const cell = () => [
    ...panel("values").querySelectorAll(".smdw-cell:not(.smdw-col-head, .smdw-row-head, .smdw-corner-head)"),
  ];
  const first = () => Number(cell()[0]?.textContent?.replace("\u2212", "-"));
  const cellOf = (step: number, cell: string) => truth(`0/fc1.weight/${step}`).cells[cell] as number;
  await until(() => first() === cellOf(600, "0, 0"));
  const scroll = $(panel("values"), ".smdw-scroll");
  scroll.scrollTop = 22 * 30;
  await until(() => first() === cellOf(600, "30, 0"));
  session.state.set({ step: 700 });
  await until(() => first() === cellOf(700, "30, 0"));
  expect(panel("values").querySelectorAll(".smdw-cell").length).toBeLessThan(300);
});

test("exact values are not truncated: columns fit the longest number of their type", async () => {
  const { session } = await inspect({ panels: ["values"] });
  const first = () => [...panel("values").querySelectorAll<HTMLElement>("[role=gridcell]")][0];
  await until(() => /\d/.test(first()?.textContent ?? ""));
  for (const [dtype, longest] of [
    ["float32", "-1.1754944e-38"],
    ["float64", "-2.2250738585072014e-308"],
    ["int64", "-9223372036854775808"],
    ["complex64", "-1.1754944e-38-1.1754944e-38j"],
    ["complex128", "-2.2250738585072014e-308-2.2250738585072014e-308j"],
  ] as const) {
    const plan = session.store.findFrames(0, "fc1.weight", "")?.plan;
    if (plan) plan.dtype = dtype;
    session.store.notify();
    await frame();
    await frame();
    const cell = first() as HTMLElement;
    cell.textContent = longest;
    expect(cell.scrollWidth, dtype).toBeLessThanOrEqual(cell.clientWidth);
  }
});

test("a step or a run can be compared; a missing step is replaced by the latest earlier one and marked", async () => {
  const { el, session } = await inspect({ panels: ["histogram", "statistics"] }, { runs: 2 });
  key($(el, ".smdw-inspector"), "c");
  await until(() => session.state.get("compare").step === 600);
  const choose = async (label: string, value: string) => {
    const select = $<HTMLSelectElement>(el, `[aria-label='${label}']`);
    await until(() => [...select.options].some((option) => option.value === value));
    select.value = value;
    select.dispatchEvent(new Event("change"));
  };
  await choose("Run of B", "1");
  await choose("Step of B", "same");
  expect(session.state.get("compare")).toEqual({ run: 1 });
  session.state.set({ step: 1200 });
  // In steps of the whole run, as the step box counts.
  await until(() => {
    const { savedStep } = session.scene().compared ?? {};
    return $(el, ".smdw-from").textContent === `mlp-slow: not saved at this step: showing step ${savedStep}`;
  });
  // Both use the same bins, so the readout shows both counts.
  const { edges } = await until(() => {
    const both = [0, 1].map((run) => session.store.findFrames(run, "fc1.weight", "")?.frameAt(run ? 810 : 1200));
    const [mine, its] = both.map((frame) => frame?.histograms.get("linear/shared/0 /1 "));
    return mine && its && String(mine.edges) === String(its.edges) && mine;
  });
  for (const place of ["0/fc1.weight/1200", "1/fc1.weight/810"]) {
    expect(edges[0]).toBeLessThanOrEqual(truth(place).min);
    expect(edges.at(-1)).toBeGreaterThanOrEqual(truth(place).max);
  }
  const canvas = $(panel("histogram"), "canvas");
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(
    new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 100, bubbles: true }),
  );
  await until(() =>
    /values, [\d.]+%\s+\u00b7\s+B [\d,]+$/.test($(panel("histogram"), ".smdw-readout").textContent ?? ""),
  );
  button(el, "Stop comparing").click();
  expect(session.state.get("compare")).toEqual({});
});

test.each(["tokens", "all.nan", "nothing", "CrossEntropyLoss_output_0", "fc1.bias", "<img src=x onerror=alert(1)>"])(
  "tensor %s is displayed safely",
  async (name) => {
    const alarm = vi.spyOn(window, "alert");
    const errors: unknown[] = [];
    const caught = (event: ErrorEvent) => errors.push(event.error);
    window.addEventListener("error", caught);
    const { el, session } = await inspect({ tensor: name });
    await until(() => !session.connection.requests.size);
    for (const hist_scale of ["linear", "log", "symlog"] as const) {
      session.state.set({ hist_scale, history: hist_scale === "log" ? "ridge" : "strip" });
      await until(() => !session.connection.requests.size);
      await frame();
    }
    expect($(el, ".smdw-name").textContent).toBe(name);
    expect(el.querySelector("img")).toBeNull();
    expect(alarm).not.toHaveBeenCalled();
    expect(errors).toEqual([]);
    window.removeEventListener("error", caught);
  },
);

test("an error appears in its panel and the others keep working", async () => {
  shown = open({ _kind: "inspector", tensor: "missing", panels: ALL });
  await until(() => /missing/.test(panel("histogram").querySelector(".smdw-note")?.textContent ?? ""));
  shown.session.state.set({ tensor: "fc1.weight" });
  await until(() => /mean/.test(readout("histogram")));
});

test("a panel exports CSV, SVG, PNG and Python code", async () => {
  await inspect({ panels: ["histogram"] });
  await until(() => /mean/.test(readout("histogram")));
  const saved: Blob[] = [];
  const url = vi
    .spyOn(URL, "createObjectURL")
    .mockImplementation((blob) => (saved.push(blob as Blob) ? "about:blank#" : ""));
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
  const copied = vi.spyOn(navigator.clipboard, "writeText").mockResolvedValue();
  try {
    button(panel("histogram"), "Histogram menu").click();
    for (const name of ["CSV", "SVG", "PNG"]) button(panel("histogram"), name).click();
    await until(() => saved.length === 3);
    const texts = await Promise.all(saved.map((blob) => blob.text()));
    const csv = texts.find((text) => text.startsWith("from,to,count")) as string;
    const sum = csv
      .trim()
      .split("\n")
      .slice(1)
      .reduce((total, row) => total + Number(row.split(",")[2]), 0);
    expect(sum).toBe(48 * 112);
    const svg = texts.find((text) => text.startsWith("<svg")) as string;
    for (const text of ["fc1.weight", "Histogram", "step 600", "number of elements by value"])
      expect(svg).toContain(text);
    expect(new DOMParser().parseFromString(svg, "image/svg+xml").querySelector("parsererror")).toBeNull();
    expect(saved.find((blob) => blob.type === "image/png")?.size).toBeGreaterThan(1000);
    button(panel("histogram"), "Copy as Python").click();
    expect(copied).toHaveBeenCalledWith(
      'smdwidgets.create_trial("runs/mlp").tensor("fc1.weight").value(540, mode=smdwidgets.modes.TRAIN)',
    );
  } finally {
    for (const spy of [url, click, copied]) spy.mockRestore();
  }
});

test("markup in string values is shown as text", async () => {
  await inspect({ tensor: "tokens", panels: ["values"] });
  await until(() => panel("values").textContent?.includes("<b>bold</b>"));
  expect(panel("values").querySelector("b")).toBeNull();
});
