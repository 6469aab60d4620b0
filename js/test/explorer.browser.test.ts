import axe from "axe-core";
import { afterEach, describe, expect, test, vi } from "vitest";
import { catalog, LAST, packetsOf } from "../demo/recorded";
import { start } from "../src/exported-page";
import { encode } from "../src/protocol/packet";
import { KernelClient } from "../src/session/client";
import { LocalModel } from "../src/session/state";
import widget from "../src/widget";
import css from "../src/widget.css?inline";
import { $, button, frame, key, type MountedWidget, open, pointer, until } from "./helpers";
import { stepsPacket } from "./packets";

let shown: MountedWidget | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});
const ALL = ["histogram", "heatmap", "history", "statistics", "scalars", "values", "rules"] as const;
const rows = (el: Element) =>
  [...el.querySelectorAll(".smdw-row")].map((row) => row.querySelector(".smdw-label")?.textContent);
const ready = () => until(() => shown?.el.querySelector(".smdw-row"));

describe("tensor tree", () => {
  test("renders 10,000 tensors with few elements, filters them fast, and reports an invalid pattern", async () => {
    shown = open({ _kind: "explorer", panels: [], follow: false, step: 0 }, { many: true });
    await ready();
    const { el, session } = shown;
    expect(el.querySelectorAll(".smdw-row").length).toBeLessThan(60);
    const tree = $(el, "[role=tree]");
    const filter = $<HTMLInputElement>(el, "[type=search]");
    filter.value = "layer7 query";
    const before = performance.now();
    filter.dispatchEvent(new Event("input"));
    await until(() => rows(el)[0]?.includes("query"));
    expect(performance.now() - before).toBeLessThan(1000);
    button(el, "Regex").click();
    filter.value = "layer\\.7/.*key$";
    filter.dispatchEvent(new Event("input"));
    await until(() => rows(el).every((label) => /layer\.7\/.*key$/.test(label ?? "")));
    expect(rows(el)).toHaveLength(5);
    filter.value = "layer(";
    filter.dispatchEvent(new Event("input"));
    await until(() => /invalid pattern/i.test(el.querySelector(".smdw-tensors .smdw-error")?.textContent ?? ""));
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    await until(() => (rows(el)[0] ?? "") === "biases");
    key(tree, "End");
    await until(() => tree.scrollTop > 10_000);
    expect(session.state.get("filter_kind")).toBe("regex");
  });

  test("supports keyboards and screen readers", async () => {
    shown = open({ _kind: "explorer", panels: [], tensor: "" });
    await ready();
    const { el, model } = shown;
    const tree = $(el, "[role=tree]");
    key(tree, "Home");
    await frame();
    key(tree, "ArrowRight");
    await until(() => tree.getAttribute("aria-activedescendant"));
    key(tree, "Enter");
    expect(model.get("tensor")).toBe("fc1.bias");
    key(tree, "ArrowLeft");
    key(tree, "ArrowLeft");
    await until(() => (model.get("closed") as string[]).includes("biases"));
    await until(() => tree.querySelector("[aria-expanded=false]")?.textContent?.includes("biases"));
  });
});

