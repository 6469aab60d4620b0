/**
 * The module that a notebook imports for each widget. Each widget carries it in its state, so it is small: it finds the
 * page's parts (parts.ts), which do the rest.
 */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import type { Parts, Start } from "./parts";

type Props = InitializeProps & Partial<RenderProps>;

declare const VERSION: string;
const KEY = Symbol.for("smdwidgets.parts");
const page = globalThis as { [KEY]?: Map<string, Parts> };

/** The parts: present, from the widget's state, from that of another widget, or from the kernel. */
function find({ model, signal }: Props): Promise<Parts> {
  return new Promise((resolve, reject) => {
    let ticks = 0;
    const receive = (message: { files?: Record<string, string> }) => {
      const files = message?.files;
      const text = files?.["parts.js"];
      if (text)
        import(URL.createObjectURL(new Blob([text], { type: "text/javascript" }))).then(
          () => page[KEY]?.get(VERSION)?.provide(files),
          reject,
        );
    };
    const look = () => {
      const parts = page[KEY]?.get(VERSION);
      if (parts || signal.aborted) {
        clearInterval(timer);
        model.off("msg:custom", receive);
        if (parts) resolve(parts);
        // At 0, and from 0.8 s on at twice the time: a kernel that runs a cell answers late.
      } else if (!(ticks & (ticks - 1)) && (!ticks || ticks > 16))
        try {
          model.send({ kind: "parts" });
        } catch {} // the connection to a restarted kernel is closed
      ticks++;
    };
    const timer = setInterval(look, 25);
    model.on("msg:custom", receive);
    receive({ files: model.get("_parts") });
    if (!model.get("_parts")?.["parts.js"]) look();
  });
}

export default () => {
  let finding: Promise<Parts> | undefined;
  let start: Start | undefined;
  const call = (given: Props) => {
    // What a host may leave out: a signal, which then aborts when the host calls the function that is returned.
    const control = new AbortController();
    const props = given.signal ? given : { ...given, signal: control.signal };
    const { el } = props;
    const run = async () => {
      const waiting = setTimeout(() => el?.append("Waiting for the kernel. If it is gone, run the cell again."), 3000);
      try {
        finding ??= find(props);
        const parts = await finding;
        clearTimeout(waiting);
        start ??= parts.starter();
        await start(props);
      } catch (error) {
        clearTimeout(waiting);
        finding = undefined;
        const retry = document.createElement("button");
        retry.textContent = "Retry";
        retry.onclick = run;
        el?.replaceChildren(`This widget could not be loaded: ${error} `, retry);
      }
    };
    void run();
    return () => control.abort();
  };
  return { initialize: call, render: call };
};
