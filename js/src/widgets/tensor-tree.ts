/** The tensors of a run by collection and path, in a virtual list. */
import { h, Segments, setAttributes, setText, setVisible } from "../lib/dom";
import { escapeInvisible } from "../lib/escape-text";
import { count, plural, truncate } from "../lib/format";
import { fuzzyMatches, type NameMatch } from "../lib/name-filter";
import { type Row, Tree } from "../lib/tensor-tree";
import { Viewport } from "../lib/viewport";
import { visibleRange } from "../lib/virtual-rows";
import { RegexSearch } from "../session/regex-search";
import type { Scene } from "../session/session";
import type { Context, Part } from "./part";

const ROW = 22;

interface Entry extends Row {
  marks?: readonly number[];
}

export class TensorTree implements Part {
  readonly el: HTMLElement;
  readonly #filter = h("input", {
    class: "smdw-input smdw-filter",
    type: "search",
    placeholder: "Filter tensors",
    "aria-label": "Filter tensors",
    spellcheck: "false",
    autocomplete: "off",
  });
  readonly #kind: Segments<"fuzzy" | "regex">;
  readonly #scroll = h("div", { class: "smdw-tree", role: "tree", tabindex: 0, "aria-label": "Tensors" });
  readonly #view: Viewport;
  readonly #space = h("div", { class: "smdw-scroll-space" });
  readonly #footer = h("div", { class: "smdw-readout" });
  readonly #pool: HTMLElement[] = [];
  readonly #id = `smdw-tree-${Math.random().toString(36).slice(2)}`;
  #entries: Entry[] = [];
  #entriesKey: unknown[] = [];
  #tree: Tree | undefined;
  #treeOf = "";
  #active = -1;
  readonly #regex: RegexSearch;
  #shown = "";
  /** the tensor last scrolled into view */
  #tensor = "";

  constructor(
    private readonly context: Context,
    private readonly chosen: () => void = () => {},
  ) {
    const { signal, session, keys } = context;
    this.#kind = new Segments<"fuzzy" | "regex">(
      "Filter type",
      [
        ["fuzzy", "Text"],
        ["regex", "Regex"],
      ],
      (filter_kind) => session.state.set({ filter_kind }),
      signal,
    );
    this.#regex = new RegexSearch(session, `filter/${this.#id}`, context.redraw, signal);
    this.#scroll.append(this.#space);
    const stick = h(
      "div",
      { class: "smdw-tree-stick" },
      h("div", { class: "smdw-tree-head" }, this.#filter, this.#kind.el),
      this.#scroll,
      this.#footer,
    );
    this.el = h("nav", { class: "smdw-tensors", "aria-label": "Tensors" }, h("div", { class: "smdw-tree-box" }, stick));
    this.#filter.addEventListener("input", () => session.state.set({ filter: this.#filter.value }), { signal });
    this.#view = new Viewport(this.#scroll, context.redraw, signal);
    this.#scroll.addEventListener(
      "click",
      (event) => {
        const row = event
          .composedPath()
          .find((el): el is HTMLElement => el instanceof HTMLElement && el.dataset.index !== undefined);
        if (row) this.#activate(Number(row.dataset.index));
      },
      { signal },
    );
    keys.on(this.#scroll, (event) => this.#key(event));
    keys.on(this.#filter, (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        this.#active = this.#entries.findIndex((entry) => entry.kind === "tensor");
        if (event.key === "Enter") this.#activate(this.#active);
        else this.#scroll.focus();
      } else if (event.key === "Escape") session.state.set({ filter: "" });
      else return false;
      context.redraw();
      return true;
    });
  }

  update(scene: Scene): void {
    const { traits, run } = scene;
    if (!this.#filter.matches(":focus") && this.#filter.value !== traits.filter) this.#filter.value = traits.filter;
    this.#kind.update(traits.filter_kind);
    const names = run?.names ?? [];
    const namesVersion = run?.namesVersion ?? 0;
    const query = traits.filter.trim();
    const byRegex = query !== "" && traits.filter_kind === "regex";
    if (byRegex) this.#regex.update({ run: traits.run, names, namesVersion, pattern: query });
    else this.#regex.clear();
    const treeOf = `${traits.run}/${namesVersion}`;
    const key = [treeOf, traits.filter, traits.filter_kind, traits.closed.join("\n"), this.#regex.version];
    if (key.some((part, i) => part !== this.#entriesKey[i])) {
      if (traits.filter !== this.#entriesKey[1]) this.#view.to(0);
      this.#entriesKey = key;
      const namesChanged = treeOf !== this.#treeOf || !this.#tree;
      if (namesChanged || !this.#tree) {
        this.#treeOf = treeOf;
        this.#tree = new Tree(names, run?.collections ?? new Map());
      }
      if (query === "") this.#entries = this.#tree.rows(new Set(traits.closed));
      else if (!byRegex) this.#entries = matchEntries(names, fuzzyMatches(names, query));
      // The list does not change while a search runs or after it failed.
      else if (!this.#regex.running && !this.#regex.error) this.#entries = matchEntries(names, this.#regex.matches);
      else if (namesChanged) this.#entries = this.#tree.rows(new Set(traits.closed));
      this.#active = this.#entries.findIndex((entry) => entry.id === traits.tensor && entry.kind === "tensor");
    }
    const all = plural(names.length, "tensor");
    const found = byRegex ? this.#regex.total : this.#entries.length;
    const busy = byRegex && this.#regex.running;
    const summary =
      query === ""
        ? all
        : busy
          ? this.#regex.status
          : (byRegex && this.#regex.error) ||
            [`${count(found)} of ${all}`, byRegex && this.#regex.note].filter(Boolean).join(" \u00b7 ");
    setText(this.#footer, summary);
    this.#footer.title = truncate(summary, 1000);
    const failed = byRegex && this.#regex.error !== "";
    this.#footer.classList.toggle("smdw-error", failed);
    this.#filter.setAttribute("aria-invalid", String(failed));
    const elsewhere = traits.tensor !== this.#tensor && this.#view.height > 0;
    if (elsewhere) this.#active = this.#entries.findIndex(({ id, kind }) => id === traits.tensor && kind === "tensor");
    this.#rows(traits.tensor);
    // The tensor was selected elsewhere: scroll it into view.
    if (elsewhere && this.#active >= 0) {
      this.#reveal();
      this.context.redraw();
    }
    if (elsewhere) this.#tensor = traits.tensor;
  }

  #rows(tensor: string) {
    const n = this.#entries.length;
    const seen = visibleRange(n, ROW, this.#view.top, this.#view.height);
    const shown = [this.#entriesKey.join("|"), tensor, seen.first, seen.last, seen.shift, this.#active].join("/");
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#space.style.height = `${seen.total}px`;
    const used: HTMLElement[] = [];
    for (let i = seen.first; i < seen.last; i++) {
      const k = i - seen.first;
      const row = this.#pool[k] ?? h("div", { class: "smdw-row", role: "treeitem" });
      this.#pool[k] = row;
      this.#fill(row, this.#entries[i] as Entry, i, tensor, i * ROW - seen.shift);
      used.push(row);
    }
    if (this.#scroll.childElementCount !== used.length + 1) this.#scroll.replaceChildren(this.#space, ...used);
    setAttributes(this.#scroll, {
      "aria-activedescendant":
        this.#active >= seen.first && this.#active < seen.last ? `${this.#id}-${this.#active}` : undefined,
    });
  }

  #fill(row: HTMLElement, entry: Entry, i: number, tensor: string, y: number) {
    row.style.transform = `translateY(${y}px)`;
    row.style.setProperty("--level", String(entry.level - 1));
    row.dataset.index = String(i);
    const { session } = this.context;
    const run = session.state.get("run");
    const absent = session.exported && entry.kind === "tensor" && !session.store.hasPictures(run, entry.id);
    row.className = `smdw-row smdw-row-${entry.kind}${i === this.#active ? " smdw-active" : ""}${absent ? " smdw-absent" : ""}`;
    setAttributes(row, {
      id: `${this.#id}-${i}`,
      "aria-level": entry.level,
      "aria-posinset": entry.place,
      "aria-setsize": entry.siblings,
      "aria-selected": entry.kind === "tensor" ? String(entry.id === tensor) : undefined,
      "aria-expanded": entry.kind === "group" ? String(entry.open) : undefined,
      title:
        entry.kind === "tensor"
          ? `${truncate(entry.id, 1000)}${absent ? "\nNot in this file: statistics only" : ""}`
          : undefined,
    });
    const label = truncate(entry.label, 200);
    row.replaceChildren(
      ...marked(label, entry.marks),
      ...(entry.kind === "group" ? [h("span", { class: "smdw-quiet" }, count(entry.size))] : []),
      ...(absent
        ? [h("span", { class: "smdw-absent-mark", role: "img", "aria-label": "not in this file" }, "\u25cb")]
        : []),
    );
  }

  #activate(i: number) {
    const entry = this.#entries[i];
    if (!entry) return;
    const { state } = this.context.session;
    this.#active = i;
    if (entry.kind === "tensor") {
      state.set({ tensor: entry.id, zoom: [], selection: {}, clip: [] });
      this.chosen();
    } else {
      const closed = state.get("closed");
      state.set({ closed: entry.open ? [...closed, entry.id] : closed.filter((id) => id !== entry.id) });
    }
    this.context.redraw();
  }

  #key(event: KeyboardEvent): boolean {
    const n = this.#entries.length;
    const entry = this.#entries[this.#active];
    const page = Math.max(1, Math.floor(this.#view.height / ROW) - 1);
    const moves: Record<string, number> = {
      ArrowDown: this.#active + 1,
      ArrowUp: this.#active - 1,
      Home: 0,
      End: n - 1,
      PageDown: this.#active + page,
      PageUp: this.#active - page,
    };
    if (event.key in moves) this.#active = Math.max(0, Math.min(n - 1, moves[event.key] as number));
    else if (event.key === "Enter" || event.key === " ") this.#activate(this.#active);
    else if (event.key === "ArrowRight" && entry?.kind === "group") {
      if (entry.open) this.#active++;
      else this.#activate(this.#active);
    } else if (event.key === "ArrowLeft" && entry) {
      if (entry.kind === "group" && entry.open) this.#activate(this.#active);
      else while (this.#active > 0 && (this.#entries[--this.#active] as Entry).level >= entry.level);
    } else if (event.key.length === 1 && /\S/.test(event.key)) {
      const letter = event.key.toLowerCase();
      for (let k = 1; k <= n; k++) {
        const at = (this.#active + k) % n;
        if (this.#entries[at]?.label.toLowerCase().startsWith(letter)) {
          this.#active = at;
          break;
        }
      }
    } else return false;
    this.#reveal();
    this.context.redraw();
    return true;
  }

  #reveal() {
    const { top, height } = this.#view;
    const y = this.#active * ROW - visibleRange(this.#entries.length, ROW, top, height).shift;
    if (y < top) this.#view.to(y);
    else if (y + ROW > top + height) this.#view.to(y + ROW - height);
  }
}

function matchEntries(names: readonly string[], matches: readonly NameMatch[]): Entry[] {
  return matches.map(({ index, positions }, i) => ({
    kind: "tensor",
    label: names[index] ?? "",
    id: names[index] ?? "",
    level: 1,
    open: false,
    size: 1,
    place: i + 1,
    siblings: matches.length,
    marks: positions,
  }));
}

/** A label with the matching letters highlighted. */
function marked(label: string, at: readonly number[] | undefined): Node[] {
  if (!at?.length) return [h("span", { class: "smdw-label" }, label)];
  const hits = new Set(at);
  const span = h("span", { class: "smdw-label" });
  let i = 0;
  while (i < label.length) {
    const hit = hits.has(i);
    let j = i;
    while (j < label.length && hits.has(j) === hit) j++;
    span.append(hit ? h("mark", {}, label.slice(i, j)) : escapeInvisible(label.slice(i, j)));
    i = j;
  }
  return [span];
}

/** On a narrow page, the tree opens over the panels. */
export class Drawer {
  readonly button: HTMLButtonElement;
  constructor(
    private readonly el: HTMLElement,
    signal: AbortSignal,
  ) {
    this.button = h(
      "button",
      { type: "button", class: "smdw-button smdw-drawer-button", "aria-expanded": "false" },
      "Tensors",
    );
    this.button.addEventListener("click", () => this.open(!el.classList.contains("smdw-open")), { signal });
    setVisible(this.button, true);
  }
  open(open: boolean): void {
    this.el.classList.toggle("smdw-open", open);
    setAttributes(this.button, { "aria-expanded": String(open) });
  }
}