describe("rules", () => {
  test("a click on a firing goes to its step and tensor", async () => {
    shown = open({ _kind: "explorer", panels: ["rules"], follow: false, step: 0 });
    const { el, model } = shown;
    await until(() => el.querySelectorAll(".smdw-rule").length === 4);
    expect($(el, ".smdw-status").textContent).toContain("Found");
    const strip = $(el, ".smdw-rule .smdw-strip canvas");
    await until(() => strip.clientWidth > 50);
    await frame();
    const at = 4 + ((strip.clientWidth - 8) * 720) / LAST;
    pointer(strip, "pointerdown", at, 10);
    expect([700, 710, 720, 730, 740, 750]).toContain(model.get("step"));
    expect(model.get("tensor")).toBe("gradient/fc1.weight");
    const focus = $(el, ".smdw-rule .smdw-strip");
    key(focus, "Home");
    expect(model.get("step")).toBe(700);
    key(focus, "ArrowRight");
    expect(model.get("step")).toBe(710);
  });

  test("parameters are editable; an invalid value is marked and not sent", async () => {
    shown = open({ _kind: "rules" });
    const { el, source } = shown;
    await until(() => el.querySelectorAll(".smdw-rule").length === 4);
    button(el, "VanishingGradient").click();
    const input = await until(() => el.querySelector<HTMLInputElement>(".smdw-params .smdw-input"));
    expect(input.value).toBe("0.00001");
    expect(input.classList.contains("smdw-changed")).toBe(true);
    input.value = "a lot";
    input.dispatchEvent(new Event("change"));
    expect(input.getAttribute("aria-invalid")).toBe("true");
    input.value = "1e-3";
    input.dispatchEvent(new Event("change"));
    await until(() => source.commands.some((command) => command.do === "set" && command.params?.threshold === 0.001));
  });

  test("a rule pauses, resumes and stops, and the others are not affected", async () => {
    shown = open({ _kind: "rules" });
    const { el } = shown;
    await until(() => el.querySelectorAll(".smdw-rule").length === 4);
    const labels = () => [...el.querySelectorAll<HTMLElement>(".smdw-status")].map((each) => each.dataset.status);
    const others = labels().toSpliced(3, 1);
    const row = el.querySelectorAll<HTMLElement>(".smdw-rule")[3] as HTMLElement;
    for (const [click, label, visible] of [
      ["Pause rule", "Paused", "Run rule"],
      ["Run rule", "Running", "Pause rule"],
      ["Stop rule", "Stopped", "Run rule"],
      ["Run rule", "Running", "Pause rule"],
    ] as const) {
      button(row, click).click();
      await until(() => labels()[3] === label);
      expect(button(row, visible).hidden).toBe(false);
      expect(button(row, visible).matches(":disabled")).toBe(false);
      expect(labels().toSpliced(3, 1)).toEqual(others);
    }
    const finished = el.querySelectorAll<HTMLElement>(".smdw-rule")[0] as HTMLElement;
    expect(button(finished, "Run rule").matches(":disabled")).toBe(true);
    expect(button(finished, "Stop rule").matches(":disabled")).toBe(true);
  });

  test("rules can be removed and added, including rules defined in the notebook", async () => {
    shown = open({ _kind: "rules" });
    const { el } = shown;
    await until(() => el.querySelectorAll(".smdw-rule").length === 4);
    button(el, "Remove rule").click();
    await until(() => el.querySelectorAll(".smdw-rule").length === 3);
    const add = $<HTMLSelectElement>(el, "[aria-label='Add rule']");
    add.dispatchEvent(new Event("focus"));
    await until(() => [...add.options].some((option) => option.textContent === "MyRule (custom)"));
    add.value = "MyRule";
    add.dispatchEvent(new Event("change"));
    await until(() => el.querySelectorAll(".smdw-rule").length === 4);
  });
});

test("curves support smoothing, ranges and reductions of the tensor in view", async () => {
  shown = open({ _kind: "scalars" }, { runs: 2 });
  const { el, session } = shown;
  await until(() => el.querySelectorAll(".smdw-legend li").length === 8);
  session.state.set({ smoothing: 5, log_y: true });
  const canvas = $(el, ".smdw-figure-scalars canvas");
  pointer(canvas, "pointerdown", 100, 50);
  pointer(canvas, "pointermove", 300, 50);
  expect(session.state.get("selection")).toMatchObject({ kind: "steps" });
  pointer(canvas, "pointerup", 300, 50);
  expect(session.state.get("range")).toHaveLength(2);
  await until(() => !button(el, "All steps").hidden);
  button(el, "Add curve").click();
  expect(session.state.get("series").at(-1)).toEqual({ tensor: "fc1.weight", stat: "value", run: -1 });
});

