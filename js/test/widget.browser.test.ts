import { expect, test } from "vitest";
import { PlainModel } from "../src/state";
import widget from "../src/widget";
import css from "../src/widget.css?inline";

test("a widget takes JupyterLab's text colour where there is one", () => {
  const el = document.createElement("div");
  const style = Object.assign(document.createElement("style"), { textContent: css });
  document.head.append(style);
  document.body.append(el);
  document.documentElement.style.setProperty("--jp-ui-font-color0", "rgb(1, 2, 3)");
  const control = new AbortController();
  widget().render({ el, model: new PlainModel({ _kind: "slider" }), signal: control.signal } as never);
  expect(getComputedStyle(el).color).toBe("rgb(1, 2, 3)");
  document.documentElement.style.removeProperty("--jp-ui-font-color0");
  control.abort();
  el.remove();
  style.remove();
});
