import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Traits } from "../src/protocol/types";
import { LocalModel, State } from "../src/session/state";

/** A model that receives several values in one message, as a widget does. */
class RemoteModel extends LocalModel {
  #held: string[] | undefined;
  /** The values that were sent to the kernel by each save. */
  readonly saves: Partial<Traits>[] = [];

  override emit(event: string, ...args: unknown[]): void {
    if (this.#held) this.#held.push(event);
    else super.emit(event, ...args);
  }
  receive(values: Partial<Traits>): void {
    const held: string[] = [];
    this.#held = held;
    for (const [name, value] of Object.entries(values)) this.set(name, value);
    this.#held = undefined;
    for (const event of held) this.emit(event);
  }
  override save_changes(): void {
    this.saves.push(this.kept());
  }
  kept(): Pick<Traits, "step" | "follow" | "tensor" | "_saves"> {
    const get = <K extends keyof Traits>(name: K) => this.get(name) as Traits[K];
    return { step: get("step"), follow: get("follow"), tensor: get("tensor"), _saves: get("_saves") };
  }
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function opened(values: Partial<Traits> = {}) {
  const model = new RemoteModel({ step: 2, follow: true, tensor: "a", ...values });
  return { model, state: new State(model, new AbortController().signal) };
}

test("a state from before a lost connection does not replace what was chosen meanwhile", async () => {
  const { model, state } = opened();
  const before = model.kept();
  state.set({ step: 1, follow: false });
  vi.runAllTimers();
  const after = { step: 1, follow: false, tensor: "a", _saves: 1 };
  expect(model.saves).toEqual([after]);
  let seen: number | undefined;
  state.onChange(() => (seen ??= state.get("step")), new AbortController().signal);
  model.receive(before);
  await Promise.resolve();
  expect(model.kept()).toEqual(after);
  expect(seen).toBe(1); // nobody has seen the old state, and followed it
  vi.runAllTimers();
  expect(model.saves).toHaveLength(1); // the kernel receives the first save still, and no other is needed
});

test("what Python or another page sets after a save stays", async () => {
  const { model, state } = opened();
  state.set({ step: 1, follow: false });
  vi.runAllTimers();
  model.receive({ step: 7 });
  expect(model.kept()).toMatchObject({ step: 7, follow: false });
  model.receive({ step: 9, _saves: 2 });
  expect(model.kept()).toMatchObject({ step: 9, follow: false, _saves: 2 });
  state.set({ tensor: "b" });
  vi.runAllTimers();
  expect(model.saves.at(-1)).toEqual({ step: 9, follow: false, tensor: "b", _saves: 3 });
  // An older state replaces what was chosen here, and only that.
  model.receive({ step: 5, follow: true, tensor: "a", _saves: 2 });
  await Promise.resolve();
  expect(model.kept()).toEqual({ step: 5, follow: false, tensor: "b", _saves: 3 });
});

test("an echo of a save does not replace a value that was not saved yet", () => {
  const { model, state } = opened();
  state.set({ step: 1 });
  vi.runAllTimers();
  state.set({ step: 3 });
  model.receive({ step: 1, _saves: 1 });
  expect(state.get("step")).toBe(3);
  vi.runAllTimers();
  expect(model.saves.at(-1)).toMatchObject({ step: 3, _saves: 2 });
});

test("two views of one model keep each other's choices", async () => {
  const { model, state } = opened();
  const other = new State(model, new AbortController().signal);
  state.set({ step: 1, follow: false });
  vi.runAllTimers();
  other.set({ step: 2 });
  vi.runAllTimers();
  expect(model.saves.map((save) => save._saves)).toEqual([1, 2]);
  model.receive({ step: 0, follow: true, _saves: 0 });
  await Promise.resolve();
  expect(model.kept()).toMatchObject({ step: 2, follow: false, _saves: 2 });
});

test("an echo of another view's save does not replace a value that was not saved yet", () => {
  const { model, state } = opened();
  const other = new State(model, new AbortController().signal);
  state.set({ step: 1 });
  vi.runAllTimers();
  other.set({ step: 5 });
  model.receive({ step: 1, _saves: 1 });
  expect([state.get("step"), other.get("step")]).toEqual([5, 5]);
  vi.runAllTimers();
  expect(model.saves.at(-1)).toMatchObject({ step: 5, _saves: 2 });
  // The same step is an old one only until it was replaced.
  model.receive({ step: 1 });
  expect([state.get("step"), other.get("step")]).toEqual([1, 1]);
});

test("a value of Python replaces one that was not saved yet", () => {
  const { model, state } = opened();
  state.set({ step: 5 });
  model.receive({ step: 7 });
  vi.runAllTimers();
  expect(model.saves.at(-1)).toMatchObject({ step: 7 });
});
