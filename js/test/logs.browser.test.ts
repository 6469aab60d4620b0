/** What the page shows of logs: charts of scalars, hyperparameters, launches. */

import { afterEach, expect, test } from "vitest";
import { encode } from "../src/protocol/packet";
import type { CatalogHead, PlanHead, Traits } from "../src/protocol/types";
import type { Client } from "../src/session/client";
import type { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { mount, openSession, startRequesting } from "../src/view";
import css from "../src/widget.css?inline";
import { $, key, pointer, until } from "./helpers";
import { kindOf } from "./kinds";

const STEPS = Array.from({ length: 11 }, (_, i) => i * 10);
const NAMES = ["body/train_loss", "body/val_loss", "head/train_loss", "head/val_loss", "lr"];
const BEGAN = 1.7e9;

interface Opened {
  el: HTMLElement;
  session: Session;
  sent: Record<string, unknown>[];
}
let close: (() => void) | undefined;
afterEach(() => close?.());

const catalog = (run: number, head: Partial<CatalogHead> = {}) =>
  encode(
    {
      kind: "catalog",
      run,
      name: `run${run}`,
      path: `runs/run${run}`,
      status: "ended",
      message: "",
      workers: ["worker_0"],
      last_write: null,
      restarted_at: null,
      colour: run,
      append: false,
      tensors: NAMES,
      collections: { losses: [0, 1, 2, 3], scalars: [0, 1, 2, 3, 4] },
      ...head,
    },
    {
      step: ["f8", [STEPS.length], STEPS],
      mode: ["u1", [STEPS.length], STEPS.map(() => 4)],
      mode_step: ["f8", [STEPS.length], STEPS],
    },
  );

function curve(
  run: number,
  tensor: string,
  {
    value = (step) => 1 - step / 200,
    began = BEGAN,
    seconds = (step) => step * 60,
  }: { value?: (step: number) => number; began?: number | null; seconds?: (step: number) => number } = {},
): ArrayBuffer {
  const n = STEPS.length;
  return encode(
    { kind: "series", run, tensor, worker: "", mode: "", stat: "value", began },
    {
      step: ["f8", [n], STEPS],
      y: ["f8", [n], STEPS.map(value)],
      ...(began === null ? {} : { seconds: ["f4", [n], STEPS.map(seconds)] as ["f4", number[], number[]] }),
    },
  );
}

function open(traits: Partial<Traits>, packets: ArrayBuffer[]): Opened {
  const host = document.createElement("div");
  host.style.width = "1000px";
  const el = document.createElement("div");
  host.append(Object.assign(document.createElement("style"), { textContent: css }), el);
  document.body.append(host);
  const control = new AbortController();
  const { signal } = control;
  const model = new LocalModel({ _kind: "scalars", step: 100, follow: false, ...traits });
  const state = new State(model, signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, signal);
  const sent: Record<string, unknown>[] = [];
  const answer = (message: { what: string }) => {
    sent.push(message as unknown as Record<string, unknown>);
    return message.what === "hello" ? Promise.resolve({}) : new Promise<never>(() => {});
  };
  const client: Client = { request: answer, command: answer, resend() {}, resendCommands() {} };
  session.store.addPackets(packets);
  session.connection.connect(client, false);
  startRequesting(session, kind, signal);
  mount(session, kind, el, signal);
  close = () => {
    control.abort();
    host.remove();
  };
  return { el, session, sent };
}

const both = [{ tensor: "lr", stat: "value", run: -1 }];
const canvas = (el: Element) => $<HTMLCanvasElement>(el, ".smdw-figure-scalars canvas");
const card = (el: Element) => $(el, ".smdw-card");
const head = (el: Element) => el.querySelector(".smdw-card:not([hidden]) .smdw-card-head")?.textContent;
const text = (el: Element) => [...el.querySelectorAll(".smdw-card-row")].map((row) => row.textContent);

test("the pointer reads all runs, the largest value first; so do the arrow keys", async () => {
  const { el, session } = open({ series: both }, [
    catalog(0),
    catalog(1),
    curve(0, "lr"),
    curve(1, "lr", { value: (step) => 1 + step / 200 }),
  ]);
  await until(() => canvas(el).clientWidth > 500 && el.querySelectorAll(".smdw-legend li").length === 2);
  await until(() => {
    pointer(canvas(el), "pointermove", 52 + (canvas(el).clientWidth - 62) / 2, 100);
    return head(el) === "step 50";
  });
  expect(text(el)).toEqual(["lr \u00b7 run11.25", "lr \u00b7 run00.75"]);
  pointer(canvas(el), "pointerleave", 0, 0);
  await until(() => card(el).hidden);
  canvas(el).focus();
  key(canvas(el), "ArrowLeft");
  await until(() => head(el) === "step 90");
  expect(canvas(el).getAttribute("aria-valuetext")).toBe("step 90: lr \u00b7 run1 1.45; lr \u00b7 run0 0.55");
  key(canvas(el), "Enter");
  expect(session.state.get("step")).toBe(90);
  key(canvas(el), "Escape");
  await until(() => card(el).hidden);
});

test("times are requested only for a time axis, and shown in units of time", async () => {
  const { el, session, sent } = open({ series: both }, [catalog(0)]);
  const asked = () => sent.filter(({ what }) => what === "series").map(({ clock }) => clock);
  await until(() => asked().length === 1);
  expect(asked()).toEqual([undefined]);
  const axis = $<HTMLSelectElement>(el, "[aria-label='Horizontal axis']");
  axis.value = "relative";
  axis.dispatchEvent(new Event("change"));
  expect(session.state.get("x_axis")).toBe("relative");
  await until(() => asked().length === 2);
  expect(asked()).toEqual([undefined, true]);
  session.store.addPackets([curve(0, "lr")]);
  await until(() => el.querySelectorAll(".smdw-legend li").length === 1);
  canvas(el).focus();
  key(canvas(el), "Home");
  await until(() => head(el) === "step 0 \u00b7 0 s");
  key(canvas(el), "ArrowRight");
  await until(() => head(el) === "step 10 \u00b7 10 min");
});

test.each([
  ["has no wall times", { began: null }],
  ["the clock of run0 goes backwards at step 60", { seconds: (step: number) => (step === 60 ? 0 : step * 60) }],
])("a clock that cannot be used is named: %s", async (why, clock) => {
  const { el } = open({ series: both, x_axis: "wall" }, [catalog(0), curve(0, "lr", clock)]);
  await until(() => $(el, ".smdw-note").textContent?.includes(why));
  expect($(el, ".smdw-note").textContent).toMatch(/^Shown by step: /);
  canvas(el).focus();
  key(canvas(el), "ArrowLeft");
  await until(() => head(el) === "step 90");
});

test("a regular expression divides the scalars into charts", async () => {
  const { el, session, sent } = open({ charts: "(train|val)_loss" }, [
    catalog(0),
    ...NAMES.map((name) => curve(0, name)),
  ]);
  const titles = () => [...el.querySelectorAll(".smdw-chart-title")].map((each) => each.textContent);
  await until(() => titles().length === 2);
  expect(titles()).toEqual(["body/*_loss", "head/*_loss"]);
  await until(() => el.querySelectorAll(".smdw-legend li").length === 4);
  const colours = [...el.querySelectorAll<HTMLElement>(".smdw-legend .smdw-swatch")].map((each) => each.style.color);
  expect(colours[0]).not.toBe(colours[1]);
  expect(colours.slice(0, 2)).toEqual(colours.slice(2));
  expect(sent.filter(({ what }) => what === "series")).toEqual([]);
  const field = $<HTMLInputElement>(el, ".smdw-chart-groups");
  field.value = "/(train|val/";
  field.dispatchEvent(new Event("change"));
  expect(session.state.get("charts")).toBe("(train|val");
  await until(() => $(el, ".smdw-note").textContent?.includes("group"));
  field.value = "";
  field.dispatchEvent(new Event("change"));
  await until(() => titles().join() === "");
});

test("hyperparameters are listed, and a launch is selected by a command", async () => {
  const launches = { launches: [1.7e9, null, 1.7001e9], launch: null };
  const { el, session, sent } = open({ _kind: "explorer", tensor: "lr" }, [
    catalog(0, { hparams: { lr: 1e-3, optimizer: "<b>adam</b>", amp: true }, ...launches }),
    curve(0, "lr"),
  ]);
  const opens = await until(() => [...el.querySelectorAll("button")].find((each) => each.textContent === "3 hparams"));
  const list = $(el, ".smdw-hparams");
  expect(list.checkVisibility()).toBe(false);
  opens.click();
  expect(list.checkVisibility()).toBe(true);
  expect([...list.children].map((each) => each.textContent)).toEqual([
    ...["lr", "0.001", "optimizer", "<b>adam</b>", "amp", "true"],
  ]);
  const select = $<HTMLSelectElement>(el, "[aria-label='Launch of the training']");
  expect([...select.options].map((each) => each.textContent?.replace(/ \u00b7.*/, " \u2026"))).toEqual([
    ...["All 3 launches", "Launch 1 \u2026", "Launch 2", "Launch 3 \u2026"],
  ]);
  select.value = "2";
  select.dispatchEvent(new Event("change"));
  expect(sent.at(-1)).toEqual({ what: "launch", do: "select", run: 0, launch: 2 });
  const { restarts } = session.store;
  session.store.addPackets([catalog(0, { append: true })]);
  expect(session.store.restarts).toBe(restarts);
  session.store.addPackets([catalog(0, { ...launches, launch: 2 })]);
  expect([session.store.restarts, session.store.series.size]).toEqual([restarts + 1, 0]);
  await until(() => select.value === "2");
});

test("a run with one launch and no hyperparameters shows neither", async () => {
  const { el } = open({ _kind: "explorer", tensor: "lr" }, [catalog(0), curve(0, "lr")]);
  await until(() => el.querySelector(".smdw-multiple"));
  expect($(el, ".smdw-run-extra").textContent).not.toContain("launches");
  expect($(el, ".smdw-run-extra .smdw-select").checkVisibility()).toBe(false);
  expect($(el, ".smdw-run-extra .smdw-anchor").checkVisibility()).toBe(false);
});

const plan = (tensor: string, head: Partial<PlanHead>) =>
  encode(
    {
      kind: "plan",
      run: 0,
      tensor,
      worker: "",
      dtype: "float32",
      shape: [],
      bytes: 0,
      collections: [],
      workers: ["worker_0"],
      form: "number",
      reduced: false,
      errors: {},
      ...head,
    },
    { step: ["f8", [1], [0]] },
  );

test("a precision-recall curve is requested once and read by its thresholds", async () => {
  const { el, session, sent } = open({ _kind: "explorer", tensor: "pr", inspect: true, panels: [] }, [
    catalog(0, { tensors: [...NAMES, "pr"], collections: { scalars: [0], pr_curves: [5] } }),
    plan("pr", { shape: [6, 3], collections: ["pr_curves"] }),
    encode(
      { kind: "frames", run: 0, tensor: "pr", worker: "", edition: 0, errors: {} },
      { step: ["f8", [1], [0]], shapes: ["f8", [1, 2], [6, 3]] },
    ),
  ]);
  const asked = () => sent.filter(({ what }) => what === "values");
  await until(() => asked().length === 1);
  expect(asked()[0]).toMatchObject({ tensor: "pr", step: 0, rows: [0, 6], cols: [0, 3], axes: [0, 1] });
  const rows = [
    ...[4, 3, 0], // true positives by threshold
    ...[4, 1, 0],
    ...[0, 3, 4],
    ...[0, 1, 4],
    ...[0.5, 0.75, 0],
    ...[1, 0.75, 0],
  ];
  const about = { run: 0, tensor: "pr", worker: "", step: 0, axes: [0, 1], fixed: [0, 0] };
  session.store.addPackets([
    encode(
      { kind: "values", ...about, rows: [0, 6], cols: [0, 3], shape: [6, 3], cells: [] },
      { number: ["f8", [6, 3], rows] },
    ),
  ]);
  const readout = () => $(el, ".smdw-panel-pr-curve .smdw-readout").textContent;
  // Nothing is positive from the last threshold on, so that there is no precision.
  await until(() => readout() === "average precision 0.6875");
  const shown = $(el, ".smdw-figure-pr-curve canvas");
  shown.focus();
  key(shown, "End");
  await until(() => readout()?.startsWith("threshold 0.5 \u00b7 precision 0.75 \u00b7 recall 0.75"));
  expect(readout()).toMatch(/TP 3 \u00b7 FP 1 \u00b7 TN 3 \u00b7 FN 1$/);
  expect(shown.getAttribute("aria-valuetext")).toBe(readout());
  key(shown, "ArrowLeft");
  await until(() => readout()?.startsWith("threshold 0 \u00b7 precision 0.5 \u00b7 recall 1"));
  const tabs = [...el.querySelectorAll<HTMLElement>("[role=tab]")].filter((tab) => !tab.hidden);
  expect(tabs.map((tab) => tab.textContent)).toEqual(["PR curve", "Values", "Curves", "Rules"]);
  expect(asked()).toHaveLength(1);
});

test("a text of a log is shown as Markdown, other texts as they are", async () => {
  const packets = (collection: string) => [
    catalog(0, { tensors: [...NAMES, "notes"], collections: { scalars: [0], [collection]: [5] } }),
    plan("notes", { dtype: "str", form: "text", collections: [collection] }),
    encode({
      kind: "values",
      run: 0,
      tensor: "notes",
      worker: "",
      step: 0,
      axes: [],
      fixed: [],
      rows: [0, 1],
      cols: [0, 1],
      shape: [1, 1],
      cells: [["# Notes\n\n**0.5** <script>alert(1)</script>"]],
    }),
  ];
  const traits = { _kind: "explorer", tensor: "notes", inspect: true, panels: ["values"] } as const;
  const log = open({ ...traits, panels: ["values"] }, packets("text")).el;
  const words = await until(() => log.querySelector(".smdw-words"));
  expect(words.innerHTML).toBe("<h4>Notes</h4><p><strong>0.5</strong> &lt;script&gt;alert(1)&lt;/script&gt;</p>");
  close?.();
  const hook = open({ ...traits, panels: ["values"] }, packets("custom")).el;
  const plain = await until(() => hook.querySelector(".smdw-words"));
  expect(plain.textContent).toMatch(/^# Notes/);
});