test.each([
  [{ weights: [3, 1], gradients: [0] }, "layers.2.weight"],
  [{ gradients: [0], losses: [4] }, "gradient/a"],
  [{}, "a"],
])(
  "an empty run that gets its first step shows the tensor that a new widget would show",
  async (collections, first) => {
    const tensors = ["gradient/a", "layers.10.weight", "a", "layers.2.weight", "loss"];
    const none = { append: false, tensors: [], collections: {}, restarted_at: 1.7e9 };
    shown = open({ _kind: "explorer", tensor: "" });
    const { el, session } = shown;
    await until(() => session.store.runs.get(0)?.names.length);
    session.store.addPackets([stepsPacket(0, 0, none)]);
    await until(() => el.textContent?.includes("No step saved yet"));
    expect(session.state.get("tensor")).toBe("");
    session.store.addPackets([stepsPacket(-10, 0, { ...none, append: true, tensors, collections })]);
    await until(() => session.state.get("tensor") === first);
    // A tensor that the user selects afterwards stays.
    session.state.set({ tensor: "loss" });
    session.store.addPackets([stepsPacket(0, 20, { ...none, append: true })]);
    await until(() => session.state.get("step") === 20);
    expect(session.state.get("tensor")).toBe("loss");
  },
);

test("a widget that was opened without a tensor on a run with tensors stays without one", async () => {
  shown = open({ _kind: "explorer", tensor: "" });
  const { session } = shown;
  await until(() => session.store.runs.get(0)?.names.length);
  session.store.addPackets([stepsPacket(1200, 1210)]);
  await until(() => session.state.get("step") === 1210);
  expect(session.state.get("tensor")).toBe("");
});

describe.each([
  [1200, false],
  [500, true],
] as const)("at %i pixels", (width, dark) => {
  test("nothing overflows and axe finds no violation", async () => {
    const overflow = document.documentElement.style;
    shown = open(
      { _kind: "explorer", panels: [...ALL], tensor: "gradient/fc1.weight", step: 720, follow: false },
      { width, dark },
    );
    const { el, session } = shown;
    await ready();
    await until(() => el.querySelectorAll(".smdw-rule").length === 4 && !session.requests.size);
    await frame();
    expect(el.dataset.theme).toBe(dark ? "dark" : "light");
    expect(el.scrollWidth).toBeLessThanOrEqual(width);
    for (const panel of el.querySelectorAll(".smdw-panel"))
      expect(panel.scrollWidth, panel.className).toBeLessThanOrEqual(panel.clientWidth + 1);
    for (const more of el.querySelectorAll<HTMLButtonElement>(".smdw-corner > button")) {
      more.click();
      await frame();
      const result = await axe.run(el, { rules: { region: { enabled: false } } });
      expect(
        result.violations.map(
          (violation) => `${violation.id}: ${violation.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`,
        ),
      ).toEqual([]);
      more.click();
      if (more !== el.querySelector(".smdw-corner > button")) break;
    }
    expect(overflow).toBeDefined();
  });
});

test("a narrow explorer opens the tree over the panels and closes it when a tensor is selected", async () => {
  shown = open({ _kind: "explorer", panels: ["histogram"] }, { width: 500 });
  const { el, model } = shown;
  await frame();
  expect($(el, ".smdw-tensors").clientHeight).toBe(0);
  button(el, "Tensors").click();
  const row = await until(() =>
    [...el.querySelectorAll<HTMLElement>(".smdw-row-tensor")].find((each) => each.textContent === "fc2.bias"),
  );
  row.click();
  expect(model.get("tensor")).toBe("fc2.bias");
  expect($(el, ".smdw-tensors").clientHeight).toBe(0);
});

test("works in a shadow root, including keys", async () => {
  shown = open({ _kind: "slider", step: 600, follow: false }, { shadow: true });
  const track = $(shown.el, "[role=slider]");
  await until(() => track.getAttribute("aria-valuenow") === "600");
  key(track, "ArrowRight");
  expect(shown.model.get("step")).toBe(610);
});

test("a removed view leaves no listener, element or failing timer", async () => {
  shown = open({ _kind: "explorer", panels: [...ALL] });
  const { el, model, control } = shown;
  await ready();
  const errors: unknown[] = [];
  const caught = (event: ErrorEvent) => errors.push(event.error);
  window.addEventListener("error", caught);
  control.abort();
  expect(model.listeners()).toBe(0);
  expect(el.childElementCount).toBe(0);
  model.set("step", 10);
  expect(key(el, "ArrowRight").defaultPrevented).toBe(false);
  await new Promise((resolve) => setTimeout(resolve, 300));
  window.removeEventListener("error", caught);
  expect(errors).toEqual([]);
});

