/** What the menu "Export" offers: the view as code, and the picture as a file. */

import { legendOf, nanColour, STAT_NAMES } from "../../draw/map";
import { h, setText, textButton } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import { copyText, pyString, save } from "../../lib/save";
import { encodeState } from "../../session/state-string";
import type { Context } from "../common/part";
import { type Caption, pngOf, svgOf } from "../common/picture-file";

/**
 * Returns the buttons and the line that says what they did.
 *
 * `facts` are those of the run, `picture` is map and timeline.
 */
export function exportActions(context: Context, facts: HTMLElement, picture: () => HTMLElement): HTMLElement[] {
  const { session, signal } = context;
  const copied = h("span", { class: "smdw-quiet", role: "status" });
  const copy = (text: () => string) => async () => {
    const ok = await copyText(text(), copied);
    setText(copied, ok ? "Copied" : "Clipboard access denied");
  };
  const view = () => {
    const { traits, step } = session.scene();
    const runs = [...session.store.runs.values()];
    const paths = runs.map((run) => pyString(run.head.path));
    // The newest step is another one tomorrow.
    const state = encodeState(
      Number.isNaN(step) ? traits : { ...traits, step },
      runs.map((run) => run.head.name),
    );
    return `smdwidgets.explore(${paths.length === 1 ? paths[0] : `[${paths.join(", ")}]`}, state="${state}")`;
  };
  const saveAs = (kind: "png" | "svg") => async () => {
    const theme = context.theme();
    const { traits, run, step } = session.scene();
    const survey = session.store.surveys.find(traits.run, traits.worker, traits.mode, traits.map_stat);
    const { table, low, high } = legendOf(traits.map_stat, theme, survey?.domain ?? [1, 65535]);
    const name = run?.head.name ?? "run";
    const tensor = traits.tensor && traits.inspect ? truncate(traits.tensor, 200) : "";
    const words = [Number.isNaN(step) ? "" : `step ${count(step)}`, tensor, `colour: ${STAT_NAMES[traits.map_stat]}`];
    const caption: Caption = {
      title: [truncate(name, 200), facts.textContent].filter(Boolean).join(" \u00b7 "),
      text: words.filter(Boolean).join(" \u00b7 "),
      scale: { table, low, high, nan: nanColour(theme) },
    };
    const el = picture();
    const blob =
      kind === "png"
        ? await pngOf(el, caption, theme)
        : new Blob([svgOf(el, caption, theme)], { type: "image/svg+xml" });
    if (blob) save(`${name}-map.${kind}`, blob);
  };
  return [
    textButton("Copy this view", copy(view), signal),
    textButton(
      "Copy as web page command",
      copy(() => `${view()}.to_html("page.html")`),
      signal,
    ),
    textButton("Save as PNG", saveAs("png"), signal),
    textButton("Save as SVG", saveAs("svg"), signal),
    copied,
  ];
}
