import { h, setAttributes } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { Param, ParamSpec, Params, ParamValue } from "../../protocol/types";
import type { Context } from "../common/part";

/** Fields for a rule's parameters. A change is sent at once and reruns the rule. */
export class ParamFields {
  readonly el = h("div", { class: "smdw-params" });
  readonly #fields = new Map<string, HTMLInputElement | HTMLSelectElement>();
  readonly #params = new Memo();

  constructor(
    private readonly changed: (params: Params) => void,
    private readonly context: Context,
    private readonly signal: AbortSignal,
  ) {}

  update(params: readonly Param[], readOnly: boolean): void {
    if (this.#params.changed(params.map((param) => [param.name, param.kind, param.choices]))) {
      this.#fields.clear();
      this.el.replaceChildren(...params.map((param) => this.#make(param)));
    }
    for (const param of params) {
      const field = this.#fields.get(param.name);
      if (!field) continue;
      field.disabled = readOnly;
      if (field.matches(":focus")) continue;
      if (param.kind === "flag" && field instanceof HTMLInputElement) field.checked = Boolean(param.value);
      else field.value = asText(param.value);
      field.classList.toggle("smdw-changed", isChanged(param));
      field.setCustomValidity("");
      field.removeAttribute("aria-invalid");
    }
  }

  #make(param: Param): HTMLElement {
    const field = fieldFor(param);
    this.#fields.set(param.name, field);
    const enter = () => {
      const value = parse(param, field);
      const bad = value === undefined;
      setAttributes(field, { "aria-invalid": bad ? "true" : undefined });
      field.title = bad ? `${param.name} must be ${expected(param)}` : field.title;
      if (!bad) this.changed({ [param.name]: value });
    };
    field.addEventListener("change", enter, { signal: this.signal });
    this.context.keys.on(field, (event) => {
      if (event.key !== "Enter" || param.kind === "choice") return false;
      field.blur();
      return true;
    });
    const help = [
      param.doc,
      param.text && `default ${param.text}`,
      limits(param),
      param.unit,
      `in Python: ${param.name}`,
    ]
      .filter(Boolean)
      .join("; ");
    return h(
      "label",
      { class: "smdw-field", title: truncate(help, 300) },
      h("span", {}, truncate(inWords(param.name), 60)),
      field,
    );
  }
}

function fieldFor(param: ParamSpec): HTMLInputElement | HTMLSelectElement {
  if (param.kind === "flag") return h("input", { type: "checkbox" });
  if (param.kind === "choice") {
    const options = (param.choices ?? []).map((choice) => h("option", { value: choice }, truncate(choice, 60)));
    if (param.optional) options.unshift(h("option", { value: "" }, "None"));
    return h("select", { class: "smdw-select" }, ...options);
  }
  const inputmode = isNumber(param) ? "decimal" : "text";
  const placeholder = param.optional ? "None" : undefined;
  return h("input", { class: "smdw-input", spellcheck: "false", inputmode, placeholder });
}

const isNumber = (param: ParamSpec) => param.kind === "real" || param.kind === "integer";

/** The name of a parameter in words, as in "Tensor pattern". */
export function inWords(name: string): string {
  const words = name
    .replaceAll("_", " ")
    .replace(/\bregex\b/, "pattern")
    .trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The text of a value in its field; null is empty. */
export function asText(value: ParamValue): string {
  return Array.isArray(value) ? value.join(",") : String(value ?? "");
}

/** Whether the value differs from the default. */
export function isChanged(param: Param): boolean {
  return !equal(param.value, param.default);
}

/** The value that was entered; undefined if it is not valid. */
export function parse(
  param: ParamSpec,
  field: { value: string; checked?: boolean },
): number | string | boolean | null | undefined {
  if (param.kind === "flag") return Boolean(field.checked);
  const text = field.value.trim().replace("\u2212", "-");
  if (param.optional && (text === "" || text === "None")) return null;
  if (!isNumber(param)) return field.value;
  const number = Number(text);
  const { minimum, maximum } = param;
  const valid =
    text !== "" &&
    !Number.isNaN(number) &&
    (param.kind === "real" || Number.isInteger(number)) &&
    number >= (minimum ?? -Infinity) &&
    number <= (maximum ?? Infinity);
  return valid ? number : undefined;
}

/** The smallest and the largest value, as in "at least 0" and "from 0 to 1". */
export function limits({ minimum, maximum }: ParamSpec): string {
  const from = minimum ?? undefined;
  const to = maximum ?? undefined;
  if (from === undefined) return to === undefined ? "" : `at most ${to}`;
  return to === undefined ? `at least ${from}` : `from ${from} to ${to}`;
}

function expected(param: ParamSpec): string {
  const what = param.kind === "integer" ? "a whole number" : "a number";
  return [what, limits(param), param.optional ? "or empty" : ""].filter(Boolean).join(" ");
}
