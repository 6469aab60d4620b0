/** The page of scripts/bench-map.mjs: maps of two generated runs, and the input of a user. */
import { FLAG } from "../src/data/survey";
import { encode } from "../src/protocol/packet";
import type { KernelRequest, KernelResponse } from "../src/protocol/types";
import type { Client } from "../src/session/client";
import { bootPackets, catalogPacket, type MountedMap, madeRun, openMap } from "./map-helpers";
import { surveyPacket } from "./packets";

const frame = () => new Promise<number>((resolve) => requestAnimationFrame(resolve));
let open: MountedMap | undefined;

const canvas = () => document.querySelector<HTMLCanvasElement>(".smdw-map-plot canvas") as HTMLCanvasElement;

function count(has: (r: number, g: number, b: number, a: number) => boolean): number {
  const el = canvas();
  if (!el.width) return 0;
  const data = el.getContext("2d")?.getImageData(0, 0, el.width, el.height).data ?? [];
  let n = 0;
  for (let i = 0; i < data.length; i += 4)
    if (has(data[i] as number, data[i + 1] as number, data[i + 2] as number, data[i + 3] as number)) n++;
  return n;
}
const violet = () => count((r, g, b) => r === 150 && g === 0 && b === 255);
const painted = () => count((_r, _g, _b, a) => a > 0);

/** Milliseconds until a violet pixel is on the canvas. */
async function untilViolet(start: number): Promise<number> {
  for (let i = 0; i < 600; i++) {
    await frame();
    if (violet()) return performance.now() - start;
  }
  return Number.NaN;
}

const TENSORS = 5000;
const STEPS = 100_000;
const LEVEL = 7;
const BAD = 3210;
const BAD_STEP = 71_234;

/** 5,000 tensors and 100,000 steps, of which one value is NaN. */
async function large() {
  const names = Array.from({ length: TENSORS }, (_, i) => `model.layers.${Math.floor(i / 20)}.part${i % 20}.weight`);
  const run = {
    names,
    collections: { weights: names.map((_, i) => i) },
    steps: Float64Array.from({ length: STEPS }, (_, i) => i),
  };
  const bins = Math.ceil(STEPS / 2 ** LEVEL);
  const shown = new Uint8Array(TENSORS * bins);
  for (let i = 0; i < shown.length; i++) shown[i] = 126 + ((i * 2654435761) % 5);
  const flag = new Uint8Array(TENSORS * bins);
  flag[BAD * bins + (BAD_STEP >> LEVEL)] = FLAG.nan;
  const shape = [TENSORS, bins];
  const head = { run: 0, worker: "", mode: "", stat: "surprise", first: 0, edition: 0 } as const;
  const poster = encode(
    { kind: "survey", ...head, level: LEVEL, append: false },
    {
      tensor: ["u4", [TENSORS], Uint32Array.from(names, (_, i) => i)],
      shown: ["u1", shape, shown],
      flag: ["u1", shape, flag],
    },
  );
  const packets = [catalogPacket(run), poster];
  const result: Record<string, number> = {};
  const views = { folded: {}, fit: { map_fit: true } };
  for (const [name, traits] of Object.entries(views)) {
    open?.close();
    const start = performance.now();
    open = openMap(packets, { traits: { tensor: names[BAD] as string, ...traits } });
    if (name === "folded") {
      await frame();
      open.map.reveal(BAD);
    }
    result[`${name} ms`] = await untilViolet(start);
    result[`${name} violet pixels`] = violet();
  }
  return result;
}

/** Frames of three seconds, and what was sent and saved meanwhile. */
async function frames(move: (t: number) => void) {
  const { session, model } = open as MountedMap;
  let [sent, saved] = [0, 0];
  const save = model.save_changes.bind(model);
  model.save_changes = () => {
    saved++;
    save();
  };
  const request = session.connection.request.bind(session);
  session.connection.request = (...args) => {
    sent++;
    return request(...args);
  };
  const times: number[] = [];
  const start = await frame();
  for (let now = start, before = start; now - start < 3000; ) {
    move((now - start) / 3000);
    before = now;
    now = await frame();
    times.push(now - before);
  }
  model.save_changes = save;
  session.connection.request = request;
  times.sort((a, b) => a - b);
  return { "95% ms": times[Math.floor(times.length * 0.95)], frames: times.length, sent, saved };
}

