/** Hyperparameters and launches of the run in view. */
import { h, Select, setText, setVisible, textButton } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { dateTime } from "../../lib/time-text";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";
import { Popover } from "../common/popover";

export class RunFacts implements Part {
  readonly el: HTMLElement;
  readonly #launch: Select;
  readonly #button: HTMLButtonElement;
  readonly #list = h("dl", { class: "smdw-hparams" });
  readonly #box: HTMLElement;
  #of: unknown;

  constructor(private readonly context: Context) {
    const { session, signal } = context;
    this.#launch = new Select(
      "Launch of the training",
      (value) =>
        void session.connection.command({
          what: "launch",
          do: "select",
          run: session.state.get("run"),
          launch: value === "" ? null : Number(value),
        }),
      signal,
    );
    this.#button = textButton("hparams", () => {}, signal);
    this.#button.classList.add("smdw-menu-button");
    const popover = new Popover(this.#button, this.#list, context);
    this.#box = h("div", { class: "smdw-anchor" }, this.#button, popover.el);
    this.el = h("div", { class: "smdw-run-extra" }, this.#launch.el, this.#box);
  }

  update({ run }: Scene): void {
    const { launches = [], launch = null, hparams = {} } = run ?? {};
    setVisible(this.#launch.el, launches.length > 1 && !this.context.session.exported);
    if (launches.length > 1)
      this.#launch.update(
        [
          ["", `All ${count(launches.length)} launches`],
          ...launches.map(
            (began, i) => [String(i), `Launch ${i + 1}${began === null ? "" : ` \u00b7 ${dateTime(began)}`}`] as const,
          ),
        ],
        launch === null ? "" : String(launch),
      );
    const names = Object.entries(hparams);
    setVisible(this.#box, names.length > 0);
    if (this.#of === hparams) return;
    this.#of = hparams;
    setText(this.#button, plural(names.length, "hparam"));
    this.#button.title = "Hyperparameters";
    this.#list.replaceChildren(
      ...names.flatMap(([name, value]) => [
        h("dt", {}, truncate(name, 200)),
        h("dd", {}, typeof value === "number" ? num(value, 6) : truncate(String(value), 300)),
      ]),
    );
  }
}
