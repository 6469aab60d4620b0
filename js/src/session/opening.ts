/** Opens an explorer on the first finding, while nobody has chosen a tensor or a step. */
import type { Traits } from "../protocol/types";
import type { Scene } from "./scene";
import type { Session } from "./session";

/** What somebody changes who chooses something to look at. */
const CHOICES = ["run", "tensor", "step", "follow", "inspect"] as const;
type Choice = Pick<Traits, (typeof CHOICES)[number]>;

export class Opening {
  /** what was in view first */
  #start: Choice | undefined;

  constructor(private readonly session: Session) {}

  /** Goes to the place of the first finding once the run is diagnosed; a run without one stays at its last step. */
  update({ traits, run }: Scene): void {
    if (!traits._fresh || traits._kind !== "explorer" || traits.table || !run?.names.length) return;
    const { state, store } = this.session;
    this.#start ??= traits;
    if (hasChosen(this.#start, traits)) return state.set({ _fresh: false });
    const diagnosis = store.diagnoses.get(traits.run);
    if (!diagnosis || diagnosis.state === "reading") return;
    const { tensor = "", first = null } = diagnosis.findings[0] ?? {};
    state.set({
      _fresh: false,
      ...(tensor ? { tensor } : {}),
      ...(first === null ? {} : { step: first, mode: "", follow: false }),
    });
  }
}

/** Whether somebody has changed what is in view. A tensor and the last step are set by themselves. */
function hasChosen(start: Choice, now: Choice): boolean {
  return CHOICES.some((name) => {
    if (name === "tensor" && !start.tensor) return false;
    if (name === "step" && now.follow) return false;
    if (name === "step" && start.step < 0) return false;
    return start[name] !== now[name];
  });
}
