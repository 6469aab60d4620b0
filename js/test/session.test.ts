import { expect, test, vi } from "vitest";
import { KernelClient } from "../src/session/client";
import { LocalModel, State } from "../src/session/state";
import { openSession } from "../src/view";
import { kindOf } from "./kinds";

class FakeModel extends LocalModel {
  sent: { kind: string; id: string; what?: string }[] = [];
  override send(content: unknown): void {
    this.sent.push(content as FakeModel["sent"][number]);
  }
  reply(content: object, buffers: DataView[] = []): void {
    this.emit("msg:custom", content, buffers);
  }
}

function source() {
  const model = new FakeModel({});
  const control = new AbortController();
  const filed: DataView[] = [];
  const alive = vi.fn();
  return {
    model,
    control,
    filed,
    alive,
    source: new KernelClient(model, (buffers) => filed.push(...buffers), control.signal, alive),
  };
}
const never = new AbortController().signal;

test("an answer resolves a request, after parts and progress, and packets are added", async () => {
  const { model, source: kernel, filed } = source();
  const progress = vi.fn();
  const answer = kernel.request({ what: "classes" }, never, progress);
  const id = model.sent[0]?.id as string;
  model.reply({ kind: "part", id }, [new DataView(new ArrayBuffer(8))]);
  model.reply({ kind: "progress", id, done: 1, total: 4 });
  model.reply({ kind: "answer", id, classes: [] }, [new DataView(new ArrayBuffer(8))]);
  expect((await answer).classes).toEqual([]);
  expect(progress).toHaveBeenCalledWith(1, 4);
  expect(filed).toHaveLength(2);
});

test("requests without a reply are sent again with the same id", async () => {
  const { model, source: kernel } = source();
  const answer = kernel.request({ what: "classes" }, never);
  void kernel.request({ what: "classes" }, never);
  model.reply({ kind: "answer", id: model.sent[0]?.id as string, classes: [] });
  await answer;
  kernel.resend();
  expect(model.sent.map((message) => message.id)).toEqual([0, 1, 1].map((i) => model.sent[i]?.id));
});

test("packets of responses to other requests are added", () => {
  const { model, source: kernel, filed } = source();
  void kernel.request({ what: "classes" }, never);
  model.reply({ kind: "answer", id: "somebody else" }, [new DataView(new ArrayBuffer(8))]);
  model.reply({ kind: "news" }, [new DataView(new ArrayBuffer(8))]);
  model.reply(null as never);
  expect(filed).toHaveLength(2);
});

test("an error response rejects with its type and message", async () => {
  const { model, source: kernel } = source();
  const answer = kernel.request({ what: "classes" }, never);
  model.reply({
    kind: "error",
    id: model.sent[0]?.id,
    error: { type: "TensorUnavailable", message: "no tensor named x" },
  });
  await expect(answer).rejects.toMatchObject({ type: "TensorUnavailable", message: "no tensor named x" });
});

test("cancelling a request notifies the kernel", async () => {
  const { model, source: kernel } = source();
  const control = new AbortController();
  const answer = kernel.request({ what: "classes" }, control.signal);
  control.abort();
  await expect(answer).rejects.toBeDefined();
  expect(model.sent.map((message) => message.kind)).toEqual(["ask", "cancel"]);
  expect(model.sent[1]?.id).toBe(model.sent[0]?.id);
});

test("closing a widget rejects its requests and removes every listener", async () => {
  const { model, source: kernel, control } = source();
  const state = new State(model, control.signal);
  state.set({ step: 4 });
  const answer = kernel.request({ what: "classes" }, never);
  control.abort();
  await expect(answer).rejects.toBeDefined();
  expect(model.listeners()).toBe(0);
});

test("a new request cancels the previous one of its slot", async () => {
  const { model, control, source: kernel } = source();
  const state = new State(model, control.signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, control.signal);
  session.connection.connect(kernel, false);
  const first = session.connection.request("tile", { what: "classes" });
  const second = session.connection.request("tile", { what: "classes" });
  expect(await first).toBeUndefined();
  expect(session.connection.requests.has("tile")).toBe(true);
  model.reply({ kind: "answer", id: model.sent.filter((message) => message.kind === "ask").at(-1)?.id });
  expect(await second).toMatchObject({ kind: "answer" });
  expect(session.connection.requests.has("tile")).toBe(false);
});

