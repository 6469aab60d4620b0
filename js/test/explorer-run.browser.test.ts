/** The explorer over a made-up run: its sentence, timeline, keys and states. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { encode } from "../src/protocol/packet";
import type { Clause, DiagnosisFinding, DiagnosisHead, FindingsHead, ReadingHead, Traits } from "../src/protocol/types";
import { type OpenedExplorer, openExplorer } from "./explorer-helpers";
import { $, button, frame, key, pointer, until } from "./helpers";
import { bootPackets, catalogPacket, madeRun, NAN_STEP, NAN_TENSOR } from "./map-helpers";
import { rulesPacket, stepsPacket } from "./packets";

const GRADIENT = "gradient/model.layers.17.self_attn.k_proj.weight";
const SENTENCE: Clause[] = [
  { text: `Trouble starts at step ${NAN_STEP}: `, tensor: "", step: null },
  { text: "`k_proj.weight` turns NaN", tensor: NAN_TENSOR, step: NAN_STEP },
  { text: ". ", tensor: "", step: null },
  { text: "Its gradient had grown 40\u00d7", tensor: GRADIENT, step: 352 },
  { text: ".", tensor: "", step: null },
];

let shown: OpenedExplorer | undefined;
afterEach(() => {
  vi.useRealTimers();
  shown?.close();
  shown = undefined;
});

function open(packets: ArrayBuffer[], traits: Partial<Traits> = {}, width = 1200): OpenedExplorer {
  shown = openExplorer(packets, { traits: { tensor: NAN_TENSOR, step: 100, follow: false, ...traits }, width });
  return shown;
}

const findings = (head: Partial<FindingsHead>) =>
  encode({ kind: "findings", run: 0, sentence: [], findings: [], ...head } as FindingsHead);
const reading = (head: Partial<ReadingHead>) =>
  encode({
    kind: "reading",
    run: 0,
    state: "complete",
    done: 10,
    total: 10,
    bytes_left: 0,
    seconds_left: 0,
    message: "",
    ...head,
  } as ReadingHead);
const made = madeRun();
const finding = (tensor: string, first: number, title: string): DiagnosisFinding => ({
  id: `not_finite:${tensor}:${first}`,
  kind: "not_finite",
  level: "problem",
  confidence: "high",
  tensor,
  first,
  title,
  text: `${title}. It did.`,
  explains: "It explains: no learning.",
  advice: "Stop earlier.",
  about: "problem, high confidence",
});
const diagnosis = (head: Partial<DiagnosisHead>) =>
  encode({ kind: "diagnosis", run: 0, state: "found", summary: "", findings: [], notes: [], withdrawn: [], ...head });
const marked = () => [...bootPackets(made), findings({ sentence: SENTENCE, findings: made.findings })];
const troubled = () => [
  ...marked(),
  diagnosis({
    findings: [finding(NAN_TENSOR, NAN_STEP, "k_proj.weight is NaN"), finding(GRADIENT, 359, "its gradient grows")],
  }),
];
const explorer = () => $(shown?.el as HTMLElement, ".smdw-explorer");
const sentence = () => $(shown?.el as HTMLElement, ".smdw-diagnosis-sentence").textContent;
const press = async (name: string) => {
  key(explorer(), name);
  await frame();
};

describe("opening", () => {
  const fresh: Partial<Traits> = { _fresh: true, tensor: "lm_head.weight", step: -1, follow: true };
  const place = () => {
    const { tensor, step, follow } = (shown as OpenedExplorer).session.state.all();
    return { tensor, step, follow };
  };
  const found = () => diagnosis({ findings: [finding(NAN_TENSOR, NAN_STEP, "k_proj.weight is NaN")] });
  const onFinding = { tensor: NAN_TENSOR, step: NAN_STEP, follow: false };

  test("selects the row of the first finding, in sight, with the playhead on its step", async () => {
    const { el, session, model } = open([...bootPackets(made), diagnosis({ state: "reading" })], fresh);
    await until(() => place().step === 499);
    expect(place().tensor).toBe("lm_head.weight");
    session.store.addPackets([found()]);
    await until(() => place().step === NAN_STEP);
    expect(place()).toEqual(onFinding);
    const row = await until(() => el.querySelector(".smdw-map-selected"));
    expect(row.getAttribute("title")).toBe(NAN_TENSOR);
    const [inside, map] = [row, $(el, ".smdw-map")].map((each) => each.getBoundingClientRect());
    expect(inside?.top).toBeGreaterThanOrEqual(map?.top as number);
    expect(inside?.bottom).toBeLessThanOrEqual(map?.bottom as number);
    expect($<HTMLInputElement>(el, ".smdw-step-box").value).toBe(String(NAN_STEP));
    // Only once: a choice made after that stays.
    expect(model.get("_fresh")).toBe(false);
    session.state.set({ step: 20 });
    session.store.addPackets([found()]);
    await frame();
    expect(place().step).toBe(20);
  });

  test("leaves a choice that was made before the run was diagnosed", async () => {
    const { session } = open([...bootPackets(made), diagnosis({ state: "reading" })], fresh);
    await until(() => place().step === 499);
    session.state.set({ tensor: GRADIENT });
    session.store.addPackets([found()]);
    await until(() => session.state.get("_fresh") === false);
    expect(place()).toEqual({ tensor: GRADIENT, step: 499, follow: true });
  });

  test("of a healthy run is at its last step, also if a finding comes later", async () => {
    const { session } = open([...bootPackets(madeRun(false)), diagnosis({ state: "nothing" })], fresh);
    await until(() => session.state.get("_fresh") === false);
    session.store.addPackets([found()]);
    await frame();
    expect(place()).toEqual({ tensor: "lm_head.weight", step: 499, follow: true });
  });

  test("with a tensor or step that was asked for is there", async () => {
    open([...bootPackets(made), found()], { tensor: GRADIENT, step: 100 });
    await frame();
    expect(place()).toEqual({ tensor: GRADIENT, step: 100, follow: false });
  });
});

describe("a hover", () => {
  test("of the map is in a tooltip, and the controls stay", async () => {
    const { el } = open(troubled(), { inspect: true });
    await until(() => el.querySelector(".smdw-compare-views, .smdw-tools button"));
    const before = [...el.querySelectorAll<HTMLElement>(".smdw-tensor-bar button")].filter((each) =>
      each.checkVisibility(),
    );
    const grid = $(el, "[role=grid]");
    const box = grid.getBoundingClientRect();
    const tooltip = $(el, ".smdw-hover");
    expect(tooltip.hidden).toBe(true);
    pointer(grid, "pointermove", box.width * 0.9, 20);
    await until(() => tooltip.textContent?.includes("step"));
    expect(tooltip.checkVisibility()).toBe(true);
    for (const each of before) expect(each.checkVisibility(), each.textContent ?? "").toBe(true);
    const [text, stage] = [tooltip, $(el, ".smdw-stage")].map((each) => each.getBoundingClientRect());
    expect(text?.left).toBeGreaterThanOrEqual(stage?.left as number);
    expect(text?.right).toBeLessThanOrEqual(stage?.right as number);
    pointer(grid, "pointerleave", 0, 0);
    await until(() => tooltip.hidden);
  });
});

describe("sentence", () => {
  test("its clauses lead to their tensors and steps", () => {
    const { el, model } = open(marked());
    expect(sentence()).toBe(
      `Trouble starts at step ${NAN_STEP}: k_proj.weight turns NaN. Its gradient had grown 40\u00d7.`,
    );
    const links = [...el.querySelectorAll<HTMLElement>(".smdw-diagnosis .smdw-link")];
    expect(links.map((link) => link.title)).toEqual([
      `Show ${NAN_TENSOR} at step ${NAN_STEP}`,
      `Show ${GRADIENT} at step 352`,
    ]);
    links[1]?.click();
    expect([model.get("tensor"), model.get("step"), model.get("follow")]).toEqual([GRADIENT, 352, false]);
    // What it says is seen in the pictures of the tensor.
    expect(model.get("inspect")).toBe(true);
  });

  test("n and p walk through the findings", async () => {
    const { model, el } = open(troubled());
    await press("n");
    expect([model.get("tensor"), model.get("step")]).toEqual([GRADIENT, 359]);
    expect(sentence()).toBe("its gradient grows");
    expect($(el, ".smdw-diagnosis-position").textContent).toBe("2 of 2");
    await press("n");
    expect([model.get("tensor"), model.get("step")]).toEqual([NAN_TENSOR, NAN_STEP]);
    await press("p");
    expect(model.get("step")).toBe(359);
  });

  test("the findings around it are listed with step and curve; a press shows one with its pictures", async () => {
    const names = ["first", "second", "third", "fourth", "fifth"];
    const several = names.map((name, i) => finding(i % 2 ? GRADIENT : NAN_TENSOR, 100 + 10 * i, `the ${name} one`));
    const curve = { steps: [0, 10, 20, 30], values: [1, 2, null, 4] };
    const { el, session } = open([...marked(), diagnosis({ findings: several.map((each) => ({ ...each, curve })) })]);
    const others = () => [...el.querySelectorAll<HTMLElement>(".smdw-diagnosis-other")];
    const listed = () => {
      const lines = [$(el, ".smdw-diagnosis-line"), ...others()];
      const top = (line: Element) => line.getBoundingClientRect().top;
      return lines.sort((a, b) => top(a) - top(b)).map((line) => /step \d+|$/.exec(line.textContent ?? "")?.[0]);
    };
    expect(listed()).toEqual(["step 100", "step 110", "step 120"]);
    // A gap where the value is not finite.
    expect($(el, ".smdw-diagnosis-other path").getAttribute("d")).toMatch(/^M[\d.,]+L[\d.,]+M[\d.,]+$/);
    others()[1]?.click();
    await until(() => sentence() === "the third one");
    expect(session.state.all()).toMatchObject({ tensor: NAN_TENSOR, step: 120, inspect: true });
    // Beside pictures only the one in view has room.
    expect(others().filter((line) => line.checkVisibility())).toEqual([]);
    session.state.set({ inspect: false });
    await until(() => listed().join() === "step 110,step 120,step 130");
    await press("n");
    await press("n");
    expect(sentence()).toBe("the fifth one");
    expect(listed()).toEqual(["step 120", "step 130", "step 140"]);
    const explorerBox = explorer().getBoundingClientRect();
    expect(explorerBox.height).toBe(600);
  });

  test("a run without findings says so; its notes are numbered after the summary", async () => {
    const calm = [{ text: "Nothing stands out in 291 tensors and 500 steps.", tensor: "", step: null }];
    const { el, session } = open([...bootPackets(madeRun(false)), findings({ sentence: calm })]);
    expect(sentence()).toBe("Nothing stands out in 291 tensors and 500 steps.");
    expect($(el, ".smdw-diagnosis").dataset.severity).toBe("");
    const notes = [finding(GRADIENT, 90, "its gradient grows")];
    const coverage = [
      "Checked: the loss is NaN, exploding gradients.",
      "Inputs were not recorded: scaling not judged.",
    ];
    session.store.addPackets([diagnosis({ state: "nothing", summary: "Nothing wrong seen.", notes, coverage })]);
    await until(() => sentence() === "Nothing wrong seen.");
    // What was checked, and what could not be judged, with the reason.
    button(el, "Details").click();
    const words = () => [...$(el, ".smdw-diagnosis-details").children].map((line) => line.textContent);
    await until(() => words().join() === coverage.join());
    expect($(el, ".smdw-diagnosis-details").checkVisibility()).toBe(true);
    button(el, "Details").click();
    await press("n");
    expect(sentence()).toBe("its gradient grows");
    expect($(el, ".smdw-diagnosis-position").textContent).toBe("Note 1 of 1");
  });

  test("details have the text, what it explains, and what to try", async () => {
    const { el } = open(troubled());
    button(el, "Details").click();
    await until(() => $(el, ".smdw-diagnosis-details").checkVisibility());
    const lines = [...$(el, ".smdw-diagnosis-details").children].map((line) => line.textContent);
    expect(lines).toEqual([
      "k_proj.weight is NaN. It did. It explains: no learning.",
      "Try: Stop earlier.",
      "problem, high confidence",
    ]);
  });

  test("screen readers hear changes at most every ten seconds", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    const { el, session } = open(troubled());
    const heard = () => $(el, ".smdw-diagnosis [role=status]").textContent;
    expect(heard()).toContain("is NaN");
    for (const step of [380, 390]) {
      session.store.addPackets([diagnosis({ findings: [finding("", step, `At ${step}`)] })]);
      await frame();
      await frame();
    }
    expect(sentence()).toBe("At 390");
    expect(heard()).toContain("is NaN");
    vi.advanceTimersByTime(10_001);
    expect(heard()).toBe("At 390");
  });
});

test("the story of a NaN by keyboard alone", async () => {
  const { el, model } = open(troubled());
  const slider = $(el, ".smdw-track");
  await press("p");
  await press("n");
  expect([model.get("tensor"), model.get("step")]).toEqual([NAN_TENSOR, NAN_STEP]);
  await until(() => slider.getAttribute("aria-valuetext") === "step 371 of 499, TRAIN step 371, 372 of 500 saved");
  await press("Enter");
  expect(model.get("inspect")).toBe(true);
  await until(() => $(el, ".smdw-pictures").checkVisibility());
  slider.focus();
  key(slider, "ArrowLeft");
  expect(model.get("step")).toBe(370);
  await press("b");
  expect(model.get("bookmarks")).toEqual([{ step: 370, tensor: NAN_TENSOR, note: "" }]);
  await press("c");
  await until(() => (model.get("compare") as { step?: number }).step === 370);
  await press("4");
  const box = $<HTMLInputElement>(el, ".smdw-step-box");
  expect(box.matches(":focus")).toBe(true);
  box.value = "412";
  key(box, "Enter");
  expect(model.get("step")).toBe(412);
  key(box, "n");
  expect(model.get("step")).toBe(412);
  await press("Escape");
  expect(model.get("inspect")).toBe(false);
  await press("?");
  await until(() => el.querySelector(".smdw-keys")?.checkVisibility());
});

test("a drag of the step sends nothing and saves nothing while it moves", async () => {
  const { el, session, model, sent } = open(troubled());
  const track = $(el, ".smdw-track");
  await until(() => track.clientWidth > 500);
  for (let i = 0; i < 5; i++) await frame();
  await new Promise((resolve) => setTimeout(resolve, 400));
  const before = sent.length;
  const saves = vi.spyOn(model, "save_changes");
  // On a slow machine a drag can pause long enough to be saved; fake timers prevent that.
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const cells = vi.spyOn(CanvasRenderingContext2D.prototype, "putImageData");
  const painted = cells.mock.calls.length;
  const axis = session.scene($(el, ".smdw-stage").clientWidth).stepAxis;
  pointer(track, "pointerdown", axis.x(20) - axis.left, 10);
  for (let step = 25; step <= 480; step += 13) {
    pointer(track, "pointermove", axis.x(step) - axis.left, 10);
    await frame();
    expect(model.get("step")).toBe(step);
    const [playhead, thumb] = [".smdw-stage > .smdw-playhead", ".smdw-axis > .smdw-thumb"].map((name) => {
      const box = $(el, name).getBoundingClientRect();
      return (box.left + box.right) / 2 - $(el, ".smdw-stage").getBoundingClientRect().left;
    });
    expect(Math.abs((playhead as number) - axis.x(step))).toBeLessThanOrEqual(0.5);
    expect(Math.abs((thumb as number) - axis.x(step))).toBeLessThanOrEqual(0.6);
  }
  expect(saves).not.toHaveBeenCalled();
  expect(sent.length).toBe(before);
  expect(cells.mock.calls.length).toBe(painted);
  pointer(track, "pointerup", axis.x(480) - axis.left, 10);
  vi.useRealTimers();
  cells.mockRestore();
  await until(() => saves.mock.calls.length > 0);
});

test("a drag over lanes selects steps, and the menu zooms, loops and marks them", async () => {
  const { el, session, model } = open(troubled(), { speed: 200 });
  const canvas = $<HTMLCanvasElement>(el, ".smdw-figure-lanes canvas");
  await until(() => canvas.clientWidth > 500 && canvas.clientHeight > 20);
  const axis = session.scene($(el, ".smdw-stage").clientWidth).stepAxis;
  pointer(canvas, "pointerdown", axis.x(300), 10);
  pointer(canvas, "pointermove", axis.x(350), 10);
  pointer(canvas, "pointermove", axis.x(400), 10);
  pointer(canvas, "pointerup", axis.x(400), 10);
  expect(model.get("selection")).toEqual({ kind: "steps", range: [300, 400] });
  const band = await until(() => el.querySelector<HTMLElement>(".smdw-brush"));
  await until(() => band.checkVisibility() && band.clientWidth > 1);
  const left = $(el, ".smdw-stage").getBoundingClientRect().left;
  expect(Math.abs(band.getBoundingClientRect().left - left - axis.x(300))).toBeLessThanOrEqual(0.5);
  expect(Math.abs(band.getBoundingClientRect().right - left - axis.x(400))).toBeLessThanOrEqual(0.5);
  expect($(el, ".smdw-brush-menu").textContent).toContain("300\u2013400 \u00b7 101 saved");
  const menu = $(el, ".smdw-brush-menu");
  button(menu, "Bookmark").click();
  expect(model.get("bookmarks")).toHaveLength(1);
  button(menu, "Loop").click();
  const seen = new Set<number>();
  let turns = 0;
  let last = 0;
  await until(() => {
    const step = model.get("step") as number;
    if (step < last) turns++;
    last = step;
    seen.add(step);
    return turns >= 2;
  });
  expect([...seen].filter((step) => step < 300 || step > 400)).toEqual([]);
  button(el, "Pause").click();
  button(menu, "Zoom").click();
  expect(model.get("range")).toEqual([300, 400]);
  expect(model.get("selection")).toEqual({});
  await until(() => !band.checkVisibility());
  // A click on a lane goes to the step there; a double click shows all steps.
  const zoomed = session.scene($(el, ".smdw-stage").clientWidth).stepAxis;
  pointer(canvas, "pointerdown", zoomed.x(333), 10);
  pointer(canvas, "pointerup", zoomed.x(333), 10);
  expect(model.get("step")).toBe(333);
  canvas.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  expect(model.get("range")).toEqual([]);
});

test("a bookmark leads to its step and tensor, has a note, and can be removed", async () => {
  const bookmarks = [{ step: 352, tensor: GRADIENT, note: "grows" }];
  const { el, model } = open(troubled(), { bookmarks });
  const flag = await until(() => el.querySelector<HTMLElement>(".smdw-flag"));
  expect(flag.getAttribute("aria-label")).toBe(`Bookmark at step 352: ${GRADIENT}: grows`);
  flag.click();
  expect([model.get("tensor"), model.get("step")]).toEqual([GRADIENT, 352]);
  const note = await until(() => {
    const found = $<HTMLInputElement>(el, ".smdw-flag-editor input");
    return found.checkVisibility() && found;
  });
  expect(note.value).toBe("grows");
  note.value = "here it grows";
  key(note, "Enter");
  expect(model.get("bookmarks")).toEqual([{ step: 352, tensor: GRADIENT, note: "here it grows" }]);
  await press("b");
  expect(model.get("bookmarks")).toEqual([]);
});

describe("states", () => {
  test("an empty run says what it waits for, and grows by itself", async () => {
    const none = { append: false, tensors: [], collections: {}, path: "runs/new" };
    const { el, session } = open([stepsPacket(0, 0, none)], { tensor: "" });
    expect($(el, ".smdw-state").textContent).toBe("No step saved yet. Waiting for runs/new; new steps appear here.");
    expect($(el, ".smdw-toolbar").checkVisibility()).toBe(false);
    session.store.addPackets([
      stepsPacket(-10, 40, { ...none, append: true, tensors: ["w"], collections: { weights: [0] } }),
    ]);
    await until(() => !$(el, ".smdw-state").checkVisibility());
    expect($(el, ".smdw-timeline").checkVisibility()).toBe(true);
    expect($(el, ".smdw-explorer").clientHeight).toBeLessThanOrEqual(600);
  });

  test("a sampled run says how much is read, and reads the rest when asked to", async () => {
    const { el, session, sent } = open([
      ...troubled(),
      reading({ state: "sampled", done: 12, total: 100, bytes_left: 4.12e11, seconds_left: 430 }),
    ]);
    expect($(el, ".smdw-run-facts").textContent).toMatch(/12% read$/);
    button(el, "Read all (412 GB, about 7 min)").click();
    expect(sent.at(-1)).toEqual({ what: "read_all", do: "start", run: 0 });
    session.store.addPackets([reading({})]);
    await until(() => /all read$/.test($(el, ".smdw-run-facts").textContent ?? ""));
    expect($(el, ".smdw-read-all").hidden).toBe(true);
  });

  test("while a cluster reads, the page says by how many workers, and can stop it", async () => {
    const { el, session, sent } = open([
      ...troubled(),
      reading({ state: "reading", done: 34, total: 100, bytes_left: 4e9, seconds_left: 95, workers: 2 }),
    ]);
    expect($(el, ".smdw-run > .smdw-note").textContent).toBe("34% read by 2 workers, about 2 min left");
    button(el, "Stop").click();
    expect(sent.at(-1)).toEqual({ what: "read_all", do: "stop", run: 0 });
    session.store.addPackets([reading({ state: "reading", done: 35, total: 100, workers: 0 })]);
    await until(() => /^35% read, waiting for workers/.test($(el, ".smdw-run > .smdw-note").textContent ?? ""));
    const message = "Read without the cluster: the Dask client is closed";
    session.store.addPackets([reading({ state: "sampled", done: 36, total: 100, bytes_left: 4e9, message })]);
    await until(() => $(el, ".smdw-run > .smdw-note").textContent === message);
    expect($(el, ".smdw-run > .smdw-note").classList.contains("smdw-error")).toBe(false);
    expect(button(el, "Read all (4 GB, about 1 s)")).toBeTruthy();
  });

  test("a run that is gone keeps its last picture and says what happened", async () => {
    const { el, session } = open(troubled());
    await until(() => el.querySelector(".smdw-map-row"));
    const rows = el.querySelectorAll(".smdw-map-row").length;
    const { head } = session.store.runs.get(0) as { head: object };
    Object.assign(head, { status: "gone", message: "runs/gpt_a does not exist any more" });
    session.store.notify();
    await until(() => $(el, ".smdw-run > .smdw-note").textContent === "runs/gpt_a does not exist any more");
    expect($(el, ".smdw-run > .smdw-note").classList.contains("smdw-error")).toBe(true);
    expect($(el, ".smdw-run-status").textContent).toBe("Missing");
    expect(el.querySelectorAll(".smdw-map-row")).toHaveLength(rows);
  });

  test("a map of few rows leaves its height to the curve, until the inspector is open", async () => {
    // Most rows are folded.
    const layers = Array.from({ length: 20 }, (_, i) => [`a.${i}.weight`, `a.${i}.bias`]).flat();
    const names = ["fc.weight", "fc.bias", "loss", ...layers];
    const run = { ...made, names, collections: { losses: [2], scalars: [2], weights: [0], biases: [1] } };
    const { el } = open([catalogPacket(run)], { tensor: "fc.weight", query: "fc.*" });
    const lanes = await until(() => $(el, ".smdw-lanes"));
    const height = () => lanes.getBoundingClientRect().height;
    await until(() => height() > 150);
    expect($(el, ".smdw-explorer").scrollHeight).toBeLessThanOrEqual(600);
    await press("Enter");
    await until(() => height() < 60);
  });

  test("a run of scalars has a small curve for each, and no map", async () => {
    const run = {
      ...made,
      names: ["train/loss", "val/loss", "lr"],
      collections: { losses: [0, 1], scalars: [0, 1, 2] },
    };
    const { el, session, model, sent } = open([catalogPacket(run)], { tensor: "train/loss" });
    const asked = (await until(() =>
      sent.find((each) => each.what === "series" && "lines" in each && each.lines.length > 1),
    )) as unknown as {
      lines: { tensor: string }[];
    };
    expect(asked.lines.map(({ tensor }) => tensor)).toEqual(["train/loss", "val/loss", "lr"]);
    const n = made.steps.length;
    for (const tensor of run.names)
      session.store.addPackets([
        encode(
          { kind: "series", run: 0, tensor, worker: "", mode: "", stat: "value" },
          { step: ["f8", [n], made.steps], y: ["f8", [n], Float64Array.from(made.steps, (step) => 1 / (1 + step))] },
        ),
      ]);
    await until(() => /0\.009901/.test(el.querySelector(".smdw-multiple")?.textContent ?? ""));
    const cells = [...el.querySelectorAll<HTMLElement>(".smdw-multiple")];
    expect(cells).toHaveLength(3);
    // They fill the place of a map.
    const list = $(el, ".smdw-multiples-list").getBoundingClientRect();
    const covered = cells
      .map((each) => each.getBoundingClientRect())
      .reduce((sum, { width, height }) => sum + width * height, 0);
    expect(covered / (list.width * list.height)).toBeGreaterThan(0.6);
    expect($(el, ".smdw-map").checkVisibility()).toBe(false);
    expect($(el, ".smdw-map-legend").checkVisibility()).toBe(false);
    // A scalar opens one large curve; curves of several, and rules, are behind a button.
    await press("Enter");
    const curve = await until(() => $(el, ".smdw-lane-value"));
    await until(() => curve.getBoundingClientRect().height === 164);
    expect(el.querySelector(".smdw-pictures")?.checkVisibility() ?? false).toBe(false);
    button(el, "Curves and rules").click();
    await until(() => $(el, ".smdw-pictures").checkVisibility() && curve.getBoundingClientRect().height === 79);
    await until(() => [...el.querySelectorAll("[role=tab]")].some((tab) => tab.textContent === "Rules"));
    button(el, "Curves and rules").click();
    await until(() => !$(el, ".smdw-pictures").checkVisibility());
    await press("Escape");
    el.querySelectorAll<HTMLElement>(".smdw-multiple")[2]?.click();
    expect([model.get("tensor"), model.get("lane")]).toEqual(["lr", "lr"]);
    const filter = $<HTMLInputElement>(el, "[type=search]");
    filter.value = "val";
    filter.dispatchEvent(new Event("input"));
    await until(() => el.querySelectorAll(".smdw-multiple").length === 1);
  });
});

test("rules that found something come first, the earliest on top; others are behind a button", async () => {
  const rule = (name: string, outcomes: Record<number, number>, firings_total: number) => ({
    info: { id: `0/${name}`, name, class: name, firings_total, active: false, status: "NoIssuesFound" as const },
    outcomes,
  });
  const { el } = open([
    ...troubled(),
    rulesPacket([
      rule("Quiet", { 0: 1, 10: 1 }, 0),
      rule("Late", { 0: 1, 400: 2 }, 1),
      rule("Early", { 0: 1, 200: 2, 210: 2 }, 2),
      rule("Silent", { 0: 1 }, 0),
      rule("Calm", { 0: 1 }, 0),
    ]),
  ]);
  const names = () => [...el.querySelectorAll(".smdw-lane-rule .smdw-lane-name")].map((each) => each.textContent);
  const tops = () => [...el.querySelectorAll<HTMLElement>(".smdw-lane-rule")].map((each) => each.offsetTop);
  await until(() => names().length === 3);
  const order = () =>
    tops()
      .map((top, i) => [top, names()[i]] as const)
      .sort((a, b) => a[0] - b[0])
      .map(([, name]) => name);
  expect(order()).toEqual(["Early", "Late", "Quiet"]);
  const more = $(el, ".smdw-lane-more");
  expect(more.textContent).toBe("+2 found nothing");
  more.click();
  await until(() => names().length === 5);
  expect($(el, ".smdw-explorer").getBoundingClientRect().height).toBe(600);
});

test("the lower edge changes the height, by pointer and by keys", async () => {
  const { el, model } = open(troubled());
  const edge = $(el, ".smdw-edge");
  pointer(edge, "pointerdown", 100, 2);
  pointer(edge, "pointermove", 100, 102);
  pointer(edge, "pointerup", 100, 102);
  expect(model.get("height")).toBe(700);
  await until(() => el.getBoundingClientRect().height === 700);
  key(edge, "ArrowUp");
  expect(model.get("height")).toBe(680);
  await frame();
  pointer(edge, "pointerdown", 100, 2);
  pointer(edge, "pointermove", 100, -600);
  pointer(edge, "pointerup", 100, -600);
  expect(model.get("height")).toBe(420);
});

test("full screen docks the inspector at the right, and the axis ends before it", async () => {
  const { el, session } = open(troubled(), { inspect: true });
  // A page that may not fill the screen fills its window.
  el.requestFullscreen = () => Promise.reject(new TypeError("not allowed"));
  await press("e");
  await until(() => explorer().dataset.full === "true");
  await frame();
  await frame();
  const pictures = (await until(() => $(el, ".smdw-pictures"))).getBoundingClientRect();
  const stage = $(el, ".smdw-stage").getBoundingClientRect();
  expect(el.getBoundingClientRect().height).toBe(innerHeight);
  expect(pictures.width).toBe(420);
  expect(pictures.left).toBeGreaterThanOrEqual(stage.right - 1);
  const { right } = session.scene(stage.width).stepAxis;
  await until(
    () => Math.abs($(el, ".smdw-axis > .smdw-track").getBoundingClientRect().right - stage.left - right) <= 1,
  );
  await press("e");
  await until(() => explorer().dataset.full === "false");
  expect(el.getBoundingClientRect().height).toBe(600);
});

test("pictures take the height that map and lanes leave, and cells are square", async () => {
  const { el } = open(troubled(), { inspect: true });
  const pictures = await until(() => el.querySelector<HTMLElement>(".smdw-pictures"));
  await until(() => pictures.clientHeight > 0 && pictures.querySelector(".smdw-figure-heatmap"));
  expect($(el, ".smdw-map-box").clientHeight).toBe(70);
  expect(pictures.clientHeight).toBeGreaterThanOrEqual(200);
  // The last one ends where the explorer ends: nothing is cut off, and nothing is left over.
  const bottom = $(el, ".smdw-explorer").getBoundingClientRect().bottom;
  expect(Math.abs(pictures.getBoundingClientRect().bottom - bottom)).toBeLessThanOrEqual(2);
});

test("what was asked for and does not exist is said in the first line, and the explorer works", async () => {
  const { el } = open(troubled(), { _notice: "There is no tensor 'no.such'." });
  await until(() => $(el, ".smdw-run").textContent?.includes("There is no tensor 'no.such'."));
  await until(() => el.querySelectorAll(".smdw-map-row").length > 5);
});
