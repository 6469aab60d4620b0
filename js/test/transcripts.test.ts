/** Replays conversations with a real kernel, which pytest recorded over a real run. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { inflateSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { lifeKey } from "../src/data/difference";
import { type Image, imageValue, statistic } from "../src/data/frames";
import { seriesKey } from "../src/data/store";
import type { FromKernel, KernelCommand, KernelRequest, RuleStatus } from "../src/protocol/types";
import { KernelClient } from "../src/session/client";
import { LocalModel, State } from "../src/session/state";
import { openSession } from "../src/view";
import { ruleLabel } from "../src/widgets/rules/status";
import { kindOf } from "./kinds";

interface TrueRule {
  status: RuleStatus;
  active: boolean;
  paused: boolean;
  judged: boolean;
  outcomes: Record<string, number>;
}
interface Exchange {
  /** null: the kernel pushes */
  sent: KernelRequest | KernelCommand | null;
  received: { message: FromKernel; packets: string[] }[];
}
interface RuleExchange extends Exchange {
  rules: Record<string, TrueRule>;
}
/** What the page must show after an exchange, computed by NumPy. */
interface ViewExchange extends Exchange {
  expected?: {
    steps?: Record<string, number>;
    status?: Record<string, string>;
    incidents?: string[];
    tensor?: string;
    form?: string;
    maxima?: Record<string, number | null>;
    tile?: number[];
    cells?: string[][];
    series?: Record<string, number[]>;
    /** of a 3 × 4 tensor at two steps, element by element */
    difference?: number[];
    /** by step, the values of cells [0, 0] and [2, 3] */
    life?: Record<string, number[]>;
    /** where two runs part */
    parting?: { step: number | null; tensor: string; text: string };
    error?: string;
  };
}

const read = <E extends Exchange>(name: string): E[] =>
  JSON.parse(readFileSync(join(import.meta.dirname, `../../tests/transcripts/${name}.json`), "utf8"));

const unpack = (text: string) => {
  const bytes = new Uint8Array(inflateSync(Buffer.from(text, "base64")));
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
};

const isCommand = (sent: KernelRequest | KernelCommand): sent is KernelCommand => sent.what === "rule";

/** A kernel that says what a real one said. */
class RecordedKernel extends LocalModel {
  readonly sent: Record<string, unknown>[] = [];
  override send(content: unknown): void {
    this.sent.push(content as Record<string, unknown>);
  }
  say(received: Exchange["received"], id: unknown): void {
    for (const { message, packets } of received)
      this.emit("msg:custom", "id" in message ? { ...message, id } : message, packets.map(unpack));
  }
}

function page() {
  const control = new AbortController();
  const model = new RecordedKernel({});
  const state = new State(model, control.signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, control.signal);
  const client = new KernelClient(model, (buffers) => session.store.addPackets(buffers), control.signal);
  return { control, model, session, client };
}

test("the page shows the rules as the kernel has them, after every message", async () => {
  const { control, model, session, client } = page();
  const exchanges = read<RuleExchange>("rules");
  session.connection.connect(client, false);
  expect(model.sent[0]).toMatchObject(exchanges[0]?.sent as object);
  model.say(exchanges[0]?.received ?? [], model.sent[0]?.id);
  for (const { sent, received, rules } of exchanges.slice(1)) {
    const before = model.sent.length;
    const done =
      sent && (isCommand(sent) ? session.connection.command(sent) : session.connection.request("hello", sent));
    if (sent) expect(model.sent.slice(before)).toEqual([{ kind: "ask", id: expect.any(String), ...sent }]);
    model.say(received, model.sent.at(-1)?.id);
    await done;
    const failure = received.map(({ message }) => message).find((message) => message.kind === "error");
    if (sent && isCommand(sent)) expect(session.connection.commandStatus?.error).toEqual(failure?.error.message);
    expect(session.store.packetError).toBe("");
    const shown = [...session.store.rules].map(([id, rule]) => {
      const { status, active, paused } = rule.info;
      return [id, { status, active, paused, judged: rule.judged, outcomes: Object.fromEntries(rule.outcomes) }];
    });
    expect(Object.fromEntries(shown)).toEqual(rules);
  }
  const labels = [...session.store.rules].map(([id, rule]) => [id, ruleLabel(rule)]);
  expect(Object.fromEntries(labels)).toMatchObject({ "0/Gated": "Found", "0/Silent": "Not judged" });
  control.abort();
});

