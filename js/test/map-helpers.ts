/** The Run Map alone, over a made-up run: its rows, its faults, and packets as a kernel sends them. */

import { FLAG } from "../src/data/survey";
import { ThemeWatch } from "../src/draw/theme";
import { KeyCapture } from "../src/lib/key-capture";
import { encode } from "../src/protocol/packet";
import type { CatalogHead, MapFinding, Traits } from "../src/protocol/types";
import type { Client } from "../src/session/client";
import type { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { openSession, startRequesting } from "../src/view";
import css from "../src/widget.css?inline";
import type { Context } from "../src/widgets/common/part";
import { RunMap } from "../src/widgets/map/view";
import { kindOf } from "./kinds";
import { noise } from "./map-noise";
import { surveyPacket } from "./packets";

const PARTS = [
  "input_layernorm.weight",
  "self_attn.q_proj.weight",
  "self_attn.k_proj.weight",
  "self_attn.v_proj.weight",
  "self_attn.o_proj.weight",
  "post_attention_layernorm.weight",
  "mlp.gate_proj.weight",
  "mlp.up_proj.weight",
  "mlp.down_proj.weight",
];
/** A larger surprise is a sudden change. */
const SUDDEN = 5.5;
const GRADIENTS = ["self_attn.q_proj.weight", "self_attn.k_proj.weight"];

export interface MadeRun {
  names: string[];
  collections: Record<string, number[]>;
  steps: Float64Array;
  /** surprise and flags by tensor and step */
  values: Float32Array[];
  flags: Uint8Array[];
  findings: MapFinding[];
}

export const NAN_TENSOR = "model.layers.17.self_attn.k_proj.weight";
export const NAN_STEP = 371;

/** A model of 24 layers; with `fault`, one weight turns NaN at step 371, after its gradients grew. */
export function madeRun(fault = true, layers = 24, count = 500): MadeRun {
  const names = ["model.embed_tokens.weight"];
  for (let i = 0; i < layers; i++) {
    for (const part of PARTS) names.push(`model.layers.${i}.${part}`);
    for (const part of GRADIENTS) names.push(`gradient/model.layers.${i}.${part}`);
    names.push(`model.layers.${i}.mlp.relu_output_0`);
  }
  names.push("model.norm.weight", "lm_head.weight", "loss");
  const random = noise(7);
  const steps = Float64Array.from({ length: count }, (_, i) => i);
  const values = names.map(() => Float32Array.from({ length: count }, (_, i) => (i < 8 ? Number.NaN : random() * 0.8)));
  const flags = names.map(() => new Uint8Array(count));
  const relu = `model.layers.17.mlp.relu_output_0`;
  const at = (name: string) => names.indexOf(name);
  const only = new Set([210, 211, 222, 223, 234, 235]);
  const sparse = values[at(relu)];
  if (sparse) for (let i = 0; i < count; i++) sparse[i] = only.has(i) ? (fault ? -6 : random()) : Number.NaN;
  if (fault) {
    const grow = (name: string, from: number, to: number, peak: number) => {
      const row = values[at(name)];
      for (let i = from; row && i < to; i++) row[i] = (peak * (i - from + 1)) / (to - from) + random();
    };
    grow("gradient/model.layers.17.self_attn.q_proj.weight", 360, 372, 18);
    grow("gradient/model.layers.17.self_attn.k_proj.weight", 358, 372, 24);
    grow(NAN_TENSOR, 366, 371, 16);
    for (const [name, peak] of [
      ["model.layers.17.input_layernorm.weight", 7],
      ["model.layers.17.self_attn.q_proj.weight", 8],
      ["model.layers.17.self_attn.v_proj.weight", 8],
      ["model.layers.17.self_attn.o_proj.weight", 9],
      ["model.layers.18.self_attn.q_proj.weight", -9],
      ["model.layers.19.self_attn.q_proj.weight", -7],
      ["gradient/model.layers.18.self_attn.k_proj.weight", -8],
    ] as const) {
      const row = values[at(name)];
      for (let i = 372; row && i < 410; i++) row[i] = peak * Math.exp(-(i - 372) / 18) + random();
    }
    flags[at(NAN_TENSOR)]?.fill(1, NAN_STEP);
    const gradient = flags[at("gradient/model.layers.17.self_attn.k_proj.weight")];
    gradient?.fill(4, 359, 372);
  }
  values.forEach((row, tensor) => {
    const flag = flags[tensor] as Uint8Array;
    for (const [i, value] of row.entries()) if (Math.abs(value) > SUDDEN) flag[i] = (flag[i] ?? 0) | FLAG.sudden;
  });
  const indices = (has: (name: string) => boolean) => names.flatMap((name, i) => (has(name) ? [i] : []));
  return {
    names,
    collections: {
      weights: indices((name) => /weight$/.test(name) && !name.startsWith("gradient")),
      gradients: indices((name) => name.startsWith("gradient")),
      losses: indices((name) => name === "loss"),
    },
    steps,
    values,
    flags,
    findings: fault
      ? [
          {
            id: "nan",
            kind: "not_finite",
            tensors: [at(NAN_TENSOR)],
            first: NAN_STEP,
            last: count - 1,
            count: 1,
          },
          {
            id: "grows",
            kind: "rule",
            tensors: [at("gradient/model.layers.17.self_attn.k_proj.weight")],
            first: 359,
            last: 371,
            count: 13,
          },
        ]
      : [],
  };
}

export function catalogPacket(
  run: Pick<MadeRun, "names" | "collections" | "steps">,
  head: Partial<CatalogHead> = {},
): ArrayBuffer {
  const n = run.steps.length;
  return encode(
    {
      kind: "catalog",
      run: 0,
      name: "gpt_a",
      path: "runs/gpt_a",
      status: "ended",
      message: "",
      workers: ["worker_0"],
      last_write: null,
      restarted_at: null,
      colour: 0,
      append: false,
      tensors: run.names,
      collections: run.collections,
      ...head,
    },
    {
      step: ["f8", [n], run.steps],
      mode: ["u1", [n], new Uint8Array(n).fill(1)],
      mode_step: ["f8", [n], run.steps],
    },
  );
}

/** What a widget is opened with: the steps, a poster, the findings. */
export function bootPackets(run: MadeRun, poster = true): ArrayBuffer[] {
  return [
    catalogPacket(run),
    surveyPacket(
      run.names.map((_, i) => i),
      run.values,
      { poster, flag: run.flags, append: false },
    ),
    encode({ kind: "findings", run: 0, sentence: [], findings: run.findings }),
  ];
}

export interface MountedMap {
  el: HTMLElement;
  map: RunMap;
  session: Session;
  model: LocalModel;
  close(): void;
}

export function openMap(
  packets: ArrayBuffer[],
  options: { traits?: Partial<Traits>; width?: number; height?: number; dark?: boolean; client?: Client } = {},
): MountedMap {
  const { width = 1000, height = 336, dark = false } = options;
  const host = document.createElement("div");
  host.style.width = `${width}px`;
  host.style.background = dark ? "#14171b" : "#ffffff";
  host.append(Object.assign(document.createElement("style"), { textContent: css }));
  const el = document.createElement("div");
  el.className = "smdw";
  el.style.height = `${height}px`;
  host.append(el);
  document.body.append(host);
  const control = new AbortController();
  const { signal } = control;
  const model = new LocalModel({
    _kind: "explorer",
    map_stat: "surprise",
    tensor: NAN_TENSOR,
    step: NAN_STEP,
    follow: false,
    ...options.traits,
  });
  const state = new State(model, signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, signal);
  session.store.addPackets(packets);
  if (options.client) session.connection.connect(options.client, false);
  let due = false;
  const pictures: (() => void)[] = [];
  const redraw = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (signal.aborted) return;
      map.update(session.scene(width));
      for (const picture of pictures.splice(0)) picture();
    });
  };
  const themes = new ThemeWatch(el, redraw, signal);
  const context: Context = {
    session,
    signal,
    keys: new KeyCapture(el, signal),
    theme: () => themes.theme,
    redraw,
    paint: (picture) => pictures.push(picture),
  };
  const map = new RunMap(context, redraw);
  el.append(map.el);
  session.state.onChange(redraw, signal);
  session.store.onChange(redraw, signal);
  startRequesting(session, kind, signal);
  redraw();
  return {
    el,
    map,
    session,
    model,
    close() {
      control.abort();
      host.remove();
    },
  };
}
