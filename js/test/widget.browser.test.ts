import { expect, test } from "vitest";
import loader from "../src/loader";
import { LocalModel } from "../src/session/state";
import widget from "../src/widget";
import css from "../src/widget.css?inline";

test("an unsupported browser shows which features are missing", () => {
  const el = document.createElement("div");
  const { findLast } = Array.prototype;
  const shown = widget();
  const control = new AbortController();
  const props = { el, model: new LocalModel({ _kind: "explorer" }), signal: control.signal } as never;
  try {
    Reflect.deleteProperty(Array.prototype, "findLast");
    shown.initialize(props);
    shown.render(props);
  } finally {
    Object.defineProperty(Array.prototype, "findLast", { value: findLast, writable: true, configurable: true });
  }
  expect(el.textContent).toContain("missing Array.prototype.findLast");
  expect(el.textContent).toContain("Firefox 115");
  control.abort();
});

test("a widget uses JupyterLab's text colour", () => {
  const el = document.createElement("div");
  const style = Object.assign(document.createElement("style"), { textContent: css });
  document.head.append(style);
  document.body.append(el);
  document.documentElement.style.setProperty("--jp-ui-font-color0", "rgb(1, 2, 3)");
  const control = new AbortController();
  widget().render({ el, model: new LocalModel({ _kind: "slider" }), signal: control.signal } as never);
  expect(getComputedStyle(el).color).toBe("rgb(1, 2, 3)");
  document.documentElement.style.removeProperty("--jp-ui-font-color0");
  control.abort();
  el.remove();
  style.remove();
});

test("the loader imports the bundle once per page, retries after a failure, and releases its text with the widget", async () => {
  const page = globalThis as { imports?: number };
  page.imports = 0;
  const text =
    "globalThis.imports++; export default () => ({ initialize() {}, render({ el }) { el.textContent = 'here'; } });";
  const shown = async (module: string) => {
    const control = new AbortController();
    const props = { el: document.createElement("div"), model: new LocalModel({}), signal: control.signal };
    props.model.set("_module", module);
    const widget = loader();
    await widget.initialize(props as never);
    await widget.render(props as never);
    return { ...props, control };
  };
  const first = await shown(text);
  const second = await shown(text);
  expect([first.el.textContent, second.el.textContent, page.imports]).toEqual(["here", "here", 1]);
  first.control.abort();
  expect([first.model.get("_module"), second.model.get("_module")]).toEqual(["", text]);
  const broken = "globalThis.imports++; throw new Error('no')";
  for (const imports of [2, 3]) {
    await expect(shown(broken)).rejects.toThrow("no");
    expect(page.imports).toBe(imports);
  }
  second.control.abort();
});
