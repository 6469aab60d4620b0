/** The query of an explorer: its box, its results, and the small multiples. */
import axe from "axe-core";
import { afterEach, describe, expect, test, vi } from "vitest";
import { encode } from "../src/protocol/packet";
import type { Traits } from "../src/protocol/types";
import { type OpenedExplorer, openExplorer } from "./explorer-helpers";
import { $, button, frame, key, pointer, until } from "./helpers";
import { bootPackets, catalogPacket, madeRun, NAN_STEP, NAN_TENSOR } from "./map-helpers";
import { surveyPacket } from "./packets";

let shown: OpenedExplorer | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});

const made = madeRun();
const all = made.names.map((_, i) => i);
/** The larger the index in the model, the larger the change. */
const sizes = made.values.map((row, i) => Float32Array.from(row, (_, step) => 1 + (i * step) / 500));
const packets = () => [...bootPackets(made), surveyPacket(all, sizes, { stat: "size" })];
const open = (options: Parameters<typeof openExplorer>[1] = {}, given = packets()) => {
  const traits = { tensor: NAN_TENSOR, step: NAN_STEP, follow: false, ...options.traits };
  shown = openExplorer(given, { ...options, traits });
  return shown;
};
const input = (el: Element) => $<HTMLInputElement>(el, "input[role=combobox]");
const options = (el: Element) =>
  [...el.querySelectorAll("[role=listbox][aria-label=Suggestions] [role=option]")].map(
    (each) => each.firstChild?.textContent,
  );
const active = (el: Element) => $(el, "[role=option][aria-selected=true]").firstChild?.textContent;
const rows = (el: Element) =>
  [...el.querySelectorAll<HTMLElement>(".smdw-map-row:not(.smdw-map-module)")].map(({ title }) => title);
const cells = (el: Element) => [...el.querySelectorAll<HTMLElement>(".smdw-multiple")];
const type = (el: Element, text: string) => {
  const box = input(el);
  box.focus();
  box.value = text;
  box.setSelectionRange(text.length, text.length);
  box.dispatchEvent(new Event("input"));
};
const found = (el: Element) => $(el, ".smdw-found").textContent;
const noViolation = async (el: Element) => {
  const { violations } = await axe.run(el, { rules: { region: { enabled: false } } });
  expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)])).toEqual([]);
};

