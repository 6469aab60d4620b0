/** A component whose code is loaded when it is first shown. Until then a line is in its place. */
import { h, setText, setVisible, textButton } from "../../lib/dom";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "./part";

/** Milliseconds after which the line says that code is loading, and that the kernel does not answer. */
const SLOW = 300;
const SILENT = 15_000;
/** What the line passes on to the component. */
const PASSED_ON = ["id", "role"];

export class Deferred<P extends { el: HTMLElement }> {
  readonly #text = h("span", { role: "status" });
  readonly #retry: HTMLButtonElement;
  readonly #line: HTMLElement;
  #part: P | undefined;
  readonly #actions: ((part: P) => void)[] = [];
  #isLoading = false;

  constructor(
    private readonly context: Context,
    private readonly load: () => Promise<P>,
  ) {
    this.#retry = textButton("Retry", () => this.#start(), context.signal);
    this.#line = h("div", { class: "smdw-deferred smdw-quiet", hidden: true }, this.#text, this.#retry);
    setVisible(this.#retry, false);
  }

  get el(): HTMLElement {
    return this.#part?.el ?? this.#line;
  }

  /** The component; undefined until it has been loaded. */
  get part(): P | undefined {
    return this.#part;
  }

  /** Does something with the component: now, or when its code is there. */
  run(action: (part: P) => void): void {
    if (this.#part) return action(this.#part);
    this.#actions.push(action);
    this.use(() => {});
  }

  /** Shows the component; loads its code if that is missing, after which the widget is drawn again. */
  use(show: (part: P) => void): void {
    if (this.#part) show(this.#part);
    else if (!this.#isLoading) this.#start();
  }

  #start() {
    this.#isLoading = true;
    setVisible(this.#line, true);
    const { signal, redraw } = this.context;
    const say = (text: string, retry: boolean) => {
      setText(this.#text, text);
      setVisible(this.#retry, retry);
    };
    const timers = [
      setTimeout(() => say("Loading\u2026", false), SLOW),
      setTimeout(() => say("The kernel does not answer.", true), SILENT),
    ];
    const stop = () => {
      for (const timer of timers) clearTimeout(timer);
    };
    signal.addEventListener("abort", stop);
    this.load().then(
      (part) => {
        stop();
        // A second attempt may have been faster.
        if (signal.aborted || this.#part) return;
        this.#part = part;
        for (const name of PASSED_ON) {
          const value = this.#line.getAttribute(name);
          if (value !== null) part.el.setAttribute(name, value);
        }
        part.el.hidden = this.#line.hidden;
        this.#line.replaceWith(part.el);
        for (const action of this.#actions.splice(0)) action(part);
        redraw();
      },
      (error: unknown) => {
        stop();
        say(`This part could not be loaded: ${error instanceof Error ? error.message : String(error)}`, true);
      },
    );
  }
}

/** A `Part` that is loaded when it is first shown. */
export class DeferredPart extends Deferred<Part> implements Part {
  update(scene: Scene): void {
    this.use((part) => part.update(scene));
  }
}
