/**
 * A subset of Markdown as DOM nodes: headings, paragraphs, lists, tables, quotes, code, emphasis and links. HTML is text, links
 * lead to http and https only, and images are links, because a page makes no requests. The time is linear in the text.
 */
import { h } from "./dom";
import { escapeInvisible } from "./escape-text";

/** A longer text is cut, and one that needs more elements continues as plain text. */
const LONGEST = 100_000;
const MOST_ELEMENTS = 5000;
const DEEPEST = 8;
/** Characters in which a delimiter is closed. */
const REACH = 2000;

export function markdown(text: string): HTMLElement {
  const el = h("div", { class: "smdw-markdown" });
  const cut = text.length > LONGEST;
  new Renderer().blocks(el, (cut ? text.slice(0, LONGEST) : text).replace(/\r\n?/g, "\n").split("\n"), 0);
  if (cut) el.append(h("p", {}, `\u2026 (${text.length.toLocaleString("en")} characters)`));
  return el;
}

const FENCE = /^ {0,3}(```+|~~~+)/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( {1,4}|\t)/;
const RULE = /^ {0,3}(?:(?:\* ?){3,}|(?:- ?){3,}|(?:_ ?){3,}) *$/;
const CODE = /^(?: {4}|\t)/;
const QUOTE = /^ {0,3}> ?/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$/;
const TOKEN = /\\[!-/:-@[-`{-~]|`{1,8}|\*\*|__|~~|\*|_|!?\[|<https?:|https?:\/\/|&(?:lt|gt|amp|quot);| {2,}\n|\\\n|\n/g;
const ENTITIES: Record<string, string> = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"' };
const TAGS: Record<string, "strong" | "em" | "s"> = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };

class Renderer {
  #elements = 0;

  #full(depth: number): boolean {
    return depth > DEEPEST || this.#elements >= MOST_ELEMENTS;
  }

  blocks(el: HTMLElement, lines: readonly string[], depth: number): void {
    for (let i = 0; i < lines.length; ) {
      if (this.#full(depth)) return this.#text(el, lines.slice(i).join("\n"));
      const line = lines[i] as string;
      if (!line.trim()) i++;
      else if (FENCE.test(line)) i = this.#fence(el, lines, i);
      else if (CODE.test(line)) i = this.#code(el, lines, i);
      else if (HEADING.test(line)) {
        const [, marks = "", text = ""] = HEADING.exec(line) ?? [];
        // Headings of the widget come first.
        this.#inline(this.#add(el, h(`h${Math.min(6, marks.length + 3) as 4 | 5 | 6}`)), text, depth + 1);
        i++;
      } else if (RULE.test(line)) {
        this.#add(el, h("hr"));
        i++;
      } else if (QUOTE.test(line)) {
        const end = until(lines, i, (each) => !QUOTE.test(each));
        const inner = lines.slice(i, end).map((each) => each.replace(QUOTE, ""));
        this.blocks(this.#add(el, h("blockquote")), inner, depth + 1);
        i = end;
      } else if (ITEM.test(line)) i = this.#list(el, lines, i, depth);
      else if (line.includes("|") && columns(lines[i + 1])) i = this.#table(el, lines, i, depth);
      else {
        const starts = (each: string) =>
          !each.trim() || FENCE.test(each) || HEADING.test(each) || QUOTE.test(each) || ITEM.test(each);
        const end = until(lines, i + 1, starts);
        this.#inline(this.#add(el, h("p")), lines.slice(i, end).join("\n").trim(), depth + 1);
        i = end;
      }
    }
  }

  #fence(el: HTMLElement, lines: readonly string[], i: number): number {
    const mark = FENCE.exec(lines[i] as string)?.[1] ?? "";
    const end = until(lines, i + 1, (each) => each.trimStart().startsWith(mark));
    this.#pre(el, lines.slice(i + 1, end));
    return end + 1;
  }

  #code(el: HTMLElement, lines: readonly string[], i: number): number {
    let end = until(lines, i, (each) => each.trim() !== "" && !CODE.test(each));
    while (!lines[end - 1]?.trim()) end--;
    this.#pre(
      el,
      lines.slice(i, end).map((each) => each.replace(CODE, "")),
    );
    return end;
  }

  #pre(el: HTMLElement, lines: readonly string[]) {
    this.#text(this.#add(this.#add(el, h("pre", { tabindex: 0 })), h("code")), lines.join("\n"));
  }

  #list(el: HTMLElement, lines: readonly string[], from: number, depth: number): number {
    const [, indent = "", mark = ""] = ITEM.exec(lines[from] as string) ?? [];
    const ordered = /\d/.test(mark);
    const list = this.#add(el, h(ordered ? "ol" : "ul", { start: ordered && Number.parseInt(mark, 10) }));
    let i = from;
    while (i < lines.length) {
      const item = ITEM.exec(lines[i] as string);
      if (this.#full(depth) || !item || item[1] !== indent || /\d/.test(item[2] as string) !== ordered) break;
      const inside = item[0].length;
      const belongs = (each: string) => leading(each) > indent.length || !each.trim();
      let end = until(lines, i + 1, (each) => !belongs(each));
      while (!lines[end - 1]?.trim()) end--;
      const own = lines.slice(i + 1, end).map((each) => each.slice(Math.min(inside, leading(each))));
      const text = (lines[i] as string).slice(inside);
      const entry = this.#add(list, h("li"));
      if (own.length) this.blocks(entry, [text, ...own], depth + 1);
      else this.#inline(entry, text, depth + 1);
      i = until(lines, end, (each) => each.trim() !== "");
    }
    return i;
  }

  #table(el: HTMLElement, lines: readonly string[], i: number, depth: number): number {
    const aligned = columns(lines[i + 1]) ?? [];
    const end = until(lines, i + 2, (each) => !each.includes("|"));
    const table = this.#add(this.#add(el, h("div", { class: "smdw-markdown-table", tabindex: 0 })), h("table"));
    for (const line of [lines[i] as string, ...lines.slice(i + 2, end)]) {
      if (this.#full(depth)) break;
      const row = this.#add(table, h("tr"));
      const texts = cells(line);
      aligned.forEach((align, k) => {
        const cell = this.#add(row, h(row === table.firstChild ? "th" : "td", { "data-align": align || undefined }));
        this.#inline(cell, texts[k] ?? "", depth + 1);
      });
    }
    return end;
  }

  #inline(el: HTMLElement, text: string, depth: number): void {
    if (this.#full(depth)) return this.#text(el, text);
    let done = 0;
    /** delimiters that are not closed in the rest of the text */
    const open = new Set<string>();
    const close = (mark: string, from: number, fits: (at: number) => boolean = () => true): number => {
      if (open.has(mark)) return -1;
      const last = Math.min(text.length, from + REACH);
      for (let at = text.indexOf(mark, from), tries = 0; ; at = text.indexOf(mark, at + 1), tries++) {
        if (at < 0) open.add(mark);
        if (at < 0 || at > last || tries > 20) return -1;
        if (fits(at)) return at;
      }
    };
    const plain = (end: number) => this.#text(el, text.slice(done, end));
    const tokens = new RegExp(TOKEN);
    for (let found = tokens.exec(text); found; found = tokens.exec(text)) {
      const [token] = found;
      const at = found.index;
      const after = at + token.length;
      let next = after;
      let node: Node | undefined;
      if (token.endsWith("\n")) {
        if (token !== "\n") node = h("br");
      } else if (token[0] === "\\") node = document.createTextNode(token.slice(1));
      else if (token[0] === "&") node = document.createTextNode(ENTITIES[token] as string);
      else if (token[0] === "`") {
        const end = close(token, after);
        if (end >= 0) {
          node = h("code", {}, text.slice(after, end).trim());
          next = end + token.length;
        }
      } else if (token in TAGS) {
        const word = token[0] === "_" ? /\w/ : /[^\s\S]/;
        const end =
          /\s|^$/.test(text[after] ?? "") || word.test(text[at - 1] ?? "")
            ? -1
            : close(token, after + 1, (to) => {
                const behind = text[to + token.length] ?? "";
                return /\S/.test(text[to - 1] ?? "") && !word.test(behind) && (token.length > 1 || behind !== token);
              });
        if (end >= 0) {
          const inner = h(TAGS[token] as "em");
          this.#inline(inner, text.slice(after, end), depth + 1);
          node = inner;
          next = end + token.length;
        }
      } else if (token.endsWith("[")) {
        const middle = close("](", after);
        const end = middle < 0 ? -1 : close(")", middle + 2);
        if (end >= 0) {
          node = this.#link(
            text
              .slice(middle + 2, end)
              .trim()
              .split(/\s/)[0] ?? "",
            text.slice(after, middle),
            depth,
          );
          next = end + 1;
        }
      } else {
        // A bare address, with or without angle brackets.
        const from = token[0] === "<" ? at + 1 : at;
        const [url = ""] = /^[^\s<>"'`)\]|]{1,2000}/.exec(text.slice(from, from + REACH)) ?? [];
        const bare = token[0] === "<" ? url : url.replace(/[.,;:!?*_]+$/, "");
        node = this.#link(bare, bare, DEEPEST);
        next = from + bare.length + (token[0] === "<" && text[from + bare.length] === ">" ? 1 : 0);
      }
      if (!node) continue;
      plain(at);
      this.#elements++;
      el.append(node);
      done = next;
      tokens.lastIndex = next;
      if (this.#full(depth)) break;
    }
    plain(text.length);
  }

  /** A link, or its text alone if it leads elsewhere than to a web page. */
  #link(url: string, text: string, depth: number): Node {
    const el = /^https?:\/\/[\w[]/i.test(url)
      ? h("a", { href: url, rel: "noopener noreferrer", target: "_blank", title: url })
      : h("span");
    this.#inline(el, text || url, depth + 1);
    return el;
  }

  #add<E extends HTMLElement>(parent: HTMLElement, child: E): E {
    this.#elements++;
    parent.append(child);
    return child;
  }

  #text(el: HTMLElement, text: string) {
    if (text) el.append(escapeInvisible(text));
  }
}

/** The first line from `i` on that fits, or the number of lines. */
function until(lines: readonly string[], i: number, fits: (line: string) => boolean): number {
  let at = i;
  while (at < lines.length && !fits(lines[at] as string)) at++;
  return at;
}

const leading = (line: string) => line.length - line.trimStart().length;

function cells(line: string): string[] {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner
    .split("|")
    .slice(0, 50)
    .map((cell) => cell.trim());
}

/** The alignment of each column, if the line is below the head of a table. */
function columns(line: string | undefined): string[] | undefined {
  if (!line?.includes("-") || !line.includes("|")) return undefined;
  const found = cells(line);
  if (!found.every((cell) => /^:?-+:?$/.test(cell))) return undefined;
  return found.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
}
