import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { equal } from "../src/lib/equal";
import { Memo } from "../src/lib/memo";
import type { KernelRequest } from "../src/protocol/types";
import { Resource } from "../src/session/resource";
import type { Session } from "../src/session/session";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] });
});
afterEach(() => vi.useRealTimers());

const open = (run: number): KernelRequest => ({ what: "open", run });

function resource(options = {}) {
  const sent: number[] = [];
  const cancel = vi.fn();
  const request = async (_slot: string, { run }: { run: number }) => {
    sent.push(run);
    return {};
  };
  const session = { epoch: 0, connection: { cancel, request, requests: new Map() } };
  const of = new Resource<unknown>(session as unknown as Session, "slot", new AbortController().signal, options);
  return { session, sent, cancel, of };
}

test("a resource requests the data of a key once, and again when the connection was lost", () => {
  const { session, sent, of } = resource();
  for (const run of [1, 1, 2, 2]) of.update({ run }, () => open(run));
  expect(sent).toEqual([1, 2]);
  session.epoch++;
  of.update({ run: 2 }, () => open(2));
  expect(sent).toEqual([1, 2, 2]);
});

test("a resource requests the last key after a rest, and nothing if the data is there", async () => {
  const { sent, of } = resource({ rest: 100 });
  for (const run of [1, 2, 3]) expect(of.update(run, () => open(run))).toBe(true);
  await vi.advanceTimersByTimeAsync(300);
  expect(sent).toEqual([3]);
  of.update(4, () => open(4));
  of.update(3, () => open(3));
  await vi.advanceTimersByTimeAsync(300);
  of.update(5, () => undefined);
  await vi.advanceTimersByTimeAsync(300);
  of.update(6, () => open(6));
  of.skip();
  await vi.advanceTimersByTimeAsync(300);
  expect(sent).toEqual([3]);
});

test("a request of which the answer is of no use is cancelled, and sent again if it is needed again", async () => {
  const { sent, cancel, of } = resource({ rest: 100, cancelsAtOnce: true });
  of.update(1, () => open(1));
  await vi.advanceTimersByTimeAsync(300);
  expect(cancel).not.toHaveBeenCalled();
  of.update(2, () => open(2));
  expect(cancel).toHaveBeenCalledOnce();
  of.update(1, () => open(1));
  await vi.advanceTimersByTimeAsync(300);
  expect(sent).toEqual([1, 1]);
  of.cancel();
  of.cancel();
  expect(cancel).toHaveBeenCalledTimes(2);
});

test("a memo keeps a result until an input is another", () => {
  const memo = new Memo<object>();
  const make = vi.fn(() => ({}));
  const list = new Float64Array(1);
  const first = memo.of([list, Number.NaN, [1]], make);
  expect(memo.of([list, Number.NaN, [1]], make)).toBe(first);
  expect(memo.of([list.slice(), Number.NaN], make)).not.toBe(first);
  expect(memo.of([], make)).not.toBe(first);
  expect(make).toHaveBeenCalledTimes(3);
  expect([memo.changed([1]), memo.changed([1]), memo.changed([1, undefined])]).toEqual([true, false, true]);
});

test("values are equal if their contents are", () => {
  const pairs: [unknown, unknown, boolean][] = [
    [Number.NaN, Number.NaN, true],
    [0, -0, true],
    ["1", 1, false],
    [null, {}, false],
    [undefined, null, false],
    [[], {}, false],
    [[1, [2]], [1, [2]], true],
    [[1], [1, 2], false],
    [{ a: 1, b: [2] }, { b: [2], a: 1 }, true],
    [{ a: 1 }, { a: 1, b: undefined }, true],
    [{ a: 1, b: 2 }, { a: 1 }, false],
    [{ a: 1 }, { b: 1 }, false],
    [new Float64Array(1), new Float64Array(1), false],
    [new Map(), new Map(), false],
  ];
  for (const [a, b, same] of pairs) expect([a, b, equal(a, b)]).toEqual([a, b, same]);
});
