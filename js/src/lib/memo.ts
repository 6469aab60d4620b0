import { equal } from "./equal";

/** The result for the inputs of the last call. */
export class Memo<T = void> {
  #inputs: readonly unknown[] | undefined;
  #value: { result: T } | undefined;

  /** `make()`, which is called only if an input has changed. */
  of(inputs: readonly unknown[], make: () => T): T {
    if (this.changed(inputs) || !this.#value) this.#value = { result: make() };
    return this.#value.result;
  }

  /** Whether an input has changed since the last call. */
  changed(inputs: readonly unknown[]): boolean {
    if (equal(inputs, this.#inputs)) return false;
    this.#inputs = inputs;
    return true;
  }
}
