import axe from "axe-core";
import { afterEach, describe, expect, test, vi } from "vitest";
import { FLAG } from "../src/data/survey";
import { MapPainter } from "../src/draw/map";
import { encode } from "../src/protocol/packet";
import type { DiagnosisFinding } from "../src/protocol/types";
import { $, frame, key, pixel, pointer, until } from "./helpers";
import { bootPackets, catalogPacket, type MountedMap, madeRun, NAN_STEP, NAN_TENSOR, openMap } from "./map-helpers";
import { surveyPacket } from "./packets";

let shown: MountedMap | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});

const VIOLET = [150, 0, 255, 255];
const canvasOf = (el: Element) => $<HTMLCanvasElement>(el, ".smdw-map-plot canvas");
const labels = (el: Element) => [...el.querySelectorAll(".smdw-map-row")].map((row) => row.textContent);
const rowOf = (el: Element, label: string) => {
  const row = [...el.querySelectorAll<HTMLElement>(".smdw-map-row")].find((each) => each.textContent?.includes(label));
  if (!row) throw new Error(`no row ${label}`);
  return row;
};
/** Vertical middle of a row, in pixels of the map. */
const middle = (el: Element, label: string) => {
  const box = rowOf(el, label).getBoundingClientRect();
  return box.top + box.height / 2 - $(el, ".smdw-map").getBoundingClientRect().top;
};
const axisOf = (map: MountedMap, width = 1000) => map.session.scene(width).stepAxis;
/** The pixel of a row at a step. */
const at = (map: MountedMap, label: string, step: number, width = 1000) => {
  const axis = axisOf(map, width);
  const canvas = canvasOf(map.el);
  // The canvas reaches beyond the axis, and is stretched while the map is zoomed.
  const box = canvas.getBoundingClientRect();
  const x = axis.x(step) - axis.left - box.left + $(map.el, ".smdw-map-plot").getBoundingClientRect().left;
  return pixel(canvas, (x / box.width) * canvas.clientWidth, middle(map.el, label));
};
const opened = async (options: Parameters<typeof openMap>[1] = {}, run = madeRun()) => {
  shown = openMap(bootPackets(run), options);
  const { el } = shown;
  await until(() => el.querySelector(".smdw-map-row") && canvasOf(el).width > 300);
  await frame();
  return shown;
};
const hasViolet = (canvas: HTMLCanvasElement) => {
  const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
  for (let i = 0; i < data.length; i += 4) if (VIOLET.every((value, c) => data[i + c] === value)) return true;
  return false;
};

describe.each([
  [1440, false],
  [900, true],
  [500, false],
] as const)("at %i pixels", (width, dark) => {
  test("NaN is violet from its step on, at the position of the axis", async () => {
    const map = await opened({ width, dark });
    const { left } = axisOf(map, width);
    expect(canvasOf(map.el).getBoundingClientRect().left - map.el.getBoundingClientRect().left).toBe(left);
    const label = "k_proj.weightNaN";
    expect(at(map, label, NAN_STEP, width)).toEqual(VIOLET);
    expect(at(map, label, 490, width)).toEqual(VIOLET);
    for (const step of [100, NAN_STEP - 8]) expect(at(map, label, step, width)).not.toEqual(VIOLET);
    expect(map.el.scrollWidth).toBeLessThanOrEqual(width);
  });

  test("axe finds no violation", async () => {
    const map = await opened({ width, dark });
    const { violations } = await axe.run(map.el, { rules: { region: { enabled: false } } });
    expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
  });
});

