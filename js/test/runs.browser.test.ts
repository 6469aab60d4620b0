/** The table of runs over a recorded conversation, and over packets with odd runs. */

import axe from "axe-core";
import { afterEach, describe, expect, test } from "vitest";
import recording from "../../tests/transcripts/runs.json";
import { type Exchange, unpack } from "../demo/recorded";
import { envelope, spread } from "../src/data/run-curves";
import { encode } from "../src/protocol/packet";
import type { KernelCommand, KernelRequest, KernelResponse, Traits } from "../src/protocol/types";
import { type Client, RequestError } from "../src/session/client";
import type { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { mount, openSession, startRequesting } from "../src/view";
import css from "../src/widget.css?inline";
import { $, button, frame, key, until } from "./helpers";
import { kindOf } from "./kinds";

const exchanges = recording as unknown as Exchange[];
const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
/** What the kernel pushed, in order: a diagnosis, and a run that has grown. */
const news = exchanges.filter((each) => each.sent === null);

let close = () => {};
afterEach(() => close());

async function packets(exchange: Exchange | undefined): Promise<ArrayBuffer[]> {
  return Promise.all((exchange?.received ?? []).flatMap((each) => each.packets).map(unpack));
}

interface Opened {
  el: HTMLElement;
  session: Session;
  sent: (KernelRequest | KernelCommand)[];
}

async function open(
  traits: Partial<Traits> = {},
  { width = 1000, dark = false, shadow = false, boot = [] as ArrayBuffer[] } = {},
): Promise<Opened> {
  const host = document.createElement("div");
  host.style.width = `${width}px`;
  host.style.background = dark ? "#14171b" : "#ffffff";
  const root = shadow ? host.attachShadow({ mode: "open" }) : host;
  root.append(Object.assign(document.createElement("style"), { textContent: css }));
  const el = document.createElement("div");
  root.append(el);
  document.body.append(host);
  const control = new AbortController();
  close = () => {
    control.abort();
    host.remove();
    close = () => {};
  };
  const sent: Opened["sent"] = [];
  const state = new State(new LocalModel({ _many: true, table: true, ...traits }), control.signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, control.signal);
  const reply = async (request: KernelRequest | KernelCommand): Promise<KernelResponse> => {
    sent.push(request);
    if (boot.length && request.what === "hello") return {};
    const wanted = request.what === "hello" ? exchanges[0] : exchanges.find((each) => same(each.sent, request));
    session.store.addPackets(await packets(wanted));
    const error = wanted?.received.find((each) => each.message.kind === "error")?.message;
    if (error?.kind === "error") throw new RequestError(error.error);
    return {};
  };
  const client = { exported: false, resend() {}, resendCommands() {}, request: reply, command: reply };
  session.store.addPackets(boot);
  session.connection.connect(client as Client, false);
  startRequesting(session, kind, control.signal);
  mount(session, kind, el, control.signal);
  await until(() => session.store.table.head);
  await frame();
  await frame();
  return { el, session, sent };
}

const grid = (el: Element) => $(el, "[role=grid]");
const rows = (el: Element) => [...el.querySelectorAll<HTMLElement>("[data-run]")];
const names = (el: Element) => rows(el).map((row) => $(row, ".smdw-runs-name .smdw-sr").textContent);
const cell = (row: Element, name: string) => $(row, `.smdw-runs-${name}`).textContent;
const rowOf = (el: Element, name: string) =>
  rows(el).find((row) => $(row, ".smdw-runs-name .smdw-sr").textContent === name) as HTMLElement;
const title = (el: Element) => $(el, ".smdw-runs-chart-title").textContent;
const input = (el: Element) => $<HTMLInputElement>(el, "input[role=combobox]");
const type = (el: Element, text: string) => {
  const box = input(el);
  box.focus();
  box.value = text;
  box.setSelectionRange(text.length, text.length);
  box.dispatchEvent(new Event("input"));
};
const options = (el: Element) =>
  [...el.querySelectorAll("[role=listbox][aria-label=Suggestions] [role=option]")].map(
    (each) => each.firstChild?.textContent,
  );

/** A packet of rows; what is not given is the same for all. */
function runsPacket(
  given: { name: string; state?: string; best?: number | null; hparams?: Record<string, number> }[],
  total = given.length,
) {
  const n = given.length;
  const keys = [...new Set(given.flatMap((row) => Object.keys(row.hparams ?? {})))];
  return encode(
    {
      kind: "runs",
      root: "runs",
      tag: "loss",
      high: false,
      tags: ["loss"],
      append: false,
      total,
      doing: "",
      done: 0,
      of: 0,
      numbers: given.map((_, i) => i),
      name: given.map((row) => row.name),
      state: given.map((row) => row.state ?? "ended"),
      steps: [100],
      best: given.map((row, i) => (row.best === undefined ? i / n : row.best)),
      last: given.map((row, i) => (row.best === undefined ? i / n : row.best)),
      not_finite: [null],
      duration: [1],
      findings: [null],
      hparams: Object.fromEntries(keys.map((name) => [name, given.map((row) => row.hparams?.[name] ?? null)])),
      notes: {},
    },
    {
      level: ["u1", [n], given.map(() => 0)],
      first: ["f8", [n], given.map(() => 0)],
      ends: ["f8", [n, 2], given.flatMap(() => [0, 1])],
      lo: ["u2", [n, 64], given.flatMap(() => Array.from({ length: 64 }, (_, i) => 65535 - 900 * i))],
      hi: ["u2", [n, 64], given.flatMap(() => Array.from({ length: 64 }, (_, i) => 65535 - 800 * i))],
    },
  );
}

describe.each([
  [1440, false],
  [900, true],
  [500, false],
] as const)("at %i pixels", (width, dark) => {
  test("axe finds no violation, and nothing is wider than the widget", async () => {
    const { el } = await open({}, { width, dark });
    const { violations } = await axe.run(el, { rules: { region: { enabled: false } } });
    expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
    expect(el.scrollWidth).toBeLessThanOrEqual(width);
    expect(el.getBoundingClientRect().height).toBe(600);
  });
});

describe("rows", () => {
  test("are in the order of the best loss, with hyperparameters that differ first", async () => {
    const { el } = await open();
    expect(names(el).slice(0, 3)).toEqual(["lr_0.001/seed_1", "lr_0.01/seed_1", "lr_0.001/seed_2"]);
    const heads = [...el.querySelectorAll("[role=columnheader]")].map((head) => head.textContent);
    expect(heads).toEqual([
      "Drawn",
      "Run",
      "Best loss",
      "Last",
      "loss",
      "Steps",
      "State",
      "Duration",
      "lr",
      "seed",
      "optimizer",
      "Group",
    ]);
    const first = rows(el)[0] as HTMLElement;
    expect([cell(first, "best"), cell(first, "steps"), cell(first, "state"), cell(first, "group")]).toEqual([
      "0.01864",
      "40",
      "Ended",
      "0.001",
    ]);
    expect(grid(el).getAttribute("aria-rowcount")).toBe("14");
  });

  test("a run that became NaN says so, in words and in its curve", async () => {
    const { el } = await open({ runs_query: "lr_0.1/seed_0" });
    const [row] = rows(el);
    expect(cell(row as HTMLElement, "last")).toBe("NaN");
    expect(row?.querySelector(".smdw-spark-nan")).not.toBeNull();
  });

  test("a click sorts, a second one turns the order, Shift adds a key, and runs without a value stay last", async () => {
    const { el, session } = await open();
    button(el, "lr").click();
    await until(
      () => names(el)[0] === "lr_0.001/seed_1" && el.querySelector("[aria-sort=ascending]")?.textContent === "lr",
    );
    button(el, "lr").click();
    await until(() => names(el)[0]?.startsWith("lr_0.1/"));
    expect(names(el).at(-1)).toBe("damaged");
    button(el, "seed").dispatchEvent(new MouseEvent("click", { shiftKey: true, bubbles: true }));
    await until(() => names(el)[0] === "lr_0.1/seed_0" && names(el)[1] === "lr_0.1/seed_1");
    expect(session.state.get("runs_sort")).toEqual([
      { by: "lr", down: true },
      { by: "seed", down: false },
    ]);
  });

  test("the header that was clicked keeps the focus, in a shadow tree too", async () => {
    const { el } = await open({}, { shadow: true });
    const focused = () => (el.getRootNode() as ShadowRoot).activeElement;
    button(el, "lr").focus();
    button(el, "lr").click();
    await until(() => el.querySelector("[aria-sort=ascending]"));
    expect(focused()).toBe(button(el, "lr"));
  });

  test("the query leaves the rows that match; Enter and Escape go to the rows", async () => {
    const { el, session } = await open();
    key(grid(el), "/");
    expect(document.activeElement).toBe(input(el));
    type(el, "seed_2");
    await until(() => rows(el).length === 3);
    expect($(el, ".smdw-runs-facts").textContent).toBe("3 of 13 runs");
    key(input(el), "Enter");
    expect(document.activeElement).toBe(grid(el));
    type(el, "seed_7 ");
    key(input(el), "Enter");
    await until(() =>
      $(el, ".smdw-query-error").textContent?.startsWith("No name contains 'seed_7'. Did you mean 'seed_"),
    );
    expect(rows(el)).toHaveLength(3);
    type(el, "steps < 0");
    await until(() => $(el, ".smdw-runs-empty").textContent === "No run matches the query");
    key(input(el), "Escape");
    expect([session.state.get("runs_query"), document.activeElement]).toEqual(["steps < 0", grid(el)]);
    type(el, "");
    await until(() => rows(el).length > 3);
  });

  test("columns are keys of the query; an error is said, and the last good rows stay", async () => {
    const { el } = await open({ runs_query: "| lr < 0.05 | state = ended | top 2 by loss" });
    expect(names(el)).toEqual(["lr_0.001/seed_1", "lr_0.01/seed_1"]);
    type(el, "| tpo 2 by loss");
    await until(() => $(el, ".smdw-query-error").textContent?.includes("Did you mean 'top'?"));
    expect($(el, ".smdw-query-error").checkVisibility()).toBe(true);
    expect($(el, ".smdw-query-marks u").textContent).toBe("tpo");
    expect(rows(el)).toHaveLength(2);
    type(el, "| seed > 2 | sort by lr ");
    await until(() => rows(el).length === 3 && !$(el, ".smdw-query-error").checkVisibility());
    expect(names(el)[0]).toBe("lr_0.1/seed_3");
  });

  test("columns, operators, texts and stages are suggested, by keyboard alone", async () => {
    const { el, session } = await open();
    key(grid(el), "/");
    await until(() => input(el).getAttribute("aria-expanded") === "true");
    // What a table has, each name once.
    expect(options(el).slice(0, 12)).toEqual([
      "name",
      "best",
      "last",
      "steps",
      "findings",
      "state",
      "duration",
      "group",
      "loss",
      "train/loss",
      "lr",
      "seed",
    ]);
    const { violations } = await axe.run(el, { rules: { region: { enabled: false } } });
    expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
    // The list is over the rows, inside of the widget.
    const list = $(el, "[role=listbox][aria-label=Suggestions]");
    const { left, top, bottom } = list.getBoundingClientRect();
    expect(list.contains(document.elementFromPoint(left + 20, top + 30))).toBe(true);
    expect(bottom).toBeLessThanOrEqual(el.getBoundingClientRect().bottom);
    const write = (text: string) => {
      const at = input(el).value.length;
      input(el).setRangeText(text, at, at, "end");
      input(el).dispatchEvent(new Event("input"));
    };
    write("opt");
    expect(options(el)).toEqual(["optimizer"]);
    key(input(el), "Tab");
    expect(options(el).slice(0, 6)).toEqual(["<", "<=", ">", ">=", "=", "!="]);
    for (let i = 0; i < 5; i++) key(input(el), "ArrowDown");
    expect(input(el).getAttribute("aria-activedescendant")).toBe($(el, "[role=option][aria-selected=true]").id);
    key(input(el), "Enter");
    expect(input(el).value).toBe("optimizer = ");
    expect(options(el)).toEqual(["adam"]);
    key(input(el), "ArrowDown");
    key(input(el), "Enter");
    await until(() => session.state.get("runs_query") === "optimizer = adam ");
    write("| to");
    key(input(el), "Tab");
    expect(input(el).value).toBe("optimizer = adam | top 12 by ");
    key(input(el), "ArrowDown");
    key(input(el), "ArrowDown");
    key(input(el), "Enter");
    expect(input(el).value).toBe("optimizer = adam | top 12 by best ");
    const found = [...session.store.table.rows.values()].filter(({ hparams }) => hparams.get("optimizer") === "adam");
    await until(() => rows(el).length === Math.min(12, found.length));
    // The list is closed first, then the focus goes to the rows.
    if (options(el).length && input(el).getAttribute("aria-expanded") === "true") key(input(el), "Escape");
    key(input(el), "Enter");
    expect(document.activeElement).toBe(grid(el));
  });

  test("a finding of the diagnosis and a run that grows appear in place", async () => {
    const { el, session, sent } = await open();
    button(el, "Diagnose").click();
    await until(() => sent.some((each) => each.what === "runs_work"));
    session.store.addPackets(await packets(news[0]));
    await until(() => [...el.querySelectorAll("[role=columnheader]")].some((head) => head.textContent === "Findings"));
    session.store.addPackets(await packets(news[1]));
    await until(() => cell(rowOf(el, "lr_0.001/seed_1"), "steps") === "50");
    expect(rows(el)).toHaveLength(13);
  });

  test("another curve is requested, and its best is the largest", async () => {
    const { el, session } = await open();
    const select = $<HTMLSelectElement>(el, ".smdw-runs-bar select");
    select.value = "val/acc";
    select.dispatchEvent(new Event("change"));
    await until(() => session.store.table.head?.tag === "val/acc");
    await until(() => cell(rows(el)[0] as HTMLElement, "best") === "0.9953");
    expect(session.state.get("runs_tag")).toBe("val/acc");
  });
});

describe("runs that appear later", () => {
  const many = Array.from({ length: 60 }, (_, i) => ({
    name: `run_${i}`,
    best: i + 1,
    hparams: { lr: i % 7, seed: i },
  }));
  const offset = (el: Element, name: string) =>
    rowOf(el, name).getBoundingClientRect().top - grid(el).getBoundingClientRect().top;

  test("do not move the rows in view, nor change the row that keys move from, the order and what is checked", async () => {
    const { el, session } = await open({ checked: [{ run: 3 }] }, { boot: [runsPacket(many)] });
    button(el, "Best loss").click();
    await until(() => el.querySelector("[aria-sort=ascending]"));
    for (let i = 0; i < 39; i++) key(grid(el), "ArrowDown");
    const row = await until(() => rowOf(el, "run_39"));
    await until(() => grid(el).getAttribute("aria-activedescendant") === row.id);
    const [place, scroll] = [offset(el, "run_36"), grid(el).scrollTop];
    expect(scroll).toBeGreaterThan(100);
    // A better run, one in view that is the best now, and one that is worse.
    const changed = many.map((each, i) => (i === 38 ? { ...each, best: 0.2 } : each));
    const more = [...changed, { name: "better", best: 0.5 }, { name: "worse", best: 100 }];
    session.store.addPackets([runsPacket(more, more.length)]);
    await until(() => $(el, ".smdw-runs-facts").textContent === "62 runs");
    expect([offset(el, "run_36"), grid(el).scrollTop]).toEqual([place, scroll + 48]);
    expect(grid(el).getAttribute("aria-activedescendant")).toBe(rowOf(el, "run_39").id);
    expect(session.state.get("checked")).toEqual([{ run: 3 }]);
    expect(session.state.get("runs_sort")).toEqual([{ by: "best", down: false }]);
    key(grid(el), "Home");
    await until(() => names(el)[0] === "run_38" && names(el)[1] === "better");
  });

  test("are seen at the top while the first row is in view; a query that they match shows them", async () => {
    const { el, session } = await open({}, { boot: [runsPacket(many.slice(0, 30))] });
    const more = [...many.slice(0, 30), { name: "better", best: 0.5 }];
    session.store.addPackets([runsPacket(more)]);
    await until(() => names(el)[0] === "better");
    expect(grid(el).scrollTop).toBe(0);
    type(el, "best < 0.5");
    await until(() => rows(el).length === 0);
    session.store.addPackets([runsPacket([...more, { name: "best", best: 0.1 }])]);
    await until(() => names(el).join() === "best");
  });
});

describe("checked runs", () => {
  test("the five best are drawn first; Space adds one, in another colour", async () => {
    const { el, session } = await open();
    expect(title(el)).toBe("train/loss: 5 runs");
    for (let i = 0; i < 5; i++) key(grid(el), "ArrowDown");
    key(grid(el), " ");
    await until(() => title(el) === "train/loss: 6 runs");
    expect(session.state.get("checked")).toHaveLength(6);
    const colours = [...el.querySelectorAll<HTMLElement>(".smdw-runs-box[style]")].map((box) => box.style.cssText);
    expect(new Set(colours).size).toBe(6);
  });

  test("more than eight are the mean of each group, with the number of runs", async () => {
    const all = Array.from({ length: 13 }, (_, run) => ({ run }));
    const { el } = await open({ checked: all });
    expect(title(el)).toBe("train/loss: mean \u00b1 std over 13 runs, 3 of 4 groups");
    const legend = [...el.querySelectorAll(".smdw-runs-legend .smdw-sr")].map((item) => item.textContent);
    expect(legend).toEqual(["0.001 (n = 4)", "0.01 (n = 4)", "0.1 (n = 4)"]);
    button(el, "Uncheck all").click();
    await until(() => title(el) === "Check runs to compare their curves");
  });

  test("mean and deviation are of bins with two runs, at the coarser level", () => {
    const curve = (level: number, first: number, codes: number[]) => ({
      level,
      first,
      low: 0,
      high: 65534,
      lo: Uint16Array.from(codes),
      hi: Uint16Array.from(codes),
    });
    // Bins of two steps: 0-1, 2-3, 4-5. The second run has no value in the middle one.
    const line = spread([curve(0, 0, [11, 11, 31, 31, 51]), curve(1, 0, [21, 0, 71, 91])]);
    expect(line.x).toEqual([1, 3, 5]);
    expect(line.mid).toEqual([15, Number.NaN, 60]);
    expect(line.n).toEqual([2, 0, 2]);
    expect((line.hi[0] as number) - 15).toBeCloseTo(Math.sqrt(50));
    expect(envelope(curve(0, 3, [1, 0, 65535, 0])).mid).toEqual([0, Number.NaN, 65534]);
  });
});

describe("a run", () => {
  test("Enter opens its map, Escape returns to the row", async () => {
    const { el, session, sent } = await open({ runs_query: "lr_0.001/seed_0" });
    grid(el).focus();
    key(grid(el), "Enter");
    await until(() => sent.some((each) => same(each, { what: "open", run: 1 })));
    await until(() => el.querySelector(".smdw-stage") && session.state.get("tensor") !== "");
    expect(session.state.get("run")).toBe(1);
    expect($(el, ".smdw-runs").hidden).toBe(true);
    key($(el, ".smdw-many > .smdw-explorer:not(.smdw-runs)"), "Escape");
    await until(() => session.state.get("table") && !$(el, ".smdw-runs").hidden);
    expect(names(el)).toEqual(["lr_0.001/seed_0"]);
  });

  test("`c` puts it in slot B and opens it, a second time removes it", async () => {
    const { el, session, sent } = await open({ runs_query: "lr_0.001/seed_0" });
    key(grid(el), "c");
    await until(() => sent.some((each) => same(each, { what: "open", run: 1 })));
    expect(session.state.get("compare")).toEqual({ run: 1 });
    await until(() => el.querySelector(".smdw-runs-b"));
    key(grid(el), "c");
    await until(() => !el.querySelector(".smdw-runs-b"));
    expect(session.state.get("compare")).toEqual({});
  });

  test("one that cannot be opened says why, and the table is one key away", async () => {
    const { el, session } = await open({ run: 99, table: false });
    session.state.set({ table: true });
    await until(() => $(el, ".smdw-note.smdw-error").textContent?.includes("out of range"));
    expect(rows(el).length).toBeGreaterThan(5);
  });
});

describe("odd tables", () => {
  test("without runs", async () => {
    const { el } = await open({}, { boot: [runsPacket([])] });
    expect($(el, ".smdw-runs-empty").textContent).toBe("No runs in runs");
    key(grid(el), "ArrowDown");
    key(grid(el), "Enter");
    expect(title(el)).toBe("Check runs to compare their curves");
  });

  test("names that are long, equal, markup or right-to-left", async () => {
    const odd = [
      "x".repeat(300),
      "same",
      "same",
      "<img src=x onerror=alert(1)>",
      "\u05e9\u05dc\u05d5\u05dd",
      "a\u202eb",
    ];
    const { el } = await open({}, { boot: [runsPacket(odd.map((name) => ({ name, state: "error" })))], width: 500 });
    expect(names(el)).toEqual([...odd.slice(0, 5), "a\\u202eb"]);
    expect(el.querySelector("img")).toBeNull();
    for (const row of rows(el)) expect(row.getBoundingClientRect().height).toBe(24);
    expect(rows(el)[0]?.textContent).toContain("Error");
  });

  test("2,000 runs: only rows in sight have elements, End reaches the last", async () => {
    const many = Array.from({ length: 2000 }, (_, i) => ({ name: `run_${i}`, hparams: { lr: i % 7, seed: i } }));
    const { el } = await open({}, { boot: [runsPacket(many)] });
    expect(rows(el).length).toBeLessThan(60);
    key(grid(el), "End");
    await until(() => names(el).includes("run_1999"));
    const active = grid(el).getAttribute("aria-activedescendant") ?? "";
    expect(document.getElementById(active)?.getAttribute("aria-rowindex")).toBe("2001");
    // The header stays in sight.
    expect($(el, ".smdw-runs-head").getBoundingClientRect().top).toBe(grid(el).getBoundingClientRect().top);
  });
});
