/** Texts about cells of the Run Map. */
import type { Store } from "../../data/store";
import { codePosition, codeValue, FLAG, isLog, type Survey, type SurveyCell } from "../../data/survey";
import { STAT_NAMES } from "../../draw/map";
import { h } from "../../lib/dom";
import { count, factorText, num, percent, plural } from "../../lib/format";
import { chance } from "../../lib/map-colour";
import type { MapRow } from "../../lib/map-rows";
import type { MapStat } from "../../protocol/types";

export const stepsText = (first: number, last: number) =>
  first === last ? `step ${count(first)}` : `steps ${count(first)}\u2013${count(last)}`;

/** A surprise in words: how many times the usual spread. */
export function surpriseText(surprise: number): string {
  const size = Math.abs(surprise);
  if (size < chance(1)) return "size as usual";
  const amount = size >= 63 ? "far" : `${num(size, 2)} \u00d7 its usual spread`;
  return `size ${amount} ${surprise > 0 ? "above" : "below"} usual`;
}

/** A growth: 1 is the lowest code, of 0 and of less than its scale has. */
const growthText = (code: number) => (code <= 1 ? "0" : factorText(codePosition("growth", code)));

/** A value in a word; "" of a surprise, which is no value. */
export function shortValue(stat: MapStat, code: number): string {
  if (!code || stat === "surprise") return "";
  if (stat === "growth") return growthText(code);
  return isLog(stat) ? num(codeValue(stat, code), 2) : percent(codeValue(stat, code));
}

function valueText(stat: MapStat, cell: SurveyCell): string {
  if (!cell.code) return cell.saved ? (stat === "growth" ? "size 0" : "too few earlier values to compare") : "";
  if (stat === "growth") {
    const [lo, hi] = [growthText(cell.lo), growthText(cell.hi)];
    return `size ${lo === hi ? lo : `${lo} \u2026 ${hi}`} of its start`;
  }
  if (stat === "surprise") return surpriseText(codePosition(stat, cell.code));
  const written = (code: number) => (isLog(stat) ? num(codeValue(stat, code), 3) : percent(codeValue(stat, code)));
  const [lo, hi] = [written(cell.lo), written(cell.hi)];
  return `${STAT_NAMES[stat]} ${lo === hi ? lo : `${lo} \u2026 ${hi}`}`;
}

function flagTexts(flag: number): string[] {
  return [
    flag & FLAG.nan && "NaN",
    flag & FLAG.infinite && "infinite",
    flag & FLAG.sudden && "sudden change",
    flag & FLAG.error && "read error",
    flag & FLAG.unread && "not read yet",
    flag & FLAG.sampled && "read in part",
    flag & FLAG.reductions && "from reductions",
  ].filter((text) => typeof text === "string");
}

/** Names of the rules that fired on a tensor between two steps. */
function firedRules(store: Store, run: number, tensor: string, first: number, last: number): string[] {
  return [...store.rules.values()]
    .filter(
      ({ info, findings }) =>
        info.run === run &&
        [...findings].some(
          ([step, list]) => step >= first && step <= last && list.some((each) => each.tensor === tensor),
        ),
    )
    .map(({ info }) => info.name);
}

export interface CellPosition {
  row: MapRow;
  /** the tensor that the cell shows: of a module, the worst at these steps */
  tensor: number;
  name: string;
  /** first and last saved step of the cell */
  first: number;
  last: number;
}

/** What the survey says of a cell. */
export function cellText(store: Store, run: number, survey: Survey | undefined, place: CellPosition): string {
  const cell = survey?.cell(place.tensor, place.first);
  const rules = firedRules(store, run, place.name, place.first, place.last);
  const fired = rules.length ? rules : cell && cell.flag & FLAG.fired ? ["a rule"] : [];
  return [
    stepsText(place.first, place.last),
    ...(cell?.saved && survey
      ? [valueText(survey.stat, cell), ...flagTexts(cell.flag)]
      : [
          survey?.blocks.some(({ rows }) => rows.has(place.tensor))
            ? "not saved"
            : store.readings.get(run)?.state === "complete"
              ? "no numbers"
              : "not read yet",
        ]),
    fired.length ? `${fired.join(", ")} fired` : "",
  ]
    .filter(Boolean)
    .join(" \u00b7 ");
}

/** The row, and of a module the tensor that the cell shows. */
export function rowText({ row, name }: CellPosition): string {
  return row.tensors.length === 1 ? name : `${row.id} \u00b7 worst of ${plural(row.tensors.length, "tensor")}: ${name}`;
}

/** Characters at the end of a name that are never cut. */
const NAME_END = 4;

/**
 * A name that is cut where there is little room: first its start, then the middle of its last part, of which both ends
 * tell tensors apart. The letter of the row says that it is a weight, so that this word is left out first.
 */
export function nameElement(name: string): HTMLElement {
  const suffix = /[._/]weight$/.exec(name)?.[0] ?? "";
  const rest = name.slice(0, name.length - suffix.length);
  const cut = Math.max(0, rest.search(/[^/.]+$/));
  const end = Math.max(cut, rest.length - NAME_END);
  return h(
    "span",
    { class: "smdw-map-name" },
    h("span", {}, rest.slice(0, cut)),
    h("span", {}, rest.slice(cut, end)),
    h("span", {}, rest.slice(end)),
    h("span", { class: "smdw-map-suffix" }, suffix),
  );
}

/** A surprise as a signed number of spreads. */
export const spreads = (x: number) =>
  `${x > 0 ? "+" : ""}${num(Math.abs(x) < 10 ? Math.round(x * 10) / 10 : Math.round(x))}`;