describe("rows", () => {
  test("are in model order; the module of the first finding is unfolded and in sight, with badges", async () => {
    const { el } = await opened();
    const names = labels(el);
    expect(names).toContain("\u25belayers.17NaN12");
    expect(names.indexOf("\u25b8layers.1812")).toBe(names.indexOf("\u25belayers.17NaN12") + 13);
    expect(names.filter((name) => name?.startsWith("G"))).toEqual(["Gk_proj.weight\u25b2 13", "Gq_proj.weight"]);
    expect(rowOf(el, "k_proj.weightNaN").classList.contains("smdw-map-selected")).toBe(true);
  });

  test("only what is not finite first has the mark", async () => {
    const made = madeRun();
    made.flags[made.names.indexOf("model.layers.17.mlp.up_proj.weight")]?.fill(FLAG.nan, NAN_STEP + 9);
    const { el } = await opened({}, made);
    expect(labels(el)).toContain("\u25belayers.17NaN12");
    expect(labels(el).filter((label) => label?.includes("up_proj"))).toEqual(["Wup_proj.weight"]);
    expect(at(shown as MountedMap, "up_proj", NAN_STEP + 40)).toEqual(VIOLET);
  });

  test("a click on a name folds and unfolds; a folded module is the worst of its tensors", async () => {
    const map = await opened();
    const { el, session } = map;
    const grid = $(el, "[role=grid]");
    pointer(grid, "pointerdown", 60, middle(el, "layers.17"));
    pointer(grid, "pointerup", 60, middle(el, "layers.17"));
    expect(session.state.get("unfolded")).toEqual([]);
    await until(() => labels(el).includes("\u25b8layers.17NaN\u25b2 1312"));
    await frame();
    expect(at(map, "layers.17", 400)).toEqual(VIOLET);
    session.state.set({ unfolded: ["model.layers.2"] });
    await until(() => map.session.state.get("unfolded")?.length);
    session.state.set({ unfolded: null });
    await until(() => labels(el).includes("\u25belayers.17NaN12"));
  });

  test("the row of the tensor stays in sight when the map becomes lower", async () => {
    const { el, session } = await opened();
    session.state.set({ tensor: "loss" });
    await until(() => rowOf(el, "Sloss").classList.contains("smdw-map-selected"));
    el.style.height = "98px";
    await until(() => labels(el).length < 9 && labels(el).includes("Sloss"));
    const [row, map] = [rowOf(el, "Sloss"), $(el, ".smdw-map")].map((each) => each.getBoundingClientRect());
    expect((row as DOMRect).bottom).toBeLessThanOrEqual((map as DOMRect).bottom);
  });

  test("of a healthy run have no colour", async () => {
    const map = await opened({ traits: { unfolded: ["model.layers.3"] } }, madeRun(false));
    const canvas = canvasOf(map.el);
    const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    let coloured = 0;
    for (let i = 0; i < data.length; i += 4)
      if ((data[i + 3] ?? 0) > 60 && Math.max(...data.slice(i, i + 3)) - Math.min(...data.slice(i, i + 3)) > 40)
        coloured++;
    expect(coloured / (data.length / 4)).toBeLessThan(0.001);
    expect(map.el.querySelector(".smdw-map-nan, .smdw-map-fired")).toBeNull();
  });

  test("all tensors at once still show the NaN", async () => {
    const { el } = await opened({ traits: { map_fit: true } });
    await until(() => hasViolet(canvasOf(el)));
    expect(el.querySelectorAll(".smdw-map-row").length).toBeGreaterThan(5);
  });

  test("the most suspicious order begins with the NaN", async () => {
    const { el } = await opened({ traits: { map_order: "suspicious" } });
    expect(labels(el)[0]).toContain("k_proj.weight");
    expect(labels(el)[0]).toContain("NaN");
  });
});