describe("box", () => {
  test("lists name parts with counts, completes with Tab, and goes on to the stages", async () => {
    const { el, model } = open();
    key($(el, ".smdw-explorer"), "/");
    expect(document.activeElement).toBe(input(el));
    await until(() => input(el).getAttribute("aria-expanded") === "true");
    type(el, "layers.*.q");
    expect(options(el)).toEqual(["q_proj"]);
    expect($(el, "[role=option] .smdw-quiet").textContent).toBe("48");
    expect(key(input(el), "Tab").defaultPrevented).toBe(true);
    expect(input(el).value).toBe("layers.*.q_proj");
    type(el, "layers.*.q_proj | t");
    expect(options(el)).toEqual(["top"]);
    key(input(el), "Tab");
    expect(input(el).value).toBe("layers.*.q_proj | top 12 by ");
    expect(options(el).slice(0, 5)).toEqual(["change", "first", "last", "worst", "name"]);
    key(input(el), "ArrowDown");
    key(input(el), "ArrowDown");
    expect(active(el)).toBe("first");
    expect(input(el).getAttribute("aria-activedescendant")).toBe($(el, "[role=option][aria-selected=true]").id);
    key(input(el), "ArrowUp");
    await noViolation(el);
    key(input(el), "Enter");
    expect(model.get("query")).toBe("layers.*.q_proj | top 12 by change ");
    await until(() => rows(el).length === 12);
    expect(found(el)).toBe("12 of 292 tensors");
    // The largest change is that of the last tensor of the model.
    expect(rows(el)[0]).toBe(
      made.names.findLast((name) => name.includes("q_proj") && !rows(el).slice(1).includes(name)),
    );
    expect($<HTMLSelectElement>(el, "select[aria-label=Order]").value).toBe("query");
  });

  test("Escape closes the list, then leaves the query as it is; Tab without a list leaves the box", async () => {
    const { el, model } = open();
    type(el, "k_p");
    await until(() => rows(el).length > 1 && rows(el).every((name) => name.includes("k_p")));
    key(input(el), "Escape");
    expect(input(el).getAttribute("aria-expanded")).toBe("false");
    expect(key(input(el), "Tab").defaultPrevented).toBe(false);
    key(input(el), "Escape");
    expect([model.get("query"), input(el).value]).toEqual(["k_p", "k_p"]);
    expect(document.activeElement).not.toBe(input(el));
  });

  test("a click on a suggestion takes it, and the focus stays", async () => {
    const { el } = open();
    type(el, "@wei");
    const item = await until(() => $<HTMLElement>(el, "[role=listbox][aria-label=Suggestions] [role=option]"));
    expect(item.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true }))).toBe(false);
    item.click();
    expect(input(el).value).toBe("@weights ");
    expect(document.activeElement).toBe(input(el));
  });

  test("underlines the part that is wrong, says what may be meant, and keeps the last result", async () => {
    const { el } = open();
    type(el, "layers.3.*v_proj");
    await until(() => rows(el).length === 1);
    type(el, "layers.3.*v_proj | tpo 3 by l2");
    key(input(el), "Enter");
    await until(() => $(el, ".smdw-query-error").checkVisibility());
    expect($(el, ".smdw-query-error").textContent).toBe("Unknown word 'tpo'. Did you mean 'top'?");
    expect(input(el).getAttribute("aria-invalid")).toBe("true");
    expect($(el, ".smdw-query-marks u").textContent).toBe("tpo");
    const at = $(el, ".smdw-query-marks u").getBoundingClientRect();
    expect(at.left).toBeGreaterThan(input(el).getBoundingClientRect().left + 60);
    expect(rows(el)).toEqual(["model.layers.3.self_attn.v_proj.weight"]);
    await noViolation(el);
    type(el, "layers.3.*v_proj");
    await until(() => !$(el, ".smdw-query-error").checkVisibility());
    expect(input(el).getAttribute("aria-invalid")).toBe("false");
  });

  test("text that would hang a backtracking search, and a megabyte, are answered at once", async () => {
    const { el } = open();
    type(el, "/^(((\\w+)+)+)+!/");
    await until(() => $(el, ".smdw-query-error").textContent?.startsWith("No name matches '/^((("));
    type(el, "| change < 0");
    await until(() => found(el) === "0 of 292 tensors");
    expect($(el, ".smdw-map-empty").checkVisibility()).toBe(true);
    type(el, "x".repeat(1_000_000));
    await until(() => /longer than 10000/.test($(el, ".smdw-query-error").textContent ?? ""));
  });
});

