/**
 * The code of one version of the front end in this page. The build divides it into parts, each of which is loaded when
 * it is first needed and then serves all widgets of the page, because a page never unloads a module.
 *
 * A part's text calls `define`. A notebook gets the texts from its kernel, which sends the first ones with the first
 * widget and the others when they are asked for. An exported page contains the parts that it needs.
 */

/** The part of a host's model that is used. */
interface Model {
  get(name: string): unknown;
  on(event: string, callback: (message: PartsMessage) => void): void;
  off(event: string, callback: (message: PartsMessage) => void): void;
  set(name: string, value: unknown): void;
  send(content: unknown): void;
}

/** What a host passes to a widget: with an element to show it, without one when its model is created. */
export interface Props {
  model: unknown;
  signal: AbortSignal;
  el?: HTMLElement;
}

/** Starts a widget, or shows it in an element. */
export type Start = (props: Props) => Promise<void>;

/** What the part "widget" exports. */
interface Widget {
  initialize(props: Props): void;
  render(props: Props): Promise<void>;
}

/** Texts by file name: parts such as "widget.js", and style sheets, whose names are in the order of the cascade. */
type Files = Record<string, string>;

/** What the kernel answers to a request for parts. */
interface PartsMessage {
  kind: string;
  files?: Files;
  /** why parts cannot be sent */
  error?: string;
}

type Load = (name: string) => Promise<object>;
type Make = (load: Load, ...needed: object[]) => object;

/** A text that the page does not have yet. */
interface Missing {
  ask(): void;
  settle(error?: string): void;
}

declare const VERSION: string;

/** Milliseconds until a request is sent again, which double each time. A kernel that runs a cell answers late. */
const FIRST_WAIT = 2000;

