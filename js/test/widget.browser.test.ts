import { expect, test } from "vitest";
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

test("a widget uses JupyterLab's text colour", async () => {
  const el = document.createElement("div");
  const style = Object.assign(document.createElement("style"), { textContent: css });
  document.head.append(style);
  document.body.append(el);
  document.documentElement.style.setProperty("--jp-ui-font-color0", "rgb(1, 2, 3)");
  const control = new AbortController();
  await widget().render({ el, model: new LocalModel({ _kind: "slider" }), signal: control.signal } as never);
  expect(getComputedStyle(el).color).toBe("rgb(1, 2, 3)");
  document.documentElement.style.removeProperty("--jp-ui-font-color0");
  control.abort();
  el.remove();
  style.remove();
});