/** Answers survey requests with the values of the run, in bins of the level asked for. */
class MadeKernel implements Client {
  readonly run = madeRun(true, 24, 4000);
  add: (packets: ArrayBuffer[]) => void = () => {};
  /** milliseconds that a kernel would spend */
  busy = 0;
  async request(request: KernelRequest): Promise<KernelResponse> {
    if (request.what !== "survey") return {};
    const level = Math.max(0, Math.ceil(Math.log2((request.to - request.from) / request.bins)));
    const start = performance.now();
    const packet = this.packet(request.tensors, level, request.from, request.to, false);
    this.busy = performance.now() - start;
    this.add([packet]);
    return {};
  }
  packet(wanted: readonly number[], level: number, from: number, to: number, poster: boolean): ArrayBuffer {
    const { values, flags, names } = this.run;
    const tensors = wanted.length ? [...wanted] : names.map((_, i) => i);
    const width = 2 ** level;
    const first = Math.floor(from / width);
    const bins = Math.ceil(to / width) - first;
    type Rows = readonly (Float32Array | Uint8Array)[];
    const each = (tensor: number, of: (a: number, b: number) => number, rows: Rows) =>
      Array.from({ length: bins }, (_, k) => {
        const start = (first + k) * width;
        return (rows[tensor] as Float32Array).subarray(start, start + width).reduce(of);
      });
    const worst = (a: number, b: number) => (Number.isNaN(a) || Math.abs(b) > Math.abs(a) ? b : a);
    return surveyPacket(
      tensors,
      tensors.map((tensor) => each(tensor, worst, values)),
      {
        level,
        first,
        poster,
        append: !poster,
        flag: tensors.map((tensor) => each(tensor, (a, b) => a | b, flags)),
      },
    );
  }
  async command(): Promise<KernelResponse> {
    return {};
  }
  resend(): void {}
  resendCommands(): void {}
}

/** Milliseconds until finer bins are drawn, and the fewest painted pixels of a frame meanwhile. */
async function zoom() {
  open?.close();
  const kernel = new MadeKernel();
  open = openMap([...bootPackets(kernel.run).filter((_, i) => i !== 1), kernel.packet([], 4, 0, 4000, true)], {
    client: kernel,
    width: 1000,
  });
  const { session, map } = open;
  let finer = 0;
  kernel.add = (packets) => {
    session.store.addPackets(packets);
    finer = performance.now();
  };
  for (let i = 0; i < 40; i++) await frame();
  const before = painted();
  let least = before;
  const waits: number[] = [];
  for (const key of ["w", "w", "w"]) {
    finer = 0;
    const start = performance.now();
    map.key(new KeyboardEvent("keydown", { key }));
    for (let i = 0; i < 60; i++) {
      await frame();
      least = Math.min(least, painted());
      if (finer) break;
    }
    await frame();
    // Making the packet is the kernel's work.
    waits.push(performance.now() - start - kernel.busy);
  }
  return { "finer bins ms": waits, "fewest pixels of a frame / before": least / before };
}

Object.assign(window, {
  bench: {
    large,
    small: async () => {
      open?.close();
      const start = performance.now();
      open = openMap(bootPackets(madeRun()), { width: 1000 });
      const opened = await untilViolet(start);
      // The survey is requested once after opening, not while something moves.
      await new Promise((resolve) => setTimeout(resolve, 1000));
      return { "first violet ms": opened };
    },
    hover: () => {
      const grid = document.querySelector("[role=grid]") as HTMLElement;
      const box = grid.getBoundingClientRect();
      return frames((t) =>
        grid.dispatchEvent(
          new PointerEvent("pointermove", {
            clientX: box.left + 240 + 690 * Math.abs(Math.sin(9 * t)),
            clientY: box.top + 10 + 300 * t,
            bubbles: true,
          }),
        ),
      );
    },
    drag: async () => {
      window.dispatchEvent(new PointerEvent("pointerdown"));
      const result = await frames((t) => open?.session.state.set({ step: Math.floor(499 * t) }));
      window.dispatchEvent(new PointerEvent("pointerup"));
      return result;
    },
    zoom,
  },
});
