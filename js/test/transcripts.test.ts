/** Replays conversations with a real kernel, which pytest recorded over a real run. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { inflateSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { CannedClient, type CannedRule, cannedRules } from "../demo/canned";
import { Store } from "../src/data/store";
import type { ErrorInfo, FromKernel, KernelCommand, KernelRequest, RuleStatus } from "../src/protocol/types";
import { KernelClient, type RequestError } from "../src/session/client";
import { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { ruleLabel } from "../src/widgets/rule-status";

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
  rules: Record<string, TrueRule>;
}

const read = (name: string): Exchange[] =>
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
  const session = new Session(new State(model, control.signal), control.signal);
  const client = new KernelClient(model, (buffers) => session.store.addPackets(buffers), control.signal);
  return { control, model, session, client };
}

test("the page shows the rules as the kernel has them, after every message", async () => {
  const { control, model, session, client } = page();
  const exchanges = read("rules");
  session.connect(client, false);
  expect(model.sent[0]).toMatchObject(exchanges[0]?.sent as object);
  model.say(exchanges[0]?.received ?? [], model.sent[0]?.id);
  for (const { sent, received, rules } of exchanges.slice(1)) {
    const before = model.sent.length;
    const done = sent && (isCommand(sent) ? session.command(sent) : session.request("hello", sent));
    if (sent) expect(model.sent.slice(before)).toEqual([{ kind: "ask", id: expect.any(String), ...sent }]);
    model.say(received, model.sent.at(-1)?.id);
    await done;
    const failure = received.map(({ message }) => message).find((message) => message.kind === "error");
    if (sent && isCommand(sent)) expect(session.commandStatus?.error).toEqual(failure?.error.message);
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

describe("the synthetic kernel does what the real kernel did", () => {
  const exchanges = read("rules");
  const commands = exchanges.flatMap(({ sent, received, rules }, i) => {
    const before = exchanges[i - 1]?.rules;
    return sent && isCommand(sent) && before ? [{ sent, received, before, after: rules }] : [];
  });
  test.each(commands.map((each) => [JSON.stringify(each.sent), each] as const))("%s", async (_, exchange) => {
    const [template] = cannedRules();
    const seeded = Object.entries(exchange.before).map(([id, { status, active, paused }]): CannedRule => {
      if (!template) throw new Error("no rule");
      const name = canned(id.slice(2));
      const limit = { name: "limit", kind: "real", default: 0.5, text: "0.5", doc: "", unit: "", value: 0.5 } as const;
      return {
        ...template,
        info: { ...template.info, id: `0/${name}`, name, status, active, paused, params: [limit] },
      };
    });
    const store = new Store();
    const kernel = new CannedClient(store, { rules: seeded });
    const command =
      exchange.sent.do === "add" ? { ...exchange.sent, class: canned(exchange.sent.class) } : exchange.sent;
    let failure: ErrorInfo | undefined;
    await kernel.command(command).catch((error: RequestError) => {
      failure = { type: error.type, message: error.message };
    });
    const said = exchange.received.map(({ message }) => message).find((message) => message.kind === "error");
    expect(failure?.type).toEqual(said?.error.type);
    if (failure) return;
    const shown = [...store.rules].map(([id, { info }]) => [id, info.status, info.active, info.paused]);
    const truth = Object.entries(exchange.after);
    expect(shown).toEqual(truth.map(([id, rule]) => [canned(id), rule.status, rule.active, rule.paused]));
  });
});

/** The name in the synthetic kernel of a rule or class of the recorded run. */
const canned = (name: string) => name.replace("Silent", "MyRule");

describe("commands", () => {
  const stop = { what: "rule", do: "stop", rule: "0/A" } as const;
  const remove = { what: "rule", do: "remove", rule: "0/B" } as const;

  test("are all sent at once, in order, and none is cancelled by the next", async () => {
    const { control, model, session, client } = page();
    session.connect(client, false);
    const both = [session.command(stop), session.command(remove)];
    const asked = model.sent.slice(1);
    expect(asked).toMatchObject([
      { kind: "ask", ...stop },
      { kind: "ask", ...remove },
    ]);
    expect(session.commandStatus).toBeDefined();
    for (const { id } of asked) model.say([{ message: { kind: "answer", id: "" }, packets: [] }], id);
    expect(await Promise.all(both)).toMatchObject([{ kind: "answer" }, { kind: "answer" }]);
    expect(session.commandStatus).toBeUndefined();
    control.abort();
  });

  test("without a reply are sent again with the same ids after a reconnection", async () => {
    const { control, model, session, client } = page();
    session.connect(client, false);
    const both = [session.command(stop), session.command(remove)];
    const asked = model.sent.slice(1);
    model.say([{ message: { kind: "answer", id: "" }, packets: [] }], asked[0]?.id);
    await both[0];
    session.kernelChanged();
    const again = model.sent.slice(3).filter(({ kind }) => kind === "ask");
    expect(again).toMatchObject([asked[1], { what: "hello", again: true }]);
    control.abort();
  });

  test("that fail stay visible until the next command", async () => {
    const { control, model, session, client } = page();
    session.connect(client, false);
    const failed = session.command(stop);
    const error = { type: "SMDebugError", message: "rule 'A' does not exist" };
    model.say([{ message: { kind: "error", id: "", error }, packets: [] }], model.sent.at(-1)?.id);
    expect(await failed).toBeUndefined();
    expect(session.commandStatus?.error).toBe("rule 'A' does not exist");
    void session.command(remove);
    expect(session.commandStatus?.error).toBe("");
    control.abort();
  });
});
