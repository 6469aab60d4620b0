/** The curves of the checked runs over each other: up to eight lines, else mean and standard deviation of each group. */

import { type Envelope, envelope, spread } from "../../data/run-curves";
import type { RunRow, Runs } from "../../data/runs";
import { drawOverlay, layoutOverlay, type OverlayLine } from "../../draw/overlay";
import { series } from "../../lib/colour";
import { defined } from "../../lib/defined";
import { h, setText, Toggle } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { Figure } from "../common/figure";
import type { Context } from "../common/part";
import { cutName } from "./grid";

/** Lines with different colours or dashes. */
export const MOST_LINES = 8;

interface NamedLine extends OverlayLine {
  name: string;
}

export class RunsChart {
  readonly el: HTMLElement;
  readonly #figure: Figure;
  readonly #title = h("span", { class: "smdw-runs-chart-title" });
  readonly #legend = h("ul", { class: "smdw-runs-legend" });
  readonly #log: Toggle;
  #lines: readonly NamedLine[] = [];
  readonly #drawn = new Memo();
  readonly #legendMemo = new Memo();
  #at = Number.NaN;

  constructor(private readonly context: Context) {
    const { session, signal } = context;
    this.#figure = new Figure("runs", context);
    this.#log = new Toggle("Log scale", (on) => session.state.set({ log_y: on }), signal);
    this.el = h(
      "section",
      { class: "smdw-runs-chart", "aria-label": "Curves of checked runs" },
      h("div", { class: "smdw-runs-chart-head" }, this.#title, h("span", { class: "smdw-space" }), this.#log.el),
      h("div", { class: "smdw-runs-chart-body" }, this.#figure.el, this.#legend),
    );
    this.#figure.gestures(
      {
        move: (at) => {
          const layout = at && layoutOverlay(this.#lines, this.#figure.size, session.state.get("log_y"));
          const step =
            layout && at
              ? Math.max(layout.x.domain[0], Math.min(layout.x.domain[1], layout.x.invert(at.x)))
              : Number.NaN;
          if (Object.is(step, this.#at)) return;
          this.#at = step;
          context.redraw();
        },
      },
      signal,
    );
  }

  update(scene: Scene, runs: Runs, checked: readonly RunRow[], colours: ReadonlyMap<number, string>): void {
    const { log_y: logY } = scene.traits;
    const theme = this.context.theme();
    if (this.#drawn.changed([runs.version, [...colours], theme.dark]))
      this.#lines = checked.length > MOST_LINES ? groupLines(runs, checked, theme.dark) : singleLines(checked, colours);
    const grouped = checked.length > MOST_LINES;
    const tag = truncate(runs.head?.tag ?? "", 60);
    const all = grouped ? groupCount(runs, checked) : 0;
    const shown =
      grouped && all > this.#lines.length ? `, ${count(this.#lines.length)} of ${plural(all, "group")}` : "";
    setText(
      this.#title,
      !checked.length
        ? "Check runs to compare their curves"
        : grouped
          ? `${tag}: mean \u00b1 std over ${plural(checked.length, "run")}${shown}`
          : `${tag}: ${plural(checked.length, "run")}`,
    );
    this.#log.update(logY);
    const items = this.#lines.map((each) => legendItem(each, this.#at));
    const texts = items.map((item) => item.textContent);
    if (this.#legendMemo.changed([texts, this.#lines])) this.#legend.replaceChildren(...items);
    this.#figure.describe(`${this.#title.textContent ?? ""}. ${texts.join("; ")}`);
    const empty = checked.length
      ? grouped
        ? "No group has two runs at the same steps"
        : "These runs have no such curve"
      : "No run is checked";
    const at = this.#at;
    this.#figure.paint((pen, size, paint) => drawOverlay(pen, size, paint, this.#lines, { logY, at, empty }), theme);
  }
}

function singleLines(rows: readonly RunRow[], colours: ReadonlyMap<number, string>): NamedLine[] {
  return rows.flatMap((row, i) => {
    const line = envelope(row.curve);
    const dash = i >= 7 ? [5, 3] : [];
    return line.x.length
      ? [{ ...line, name: row.name, colour: colours.get(row.run) ?? "", dash, notFinite: row.notFinite }]
      : [];
  });
}

function groupsOf(runs: Runs, rows: readonly RunRow[]): Map<string, RunRow[]> {
  const groups = new Map<string, RunRow[]>();
  for (const row of rows) {
    const group = runs.group(row.run);
    groups.set(group, [...(groups.get(group) ?? []), row]);
  }
  return groups;
}

const groupCount = (runs: Runs, rows: readonly RunRow[]) => groupsOf(runs, rows).size;

/** The groups with the best runs, as the rows are in order. */
function groupLines(runs: Runs, rows: readonly RunRow[], dark: boolean): NamedLine[] {
  const lines = [...groupsOf(runs, rows)].flatMap(
    ([name, members]): (Envelope & { name: string; members: number })[] => {
      const line = spread(members.map((row) => row.curve));
      return line.x.length ? [{ ...line, name, members: members.length }] : [];
    },
  );
  return lines.slice(0, MOST_LINES).map((line, i) => ({
    ...line,
    name: `${line.name || "all"} (n = ${count(line.members)})`,
    colour: series(i, dark),
    dash: i >= 7 ? [5, 3] : [],
    notFinite: Number.NaN,
  }));
}

function legendItem(line: NamedLine, at: number): HTMLElement {
  const i = nearest(line, at);
  const mid = line.mid[i];
  const n = line.n?.[i];
  const std = n ? defined(line.hi[i]) - (mid as number) : Number.NaN;
  const text =
    mid === undefined || !Number.isFinite(mid) ? "\u2013" : n ? `${num(mid, 3)} \u00b1 ${num(std, 2)}` : num(mid);
  const swatch = h("span", { class: "smdw-runs-swatch", "aria-hidden": "true" });
  swatch.style.setProperty("--smdw-run-colour", line.colour);
  swatch.dataset.dashed = String(Boolean(line.dash?.length));
  return h("li", {}, swatch, cutName(line.name), h("b", {}, text));
}

/** The last value before a step, or the last of all. */
function nearest(line: Envelope, at: number): number {
  let found = -1;
  for (let i = 0; i < line.x.length; i++)
    if (Number.isFinite(line.mid[i]) && (Number.isNaN(at) || defined(line.x[i]) <= at || found < 0)) found = i;
  return found;
}