async function importText(text: string): Promise<void> {
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

export class Parts {
  readonly #files = new Map<string, string>();
  /** the import of the texts that arrived last */
  #importing: Promise<void> = Promise.resolve();
  readonly #defined = new Map<string, { needs: readonly string[]; make: Make }>();
  readonly #loading = new Map<string, Promise<object>>();
  readonly #missing = new Map<string, Missing>();
  /** The widgets that can ask a kernel for parts, the latest last. */
  readonly #models = new Set<Model>();
  readonly #sheets = new Map<string, CSSStyleSheet>();
  readonly #roots = new Set<Document | ShadowRoot>();

  /** Called by the text of a part. */
  readonly define = (name: string, needs: readonly string[], make: Make): void => {
    this.#defined.set(name, { needs, make });
  };

  /** Resolves to the exports of a part. A call for one that is on its way asks for it again. */
  readonly load: Load = (name) => {
    const earlier = this.#loading.get(name);
    this.#missing.get(name)?.ask();
    if (earlier) return earlier;
    const loading = this.#load(name);
    loading.catch(() => this.#loading.delete(name)); // a later call retries
    this.#loading.set(name, loading);
    return loading;
  };

  /** Takes parts from the widget's state and its kernel, until the signal aborts. */
  attach(model: Model, signal: AbortSignal): void {
    const receive = (message: PartsMessage) => {
      if (message?.kind !== "parts") return;
      if (message.files) this.provide(message.files);
      if (message.error) for (const missing of [...this.#missing.values()]) missing.settle(message.error);
    };
    if (this.#models.has(model)) return;
    model.on("msg:custom", receive);
    this.#models.add(model);
    signal.addEventListener("abort", () => {
      model.off("msg:custom", receive);
      this.#models.delete(model);
    });
    this.provide((model.get("_parts") ?? {}) as Files);
    for (const missing of this.#missing.values()) missing.ask();
  }

  /** A function for the calls of one widget's host. */
  starter(): Start {
    let opening: Promise<Widget> | undefined;
    const open = async (model: Model, signal: AbortSignal) => {
      this.attach(model, signal);
      const { default: widget } = (await this.load("widget")) as { default(): Widget };
      return widget();
    };
    return async (props) => {
      const { el, signal } = props;
      const model = props.model as Model;
      // JupyterLab keeps models of removed widgets: release the large traits.
      if (!el)
        signal.addEventListener("abort", () => {
          model.set("_parts", {});
          model.set("_boot", []);
        });
      opening ??= open(model, signal);
      try {
        const widget = await opening;
        if (signal.aborted) return;
        if (!el) return widget.initialize(props);
        this.style(el, signal);
        await widget.render(props);
      } catch (error) {
        opening = undefined; // the next call retries
        throw error;
      }
    };
  }

  provide(files: Files): void {
    const texts: string[] = [];
    for (const [name, text] of Object.entries(files)) {
      if (this.#files.has(name) || name === "parts.js") continue;
      this.#files.set(name, text);
      if (name.endsWith(".js")) texts.push(text);
      else this.#addSheet(name, text);
    }
    // Together, because an import takes longer than the parts that are not needed yet.
    if (texts.length) {
      const importing = this.#importing.catch(() => {}).then(() => importText([DEFINE, ...texts].join("")));
      importing.catch(() => {}); // `load` reports it
      this.#importing = importing;
    }
    for (const [name, missing] of [...this.#missing]) if (this.#files.has(`${name}.js`)) missing.settle();
  }

  /** Gives the document or the shadow root of an element the style sheets of the loaded parts. */
  style(el: HTMLElement, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#adopt(document);
    const root = el.getRootNode();
    if (root instanceof ShadowRoot) {
      this.#adopt(root);
      signal.addEventListener("abort", () => this.#roots.delete(root));
    } else if (!el.isConnected) requestAnimationFrame(() => this.style(el, signal));
  }

  async #load(name: string): Promise<object> {
    if (!this.#defined.has(name)) {
      if (!this.#files.has(`${name}.js`)) await this.#fetch(name);
      try {
        await this.#importing;
      } catch (error) {
        this.#files.delete(`${name}.js`); // it is asked for again
        throw error;
      }
    }
    const part = this.#defined.get(name);
    if (!part) throw new Error(`${name} is not a part of version ${VERSION}`);
    return part.make(this.load, ...(await Promise.all(part.needs.map(this.load))));
  }

  #fetch(name: string): Promise<void> {
    return new Promise((resolve, reject) => {
      let wait = FIRST_WAIT;
      let timer: ReturnType<typeof setTimeout> | undefined;
      let tries = 0;
      this.#missing.set(name, {
        ask: () => {
          clearTimeout(timer);
          this.#ask(name, tries++);
          timer = setTimeout(() => this.#missing.get(name)?.ask(), wait);
          wait *= 2;
        },
        settle: (error) => {
          clearTimeout(timer);
          this.#missing.delete(name);
          if (error === undefined) resolve();
          else reject(new Error(error));
        },
      });
      this.#missing.get(name)?.ask();
    });
  }

  /** Asks the kernel of the latest widget, and after that those of the others: a restarted one does not answer. */
  #ask(name: string, tries: number): void {
    const models = [...this.#models].reverse();
    const has = [...this.#defined.keys()];
    for (let i = 0; i < models.length; i++)
      try {
        models[(tries + i) % models.length]?.send({ kind: "parts", names: [name], has });
        return;
      } catch {
        // The connection to a restarted kernel is closed.
      }
  }

  #addSheet(name: string, css: string): void {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    this.#sheets.set(name, sheet);
    for (const root of this.#roots) this.#adopt(root);
  }

  #adopt(root: Document | ShadowRoot): void {
    this.#roots.add(root);
    const ours = [...this.#sheets].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, sheet]) => sheet);
    const others = root.adoptedStyleSheets.filter((sheet) => !ours.includes(sheet));
    root.adoptedStyleSheets = [...others, ...ours];
  }
}

const DEFINE = `const define=globalThis[Symbol.for("smdwidgets.parts")].get("${VERSION}").define;`;
/** Keyed by version, so that kernels with different ones each get their own. */
const KEY = Symbol.for("smdwidgets.parts");
const page = globalThis as { [KEY]?: Map<string, Parts> };
page[KEY] ??= new Map();
if (!page[KEY].has(VERSION)) page[KEY].set(VERSION, new Parts());
globalThis.dispatchEvent(new Event(`smdwidgets.${VERSION}`));