describe("pointer", () => {
  test("a hover says tensor, step and flags, without a message or a saved trait", async () => {
    const map = await opened();
    const { el, model } = map;
    const saved = vi.spyOn(model, "save_changes");
    const sent = vi.spyOn(map.session.connection, "request");
    const grid = $(el, "[role=grid]");
    const axis = axisOf(map);
    for (let step = 300; step < 420; step += 5) {
      pointer(grid, "pointermove", axis.x(step), middle(el, "k_proj.weightNaN"));
      await frame();
    }
    pointer(grid, "pointermove", axis.x(NAN_STEP), middle(el, "k_proj.weightNaN"));
    await until(() => map.map.hoverText.includes(`step ${NAN_STEP}`));
    expect(map.map.hoverText).toContain(NAN_TENSOR);
    expect(map.map.hoverText).toContain("NaN");
    const cross = $(el, ".smdw-map-cross").getBoundingClientRect();
    expect(Math.abs(cross.left - map.el.getBoundingClientRect().left - axis.x(NAN_STEP))).toBeLessThanOrEqual(0.5);
    pointer(grid, "pointermove", axis.x(400), middle(el, "layers.17"));
    await until(() => map.map.hoverText.startsWith("model.layers.17 \u00b7 worst of 12 tensors"));
    pointer(grid, "pointerleave", 0, 0);
    await until(() => map.map.hoverText === "");
    expect(saved).not.toHaveBeenCalled();
    expect(sent.mock.calls.filter(([slot]) => slot !== "survey" && slot !== "frames/main")).toEqual([]);
  });

  test("a hover and a click between saved steps are at the saved step whose value is drawn there", async () => {
    const made = madeRun();
    // The steps of the run are every one, those of this tensor every fifth.
    const row = made.names.indexOf("gradient/model.layers.17.self_attn.q_proj.weight");
    for (let i = 0; i < made.steps.length; i++) if (i % 5) (made.values[row] as Float32Array)[i] = Number.NaN;
    const map = await opened({}, made);
    const { el, session } = map;
    const grid = $(el, "[role=grid]");
    const y = middle(el, "Gq_proj.weight");
    for (const [step, saved] of [
      [201, 200],
      [204, 200],
      [205, 205],
      [498, 495],
    ] as const) {
      pointer(grid, "pointermove", axisOf(map).x(step), y);
      await until(() => map.map.hoverText.includes(`step ${saved} `));
      expect(map.map.hoverText).not.toContain("not saved");
      pointer(grid, "pointerdown", axisOf(map).x(step), y);
      pointer(grid, "pointerup", axisOf(map).x(step), y);
      expect(session.state.get("step")).toBe(saved);
    }
  });

  test("a click selects tensor and step and opens the inspector; with Alt it sets what to compare with", async () => {
    const map = await opened();
    const { el, session } = map;
    const grid = $(el, "[role=grid]");
    const click = (label: string, step: number, init: PointerEventInit = {}) => {
      const [x, y] = [axisOf(map).x(step), middle(el, label)];
      pointer(grid, "pointerdown", x, y, init);
      pointer(grid, "pointerup", x, y, init);
    };
    click("Gq_proj.weight", 365);
    expect(session.state.all()).toMatchObject({
      tensor: "gradient/model.layers.17.self_attn.q_proj.weight",
      step: 365,
      inspect: true,
      follow: false,
    });
    click("layers.17NaN", 480);
    expect(session.state.get("tensor")).toBe(NAN_TENSOR);
    click("Gq_proj.weight", 200, { altKey: true });
    expect(session.state.get("compare")).toEqual({
      step: 200,
      tensor: "gradient/model.layers.17.self_attn.q_proj.weight",
    });
    expect(session.state.get("tensor")).toBe(NAN_TENSOR);
  });

  test("a drag selects steps and saves nothing while it moves", async () => {
    const map = await opened();
    const { el, session, model } = map;
    const saved = vi.spyOn(model, "save_changes");
    const grid = $(el, "[role=grid]");
    const axis = axisOf(map);
    pointer(grid, "pointerdown", axis.x(100), 50);
    for (let step = 101; step <= 150; step += 7) {
      pointer(grid, "pointermove", axis.x(step), 50);
      await frame();
    }
    pointer(grid, "pointermove", axis.x(150), 50);
    expect(session.state.get("selection")).toEqual({ kind: "steps", range: [100, 150] });
    expect(saved).not.toHaveBeenCalled();
    pointer(grid, "pointerup", axis.x(150), 50);
    expect(saved).toHaveBeenCalledTimes(1);
    expect(session.state.get("inspect")).toBe(false);
  });

  test("the page scrolls unless the map has the focus; Ctrl and wheel zoom at the pointer", async () => {
    const map = await opened({ height: 140 });
    const { el, session } = map;
    const grid = $(el, "[role=grid]");
    const wheel = (init: WheelEventInit) => {
      const box = grid.getBoundingClientRect();
      const event = new WheelEvent("wheel", {
        bubbles: true,
        cancelable: true,
        clientX: box.left + 500,
        clientY: box.top + 50,
        ...init,
      });
      grid.dispatchEvent(event);
      return event;
    };
    const before = labels(el)[0];
    expect(wheel({ deltaY: 100 }).defaultPrevented).toBe(false);
    grid.focus();
    expect(wheel({ deltaY: -100 }).defaultPrevented).toBe(true);
    await until(() => labels(el)[0] !== before);
    const step = axisOf(map).step(500);
    expect(wheel({ deltaY: -200, ctrlKey: true }).defaultPrevented).toBe(true);
    const [from, to] = session.state.get("range") as [number, number];
    expect(to - from).toBeLessThan(250);
    expect(axisOf(map).step(500)).toBeCloseTo(step, 6);
  });

  test("a drag in the minimap scrolls", async () => {
    const { el } = await opened({ height: 140, traits: { unfolded: ["model.layers.3", "model.layers.17"] } });
    const mini = $(el, ".smdw-map-mini");
    expect(hasViolet($<HTMLCanvasElement>(mini, "canvas"))).toBe(true);
    const spy = vi.spyOn(mini, "setPointerCapture").mockImplementation(() => {});
    pointer(mini, "pointerdown", 18, 2, { buttons: 1 });
    await until(() => labels(el)[0]?.includes("embed_tokens"));
    pointer(mini, "pointermove", 18, 138, { buttons: 1 });
    await until(() => labels(el).at(-1) === "Sloss");
    spy.mockRestore();
  });
});

