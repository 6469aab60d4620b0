/** The widget's traits, stored in a kernel's widget or an exported page. */

import { equal } from "../lib/equal";
import { PointerTracker } from "../lib/pointer-tracker";
import { DEFAULTS, type Traits } from "../protocol/types";

/** The part of anywidget's model that is used. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: unknown, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
}

/** Minimum interval between saves to the kernel, in milliseconds. */
const SAVE_INTERVAL = 60;
/**
 * Pause of a drag, in milliseconds, after which traits are saved. A notebook's handling of each message costs about a
 * frame.
 */
const DRAG_PAUSE = 250;

export class State {
  /** Traits that this widget class lacks (a slider has no colour map), kept while the page is open. */
  readonly #own: Partial<Traits> = {};
  /** Traits that were set here and not saved yet. */
  readonly #unsaved = new Map<keyof Traits, unknown>();
  /** The values that were saved here last. */
  readonly #saved = new Map<keyof Traits, unknown>();
  /** The values that another view or Python has set last. */
  readonly #received = new Map<keyof Traits, unknown>();
  /** How often pages had saved when this one saved last, or received a newer state. */
  #saves: number;
  #restoring = false;
  readonly #listeners = new Set<() => void>();
  readonly #pointer: PointerTracker;
  #saving: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly model: Model,
    signal: AbortSignal,
  ) {
    this.#saves = this.get("_saves");
    const handlers = Object.keys(DEFAULTS).map((key) => {
      const name = key as keyof Traits;
      return [
        `change:${name}`,
        () => {
          if (this.#restoring) return;
          this.#keepOwn();
          if (!this.#unsaved.has(name) && !this.#saved.has(name)) this.#received.set(name, this.model.get(name));
          this.#notify();
        },
      ] as const;
    });
    for (const [event, handler] of handlers) model.on(event, handler);
    this.#pointer = new PointerTracker(signal, () => this.#flush());
    signal.addEventListener("abort", () => {
      for (const [event, handler] of handlers) model.off(event, handler);
      this.#flush();
    });
  }

  get<K extends keyof Traits>(name: K): Traits[K] {
    return (this.model.get(name) ?? this.#own[name] ?? DEFAULTS[name]) as Traits[K];
  }

  /**
   * Sets traits and notifies listeners once if any value differs. During a drag, or of a series of changes (`moving`),
   * only the last value is saved, after a pause.
   */
  set(patch: Partial<Traits>, moving = this.#pointer.down): void {
    let changed = false;
    for (const [key, value] of Object.entries(patch)) {
      const name = key as keyof Traits;
      if (equal(this.get(name), value)) continue;
      changed = true;
      if (this.model.get(name) === undefined) Object.assign(this.#own, { [name]: value });
      else {
        this.#unsaved.set(name, value);
        this.model.set(name, value);
      }
    }
    if (!changed) return;
    if (moving) {
      clearTimeout(this.#saving);
      this.#saving = setTimeout(() => this.#flush(), DRAG_PAUSE);
    } else this.#saving ??= setTimeout(() => this.#flush(), SAVE_INTERVAL);
    this.#notify();
  }

  all(): Traits {
    const out: Record<string, unknown> = {};
    for (const name of Object.keys(DEFAULTS)) if (name !== "_boot") out[name] = this.get(name as keyof Traits);
    return out as unknown as Traits;
  }

  onChange(callback: () => void, signal: AbortSignal): void {
    this.#listeners.add(callback);
    signal.addEventListener("abort", () => this.#listeners.delete(callback));
  }

  /**
   * Restores values that were set here and that an older state has overwritten: an echo of the last save of a view,
   * before they were saved themselves, or the kernel's state after a lost connection, before it has received them. Any
   * other value was set by another view or in Python, and stays.
   */
  #keepOwn() {
    const isOld = this.get("_saves") < this.#saves;
    // Afterwards, since other views of the model compare it, too.
    if (isOld) queueMicrotask(() => this.model.set("_saves", Math.max(this.#saves, this.get("_saves"))));
    else this.#saves = this.get("_saves");
    this.#restoring = true;
    for (const [name, value] of new Map([...this.#saved, ...this.#unsaved])) {
      const current = this.model.get(name);
      if (equal(current, value)) continue;
      const isEcho = [this.#saved, this.#received].some((known) => known.has(name) && equal(current, known.get(name)));
      if (isOld || (this.#unsaved.has(name) && isEcho)) this.model.set(name, value);
      else {
        this.#unsaved.delete(name);
        this.#saved.delete(name);
      }
    }
    this.#restoring = false;
  }

  #notify() {
    for (const listener of this.#listeners) listener();
  }

  #flush() {
    if (this.#saving === undefined) return;
    clearTimeout(this.#saving);
    this.#saving = undefined;
    for (const [name, value] of this.#unsaved) this.#saved.set(name, value);
    this.#unsaved.clear();
    if (this.model.get("_saves") !== undefined) this.model.set("_saves", ++this.#saves);
    try {
      this.model.save_changes();
    } catch {
      // The connection to a restarted kernel is closed; the traits stay set in the page.
    }
  }
}

/** A model without a kernel, for exported pages, the demo and tests. */
export class LocalModel implements Model {
  readonly #values: Map<string, unknown>;
  readonly #listeners = new Map<string, Set<(...args: never[]) => void>>();
  constructor(values: Partial<Traits>) {
    this.#values = new Map(Object.entries({ ...DEFAULTS, ...values }));
  }
  get(name: string): unknown {
    return this.#values.get(name);
  }
  set(name: string, value: unknown): void {
    this.#values.set(name, value);
    this.emit(`change:${name}`);
  }
  emit(event: string, ...args: unknown[]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) (listener as (...args: unknown[]) => void)(...args);
  }
  on(event: string, callback: (...args: never[]) => void): void {
    const set = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, set.add(callback));
  }
  off(event: string, callback: (...args: never[]) => void): void {
    this.#listeners.get(event)?.delete(callback);
  }
  listeners(): number {
    return [...this.#listeners.values()].reduce((n, set) => n + set.size, 0);
  }
  save_changes(): void {}
  send(_content: unknown, _callbacks?: unknown, _buffers?: ArrayBuffer[]): void {}
}
