import { afterEach, expect, test, vi } from "vitest";
import { Store } from "../src/data/store";
import { DEFAULTS, type FramesRequest, type PlanHead } from "../src/protocol/types";
import { DataRequester } from "../src/session/data-requester";
import type { Scene } from "../src/session/scene";
import type { Session } from "../src/session/session";

afterEach(() => vi.useRealTimers());

const STEPS = Float64Array.from({ length: 5000 }, (_, i) => i * 2);

function requester() {
  const store = new Store();
  const requests: [string, FramesRequest][] = [];
  const session = {
    store,
    epoch: 0,
    exported: false,
    state: { set: vi.fn() },
    connection: {
      cancel: vi.fn(),
      request: async (slot: string, request: FramesRequest) => void requests.push([slot, request]),
    },
  };
  const of = new DataRequester(session as unknown as Session, new AbortController().signal);
  const show = (step: number, range: number[] = [], tensor = "w") => {
    const traits = { ...DEFAULTS, _kind: "inspector", tensor, step, range, follow: false };
    of.update({ traits, step, axis: { steps: STEPS, labels: STEPS, modes: new Uint8Array(5000) } } as unknown as Scene);
  };
  return { store, requests, show };
}

test("of a long run some frames are requested, and the one at which the view rests", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame"] });
  const { store, requests, show } = requester();
  show(4000);
  expect(requests).toHaveLength(1);
  expect(requests[0]?.[1]).toMatchObject({ near: 4000, most: 1024 });
  expect(requests[0]?.[1]).not.toHaveProperty("from");
  store.frames(0, "w", "").setPlan({ kind: "plan", shape: [2] } as unknown as PlanHead, {
    step: { data: STEPS, shape: [5000] },
  });
  for (const step of [4002, 4004, 4006]) show(step);
  await vi.advanceTimersByTimeAsync(500);
  show(4006);
  await vi.advanceTimersByTimeAsync(500);
  expect(requests.slice(1).map(([slot, { steps }]) => [slot, steps])).toEqual([["frames/main/exact", [4006]]]);
  const { length } = requests;
  for (let at = 1600; at >= 100; at -= 100) {
    show(4006, [at, at + 200]);
    await vi.advanceTimersByTimeAsync(16);
  }
  expect(requests).toHaveLength(length);
  await vi.advanceTimersByTimeAsync(500);
  expect(requests).toHaveLength(length + 1);
  expect(requests.at(-1)?.[1]).toMatchObject({ most: 1024, from: 64, to: 320 });
  show(4006, [104, 304]);
  await vi.advanceTimersByTimeAsync(500);
  expect(requests).toHaveLength(length + 1);
  show(4006, [1000, 1200], "v");
  expect(requests.at(-1)?.[1]).toMatchObject({ tensor: "v", most: 1024, from: 960, to: 1216 });
});
