/** Sets the tensor in view while the user has chosen none. */
import { firstTensor } from "../lib/tensor-names";
import type { Scene } from "./scene";
import type { Session } from "./session";

export class ViewDefaults {
  /** the run in view has been seen without a tensor */
  #empty = false;
  /** the run and names in which the tensor in view was looked up */
  #checked = "";

  constructor(private readonly session: Session) {}

  /**
   * Selects the tensor that the kernel selects when a widget is opened, once a run that had none has one. A tensor is
   * selected here because the kernel can push data, but no state, while a cell runs.
   */
  update({ traits, run }: Scene): void {
    if (traits._many && !traits.table && run) {
      // Another run of the table may have other tensors.
      const key = `${traits.run}/${run.namesVersion}`;
      if (key !== this.#checked && run.names.length && !run.names.includes(traits.tensor))
        this.session.state.set({ tensor: firstTensor(run.names, run.collections), inspect: false });
      this.#checked = key;
      return;
    }
    const shows = traits._kind === "inspector" || traits._kind === "explorer";
    if (!shows || !run || traits.tensor) return;
    if (run.names.length === 0) this.#empty = true;
    else if (this.#empty) this.session.state.set({ tensor: firstTensor(run.names, run.collections) });
  }
}
