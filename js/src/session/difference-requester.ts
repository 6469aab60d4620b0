/** Requests the exact difference of A and B, once the view has rested. */
import { showsPlane, valueRef } from "../data/difference";
import { matrixOf } from "../data/matrix";
import { IdleTimer } from "../lib/idle-timer";
import type { Scene, Session } from "./session";
import { differenceFault } from "./slots";

const REST = 120;
/** Pixels of an image, at least one per cell of small tensors. */
const CELLS = 1 << 14;
/** Cells that are listed. */
export const CHANGED = 12;

export class DifferenceRequester {
  readonly #rest: IdleTimer;
  #key = "";

  constructor(
    private readonly session: Session,
    signal: AbortSignal,
  ) {
    this.#rest = new IdleTimer(signal);
  }

  /** Forgets what was requested, as its answer was lost. */
  reset(): void {
    this.#key = "";
  }

  update({ traits, main, compared }: Scene): void {
    const shown = traits._kind === "inspector" || traits.inspect;
    const matrix = matrixOf(main, traits.axes, traits.fixed);
    const known = main && compared && !main.pending && !compared.pending && main.frame && compared.frame;
    if (!shown || traits.view !== "diff" || !matrix || !known || differenceFault(main, compared)) return this.#cancel();
    const [a, b] = [valueRef(main), valueRef(compared)];
    const { axes, fixed } = matrix;
    const [r0, r1, c0, c1] = traits.zoom.length === 4 ? (traits.zoom as [number, number, number, number]) : [];
    const window =
      r0 === undefined || r1 === undefined || c0 === undefined || c1 === undefined
        ? {}
        : {
            rows: [Math.max(0, Math.floor(r0)), Math.min(matrix.rows, Math.ceil(r1))] as [number, number],
            cols: [Math.max(0, Math.floor(c0)), Math.min(matrix.cols, Math.ceil(c1))] as [number, number],
          };
    const image = { axes, fixed, cells: CELLS, ...window };
    const key = JSON.stringify([a, b, image]);
    if (key === this.#key) return;
    const { store } = this.session;
    const held = store.differences(a, b).some((each) => {
      const { rows, cols } = each.head.image ?? {};
      const [wantedRows, wantedCols] = [image.rows ?? [0, matrix.rows], image.cols ?? [0, matrix.cols]];
      return showsPlane(each, matrix) && rows?.join() === wantedRows.join() && cols?.join() === wantedCols.join();
    });
    this.#cancel();
    if (held) return;
    this.#rest.schedule(REST, () => {
      this.#key = key;
      void this.session.request("diff", { what: "diff", a, b, want: { bins: 0, changed: CHANGED, image } });
    });
  }

  #cancel() {
    this.#rest.cancel();
    if (!this.#key) return;
    this.#key = "";
    this.session.cancel("diff");
  }
}