test("the page shows the run as NumPy computes it, after every message", async () => {
  const { control, model, session, client } = page();
  const { store } = session;
  const exchanges = read<ViewExchange>("view");
  session.connection.connect(client, false);
  for (const [i, { sent, received, expected = {} }] of exchanges.entries()) {
    // The page itself says hello.
    const done = i && sent && !isCommand(sent) ? session.connection.request("slot", sent) : undefined;
    model.say(received, model.sent.at(-1)?.id);
    await done;
    expect(store.packetError).toBe("");
    const status = session.connection.requests.get("slot");
    expect(sent && status?.errorType, JSON.stringify(sent)).toBe(sent && expected.error);
    for (const [run, count] of Object.entries(expected.steps ?? {}))
      expect(store.runs.get(Number(run))?.steps.length).toBe(count);
    for (const [run, text] of Object.entries(expected.status ?? {}))
      expect(store.runs.get(Number(run))?.head.status).toBe(text);
    if (expected.incidents)
      expect(store.runs.get(0)?.incidents.map((incident) => incident.text)).toEqual(expected.incidents);
    const held = store.findFrames(0, expected.tensor ?? "w", "");
    if (expected.form) expect(held?.plan?.form).toBe(expected.form);
    for (const [step, max] of Object.entries(expected.maxima ?? {})) {
      const frame = held?.frames.get(Number(step));
      expect(statistic(frame, "max")).toBe(max ?? Number.NaN);
      const hist = frame?.histograms.get("linear/shared");
      const [size, nan, positive] = frame?.counts ?? [];
      const outside = (hist?.below ?? 0) + (hist?.above ?? 0);
      expect(hist?.counts.reduce((a, b) => a + b, outside)).toBe(Number(size) - Number(nan) - Number(positive));
    }
    if (expected.tile) {
      const tile = store.tile((head) => head.exact);
      const [lo, hi] = tile?.data.image_range?.data ?? [];
      const top = tile?.data.image?.data instanceof Uint8Array ? 252 : 65532;
      const shown = [...(tile?.data.image?.data ?? [])].map(
        (code) => Number(lo) + (code / top) * (Number(hi) - Number(lo)),
      );
      shown.forEach((value, k) => {
        expect(Math.abs(value - (expected.tile?.[k] ?? Number.NaN))).toBeLessThanOrEqual(
          (Number(hi) - Number(lo)) / top,
        );
      });
      expect(shown).toHaveLength(expected.tile.length);
    }
    if (expected.difference) {
      const place = { run: 0, tensor: "w", worker: "" };
      const [found] = store.differences({ ...place, step: 2 }, { ...place, step: 1 });
      const { image, changed = [] } = found ?? {};
      for (const { index, a, b } of changed)
        expect(a - b).toBeCloseTo(expected.difference[4 * (index[0] as number) + (index[1] as number)] as number, 9);
      expect(Math.abs((changed[0]?.a ?? 0) - (changed[0]?.b ?? 0))).toBe(
        Math.max(...expected.difference.map(Math.abs)),
      );
      const unit = ((image?.hi ?? 0) - (image?.lo ?? 0)) / 252;
      expected.difference.forEach((value, k) => {
        expect(Math.abs(imageValue(image as Image, k) - value)).toBeLessThanOrEqual(unit);
      });
    }
    for (const [step, values] of Object.entries(expected.life ?? {})) {
      const lives = [
        [0, 0],
        [2, 3],
      ].map((cell) => store.lives.get(lifeKey(0, "w", "", cell)));
      expect(lives.map((life) => life?.get(Number(step)))).toEqual(values);
    }
    if (expected.parting) expect([...store.partings.values()].at(-1)).toMatchObject(expected.parting);
    if (expected.cells) expect(store.values(() => true)?.head.cells).toEqual(expected.cells);
    for (const [name, y] of Object.entries(expected.series ?? {})) {
      const [tensor, stat] = name.split(" ") as [string, string];
      expect([...(store.series.get(seriesKey(0, tensor, "", "", stat))?.y ?? [])]).toEqual(y);
    }
  }
  control.abort();
});

describe("commands", () => {
  const stop = { what: "rule", do: "stop", rule: "0/A" } as const;
  const remove = { what: "rule", do: "remove", rule: "0/B" } as const;

  test("are all sent at once, in order, and none is cancelled by the next", async () => {
    const { control, model, session, client } = page();
    session.connection.connect(client, false);
    const both = [session.connection.command(stop), session.connection.command(remove)];
    const asked = model.sent.slice(1);
    expect(asked).toMatchObject([
      { kind: "ask", ...stop },
      { kind: "ask", ...remove },
    ]);
    expect(session.connection.commandStatus).toBeDefined();
    for (const { id } of asked) model.say([{ message: { kind: "answer", id: "" }, packets: [] }], id);
    expect(await Promise.all(both)).toMatchObject([{ kind: "answer" }, { kind: "answer" }]);
    expect(session.connection.commandStatus).toBeUndefined();
    control.abort();
  });

  test("without a reply are sent again with the same ids after a reconnection", async () => {
    const { control, model, session, client } = page();
    session.connection.connect(client, false);
    const both = [session.connection.command(stop), session.connection.command(remove)];
    const asked = model.sent.slice(1);
    model.say([{ message: { kind: "answer", id: "" }, packets: [] }], asked[0]?.id);
    await both[0];
    session.connection.kernelChanged();
    const again = model.sent.slice(3).filter(({ kind }) => kind === "ask");
    expect(again).toMatchObject([asked[1], { what: "hello", again: true }]);
    control.abort();
  });

  test("that fail stay visible until the next command", async () => {
    const { control, model, session, client } = page();
    session.connection.connect(client, false);
    const failed = session.connection.command(stop);
    const error = { type: "SMDebugError", message: "rule 'A' does not exist" };
    model.say([{ message: { kind: "error", id: "", error }, packets: [] }], model.sent.at(-1)?.id);
    expect(await failed).toBeUndefined();
    expect(session.connection.commandStatus?.error).toBe("rule 'A' does not exist");
    void session.connection.command(remove);
    expect(session.connection.commandStatus?.error).toBe("");
    control.abort();
  });
});
