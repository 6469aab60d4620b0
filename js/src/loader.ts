/**
 * What a notebook imports. A page keeps every module that it ever imported, source and machine code, until it is left; and each
 * widget brings its own, also when a cell is run again: a megabyte each time. So what is imported each time is these lines, and
 * the front end, whose text comes with the widget's state, once for a page.
 */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import type widget from "./widget";

type Widget = ReturnType<typeof widget>;

/** By text, so that two kernels with different versions of us each have their own. */
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
  loading.catch(() => modules.delete(text)); // the next one may have more luck
  modules.set(text, loading);
  return loading;
}

export default () => {
  let made: Promise<Widget> | undefined;
  const widgetOf = (model: { get(name: string): unknown }) => {
    made ??= load(String(model.get("_module"))).then((make) => make());
    return made;
  };
  return {
    async initialize(props: InitializeProps): Promise<void> {
      const { model, signal } = props;
      // JupyterLab holds on to models of widgets that are gone: what is large goes without them.
      signal.addEventListener("abort", () => {
        model.set("_module", "");
        model.set("_boot", []);
      });
      const widget = await widgetOf(model);
      if (!signal.aborted) widget.initialize(props);
    },
    async render(props: RenderProps): Promise<void> {
      const widget = await widgetOf(props.model);
      if (!props.signal.aborted) widget.render(props);
    },
  };
};
