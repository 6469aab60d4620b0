/** Decides what to ask the kernel for, from what is in view and what is already held. Asks once, and again only for more. */
import { histKey, histWanted, imageKey } from "./frames";
import { resolveAxes, resolveFixed } from "./matrix";
import type { Form, HistWant, ImageWant, Line, Role, Traits, Want } from "./protocol";
import type { Scene, Session } from "./session";
import { same } from "./state";
import { seriesKey } from "./store";

const BINS = 128;
const CELLS = 4096;

export function wantOf(traits: Traits, shape: readonly number[] | undefined, form?: Form): Want {
  const shows = (name: Traits["panels"][number]) => traits.panels.includes(name);
  const hist: HistWant | null = shows("histogram") || shows("history") ? { bins: BINS, ...histWanted(traits) } : null;
  const image: ImageWant | null = shows("heatmap")
    ? {
        axes: shape ? resolveAxes(traits.axes, shape.length, form) : traits.axes,
        fixed: shape ? resolveFixed(traits.fixed, shape) : traits.fixed,
        pool: traits.pool,
        cells: CELLS,
      }
    : null;
  return {
    stats: true,
    update: traits.stats.includes("update_ratio") && shows("statistics"),
    hist,
    image,
    percentiles: hist !== null,
  };
}

export class Asker {
  readonly #asked = new Map<Role, string>();
  #series = "";
  #meetings = 0;

  constructor(private readonly session: Session) {}

  update(scene: Scene): void {
    if (this.#meetings !== this.session.meetings) {
      this.#meetings = this.session.meetings;
      this.#asked.clear();
      this.#series = "";
    }
    this.#follow(scene);
    const { traits } = scene;
    if (traits._kind === "inspector" || traits._kind === "explorer") {
      this.#frames("main", scene, traits.run, traits.worker, scene.step);
      if (Object.keys(traits.compare).length)
        this.#frames(
          "compare",
          scene,
          traits.compare.run ?? traits.run,
          traits.compare.worker ?? traits.worker,
          traits.compare.step ?? scene.step,
        );
      else if (this.#asked.delete("compare")) this.session.cancel(this.session.place("compare"));
    }
    if (traits._kind === "scalars" || traits.panels.includes("scalars")) this.#lines(scene);
  }

  /** The step trait goes along with the newest step while following. */
  #follow({ traits, axis, step }: Scene) {
    const last = axis.steps[axis.steps.length - 1];
    if (last === undefined) return;
    if (traits.follow && traits.step !== last) this.session.state.set({ step: last });
    else if (traits.step < 0 && !Number.isNaN(step)) this.session.state.set({ step });
  }

  #frames(role: Role, scene: Scene, run: number, worker: string, near: number) {
    const { tensor } = scene.traits;
    if (!tensor || Number.isNaN(near)) return;
    const { store } = this.session;
    const held = store.held(run, tensor, worker);
    // The same tensor under both roles (another step of it) is one set of frames.
    if (role === "compare" && run === scene.traits.run && worker === scene.traits.worker) {
      if (this.#asked.delete("compare")) this.session.cancel(this.session.place("compare"));
      return;
    }
    const want = wantOf(scene.traits, held?.plan?.shape, held?.plan?.form);
    const key = JSON.stringify([
      run,
      tensor,
      worker,
      want.update,
      want.hist,
      want.image && imageKey(want.image.axes, want.image.fixed, want.image.pool),
    ]);
    const before = this.#asked.get(role);
    if (before === key) return;
    this.#asked.set(role, key);
    // The shape has just become known: the question that was sent meant the same axes.
    if (before !== undefined && held?.plan && same(JSON.parse(before).slice(0, 3), [run, tensor, worker])) {
      const sent = JSON.stringify([
        run,
        tensor,
        worker,
        want.update,
        want.hist,
        want.image && imageKey(scene.traits.axes, scene.traits.fixed, want.image.pool),
      ]);
      if (sent === before) return;
    }
    const frames = store.frames(run, tensor, worker);
    const complete =
      frames.plan !== undefined &&
      frames.steps.length > 0 &&
      frames.steps.every((step) => {
        const frame = frames.frames.get(step);
        if (!frame) return false;
        if (frame.error || frames.plan?.form === "text" || frames.plan?.reduced) return true;
        if (want.hist && !frame.hists.has(histKey(want.hist))) return false;
        const pictured = frames.plan?.form !== "histogram" && want.image;
        if (pictured && !frame.images.has(imageKey(pictured.axes, pictured.fixed, pictured.pool))) return false;
        return !want.update || frame.update !== undefined;
      });
    // A page without a kernel shows what it holds. A kernel is asked even when all is here: it then pushes what is saved later.
    if (this.session.kernelless && frames.frames.size) return;
    const after = complete ? { after: frames.steps[frames.steps.length - 1] as number } : {};
    void this.session.ask(this.session.place(role), {
      what: "frames",
      role,
      run,
      tensor,
      worker,
      near,
      want,
      ...after,
    });
  }

  #lines(scene: Scene) {
    const lines = linesOf(scene, this.session);
    const missing = lines.filter(
      (line) => !this.session.store.series.has(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat)),
    );
    const key = JSON.stringify(missing);
    if (key === this.#series) return;
    this.#series = key;
    if (missing.length) void this.session.ask("series", { what: "series", lines });
  }
}

/** Collections whose tensors are numbers to be followed over steps. */
const SCALARS = ["losses", "scalars", "metrics", "sm_metrics", "searchable_scalars"];

/** The lines of the scalar panel, one for each run meant; without a choice, the losses and metrics. */
export function linesOf({ traits }: Scene, session: Session): Required<Line>[] {
  const { runs } = session.store;
  let chosen: Line[] = traits.series;
  if (!chosen.length) {
    const names = new Set<string>();
    for (const run of runs.values())
      for (const collection of SCALARS)
        for (const index of run.collections.get(collection) ?? [])
          if (names.size < 6) names.add(run.names[index] ?? "");
    chosen = [...names].map((tensor) => ({ tensor, stat: "value", run: -1 }));
  }
  return chosen.flatMap((line) =>
    (line.run === undefined || line.run < 0 ? [...runs.keys()] : [line.run]).map((run) => ({
      tensor: line.tensor,
      stat: line.stat,
      run,
      worker: line.worker ?? "",
      mode: line.mode ?? ("" as const),
    })),
  );
}