describe("result", () => {
  test("names a statistic and a range, and the view follows; menus change the text", async () => {
    const { el, session, model } = open({ traits: { query: "q_proj | size | steps 100 .. 200" } });
    await until(() => rows(el).length > 1);
    const scene = () => session.scene(1200);
    expect([scene().traits.map_stat, scene().traits.range]).toEqual(["size", [100, 200]]);
    const choose = (label: string, value: string) => {
      const select = $<HTMLSelectElement>(el, `select[aria-label=${label}]`);
      select.value = value;
      select.dispatchEvent(new Event("change"));
    };
    choose("Colour", "zeros");
    expect(model.get("query")).toBe("q_proj | zeros | steps 100 .. 200");
    choose("Show", "table");
    expect(model.get("query")).toBe("q_proj | zeros | steps 100 .. 200 | as table");
    await until(() => $(el, ".smdw-map-table").checkVisibility());
    key($(el, ".smdw-map-table"), "Escape");
    expect(model.get("query")).toBe("q_proj | zeros | steps 100 .. 200");
    // A range that was chosen by hand is kept.
    session.state.set({ range: [150, 160] });
    expect(scene().traits.range).toEqual([150, 160]);
  });

  test("of pooled bins is marked, until the kernel has given the exact one", async () => {
    const pooled = surveyPacket(
      all,
      sizes.map((row) => row.filter((_, i) => i % 4 === 0)),
      { stat: "size", level: 2 },
    );
    const exact = [5, 3, 8];
    let ready = false;
    const { el, sent, session } = open(
      {
        traits: { query: "| top 3 by change" },
        reply: (message) => ("what" in message && message.what === "query" && ready ? { rows: exact } : undefined),
      },
      [...bootPackets(made), pooled],
    );
    await until(() => found(el) === "\u2248 3 of 292 tensors");
    const asked = await until(() => sent.find((each) => "what" in each && each.what === "query"));
    expect(asked).toEqual({ what: "query", run: 0, worker: "", mode: "", text: "| top 3 by change" });
    ready = true;
    session.state.set({ query: "| top 3 by change desc" });
    await until(() => found(el) === "3 of 292 tensors");
    expect(rows(el)).toEqual(exact.map((i) => made.names[i]));
  });

  test("waits for the kernel where the page lacks the values", async () => {
    const reply = vi.fn((message: object) =>
      "text" in message && message.text === "| mean | top 2 by worst" ? { rows: [1, 0] } : undefined,
    );
    const { el } = open({ traits: { query: "| mean | top 2 by worst" }, reply });
    await until(() => rows(el).join() === `${made.names[1]},${made.names[0]}`);
  });
});