describe("keys", () => {
  const cell = (el: Element) => $(el, "[role=gridcell]").textContent ?? "";

  test("the NaN story by keyboard alone, announced", async () => {
    const { el, session } = await opened({ traits: { step: NAN_STEP - 1 } });
    const grid = $(el, "[role=grid]");
    grid.focus();
    expect(grid.getAttribute("aria-activedescendant")).toBe($(el, "[role=gridcell]").id);
    await until(() => cell(el).includes(`step ${NAN_STEP - 1}`));
    expect(cell(el)).toContain(NAN_TENSOR);
    key(grid, "ArrowRight");
    await until(() => cell(el).includes(`step ${NAN_STEP}, `) && cell(el).includes("NaN"));
    key(grid, "ArrowDown");
    await until(() => cell(el).startsWith("model.layers.17.self_attn.o_proj.weight"));
    key(grid, "ArrowUp");
    key(grid, "Enter");
    expect(session.state.all()).toMatchObject({ tensor: NAN_TENSOR, step: NAN_STEP, inspect: true });
    expect(grid.getAttribute("aria-rowcount")).toBe("40");
    for (let i = 0; i < 20; i++) key(grid, "ArrowUp");
    await until(() => $(el, "[role=gridcell]").getAttribute("aria-expanded") === "false");
    key(grid, "Enter");
    await until(() => $(el, "[role=gridcell]").getAttribute("aria-expanded") === "true");
  });

  test("w and s zoom, a and d pan, f fits the selection, 0 shows all steps and then all rows", async () => {
    const { el, session } = await opened({ traits: { selection: { kind: "steps", range: [350, 380] } } });
    const grid = $(el, "[role=grid]");
    const range = () => session.state.get("range") as [number, number];
    key(grid, "w");
    expect(range()[1] - range()[0]).toBeCloseTo(250);
    await frame();
    await frame();
    const [from] = range();
    key(grid, "a");
    expect(range()[0]).toBeLessThan(from);
    await frame();
    await frame();
    key(grid, "s");
    expect(range()).toEqual([]);
    key(grid, "f");
    expect(range()).toEqual([350, 380]);
    key(grid, "0");
    expect(range()).toEqual([]);
    await frame();
    await frame();
    key(grid, "0");
    expect(session.state.get("map_fit")).toBe(true);
  });

  test("t shows a table that can be sorted", async () => {
    const { el, session } = await opened();
    key($(el, "[role=grid]"), "t");
    await until(() => el.querySelectorAll("tbody tr").length > 10);
    const first = () => el.querySelector("tbody tr")?.textContent ?? "";
    expect(first()).toContain("model.layers.17.mlp.relu_output_0step 210\u22125.8");
    expect(el.querySelectorAll("tbody tr")[1]?.textContent).toMatch(/^gradient.*k_proj.weightstep 359\+23.*13$/);
    expect(el.querySelector("tbody")?.textContent).toContain(`${NAN_TENSOR}step ${NAN_STEP}NaN`);
    expect($(el, "th[aria-sort=ascending]").textContent).toBe("First trouble");
    $(el, "thead button").click();
    await until(() => first().includes("embed_tokens"));
    $(el, "tbody button").click();
    expect(session.state.get("tensor")).toBe("model.embed_tokens.weight");
    expect(document.activeElement?.closest(".smdw-map-table")).not.toBeNull();
    const { violations } = await axe.run(el, { rules: { region: { enabled: false } } });
    expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
    key($(el, ".smdw-map-table"), "Escape");
    await until(() => document.activeElement === $(el, "[role=grid]"));
    expect($(el, ".smdw-map-table").hidden).toBe(true);
  });
});

