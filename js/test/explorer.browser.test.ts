import axe from "axe-core";
import { afterEach, describe, expect, test, vi } from "vitest";
import { catalog, packetsOf } from "../demo/recorded";
import { start } from "../src/exported-page";
import { encode } from "../src/protocol/packet";
import { KernelClient } from "../src/session/client";
import { LocalModel } from "../src/session/state";
import widget from "../src/widget";
import css from "../src/widget.css?inline";
import { $, button, frame, key, loaded, type MountedWidget, open, pointer, until } from "./helpers";
import { stepsPacket } from "./packets";

let shown: MountedWidget | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});
const ALL = ["histogram", "heatmap", "history", "statistics", "scalars", "values", "rules"] as const;
const ready = () => until(() => shown?.el.querySelector(".smdw-map-row"));

describe("query", () => {
  const names = (el: Element) => [...el.querySelectorAll<HTMLElement>(".smdw-map-row:not(.smdw-map-module)")];

  test("of 10,000 tensors, few have elements, and the query is fast", async () => {
    shown = open({ _kind: "explorer", follow: false, step: 0 }, { many: true });
    await ready();
    const { el } = shown;
    expect(el.querySelectorAll(".smdw-map-row").length).toBeLessThan(60);
    const filter = $<HTMLInputElement>(el, "[type=search]");
    key($(el, ".smdw-explorer"), "/");
    expect(filter.matches(":focus")).toBe(true);
    filter.value = "layer.7/*query";
    const before = performance.now();
    filter.dispatchEvent(new Event("input"));
    await until(() => names(el).length > 0 && names(el).every((row) => /query/.test(row.title)));
    expect(performance.now() - before).toBeLessThan(1000);
    expect(el.querySelectorAll(".smdw-map-row").length).toBeLessThan(60);
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    await until(() => names(el).length === 0 || names(el).some((row) => !/query/.test(row.title)));
  });
});

test("map and timeline are saved as a picture with names, step and legend", async () => {
  shown = open({ _kind: "explorer", follow: false, step: 300, inspect: true, tensor: "fc3.weight" });
  await ready();
  await until(() => shown?.el.querySelectorAll(".smdw-lane-rule").length === 3);
  const saved: Blob[] = [];
  const url = vi
    .spyOn(URL, "createObjectURL")
    .mockImplementation((blob) => (saved.push(blob as Blob) ? "about:blank#" : ""));
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
  try {
    button(shown.el, "Export").click();
    await until(() => shown?.el.querySelectorAll(".smdw-run .smdw-actions button").length === 4);
    for (const name of ["Save as SVG", "Save as PNG"]) button(shown.el, name).click();
    await until(() => saved.length === 2);
    const text = (await saved.find((blob) => blob.type === "image/svg+xml")?.text()) ?? "";
    const svg = new DOMParser().parseFromString(text, "image/svg+xml");
    expect(svg.querySelector("parsererror")).toBeNull();
    const texts = [...svg.querySelectorAll("text")].map((each) => each.textContent);
    for (const one of [
      "fc1",
      "ExplodingTensor",
      "mode",
      "NaN",
      "step 300 \u00b7 fc3.weight \u00b7 colour: size relative to start",
    ])
      expect(
        texts.some((each) => each?.startsWith(one.slice(0, 9)) && one.startsWith(each.replace(/\u2026$/, ""))),
      ).toBe(true);
    expect(texts.some((each) => each?.endsWith("its start"))).toBe(true);
    expect(svg.querySelectorAll("image").length).toBeGreaterThan(0);
    expect(texts).not.toContain("Export");
    const png = saved.find((blob) => blob.type === "image/png");
    const bitmap = await createImageBitmap(png as Blob);
    expect(bitmap.width).toBe(2 * Math.round($(shown.el, ".smdw-stage").clientWidth));
  } finally {
    for (const spy of [url, click]) spy.mockRestore();
  }
});