describe("small multiples", () => {
  const curves = (traits: Partial<Traits> = {}, width = 1200) =>
    open({ traits: { query: "q_proj | size | as curves", ...traits }, width });

  test("have one curve per tensor of the result, only those in sight exist, and all scroll", async () => {
    const { el } = curves({ query: "| size | as curves" });
    await until(() => cells(el).length > 10);
    expect(cells(el).length).toBeLessThan(80);
    const list = $(el, ".smdw-multiples-list");
    expect(cells(el)[0]?.getAttribute("aria-setsize")).toBe("292");
    list.scrollTop = list.scrollHeight;
    await until(() => cells(el).some((cell) => cell.getAttribute("aria-posinset") === "292"));
    expect(el.scrollWidth).toBeLessThanOrEqual(1200);
    await noViolation(el);
  });

  test("a range that is selected in one is selected in all, and on the timeline", async () => {
    const { el, session } = curves();
    const cell = await until(() => cells(el)[3]);
    const capture = vi.spyOn($(el, ".smdw-multiples-list"), "setPointerCapture").mockImplementation(() => {});
    pointer(cell, "pointerdown", 80, 40);
    pointer(cell, "pointermove", 90, 40);
    pointer(cell, "pointermove", 120, 40);
    pointer(cell, "pointerup", 120, 40);
    cell.click();
    capture.mockRestore();
    const { selection } = session.state.all();
    if (selection.kind !== "steps") throw new Error("no steps are selected");
    expect(selection.range[1] - selection.range[0]).toBeGreaterThan(50);
    // A drag is not a click.
    expect(session.state.get("tensor")).toBe(NAN_TENSOR);
    const bands = await until(() => {
      const each = [...el.querySelectorAll<HTMLElement>(".smdw-multiple-band")].filter((band) => !band.hidden);
      return each.length === cells(el).length && each;
    });
    expect(new Set(bands.map((band) => band.style.transform)).size).toBe(1);
    await until(() => el.querySelector(".smdw-brush")?.checkVisibility());
  });

  test("a click or Enter shows the tensor; arrows move; playheads follow the step", async () => {
    const { el, session } = curves();
    const first = await until(() => cells(el).length > 12 && cells(el)[0]);
    const list = $(el, ".smdw-multiples-list");
    first.click();
    expect(session.state.get("tensor")).toBe(first.title);
    list.focus();
    key(list, "ArrowRight");
    key(list, "ArrowDown");
    await until(() => list.getAttribute("aria-activedescendant") !== first.id);
    key(list, "Enter");
    const chosen = $(el, `#${list.getAttribute("aria-activedescendant")}`);
    expect(session.state.get("tensor")).toBe(chosen.title);
    const x = () => $(first, ".smdw-playhead").style.transform;
    const before = x();
    session.state.set({ step: 100 });
    await until(() => x() !== before);
  });

  test("share the value axis, or have one each", async () => {
    const { el, session } = curves();
    await until(() => cells(el).length > 3);
    expect(button(el, "Shared y").getAttribute("aria-pressed")).toBe("true");
    button(el, "Own y").click();
    await until(() => button(el, "Own y").getAttribute("aria-pressed") === "true");
    expect(session.state.get("cell_scale")).toBe("own");
  });

  test("histograms are requested for the cells in sight, one after the other", async () => {
    const { el, sent } = open({ traits: { query: "layers.3.*proj | as histograms" } });
    await until(() => cells(el).length > 3);
    const asked = await until(() => sent.find((each) => "steps" in each));
    expect(asked).toMatchObject({ what: "frames", tensor: cells(el)[0]?.title, steps: [NAN_STEP] });
    expect(sent.filter((each) => "steps" in each)).toHaveLength(1);
    expect(button(el, "Own y").checkVisibility()).toBe(false);
  });

  test("of a run of 5,000 tensors are drawn and filtered", async () => {
    const names = Array.from({ length: 5000 }, (_, i) => `layers.${Math.floor(i / 8)}.part${i % 8}.weight`);
    const steps = Float64Array.from({ length: 32 }, (_, i) => i);
    const row = steps.map((step) => 1 + step / 10);
    const { el } = open({ traits: { query: "as curves | size", tensor: "" } }, [
      catalogPacket({ names, collections: { weights: names.map((_, i) => i) }, steps }),
      surveyPacket(
        names.map((_, i) => i),
        names.map(() => row),
        { stat: "size" },
      ),
    ]);
    await until(() => cells(el)[0]?.getAttribute("aria-setsize") === "5000");
    expect(cells(el).length).toBeLessThan(80);
    type(el, "layers.62*.part7 | size | as curves");
    await until(() => cells(el)[0]?.getAttribute("aria-setsize") === "6");
    expect(found(el)).toBe("6 of 5,000 tensors");
  });
});

test("scalars of a run that has nothing else keep their order and follow the query", async () => {
  const names = ["train/loss", "val/loss", "lr"];
  const collections = { losses: [0, 1], scalars: [2] };
  const { el, sent, model, session } = open({ traits: { tensor: "train/loss" } }, [
    catalogPacket({ names, collections, steps: made.steps }),
  ]);
  await until(
    () =>
      cells(el)
        .map(({ title }) => title)
        .join() === names.join(),
  );
  const asked = await until(() => sent.find((each) => "lines" in each && each.lines.length > 1));
  expect("lines" in asked && asked.lines.map(({ tensor }) => tensor)).toEqual(names);
  const n = made.steps.length;
  session.store.addPackets([
    encode(
      { kind: "series", run: 0, tensor: "lr", worker: "", mode: "", stat: "value" },
      { step: ["f8", [n], made.steps], y: ["f8", [n], Float64Array.from(made.steps, () => 0.25)] },
    ),
  ]);
  await until(() => cells(el)[2]?.textContent?.includes("0.25"));
  expect(button(el, "Own y").getAttribute("aria-pressed")).toBe("true");
  cells(el)[2]?.click();
  expect([model.get("tensor"), model.get("lane")]).toEqual(["lr", "lr"]);
  type(el, "val");
  await until(() => cells(el).length === 1);
  await frame();
  expect(cells(el)[0]?.title).toBe("val/loss");
});