test("a run that grows shows its new steps, and the rows stay where they are", async () => {
  const run = madeRun();
  const map = await opened({}, { ...run, steps: run.steps.slice(0, 300) });
  const before = labels(map.el);
  map.session.store.addPackets([catalogPacket(run)]);
  await until(
    () => Math.abs(axisOf(map).x(499) - axisOf(map).right) < 2 && at(map, "k_proj.weightNaN", 450)[0] === 150,
  );
  expect(at(map, "k_proj.weightNaN", 450)).toEqual(VIOLET);
  expect(labels(map.el)).toEqual(before);
});

test("a zoom shows what is held until finer bins arrive", async () => {
  const run = madeRun();
  shown = openMap([
    ...bootPackets(run).filter((_, i) => i !== 1),
    // Bins of 16 steps, of which two are not finite.
    surveyPacket([run.names.indexOf(NAN_TENSOR)], [Array.from({ length: 32 }, () => 9)], {
      level: 4,
      append: false,
      flag: [Array.from({ length: 32 }, (_, k) => (k === 23 || k === 24 ? 1 : 0))],
    }),
  ]);
  const { el, session } = shown;
  await until(() => hasViolet(canvasOf(el)));
  const painted = () => {
    const canvas = canvasOf(el);
    const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    let n = 0;
    for (let i = 3; i < data.length; i += 4) n += data[i] ? 1 : 0;
    return n / (data.length / 4);
  };
  for (const key_ of ["w", "w", "d", "a", "s"]) {
    session.state.set({ step: NAN_STEP });
    key($(el, "[role=grid]"), key_);
    for (let i = 0; i < 3; i++) {
      await frame();
      expect(painted()).toBeGreaterThan(0.5);
      expect(hasViolet(canvasOf(el))).toBe(true);
    }
  }
  // Step 368 is in a bin with the NaN of step 371, until the finer bins say otherwise.
  session.state.set({ range: [360, 380] });
  await until(() => at(shown as MountedMap, "k_proj.weightNaN", 369)[0] === 150);
  const fine = run.values[run.names.indexOf(NAN_TENSOR)]?.subarray(340, 400) as Float32Array;
  const flag = run.flags[run.names.indexOf(NAN_TENSOR)]?.subarray(340, 400) as Uint8Array;
  session.store.addPackets([surveyPacket([run.names.indexOf(NAN_TENSOR)], [fine], { first: 340, flag: [flag] })]);
  await until(() => at(shown as MountedMap, "k_proj.weightNaN", 369)[0] !== 150);
  expect(at(shown, "k_proj.weightNaN", NAN_STEP + 1)).toEqual(VIOLET);
});

test("cells that take long to draw are drawn again after a pause, and in the end with everything", async () => {
  const clock = vi.spyOn(performance, "now").mockReturnValue(0);
  const { paint } = MapPainter.prototype;
  const painted = vi.spyOn(MapPainter.prototype, "paint").mockImplementation(function (this: MapPainter, ...args) {
    paint.apply(this, args);
    clock.mockReturnValue(performance.now() + 50);
  });
  try {
    const { session, el } = await opened({}, madeRun(false));
    let before = -1;
    for (let quiet = 0; quiet < 5; quiet++) {
      if (painted.mock.calls.length !== before) quiet = 0;
      before = painted.mock.calls.length;
      await frame();
    }
    const flag = new Uint8Array(32);
    for (let k = 0; k < flag.length; k++) {
      flag[k] = FLAG.nan;
      session.store.addPackets([surveyPacket([3], [new Float32Array(32)], { first: 100, flag: [flag] })]);
      await frame();
    }
    expect(painted.mock.calls.length).toBe(before);
    expect(hasViolet(canvasOf(el))).toBe(false);
    clock.mockReturnValue(1000);
    await until(() => hasViolet(canvasOf(el)));
  } finally {
    painted.mockRestore();
    clock.mockRestore();
  }
});

