/** A text field for a query: a combobox that lists what can be typed next, and marks the part that is wrong. */

import { h, setAttributes, setText, setVisible } from "../../lib/dom";
import { equal } from "../../lib/equal";
import type { Completion, complete, Option, Subject } from "../../query/complete";
import type { QueryError } from "../../query/parse";
import type { Context } from "./part";

/** What the box shows, and what it completes. */
export interface QuerySource extends Subject {
  text: string;
  error: QueryError | undefined;
}

let ids = 0;

export class QueryBox {
  readonly el: HTMLElement;
  readonly input: HTMLInputElement;
  readonly #marks = h("div", { class: "smdw-query-marks", "aria-hidden": "true" });
  readonly #list: HTMLElement;
  readonly #message: HTMLElement;
  readonly #id = `smdw-query-${ids++}`;
  #source: QuerySource | undefined;
  #complete: typeof complete | undefined;
  #completion: Completion = { start: 0, end: 0, options: [] };
  #active = -1;
  #open = false;
  #marked = "";

  constructor(
    private readonly context: Context,
    label: string,
    placeholder: string,
    private readonly set: (text: string) => void,
    /** Moves the focus to what the query found. Without it, the focus stays until Escape. */
    private readonly leave?: () => void,
  ) {
    const { signal } = context;
    this.#list = h("ul", {
      class: "smdw-query-list",
      role: "listbox",
      id: `${this.#id}-list`,
      "aria-label": "Suggestions",
      hidden: true,
    });
    this.#message = h("p", { class: "smdw-query-error", id: `${this.#id}-error`, role: "status", hidden: true });
    this.input = h("input", {
      class: "smdw-input smdw-filter",
      type: "search",
      role: "combobox",
      placeholder,
      "aria-label": label,
      "aria-autocomplete": "list",
      "aria-controls": `${this.#id}-list`,
      "aria-expanded": "false",
      "aria-describedby": `${this.#id}-error`,
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
    });
    this.el = h("div", { class: "smdw-query" }, this.#marks, this.input, this.#list, this.#message);
    const { input } = this;
    input.addEventListener(
      "input",
      () => {
        this.set(input.value);
        this.#suggest(true);
      },
      { signal },
    );
    for (const type of ["click", "keyup"])
      input.addEventListener(type, () => this.#open && this.#suggest(true, this.#active), { signal });
    input.addEventListener("blur", () => this.#suggest(false), { signal });
    // The focus stays in the field.
    this.#list.addEventListener("mousedown", (event) => event.preventDefault(), { signal });
    this.#list.addEventListener(
      "click",
      ({ target }) => {
        const item = target instanceof Element ? target.closest("[role=option]") : null;
        const option = item && this.#completion.options[[...this.#list.children].indexOf(item)];
        if (option) this.#accept(option);
      },
      { signal },
    );
    input.addEventListener("scroll", () => this.#scroll(), { signal });
    // Tab is left to the page elsewhere.
    input.addEventListener(
      "keydown",
      (event) => {
        if (event.key !== "Tab" || event.shiftKey || !this.#open) return;
        event.preventDefault();
        this.#accept(this.#completion.options[Math.max(0, this.#active)] as Option);
      },
      { signal },
    );
    context.keys.on(input, (event) => this.#key(event));
  }

  update(source: QuerySource): void {
    this.#source = source;
    const { text } = source;
    const focused = this.input.matches(":focus");
    if (!focused && this.input.value !== text) this.input.value = text;
    // What can be completed is not wrong yet.
    const error = this.#open ? undefined : source.error;
    setAttributes(this.input, {
      "aria-invalid": String(error !== undefined),
      title: error?.text ?? (focused ? undefined : text || undefined),
    });
    setText(this.#message, error?.text ?? "");
    setVisible(this.#message, error !== undefined);
    this.#mark(this.input.value, error);
  }

  /** Puts the cursor into the field and lists what can be typed. */
  focus(): void {
    this.input.focus();
    this.input.select();
    this.#suggest(true);
  }

  #key(event: KeyboardEvent): boolean {
    const { options } = this.#completion;
    switch (event.key) {
      case "ArrowDown":
      case "ArrowUp": {
        if (!this.#open) {
          this.#suggest(true);
          return true;
        }
        const by = event.key === "ArrowDown" ? 1 : -1;
        const from = this.#active < 0 && by < 0 ? 0 : this.#active;
        this.#show((from + by + options.length) % options.length);
        return true;
      }
      case "Enter":
        if (this.#open && this.#active >= 0) this.#accept(options[this.#active] as Option);
        else {
          this.#suggest(false);
          this.leave?.();
        }
        return true;
      case "Escape":
        if (this.#open) this.#suggest(false);
        else {
          this.input.blur();
          this.leave?.();
        }
        return true;
    }
    return false;
  }

  #accept({ insert }: Option) {
    const { input } = this;
    const { start, end } = this.#completion;
    const rest = input.value.slice(end);
    const added = insert.endsWith(" ") && rest.startsWith(" ") ? insert.trimEnd() : insert;
    input.value = input.value.slice(0, start) + added + rest;
    const caret = start + added.length;
    input.setSelectionRange(caret, caret);
    this.set(input.value);
    this.#suggest(true);
  }

  #suggest(open: boolean, active = -1) {
    const { input } = this;
    const complete = this.#complete;
    if (open && !complete)
      void import("../../query/complete").then(
        (module) => {
          this.#complete = module.complete;
          if (input.matches(":focus")) this.#suggest(true, active);
        },
        () => {}, // without suggestions until the next key
      );
    if (open && this.#source && complete) {
      // A selected text is replaced by what is typed.
      const all = input.selectionStart === 0 && input.selectionEnd === input.value.length;
      const before = this.#completion;
      this.#completion = all
        ? { ...complete("", 0, this.#source), end: input.value.length }
        : complete(input.value, input.selectionStart ?? input.value.length, this.#source);
      if (!equal(before, this.#completion)) this.#fill();
    }
    this.#open = open && this.#completion.options.length > 0;
    setVisible(this.#list, this.#open);
    setAttributes(input, { "aria-expanded": String(this.#open) });
    this.#show(this.#open ? Math.min(active, this.#completion.options.length - 1) : -1);
    this.context.redraw();
  }

  #fill() {
    this.#list.replaceChildren(
      ...this.#completion.options.map(({ label, note }, i) =>
        h(
          "li",
          { role: "option", id: `${this.#id}-${i}`, "aria-selected": "false" },
          h("span", {}, label),
          h("span", { class: "smdw-quiet" }, note),
        ),
      ),
    );
    this.#list.scrollTop = 0;
  }

  #show(active: number) {
    this.#list.children[this.#active]?.setAttribute("aria-selected", "false");
    this.#active = active;
    const item = this.#list.children[active] as HTMLElement | undefined;
    if (item) {
      item.setAttribute("aria-selected", "true");
      const { clientHeight: height, scrollTop: top } = this.#list;
      this.#list.scrollTop = Math.max(item.offsetTop + item.offsetHeight - height, Math.min(top, item.offsetTop));
    }
    setAttributes(this.input, { "aria-activedescendant": item?.id });
  }

  /** Underlines the part that is wrong: the same text behind the field, which is transparent. */
  #mark(text: string, error: QueryError | undefined) {
    const key = error ? `${error.start} ${error.end} ${text}` : "";
    if (key !== this.#marked) {
      this.#marked = key;
      const letters = [...text];
      this.#marks.replaceChildren();
      if (error) {
        const part = letters.slice(error.start, error.end).join("");
        // An error at the end has no letters.
        this.#marks.append(letters.slice(0, error.start).join(""), h("u", {}, part || "\u00a0\u00a0"));
      }
    }
    this.#scroll();
  }

  #scroll() {
    if (this.#marked) this.#marks.scrollLeft = this.input.scrollLeft;
  }
}
