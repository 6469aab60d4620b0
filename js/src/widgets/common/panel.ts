/** Base of all panels: title, tools, menu, status note and readout. */
import { h, ICONS, icon, setText, setVisible, textButton } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import { copyText, csv, save } from "../../lib/save";
import { NO_KERNEL } from "../../session/client";
import type { RequestStatus } from "../../session/connection";
import type { Scene } from "../../session/scene";
import { Figure } from "./figure";
import type { Context, Part } from "./part";
import type { Caption } from "./picture-file";

export type Rows = (string | number)[][];

/** The exports that a panel's menu offers. */
interface Exports {
  name: string;
  /** what the axes and colours of the picture are */
  units?: string;
  rows(): Rows | undefined;
  python(): string;
}

export abstract class Panel implements Part {
  readonly el: HTMLElement;
  protected readonly tools: HTMLElement;
  protected readonly menu: HTMLElement;
  protected readonly body: HTMLElement;
  /** In an explorer a panel is low: its tools are in its menu. */
  protected readonly compact: boolean;
  readonly #title: HTMLElement;
  readonly #note: HTMLElement;
  readonly #readout: HTMLElement;
  readonly #summary: HTMLElement;
  readonly #more: HTMLButtonElement;

  constructor(
    readonly name: string,
    title: string,
    protected readonly context: Context,
  ) {
    const { signal } = context;
    this.#title = h("h3", { class: "smdw-title" }, title);
    this.#note = h("span", { class: "smdw-note", role: "status" });
    this.tools = h("div", { class: "smdw-tools" });
    this.#more = h(
      "button",
      {
        type: "button",
        class: "smdw-button smdw-icon-button",
        "aria-label": `${title} menu`,
        "aria-expanded": "false",
        title: "Menu",
      },
      icon(ICONS.more),
    );
    this.compact = context.session.state.get("_kind") === "explorer";
    this.menu = h("div", { class: "smdw-menu", hidden: true }, this.compact && this.tools);
    const corner = h("div", { class: "smdw-corner" }, this.#more, this.menu);
    this.body = h("div", { class: "smdw-body" });
    this.#readout = h("div", { class: "smdw-readout" });
    this.#summary = h("p", { class: "smdw-sr" });
    this.el = h(
      "section",
      { class: `smdw-panel smdw-panel-${name}`, "aria-label": title },
      h("header", { class: "smdw-head" }, this.#title, this.#note, !this.compact && this.tools),
      corner,
      this.#summary,
      this.body,
      this.#readout,
    );
    this.#popover(corner, signal);
  }

  abstract update(scene: Scene): void;

  protected title(value: string): void {
    setText(this.#title, value);
  }

  /** Sets the line below the picture. */
  protected readout(value: string): void {
    setText(this.#readout, value || "\u00a0");
  }

  /** Describes the content for screen readers. */
  protected summary(value: string): void {
    setText(this.#summary, value);
  }

  /** Shows the status of a request, or `fallback`. */
  protected note(status: RequestStatus | undefined, fallback = ""): void {
    const lost = status !== undefined && this.context.session.connection.disconnected;
    const value = lost
      ? NO_KERNEL
      : status?.error
        ? status.error
        : status?.silent
          ? "Kernel not responding"
          : status?.busy
            ? "Kernel busy"
            : status && status.total > 0
              ? `${status.done} of ${status.total}`
              : fallback;
    setText(this.#note, value.slice(0, 300));
    this.#note.title = value.slice(0, 2000);
    this.#note.classList.toggle("smdw-error", lost || Boolean(status?.error));
  }

  /** What a picture file says above the picture: tensor and run, then panel, step and units. */
  #caption(units: string | undefined): Caption {
    const { traits, run, main } = this.context.session.scene();
    const at = main && !Number.isNaN(main.savedStep) ? `step ${count(main.savedStep)}` : "";
    const title = this.#title.textContent ?? "";
    const tensor = this.name === "scalars" ? "" : truncate(traits.tensor, 200);
    return {
      title: [tensor || title, run?.head.name ?? ""].filter(Boolean).join(" \u00b7 "),
      text: [tensor && title, at, units, this.#readout.textContent?.trim()].filter(Boolean).join(" \u00b7 "),
    };
  }

  /** `isPicture`: whether the panel's body can be saved as a picture. */
  protected exports(isPicture: boolean, exports: () => Exports): void {
    const { signal } = this.context;
    const done = (message: string) => {
      setText(this.#note, message);
      this.#toggle(false);
    };
    const actions = h("div", { class: "smdw-actions" });
    if (isPicture) {
      const file = async (kind: "png" | "svg") => {
        const { name, units } = exports();
        const { pngOf, svgOf } = await import("./picture-file");
        const theme = this.context.theme();
        const caption = this.#caption(units);
        const blob =
          kind === "png"
            ? await pngOf(this.body, caption, theme)
            : new Blob([svgOf(this.body, caption, theme)], { type: "image/svg+xml" });
        if (blob) save(`${name}.${kind}`, blob);
        done("Saved");
      };
      actions.append(
        textButton("PNG", () => void file("png"), signal),
        textButton("SVG", () => void file("svg"), signal),
      );
    }
    actions.append(
      textButton(
        "CSV",
        () => {
          const rows = exports().rows();
          if (rows) save(`${exports().name}.csv`, new Blob([csv(rows)], { type: "text/csv" }));
          done(rows ? "Saved" : "No data yet");
        },
        signal,
      ),
      textButton(
        "Copy as Python",
        async () => {
          const ok = await copyText(exports().python(), this.el);
          done(ok ? "Copied" : "Clipboard access denied");
        },
        signal,
      ),
    );
    this.menu.append(actions);
  }

  #toggle(open: boolean) {
    setVisible(this.menu, open);
    this.#more.setAttribute("aria-expanded", String(open));
  }

  #popover(corner: HTMLElement, signal: AbortSignal) {
    this.#more.addEventListener("click", () => this.#toggle(Boolean(this.menu.hidden)), { signal });
    this.context.keys.on(corner, (event) => {
      if (event.key !== "Escape" || this.menu.hidden) return false;
      this.#toggle(false);
      this.#more.focus();
      return true;
    });
    corner.addEventListener(
      "focusout",
      (event) => {
        if (event.relatedTarget instanceof Node && !corner.contains(event.relatedTarget)) this.#toggle(false);
      },
      { signal },
    );
    window.addEventListener(
      "pointerdown",
      (event) => {
        if (!this.menu.hidden && !event.composedPath().includes(corner)) this.#toggle(false);
      },
      { signal, capture: true },
    );
  }
}

/** A panel with one figure. */
export abstract class PicturePanel extends Panel {
  protected readonly figure: Figure;
  /** the step under the pointer */
  protected hovered: number | undefined;

  constructor(name: string, title: string, context: Context) {
    super(name, title, context);
    this.figure = new Figure(name, context);
    this.body.append(this.figure.el);
  }

  /** The pointer marks the step that it is over; a press or a drag goes to it. */
  protected goesToSteps(stepAt: (x: number, y: number) => number | undefined): void {
    const { session, signal, redraw } = this.context;
    const go = ({ x, y }: { x: number; y: number }) => {
      const step = stepAt(x, y);
      if (step !== undefined) session.state.set({ step, follow: false });
    };
    this.figure.gestures(
      {
        move: (at) => {
          const hovered = at && stepAt(at.x, at.y);
          if (hovered === this.hovered) return;
          this.hovered = hovered;
          redraw();
        },
        down: (start) => {
          go(start);
          return go;
        },
      },
      signal,
    );
  }
}