test("what differs in a range is listed, the most different first", async () => {
  const map = await opened();
  map.map.showDifferences([362, 371]);
  const list = () => [...map.el.querySelectorAll(".smdw-map-diff li")].map((item) => item.textContent ?? "");
  await until(() => list().length > 2);
  expect(list()[0]).toMatch(/^Glayers.17.self_attn.k_proj.weight/);
  expect(list()[0]).toMatch(/\u2192/);
});

test("a query leaves the matching rows, and says if there are none", async () => {
  shown = openMap(bootPackets(madeRun()), { traits: { query: "layers.3.*v_proj" } });
  const { el, session } = shown;
  await until(() => labels(el).length >= 2 && labels(el).every((label) => /layers|v_proj/.test(label ?? "")));
  session.state.set({ query: "v_proj and not v_proj" });
  await until(() => $(el, ".smdw-map-empty").textContent?.includes("No tensor matches"));
  expect(labels(el)).toEqual([]);
});

test("rows of a survey that is on its way are dotted, and a poster is enough for a picture", async () => {
  shown = openMap(bootPackets(madeRun()).slice(0, 1));
  const { el, session } = shown;
  await until(() => canvasOf(el).width > 300);
  await frame();
  expect(hasViolet(canvasOf(el))).toBe(false);
  session.store.addPackets(bootPackets(madeRun(), true).slice(1));
  await until(() => hasViolet(canvasOf(el)));
});

test("growth is coloured by its scale, and lasting states have a line and a word at the end", async () => {
  const run = madeRun(false, 2, 100);
  const names = ["model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"];
  const [grown, dead] = names.map((name) => run.names.indexOf(name)) as [number, number];
  const values = run.values.map((_, tensor) =>
    Float32Array.from({ length: 100 }, (__, i) => (tensor === grown && i >= 50 ? 1e6 : tensor === dead ? 0 : 1)),
  );
  const flags = run.flags.map((row, tensor) => (tensor === grown ? row.with(50, FLAG.sudden) : new Uint8Array(100)));
  const finding = {
    ...{ id: "dead", kind: "dead", level: "problem", confidence: "high", first: 40, tensor: names[1], title: "" },
    ...{ text: "", explains: "", advice: "", about: "" },
    lasting: { word: "dead", tensors: [names[1]], last: 99 },
  } as DiagnosisFinding;
  const about = { run: 0, summary: "", notes: [], withdrawn: [] };
  shown = openMap(
    [
      catalogPacket(run),
      surveyPacket(
        run.names.map((_, i) => i),
        values,
        { stat: "growth", limit: Math.log10(4), flag: flags, append: false },
      ),
      encode({ kind: "diagnosis", state: "found", ...about, findings: [finding] }),
    ],
    {
      traits: { map_stat: "growth", unfolded: ["model.layers.0", "model.layers.1"], tensor: names[1] as string },
      height: 600,
    },
  );
  const { el, map } = shown;
  const ends = () => [...el.querySelectorAll<HTMLElement>(".smdw-map-ends > span")].map((each) => each.textContent);
  await until(() => ends().includes("dead"));
  const rows = labels(el);
  expect(ends()[rows.findIndex((each) => each.startsWith("W") && each.includes("up_proj"))]).toBe("\u00d710\u2076");
  expect(ends().filter((word) => word === "dead")).toHaveLength(2); // the tensor and its module
  const canvas = canvasOf(el);
  const axis = shown.session.scene(1000).stepAxis;
  const row = el.querySelectorAll<HTMLElement>(".smdw-map-row")[rows.findLastIndex((each) => each.includes("up_proj"))];
  const box = canvas.getBoundingClientRect();
  const ratio = canvas.width / box.width;
  const bottom = ((row as HTMLElement).getBoundingClientRect().bottom - box.top - 2) * ratio;
  const colourAt = (step: number, y: number) => {
    const x = Math.round((axis.x(step) - axis.left) * ratio);
    return [...(canvas.getContext("2d")?.getImageData(x, Math.round(y), 1, 1).data ?? [])].slice(0, 3);
  };
  const dark = (rgb: number[]) => rgb.every((channel) => channel < 90);
  expect(dark(colourAt(70, bottom))).toBe(true);
  expect(dark(colourAt(20, bottom))).toBe(false);
  expect(map.tensors.length).toBeGreaterThan(0);
});