test("a silent kernel is reported as busy, and a failure stays until the next request", async () => {
  vi.useFakeTimers();
  try {
    const { model, control, source: kernel } = source();
    const state = new State(model, control.signal);
    const kind = kindOf(state);
    const session = openSession(state, kind, control.signal);
    session.connection.connect(kernel, false);
    const asked = session.connection.request("tile", { what: "classes" });
    vi.advanceTimersByTime(1001);
    expect(session.connection.requests.get("tile")).toMatchObject({ busy: true, silent: false });
    vi.advanceTimersByTime(120_000);
    expect(session.connection.requests.get("tile")).toMatchObject({ busy: true, silent: true });
    model.reply({ kind: "progress", id: model.sent.at(-1)?.id, done: 1, total: 4 });
    expect(session.connection.requests.get("tile")).toMatchObject({ busy: false, silent: false, done: 1 });
    vi.advanceTimersByTime(1001);
    expect(session.connection.requests.get("tile")?.busy).toBe(true);
    model.reply({
      kind: "error",
      id: model.sent.at(-1)?.id,
      error: { type: "RunIOError", message: "the run is gone" },
    });
    await asked;
    expect(session.connection.requests.get("tile")).toMatchObject({ busy: false, error: "the run is gone" });
  } finally {
    vi.useRealTimers();
  }
});

test("hello is repeated only after three missed heartbeats", async () => {
  vi.useFakeTimers();
  try {
    const { model, control, source: kernel } = source();
    const state = new State(model, control.signal);
    const kind = kindOf(state);
    const session = openSession(state, kind, control.signal);
    session.connection.connect(kernel);
    model.reply({ kind: "answer", id: model.sent[0]?.id, live: "loop", heartbeat: 1 });
    await vi.advanceTimersByTimeAsync(10);
    for (let i = 0; i < 10; i++) {
      await vi.advanceTimersByTimeAsync(1000);
      session.connection.messageReceived();
    }
    expect(model.sent.filter((message) => message.what === "hello")).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(7000);
    expect(model.sent.filter((message) => message.what === "hello").length).toBeGreaterThan(1);
  } finally {
    vi.useRealTimers();
  }
});

test("a closed connection rejects a request with a message and has no other effect", async () => {
  const { model, source: kernel } = source();
  const control = new AbortController();
  const asked = kernel.request({ what: "classes" }, control.signal);
  const closed = () => {
    throw new Error("Cannot send");
  };
  vi.spyOn(model, "send").mockImplementation(closed);
  vi.spyOn(model, "save_changes").mockImplementation(closed);
  control.abort(new Error("a newer question"));
  await expect(asked).rejects.toThrow("a newer question");
  await expect(kernel.request({ what: "classes" }, never)).rejects.toThrow("run the cell again");
  vi.useFakeTimers();
  try {
    const state = new State(model, never);
    state.set({ step: 3 });
    vi.advanceTimersByTime(1000);
    expect(state.get("step")).toBe(3);
  } finally {
    vi.useRealTimers();
  }
});

test("traits are saved when a drag pauses, and at once when it ends", () => {
  vi.useFakeTimers();
  const control = new AbortController();
  try {
    const model = new FakeModel({});
    const save = vi.spyOn(model, "save_changes");
    const state = new State(model, control.signal);
    window.dispatchEvent(new Event("pointerdown"));
    for (let step = 0; step < 60; step++) {
      state.set({ step });
      vi.advanceTimersByTime(16);
    }
    expect(save).toHaveBeenCalledTimes(0);
    vi.advanceTimersByTime(300);
    expect(save).toHaveBeenCalledTimes(1);
    state.set({ step: 7 });
    window.dispatchEvent(new Event("pointerup"));
    expect(save).toHaveBeenCalledTimes(2);
    vi.advanceTimersByTime(1000);
    expect(save).toHaveBeenCalledTimes(2);
  } finally {
    control.abort();
    vi.useRealTimers();
  }
});

test("trait changes are saved once per interval", () => {
  vi.useFakeTimers();
  try {
    const model = new FakeModel({});
    const save = vi.spyOn(model, "save_changes");
    const state = new State(model, never);
    for (let step = 0; step < 100; step++) state.set({ step });
    expect(save).toHaveBeenCalledTimes(0);
    vi.advanceTimersByTime(100);
    expect(save).toHaveBeenCalledTimes(1);
    expect(model.get("step")).toBe(99);
  } finally {
    vi.useRealTimers();
  }
});

test("the echo of an earlier save does not overwrite a newer value that is not saved yet", () => {
  vi.useFakeTimers();
  try {
    const model = new FakeModel({ step: 0 });
    const saved: unknown[] = [];
    model.save_changes = () => {
      saved.push(model.get("step"));
    };
    const state = new State(model, never);
    state.set({ step: 1 });
    vi.advanceTimersByTime(100);
    state.set({ step: 4 });
    model.set("step", 1); // the kernel's echo
    expect(state.get("step")).toBe(4);
    vi.advanceTimersByTime(100);
    expect(saved).toEqual([1, 4]);
    state.set({ step: 5 });
    model.set("step", 9); // set in Python, or by another view of the widget
    expect(state.get("step")).toBe(9);
  } finally {
    vi.useRealTimers();
  }
});
