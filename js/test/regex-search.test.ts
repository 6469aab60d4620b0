import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { KernelRequest, KernelResponse } from "../src/protocol/types";
import { type Client, RequestError } from "../src/session/client";
import { RegexSearch } from "../src/session/regex-search";
import { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

type Respond = (response: KernelResponse | RequestError) => void;

function search() {
  const control = new AbortController();
  const session = new Session(new State(new LocalModel({}), control.signal), control.signal);
  const sent: { pattern: string; respond: Respond; signal: AbortSignal }[] = [];
  const client: Client = {
    command: () => Promise.resolve({}),
    resendCommands: () => {},
    resend: () => {},
    request: (request: KernelRequest, signal: AbortSignal) =>
      new Promise((resolve, reject) => {
        if (request.what !== "match") return resolve({});
        signal.addEventListener("abort", () => reject(signal.reason));
        const respond: Respond = (response) =>
          response instanceof RequestError ? reject(response) : resolve(response);
        sent.push({ pattern: request.pattern, respond, signal });
      }),
  };
  session.connect(client, false);
  const changed = vi.fn();
  const regex = new RegexSearch(session, "filter", changed, control.signal);
  const find = async (pattern: string, namesVersion = 1) => {
    regex.update({ run: 0, names: ["fc1.weight", "fc1.bias"], namesVersion, pattern });
    await vi.advanceTimersByTimeAsync(200);
  };
  return { regex, find, sent, changed, settle: () => vi.advanceTimersByTimeAsync(1) };
}

test("typing sends one request after a pause; an unchanged query sends none", async () => {
  const { regex, find, sent, settle, changed } = search();
  for (const pattern of ["f", "fc", "fc1"]) regex.update({ run: 0, names: [], namesVersion: 1, pattern });
  expect(regex.running).toBe(true);
  await find("fc1.b");
  expect(sent.map((each) => each.pattern)).toEqual(["fc1.b"]);
  sent[0]?.respond({ matches: [[1, 0, 5]], total: 1 });
  await settle();
  expect(regex).toMatchObject({
    matches: [{ index: 1, positions: [0, 1, 2, 3, 4] }],
    total: 1,
    error: "",
    running: false,
  });
  expect(changed).toHaveBeenCalledTimes(1);
  await find("fc1.b");
  expect(sent).toHaveLength(1);
  await find("fc1.b", 2);
  expect(sent).toHaveLength(2);
});

test("a new query cancels the running one, whose response has no effect", async () => {
  const { regex, find, sent, settle } = search();
  await find("a");
  await find("b");
  expect(sent[0]?.signal.aborted).toBe(true);
  sent[0]?.respond({ matches: [[0, 0, 1]], total: 1 });
  await settle();
  expect(regex).toMatchObject({ matches: [], running: true });
  sent[1]?.respond({ matches: [[1, 4, 5]], total: 1 });
  await settle();
  expect(regex).toMatchObject({ matches: [{ index: 1, positions: [4] }], running: false });
});

test("an error keeps the previous matches and shows the kernel's message; a slow pattern has a short one", async () => {
  const { regex, find, sent, settle } = search();
  await find("fc");
  sent[0]?.respond({ matches: [[0, 0, 2]], total: 1 });
  await settle();
  await find("fc(");
  sent[1]?.respond(new RequestError({ type: "SMDebugValueError", message: "invalid pattern 'fc('" }));
  await settle();
  expect(regex).toMatchObject({ error: "invalid pattern 'fc('", running: false });
  expect(regex.matches).toHaveLength(1);
  await find("(a|aa)+$");
  expect(regex.error).toBe("");
  sent[2]?.respond(new RequestError({ type: "RegexTooSlow", message: "a long explanation" }));
  await settle();
  expect(regex.error).toBe("Pattern too slow: stopped after 2 s");
});

test("clear cancels the query and removes its result", async () => {
  const { regex, find, sent, settle } = search();
  await find("fc");
  regex.clear();
  sent[0]?.respond({ matches: [[0, 0, 2]], total: 1 });
  await settle();
  expect(regex).toMatchObject({ matches: [], running: false, error: "" });
});
