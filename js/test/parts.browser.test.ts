/** The loader and the parts of a page. */
import { expect, test } from "vitest";
import loader from "../src/loader";
import { Parts } from "../src/parts";
import { LocalModel } from "../src/session/state";
import { until } from "./helpers";

type Files = Record<string, string>;
interface Sent {
  kind: string;
  names?: string[];
  has?: string[];
}

/** A model of a host, whose kernel answers when the test says so. */
class Host extends LocalModel {
  readonly sent: Sent[] = [];
  readonly control = new AbortController();
  isClosed = false;
  constructor(files: Files = {}) {
    super({});
    this.set("_parts", files);
  }
  override send(content: unknown): void {
    if (this.isClosed) throw new Error("closed");
    this.sent.push(content as Sent);
  }
  answer(message: { files?: Files; error?: string }): void {
    this.emit("msg:custom", ...([{ kind: "parts", ...message }, []] as never[]));
  }
}

const page = globalThis as { made?: number };
const WIDGET = `define("widget", [], () => {
  globalThis.made++;
  return { default: () => ({ initialize() {}, async render({ el }) { el.textContent = "here"; } }) };
});`;
const exporting = (name: string, needs: string[] = []) =>
  `define("${name}", ${JSON.stringify(needs)}, (load, ...needed) => ({ name: "${name}", needed }));`;

const shared = (globalThis as unknown as Record<symbol, Map<string, Parts>>)[Symbol.for("smdwidgets.parts")];
const present = shared?.get("of-tests") as Parts;

test("parts are made once per page, and released from the widget's state with the widget", async () => {
  page.made = 0;
  const show = async (host: Host) => {
    const el = document.createElement("div");
    const widget = loader();
    const props = { model: host, signal: host.control.signal };
    widget.initialize(props as never);
    widget.render({ ...props, el } as never);
    await until(() => el.textContent === "here");
  };
  const files = { "widget.js": WIDGET };
  const [first, second] = [new Host(files), new Host()];
  await show(first);
  await show(second);
  expect(page.made).toBe(1);
  expect(second.sent).toEqual([]);
  first.control.abort();
  second.control.abort();
  expect(first.get("_parts")).toEqual({});
});

test("a missing part is asked for with those that are there, and its style sheets are added in order", async () => {
  const host = new Host({ "a.js": exporting("a"), "20-late.css": "#smdw-order { order: 20 }" });
  present.attach(host, host.control.signal);
  const el = document.body.appendChild(document.createElement("p"));
  el.id = "smdw-order";
  present.style(el, host.control.signal);
  const a = await present.load("a");
  const loading = present.load("b");
  expect(host.sent).toHaveLength(1);
  expect(host.sent[0]).toMatchObject({ kind: "parts", names: ["b"] });
  expect(host.sent[0]?.has).toContain("a");
  host.answer({ files: { "b.js": exporting("b", ["a"]), "10-early.css": "#smdw-order { order: 10 }" } });
  host.answer({ files: { "b.js": exporting("b", ["a"]) } }); // doubled
  expect(await loading).toEqual({ name: "b", needed: [a] });
  expect(getComputedStyle(el).order).toBe("20");
  host.control.abort();
  el.remove();
});

test("a part that cannot be sent fails, and can be asked for again", async () => {
  const host = new Host();
  present.attach(host, host.control.signal);
  const failing = present.load("c");
  host.answer({ error: "'c' is not a part" });
  await expect(failing).rejects.toThrow("'c' is not a part");
  const again = present.load("c");
  host.answer({ files: { "c.js": exporting("c") } });
  expect(await again).toMatchObject({ name: "c" });
  host.control.abort();
});

test("a part whose text is broken fails, and is asked for again", async () => {
  const host = new Host();
  present.attach(host, host.control.signal);
  const failing = present.load("d");
  host.answer({ files: { "d.js": "define(" } });
  await expect(failing).rejects.toThrow();
  const again = present.load("d");
  expect(host.sent).toHaveLength(2);
  host.answer({ files: { "d.js": exporting("d") } });
  expect(await again).toMatchObject({ name: "d" });
  host.control.abort();
});

test("a widget whose kernel was restarted is passed over, and asking again asks another", async () => {
  const [old, alive, closed] = [new Host(), new Host(), new Host()];
  for (const host of [old, alive, closed]) present.attach(host, host.control.signal);
  closed.isClosed = true;
  const loading = present.load("e");
  expect([old.sent.length, alive.sent.length]).toEqual([0, 1]);
  void present.load("e");
  void present.load("e");
  expect(old.sent.length).toBe(1);
  old.answer({ files: { "e.js": exporting("e") } });
  expect(await loading).toMatchObject({ name: "e" });
  for (const host of [old, alive, closed]) host.control.abort();
});

test("a widget without the page's code asks for it, and says what it waits for", async () => {
  shared?.delete("of-tests");
  try {
    const host = new Host();
    const el = document.createElement("div");
    loader().render({ model: host, el, signal: host.control.signal } as never);
    expect(host.sent).toEqual([{ kind: "parts" }]);
    await until(() => el.textContent?.startsWith("Waiting for the kernel"));
    const register = `globalThis[Symbol.for("smdwidgets.parts")].set("of-tests", globalThis.partsOfTests)`;
    Object.assign(globalThis, { partsOfTests: new Parts() });
    host.answer({ files: { "parts.js": "throw new Error('no')" } });
    await until(() => el.textContent?.includes("could not be loaded: Error: no"));
    el.querySelector("button")?.click();
    host.answer({ files: { "parts.js": register, "widget.js": exporting("widget") } });
    await until(() => shared?.has("of-tests"));
    host.control.abort();
  } finally {
    shared?.set("of-tests", present);
  }
});
