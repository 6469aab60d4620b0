import { curveOf, type Difference, differences } from "../../data/differences";
import { isLog, type Survey } from "../../data/survey";
import { STAT_NAMES } from "../../draw/map";
import { h, iconButton, setVisible } from "../../lib/dom";
import { count, factorText, num, percent } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { MapStat } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import type { MapList } from "./list";
import { nameElement, spreads } from "./text";

const MOST = 12;
/** Differences below this many spreads are not listed. */
const LEAST = 2;
const WIDTH = 132;
const HEIGHT = 26;
const POINTS = 66;

/** A list of the tensors that differ most between the steps of a range and all others. */
export class Differences {
  readonly el: HTMLElement;
  readonly #title = h("div", {});
  readonly #body = h("ol", { class: "smdw-map-diff-list" });
  #range: readonly [number, number] | undefined;
  readonly #drawn = new Memo();

  constructor(
    private readonly context: Context,
    private readonly reveal: (tensor: number) => void,
  ) {
    const close = () => {
      this.#range = undefined;
      context.redraw();
    };
    this.el = h(
      "section",
      { class: "smdw-map-diff", "aria-label": "What differs here", hidden: true, tabindex: -1 },
      h("header", {}, this.#title, iconButton("close", "Close", close, context.signal)),
      this.#body,
    );
    context.keys.on(this.el, (event) => {
      if (event.key === "Escape") close();
      return event.key === "Escape";
    });
  }

  show(range: readonly [number, number]): void {
    this.#range = range;
    this.el.hidden = false;
    this.el.focus({ preventScroll: true });
  }

  update({ traits, run }: Scene, list: MapList, survey: Survey | undefined): void {
    const range = this.#range;
    setVisible(this.el, range !== undefined);
    if (!range) return;
    if (!this.#drawn.changed([range, survey, survey?.version, list.model, this.context.theme()])) return;
    const [from, to] = range;
    const stat = traits.map_stat;
    this.#title.replaceChildren(
      h("strong", {}, `What differs in steps ${count(from)}\u2013${count(to)}`),
      h("span", { class: "smdw-quiet" }, STAT_NAMES[stat]),
    );
    const all = survey ? differences(survey, list.model.order, from, to) : [];
    const found = all.filter(({ score }) => score >= LEAST).slice(0, MOST);
    const [first, last] = [run?.steps[0] ?? 0, run?.steps.at(-1) ?? 1];
    this.#body.replaceChildren(...found.map((each) => this.#item(each, list, survey as Survey, range, first, last)));
    const none = all.length ? "No tensor differs much" : "Too few values to compare";
    if (!found.length) this.#body.append(h("li", { class: "smdw-quiet" }, none));
  }

  #item(
    each: Difference,
    { model }: MapList,
    survey: Survey,
    [from, to]: readonly [number, number],
    first: number,
    last: number,
  ): HTMLElement {
    const { session, signal, theme } = this.context;
    const name = model.names[each.tensor] ?? "";
    const [row] = model.flatRows([each.tensor]);
    const button = h(
      "button",
      { type: "button", class: "smdw-map-diff-name", title: name },
      h("span", { class: "smdw-map-mark" }, row?.letter ?? ""),
      nameElement(row?.label ?? name),
    );
    button.addEventListener(
      "click",
      () => {
        session.state.set({ tensor: name });
        this.reveal(each.tensor);
      },
      { signal },
    );
    const canvas = h("canvas", { width: WIDTH * 2, height: HEIGHT * 2, "aria-hidden": "true" });
    this.context.paint(() => {
      const c = canvas.getContext("2d");
      const points = curveOf(survey, each.tensor, POINTS);
      if (!c || !points.length) return;
      c.setTransform(2, 0, 0, 2, 0, 0);
      const x = (step: number) => ((step - first) / Math.max(1, last - first)) * (WIDTH - 2) + 1;
      const low = Math.min(...points.map(({ y }) => y));
      const high = Math.max(...points.map(({ y }) => y));
      const y = (value: number) => HEIGHT - 3 - ((value - low) / (high - low || 1)) * (HEIGHT - 6);
      c.globalAlpha = 0.16;
      c.fillStyle = theme().accent;
      c.fillRect(x(from), 0, Math.max(2, x(to) - x(from)), HEIGHT);
      c.globalAlpha = 1;
      c.strokeStyle = theme().accent;
      c.beginPath();
      for (const point of points) c.lineTo(x(point.step), y(point.y));
      c.stroke();
    });
    return h("li", {}, button, canvas, h("span", {}, changeText(survey.stat, each)));
  }
}

/** The change from the rest of the run to the range. */
export function changeText(stat: MapStat, { inside, outside, firedInside, firedOutside }: Difference): string {
  const ratio = inside / outside;
  const values =
    stat === "surprise"
      ? `${spreads(outside)} \u2192 ${spreads(inside)} spreads`
      : stat === "growth"
        ? `${factorText(Math.log10(outside))} \u2192 ${factorText(Math.log10(inside))}`
        : isLog(stat)
          ? `${num(outside, 2)} \u2192 ${num(inside, 2)} (\u00d7 ${num(ratio, 2)})`
          : `${percent(outside)} \u2192 ${percent(inside)}`;
  const fired = Math.abs(firedInside - firedOutside) >= 0.05;
  return fired ? `${values} \u00b7 fired ${percent(firedOutside)} \u2192 ${percent(firedInside)}` : values;
}