describe("rules", () => {
  test("a click on a firing in a lane goes to its step and tensor, and so do the keys", async () => {
    shown = open({ _kind: "explorer", follow: false, step: 0 });
    const { el, model, session } = shown;
    await until(() => el.querySelectorAll(".smdw-lane-rule").length === 3);
    const names = () => [...el.querySelectorAll(".smdw-lane-rule .smdw-lane-name")].map((each) => each.textContent);
    await until(() => names()[0] === "ExplodingTensor");
    const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-lanes canvas");
    await until(() => canvas.clientHeight > 90);
    await frame();
    const axis = session.scene(1000 - 2).stepAxis;
    const lane = $(el, ".smdw-lane-rule");
    const y = lane.offsetTop + 6;
    pointer(canvas, "pointerdown", axis.x(721), y);
    pointer(canvas, "pointerup", axis.x(721), y);
    expect(model.get("step")).toBe(720);
    expect(model.get("tensor")).toBe("gradient/fc1.weight");
    const explorer = $(el, ".smdw-explorer");
    await frame();
    key(explorer, ".");
    expect(model.get("step")).toBe(730);
    await frame();
    key(explorer, ",");
    await frame();
    key(explorer, ",");
    expect(model.get("step")).toBe(710);
  });

  test("the label of a lane opens the rule's parameters and findings", async () => {
    shown = open({ _kind: "explorer", follow: false, step: 0 });
    const { el, source, model } = shown;
    const label = (name: string) =>
      [...el.querySelectorAll<HTMLElement>(".smdw-lane-button")].find((each) => each.textContent?.includes(name));
    const vanishing = await until(() => label("VanishingGradient"));
    vanishing.click();
    const input = await until(() =>
      [...el.querySelectorAll<HTMLInputElement>(".smdw-params .smdw-input")].find((each) => each.clientWidth > 0),
    );
    input.value = "1e-3";
    input.dispatchEvent(new Event("change"));
    await until(() => source.commands.some((command) => command.what === "rule" && command.do === "set"));
    key(input, "Escape");
    await until(() => vanishing.getAttribute("aria-expanded") === "false");
    label("ExplodingTensor")?.click();
    const found = await until(() =>
      [...el.querySelectorAll<HTMLElement>(".smdw-firings button")].find((each) => each.textContent === "step 740"),
    );
    found.click();
    expect(model.get("step")).toBe(740);
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

const violations = async (el: Element) => {
  // With target-size, controls have 24 pixels in both directions, or room around them.
  const result = await axe.run(el, { rules: { region: { enabled: false }, "target-size": { enabled: true } } });
  return result.violations
    .map(({ id, nodes }) => {
      // What the low lanes of rules do, their tab does, too.
      const html = nodes.map((node) => node.html.slice(0, 120));
      return [id, ...html.filter((text) => id !== "target-size" || !text.includes("smdw-lane-button"))];
    })
    .filter(({ length }) => length > 1);
};
/** Elements that show text, and whose text is cut without an ellipsis or lies over another one's. */
function collisions(el: HTMLElement): string[] {
  const texts = [...el.querySelectorAll<HTMLElement>("*")].filter((each) => {
    // Words of one sentence do not lie over each other; where a line breaks, their boxes do.
    const own = ".smdw-sr, .smdw-popover, .smdw-menu, .smdw-tabs, canvas, .smdw-diagnosis-sentence *";
    if (each.closest(own) || !each.checkVisibility()) return false;
    return [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent?.trim());
  });
  const clip = (each: HTMLElement) => {
    let { left, right, top, bottom } = each.getBoundingClientRect();
    for (let at: HTMLElement | null = each.parentElement; at && at !== el; at = at.parentElement)
      if (getComputedStyle(at).overflow !== "visible") {
        const box = at.getBoundingClientRect();
        [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
        [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
      }
    return { each, left, right, top, bottom };
  };
  const boxes = texts.map(clip).filter(({ left, right, top, bottom }) => right - left > 1 && bottom - top > 1);
  return boxes.flatMap((a, i) =>
    boxes
      .slice(i + 1)
      .filter(
        (b) =>
          !a.each.contains(b.each) &&
          !b.each.contains(a.each) &&
          Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3,
      )
      .map((b) => `${a.each.className} "${a.each.textContent}" over ${b.each.className} "${b.each.textContent}"`),
  );
}

describe.each([
  [1440, false],
  [1000, false],
  [900, true],
  [700, false],
  [500, true],
  [420, false],
] as const)("at %i pixels", (width, dark) => {
  test.each([false, true])(
    "the height is 600, nothing overflows, axe finds no violation; inspector: %s",
    async (inspect) => {
      shown = open(
        { _kind: "explorer", panels: [...ALL], tensor: "gradient/fc1.weight", step: 720, follow: false },
        { width, dark },
      );
      const { el, session } = shown;
      await ready();
      session.state.set({ inspect });
      await loaded(el);
      await until(() => el.querySelectorAll(".smdw-lane-rule").length === 3 && !session.connection.requests.size);
      await frame();
      await frame();
      expect(el.dataset.theme).toBe(dark ? "dark" : "light");
      const explorer = $(el, ".smdw-explorer");
      expect(el.getBoundingClientRect().height).toBe(600);
      expect(explorer.scrollHeight).toBeLessThanOrEqual(600);
      const wide = [...explorer.querySelectorAll<HTMLElement>("*")].filter(
        (each) =>
          each.checkVisibility() &&
          !each.closest(".smdw-sr, .smdw-multiples, .smdw-scroll, .smdw-map, .smdw-popover") &&
          each.getBoundingClientRect().right > explorer.getBoundingClientRect().right + 0.5,
      );
      expect(wide.map((each) => `${each.className} ${each.textContent?.slice(0, 40)}`)).toEqual([]);
      expect(explorer.scrollWidth).toBeLessThanOrEqual(width);
      for (const part of explorer.querySelectorAll(
        ".smdw-run, .smdw-diagnosis, .smdw-toolbar, .smdw-tensor-bar, .smdw-picture",
      ))
        expect(part.scrollWidth, part.className).toBeLessThanOrEqual(part.clientWidth + 1);
      expect(collisions(explorer)).toEqual([]);
      expect(await violations(el)).toEqual([]);
    },
  );
});

test("no open menu has an axe violation or leaves the widget", async () => {
  shown = open({ _kind: "explorer", panels: [...ALL], step: 720, follow: false, inspect: true }, { width: 800 });
  const { el, session } = shown;
  await ready();
  await until(() => el.querySelectorAll(".smdw-lane-rule").length === 3 && !session.connection.requests.size);
  await until(() => el.querySelectorAll(".smdw-corner > button").length >= 2);
  const openers = [
    ...el.querySelectorAll<HTMLButtonElement>(".smdw-anchor > button, .smdw-lane-button, .smdw-corner > button"),
  ].filter((each) => each.checkVisibility());
  expect(openers.length).toBeGreaterThan(6);
  const widget = el.getBoundingClientRect();
  for (const opener of openers) {
    opener.click();
    await frame();
    const menu = opener.parentElement?.querySelector<HTMLElement>(".smdw-popover, .smdw-menu") as HTMLElement;
    expect(menu.hidden, opener.textContent ?? "").toBe(false);
    const box = menu.getBoundingClientRect();
    expect(box.left, opener.textContent ?? "").toBeGreaterThanOrEqual(widget.left);
    expect(box.right, opener.textContent ?? "").toBeLessThanOrEqual(widget.right);
    expect(box.top, opener.textContent ?? "").toBeGreaterThanOrEqual(widget.top);
    expect(box.bottom, opener.textContent ?? "").toBeLessThanOrEqual(widget.bottom);
    expect(await violations(el), opener.textContent ?? "").toEqual([]);
    opener.click();
    await frame();
    expect(menu.hidden).toBe(true);
  }
});

test("the inspector's button does what it says, also if it is pressed again before the next frame", async () => {
  shown = open({ _kind: "explorer" });
  const { el, model } = shown;
  await until(() => !button(el, "EnterOpen inspector").disabled);
  const opener = button(el, "EnterOpen inspector");
  opener.click();
  opener.click();
  expect(model.get("inspect")).toBe(true);
  await until(() => opener.textContent === "EscClose inspector");
  opener.click();
  opener.click();
  expect(model.get("inspect")).toBe(false);
});

test("the inspector opens and closes with keys, and the map gives it its room", async () => {
  shown = open({ _kind: "explorer", panels: [...ALL], step: 720, follow: false }, { width: 1200 });
  const { el, model } = shown;
  await ready();
  await until(() => el.querySelectorAll(".smdw-lane-rule").length === 3 && $(el, ".smdw-lanes").clientHeight > 90);
  const map = $(el, ".smdw-map-box");
  const ofRows = () => el.querySelectorAll(".smdw-map-row").length * 20;
  await until(() => map.clientHeight >= ofRows());
  const before = map.clientHeight;
  // It has room for its rows, and the curve has the rest.
  expect(before).toBeGreaterThanOrEqual(ofRows());
  const explorer = $(el, ".smdw-explorer");
  explorer.focus();
  key(explorer, "Enter");
  expect(model.get("inspect")).toBe(true);
  await until(() => map.clientHeight < 110);
  expect(map.clientHeight).toBe(70);
  expect($(el, ".smdw-pictures").clientHeight).toBeGreaterThanOrEqual(164);
  await until(() => /mean/.test($(el, ".smdw-panel-histogram .smdw-readout").textContent ?? ""));
  key(explorer, "Escape");
  expect(model.get("inspect")).toBe(false);
  await until(() => map.clientHeight === before);
});

test.each([
  [1200, ["Histogram", "Heat map", "Values"], 3],
  [800, ["Histogram", "Heat map"], 2],
  [600, ["Histogram"], 1],
] as const)("at %i pixels the inspector shows %j", async (width, titles, columns) => {
  shown = open({ _kind: "explorer", panels: [...ALL], inspect: true }, { width });
  const { el, source, session } = shown;
  const seen = () => [...el.querySelectorAll<HTMLElement>(".smdw-picture > .smdw-panel")].map((each) => each.ariaLabel);
  await until(() => seen().join() === titles.join());
  expect(el.querySelectorAll(".smdw-picture")).toHaveLength(columns);
  const tab = (name: string) =>
    [...el.querySelectorAll<HTMLElement>("[role=tab]")].find((each) => each.textContent === name) as HTMLElement;
  tab("Curves").click();
  await until(() => seen().at(-1) === "Scalars");
  expect(tab("Curves").getAttribute("aria-selected")).toBe("true");
  key(tab("Curves"), "ArrowRight");
  await until(() => seen().at(-1) === "Rules");
  key(tab("Rules"), "ArrowLeft");
  await until(() => seen().at(-1) === "Scalars");
  expect(session.state.get("panels")).toContain("scalars");
  expect(source.requests.length).toBeGreaterThan(0);
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
        inspect: true,
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
  const track = await until(() => el.querySelector<HTMLElement>(".smdw-track"));
  await until(() => track.getAttribute("aria-valuenow") === "300");
  key(track, "ArrowRight");
  await until(() => track.getAttribute("aria-valuenow") === "310");
  await until(() => /mean/.test($(el, ".smdw-panel-histogram .smdw-readout").textContent ?? ""));
  expect(el.querySelector(".smdw-panel-values")).toBeNull();
  expect(button(el, "Values").title).toBe("Not in this file");
  for (const controls of el.querySelectorAll<HTMLElement>(".smdw-rule-controls")) expect(controls.hidden).toBe(true);
  const filter = $<HTMLInputElement>(el, "[type=search]");
  filter.value = "fc2.bias";
  filter.dispatchEvent(new Event("input"));
  const row = await until(() =>
    [...el.querySelectorAll<HTMLElement>(".smdw-map-row")].find((each) => each.title.startsWith("fc2.bias")),
  );
  expect(row.title).toContain("Not in this file");
  const grid = $(el, ".smdw-map-grid");
  grid.focus();
  key(grid, "Home", { shiftKey: true });
  for (let i = 0; i < 3 && $(el, ".smdw-name").textContent !== "fc2.bias"; i++) {
    await frame();
    key(grid, "Enter");
    await frame();
    key(grid, "ArrowDown");
    await frame();
  }
  await until(() => $(el, ".smdw-name").textContent === "fc2.bias");
  expect(fetched).not.toHaveBeenCalled();
  control.abort();
  holder.remove();
});
