/**
 * The module that a notebook imports for each widget. A page never unloads a module, and the bundle is a large one, so
 * this small loader imports it once per page, from the text in the widget's state.
 */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import type widget from "./widget";

type Widget = ReturnType<typeof widget>;

/** Keyed by text, so that kernels with different versions each get their own. */
const KEY = Symbol.for("smdwidgets.modules");
const page = globalThis as { [KEY]?: Map<string, Promise<typeof widget>> };
page[KEY] ??= new Map();
const modules = page[KEY];

function load(text: string): Promise<typeof widget> {
  const known = modules.get(text);
  if (known) return known;
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const loading = import(url)
    .then((module: { default: typeof widget }) => module.default)
    .finally(() => URL.revokeObjectURL(url));
  loading.catch(() => modules.delete(text)); // a later widget retries
  modules.set(text, loading);
  return loading;
}

/** Gives what a host may leave out: a signal, which then aborts when the host calls the function that is returned. */
function withSignal<P extends { signal: AbortSignal }>(props: P): [P, (() => void) | undefined] {
  if (props.signal) return [props, undefined];
  const control = new AbortController();
  return [{ ...props, signal: control.signal }, () => control.abort()];
}

export default () => {
  let made: Promise<Widget> | undefined;
  const widgetOf = (model: { get(name: string): unknown }) => {
    made ??= load(String(model.get("_module"))).then((make) => make());
    return made;
  };
  return {
    async initialize(given: InitializeProps): Promise<(() => void) | undefined> {
      const [props, clear] = withSignal(given);
      const { model, signal } = props;
      // JupyterLab keeps models of removed widgets: release the large traits.
      signal.addEventListener("abort", () => {
        model.set("_module", "");
        model.set("_boot", []);
      });
      const widget = await widgetOf(model);
      if (!signal.aborted) widget.initialize(props);
      return clear;
    },
    async render(given: RenderProps): Promise<(() => void) | undefined> {
      const [props, clear] = withSignal(given);
      const widget = await widgetOf(props.model);
      if (!props.signal.aborted) widget.render(props);
      return clear;
    },
  };
};
