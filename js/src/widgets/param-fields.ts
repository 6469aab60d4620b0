import { h, setAttributes } from "../lib/dom";
import { truncate } from "../lib/format";
import type { Param, Params } from "../protocol/types";
import type { Context } from "./part";

/** Fields for a rule's parameters. A change is sent at once and reruns the rule. */
export class ParamFields {
  readonly el = h("div", { class: "smdw-params" });
  readonly #fields = new Map<string, HTMLInputElement>();
  #key = "";

  constructor(
    private readonly changed: (params: Params) => void,
    private readonly context: Context,
    private readonly signal: AbortSignal,
  ) {}

  update(params: readonly Param[], readOnly: boolean): void {
    const key = JSON.stringify(params.map((param) => [param.name, param.type]));
    if (key !== this.#key) {
      this.#key = key;
      this.#fields.clear();
      this.el.replaceChildren(...params.map((param) => this.#make(param)));
    }
    for (const param of params) {
      const input = this.#fields.get(param.name);
      if (!input) continue;
      input.disabled = readOnly;
      if (input.matches(":focus")) continue;
      if (param.type === "bool") input.checked = Boolean(param.value);
      else input.value = String(param.value);
      input.classList.toggle("smdw-changed", param.value !== param.default);
      input.setCustomValidity("");
      input.removeAttribute("aria-invalid");
    }
  }

  #make(param: Param): HTMLElement {
    const input = h(
      "input",
      param.type === "bool"
        ? { type: "checkbox" }
        : { class: "smdw-input", spellcheck: "false", inputmode: param.type === "str" ? "text" : "decimal" },
    );
    this.#fields.set(param.name, input);
    const enter = () => {
      const value = parse(param, input);
      const bad = value === undefined;
      setAttributes(input, { "aria-invalid": bad ? "true" : undefined });
      input.title = bad ? `${param.name} must be ${param.type === "int" ? "an integer" : "a number"}` : input.title;
      if (!bad) this.changed({ [param.name]: value });
    };
    input.addEventListener("change", enter, { signal: this.signal });
    this.context.keys.on(input, (event) => {
      if (event.key !== "Enter") return false;
      input.blur();
      return true;
    });
    const help = [param.help, param.default === null ? "" : `default ${param.default}`].filter(Boolean).join("; ");
    return h(
      "label",
      { class: "smdw-field", title: truncate(help, 300) },
      h("span", {}, truncate(param.name, 60)),
      input,
    );
  }
}

export function parse(param: Param, input: { value: string; checked: boolean }): number | string | boolean | undefined {
  if (param.type === "bool") return input.checked;
  if (param.type === "str") return input.value;
  const number = Number(input.value.trim().replace("\u2212", "-"));
  if (input.value.trim() === "" || Number.isNaN(number) || (param.type === "int" && !Number.isInteger(number)))
    return undefined;
  return number;
}
