/** Marked steps: flags on the axis, each with a note. */
import { h, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import type { Bookmark } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";

export class Bookmarks implements Part {
  readonly el = h("div", { class: "smdw-bookmarks", role: "group", "aria-label": "Bookmarks" });
  readonly #flags: HTMLButtonElement[] = [];
  readonly #editor: HTMLElement;
  readonly #note: HTMLInputElement;
  /** the bookmark whose note is edited */
  #edited = -1;
  #scene: Scene | undefined;

  constructor(private readonly context: Context) {
    const { signal, session, keys } = context;
    this.#note = h("input", { class: "smdw-input", "aria-label": "Note", placeholder: "Note", maxlength: 200 });
    const change = (edit: (list: Bookmark[]) => Bookmark[]) =>
      session.state.set({ bookmarks: edit([...session.state.get("bookmarks")]) });
    this.#note.addEventListener(
      "change",
      () => change((list) => list.map((each, i) => (i === this.#edited ? { ...each, note: this.#note.value } : each))),
      { signal },
    );
    const remove = textButton(
      "Remove",
      () => {
        const at = this.#edited;
        this.#edit(-1);
        change((list) => list.filter((_, i) => i !== at));
      },
      signal,
    );
    this.#editor = h("div", { class: "smdw-flag-editor", hidden: true }, this.#note, remove);
    keys.on(this.#editor, (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return false;
      const flag = this.#flags[this.#edited];
      if (event.key === "Enter") this.#note.dispatchEvent(new Event("change"));
      this.#edit(-1);
      flag?.focus();
      return true;
    });
    window.addEventListener(
      "pointerdown",
      (event) => {
        if (this.#edited >= 0 && !event.composedPath().includes(this.el)) this.#edit(-1);
      },
      { signal, capture: true },
    );
    this.el.append(this.#editor);
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { bookmarks } = scene.traits;
    const { stepAxis: axis } = scene;
    while (this.#flags.length > bookmarks.length) this.#flags.pop()?.remove();
    while (this.#flags.length < bookmarks.length) this.#add(this.#flags.length);
    if (this.#edited >= bookmarks.length) this.#edited = -1;
    bookmarks.forEach(({ step, tensor, note }, i) => {
      const flag = this.#flags[i] as HTMLButtonElement;
      const x = axis.x(step);
      setVisible(flag, x >= axis.left - 1 && x <= axis.right + 1);
      flag.style.transform = `translateX(${x}px)`;
      const words = [`step ${count(step)}`, truncate(tensor, 200), truncate(note, 200)].filter(Boolean).join(": ");
      setAttributes(flag, { "aria-label": `Bookmark at ${words}`, title: words });
    });
    setVisible(this.#editor, this.#edited >= 0);
    const edited = bookmarks[this.#edited];
    if (edited)
      this.#editor.style.transform = `translateX(${Math.max(8, Math.min(axis.x(edited.step), axis.right - 240))}px)`;
  }

  #add(i: number) {
    const flag = h("button", { type: "button", class: "smdw-flag" });
    setText(flag, "\u25b6");
    flag.addEventListener(
      "click",
      () => {
        const bookmark = this.#scene?.traits.bookmarks[i];
        if (!bookmark) return;
        const { step, tensor } = bookmark;
        this.context.session.state.set({ step, follow: false, ...(tensor ? { tensor } : {}) });
        this.#edit(i);
      },
      { signal: this.context.signal },
    );
    this.#flags.push(flag);
    this.el.append(flag);
  }

  #edit(i: number) {
    this.#edited = i;
    this.#note.value = this.#scene?.traits.bookmarks[i]?.note ?? "";
    this.context.redraw();
  }
}