test("two views of one widget are synchronised, and one can be removed", async () => {
  const model = new LocalModel({ _kind: "slider", follow: false, step: 100, _boot: [new DataView(await catalog())] });
  const made = widget();
  const whole = new AbortController();
  made.initialize({ model, signal: whole.signal } as never);
  const views = [0, 1].map(() => {
    const el = document.createElement("div");
    el.append(document.createElement("style"));
    document.body.append(el);
    const control = new AbortController();
    made.render({ model, el, signal: control.signal } as never);
    return { el, control };
  });
  const now = (i: number) => views[i]?.el.querySelector("[role=slider]")?.getAttribute("aria-valuenow");
  await until(() => now(0) === "100" && now(1) === "100");
  key($(views[0]?.el as HTMLElement, "[role=slider]"), "ArrowRight");
  await until(() => now(1) === "110");
  views[0]?.control.abort();
  model.set("step", 130);
  await until(() => now(1) === "130");
  whole.abort();
  views[1]?.control.abort();
  expect(model.listeners()).toBe(0);
  for (const { el } of views) el.remove();
});

test("the initial state is shown even if the kernel never responds", async () => {
  const boot = [await catalog(), ...(await packetsOf({ what: "frames", tensor: "fc3.weight" }))].map(
    (buffer) => new DataView(buffer),
  );
  const model = new LocalModel({ _kind: "inspector", tensor: "fc3.weight", panels: ["histogram"], _boot: boot });
  const el = document.createElement("div");
  document.body.append(el);
  const control = new AbortController();
  const made = widget();
  const started = performance.now();
  made.initialize({ model, signal: control.signal } as never);
  made.render({ model, el, signal: control.signal } as never);
  expect(performance.now() - started).toBeLessThan(2000);
  await until(() => /mean/.test(el.querySelector(".smdw-readout")?.textContent ?? ""));
  await until(() => el.querySelector(".smdw-note")?.textContent === "Kernel busy");
  expect(el.querySelector(".smdw-readout")?.textContent).toContain("mean");
  control.abort();
  el.remove();
  expect(KernelClient).toBeDefined();
});

test("an exported page supports the slider and reports data that was not exported", async () => {
  const packets = [
    encode({
      kind: "page",
      opened: { 0: ["fc3.weight"] },
      traits: {
        _kind: "explorer",
        tensor: "fc3.weight",
        step: 300,
        panels: ["histogram", "heatmap", "values", "rules"],
      },
    }),
    ...(await packetsOf({ what: "hello" })),
    ...(await packetsOf({ what: "frames", tensor: "fc3.weight" })),
  ];
  const holder = document.createElement("div");
  for (const packet of packets) {
    const script = document.createElement("script");
    script.type = "application/octet-stream;base64";
    script.className = "smdw-packet";
    script.textContent = btoa(Array.from(new Uint8Array(packet), (byte) => String.fromCharCode(byte)).join(""));
    holder.append(script);
  }
  const el = document.createElement("div");
  holder.append(Object.assign(document.createElement("style"), { textContent: css }), el);
  document.body.append(holder);
  const fetched = vi.spyOn(window, "fetch");
  const control = new AbortController();
  start(holder, el, control.signal);
  const track = await until(() => el.querySelector<HTMLElement>("[role=slider]"));
  await until(() => track.getAttribute("aria-valuenow") === "300");
  key(track, "ArrowRight");
  await until(() => track.getAttribute("aria-valuenow") === "310");
  await until(() => /mean/.test($(el, ".smdw-panel-histogram .smdw-readout").textContent ?? ""));
  expect(el.querySelector(".smdw-panel-values")).toBeNull();
  expect(button(el, "Values").title).toBe("Not in this file");
  expect($<HTMLElement>(el, ".smdw-rule-controls").hidden).toBe(true);
  const row = await until(() =>
    [...el.querySelectorAll<HTMLElement>(".smdw-row-tensor")].find((each) => each.title.startsWith("fc2.bias")),
  );
  expect(row.title).toContain("Not in this file");
  row.click();
  await until(() => $(el, ".smdw-name").textContent === "fc2.bias");
  expect(fetched).not.toHaveBeenCalled();
  control.abort();
  holder.remove();
});
