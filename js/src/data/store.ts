/** Data received from runs. Independent of Jupyter and of drawing. */

import { defined } from "../lib/defined";
import { equal } from "../lib/equal";
import { type Blocks, decode, type Packet } from "../protocol/packet";
import {
  type CatalogHead,
  type DiagnosisHead,
  type DivergenceHead,
  type Finding,
  type FindingsHead,
  type IncidentInfo,
  MODES,
  type ModeName,
  type PageHead,
  type ReadingHead,
  type ReplayHead,
  type RuleClass,
  type RuleInfo,
  type RulesHead,
  type TileHead,
  type ValueRef,
  type ValuesHead,
} from "../protocol/types";
import { addLives, type Difference, differenceOf, type Life } from "./difference";
import { lastAtOrBefore, TensorFrames } from "./frames";
import type { Runs } from "./runs";
import { ModeSteps, StepList } from "./step-list";
import type { Surveys } from "./survey";

export interface Run {
  head: CatalogHead;
  names: string[];
  /** collection -> indices into `names` */
  collections: Map<string, number[]>;
  /** the steps, to which new ones are appended */
  list: StepList;
  /** global steps, ascending, each with its mode and mode step */
  steps: Float64Array;
  modes: Uint8Array;
  modeSteps: Float64Array;
  /** the modes that steps have, ascending */
  modeNumbers: readonly number[];
  /** by step */
  incidents: readonly IncidentInfo[];
  hparams: NonNullable<CatalogHead["hparams"]>;
  /** when each launch began, if several wrote to the directory, and the one that is read; null: all */
  launches: readonly (number | null)[];
  launch: number | null;
  version: number;
  /** increases when tensor names are added or replaced */
  namesVersion: number;
}

export interface Tile {
  head: TileHead;
  data: Packet["arrays"];
}
export interface Values {
  head: ValuesHead;
  number: Float64Array | undefined;
}
export interface Series {
  step: Float64Array;
  y: Float64Array;
  /** Unix seconds of the earliest value; null: the run does not record it; undefined: not requested */
  began?: number | null | undefined;
  /** wall time since `began` */
  seconds?: Float32Array | undefined;
  /** values that a restart from an earlier step superseded */
  voided?: { step: Float64Array; y: Float64Array } | undefined;
}
export interface RuleState {
  info: RuleInfo;
  /** step -> outcome, as in OUTCOMES */
  outcomes: Map<number, number>;
  findings: Map<number, Finding[]>;
  /** whether any step passed or fired */
  judged: boolean;
  version: number;
}

/** Bytes of frames kept for tensors that are not in view. */
const MAX_FRAME_BYTES = 96 << 20;
const MAX_TILES = 24;
const MAX_VALUES = 200;
const MAX_DIFFERENCES = 8;
const MAX_LIVES = 200;

const tensorKey = (run: number, tensor: string, worker: string) => `${run}\n${worker}\n${tensor}`;
export const seriesKey = (run: number, tensor: string, worker: string, mode: string, stat: string) =>
  `${run}\n${worker}\n${mode}\n${stat}\n${tensor}`;

export const partingKey = (a: number, b: number) => `${a}/${b}`;

/** The steps of one mode and their displayed numbers. */
export interface Axis {
  /** global steps */
  steps: Float64Array;
  /** displayed numbers: global steps or mode steps */
  labels: Float64Array;
  modes: Uint8Array;
}

/** What only an explorer shows. */
export interface ExplorerData {
  /** The Run Map's data: values, what stands out in them, and how much of each run they cover. */
  readonly surveys: Surveys;
  /** The table of runs of an explorer of many. */
  readonly table?: Runs;
}

export class Store {
  readonly runs = new Map<number, Run>();
  readonly tensors = new Map<string, TensorFrames>();
  readonly series = new Map<string, Series>();
  /** By `lifeKey`: the values of cells over steps. */
  readonly lives = new Map<string, Life>();
  readonly rules = new Map<string, RuleState>();
  /** What is wrong with each run. */
  readonly diagnoses = new Map<number, DiagnosisHead>();
  readonly findings = new Map<number, FindingsHead>();
  readonly readings = new Map<number, ReadingHead>();
  /** By run and step of the incident, what its steps showed when they were executed again. */
  readonly replays = new Map<string, ReplayHead>();
  /** By `partingKey`, where two runs part. */
  readonly partings = new Map<string, DivergenceHead>();
  classes: RuleClass[] = [];
  page: PageHead["traits"] | undefined;
  /** By run, the tensors whose pictures an exported page contains; undefined: all. */
  #opened: Map<number, Set<string>> | undefined;
  /** Message of the last packet that could not be decoded. */
  packetError = "";
  version = 0;
  /** How often a run was replaced by another one in the same place; its data was dropped. */
  restarts = 0;
  #ruleChanges = 0;
  #tiles: Tile[] = [];
  #values: Values[] = [];
  #differences: Difference[] = [];
  readonly #listeners = new Set<() => void>();
  readonly #axes = new Map<string, { version: number; list: StepList; ofMode: ModeSteps; axis: Axis }>();

  /** Without `explorer`, its packets are ignored. */
  constructor(private readonly explorer?: ExplorerData) {}

  get surveys(): Surveys {
    return (this.explorer as ExplorerData).surveys;
  }

  get table(): Runs {
    return this.explorer?.table as Runs;
  }

  onChange(callback: () => void, signal: AbortSignal): void {
    this.#listeners.add(callback);
    signal.addEventListener("abort", () => this.#listeners.delete(callback));
  }

  addPackets(buffers: (DataView | ArrayBuffer)[]): void {
    for (const buffer of buffers)
      try {
        this.addPacket(decode(buffer));
      } catch (error) {
        this.packetError = error instanceof Error ? error.message : String(error);
      }
    this.notify();
  }

  notify(): void {
    this.version++;
    for (const listener of this.#listeners) listener();
  }

  addPacket({ head, arrays }: Packet): void {
    switch (head.kind) {
      case "catalog":
        return this.#catalog(head, arrays);
      case "plan":
        return this.frames(head.run, head.tensor, head.worker).setPlan(head, arrays);
      case "frames":
        return this.frames(head.run, head.tensor, head.worker).add(head, arrays);
      case "tile":
        this.#tiles.unshift({ head, data: arrays });
        this.#tiles.length = Math.min(this.#tiles.length, MAX_TILES);
        return;
      case "values":
        this.#values.unshift({ head, number: arrays.number?.data as Float64Array | undefined });
        this.#values.length = Math.min(this.#values.length, MAX_VALUES);
        return;
      case "diff":
        this.#differences.unshift(differenceOf(head, arrays));
        this.#differences.length = Math.min(this.#differences.length, MAX_DIFFERENCES);
        return;
      case "divergence":
        this.partings.set(partingKey(head.a, head.b), head);
        return;
      case "life":
        addLives(this.lives, head, arrays);
        for (const key of this.lives.keys()) {
          if (this.lives.size <= MAX_LIVES) break;
          this.lives.delete(key);
        }
        return;
      case "series":
        if (arrays.step && arrays.y)
          this.series.set(seriesKey(head.run, head.tensor, head.worker, head.mode, head.stat), {
            step: arrays.step.data as Float64Array,
            y: arrays.y.data as Float64Array,
            began: head.began,
            seconds: arrays.seconds?.data as Float32Array | undefined,
            voided: arrays.void_step &&
              arrays.void_y && {
                step: arrays.void_step.data as Float64Array,
                y: arrays.void_y.data as Float64Array,
              },
          });
        return;
      case "rules":
        return this.#rules(head, arrays);
      case "diagnosis":
        this.diagnoses.set(head.run, head);
        return;
      case "replay":
        this.replays.set(`${head.run}/${head.step}`, head);
        return;
      case "survey":
        return this.explorer?.surveys.add(head, arrays);
      case "runs":
        return this.explorer?.table?.add(head, arrays);
      case "findings":
        this.findings.set(head.run, head);
        return;
      case "reading":
        this.readings.set(head.run, head);
        return;
      case "page":
        this.page = head.traits;
        this.#opened =
          head.opened && new Map(Object.entries(head.opened).map(([run, names]) => [Number(run), new Set(names)]));
    }
  }

  /** Returns the frames of a tensor, creating them if needed, and evicts the least recently used ones. */
  frames(run: number, tensor: string, worker: string): TensorFrames {
    const key = tensorKey(run, tensor, worker);
    const found = this.tensors.get(key) ?? new TensorFrames();
    this.tensors.delete(key);
    this.tensors.set(key, found);
    let bytes = 0;
    for (const each of this.tensors.values()) bytes += each.bytes;
    for (const [old, each] of this.tensors) {
      if (bytes <= MAX_FRAME_BYTES || this.tensors.size <= 2) break;
      bytes -= each.bytes;
      this.tensors.delete(old);
    }
    return found;
  }

  /** Whether an exported page has the pictures of a tensor. */
  hasPictures(run: number, tensor: string): boolean {
    return this.#opened === undefined || this.#opened.get(run)?.has(tensor) === true;
  }

  /** Number of tensors of a run whose pictures an exported page has. */
  opened(run: number): number {
    return (this.runs.get(run)?.names ?? []).filter((name) => this.hasPictures(run, name)).length;
  }

  findFrames(run: number, tensor: string, worker: string): TensorFrames | undefined {
    return this.tensors.get(tensorKey(run, tensor, worker));
  }

  /** Number of a run's colour. Pages that were exported by an earlier version have none. */
  colourOf(run: number): number {
    return this.runs.get(run)?.head.colour ?? run;
  }

  /** The rules of a run. */
  rulesOf(run: number): RuleState[] {
    return [...this.rules.values()].filter(({ info }) => info.run === run);
  }

  tile(fits: (head: TileHead) => boolean): Tile | undefined {
    return this.#tiles.find((tile) => fits(tile.head));
  }

  values(fits: (head: ValuesHead) => boolean): Values | undefined {
    return this.#values.find((values) => fits(values.head));
  }

  /** The exact differences of two values, the latest first. */
  differences(a: ValueRef, b: ValueRef): Difference[] {
    return this.#differences.filter(({ head }) => equal(head.a, a) && equal(head.b, b));
  }

  /** The steps of a run in a mode. "" selects all modes, numbered by global step. */
  axis(run: number, mode: ModeName): Axis {
    const found = this.runs.get(run);
    if (!found) return { steps: new Float64Array(0), labels: new Float64Array(0), modes: new Uint8Array(0) };
    const key = `${run}/${mode}`;
    const known = this.#axes.get(key);
    if (known?.version === found.version) return known.axis;
    const { list } = found;
    const ofMode = known?.list === list ? known.ofMode : new ModeSteps(list, MODES.indexOf(mode));
    const { steps, modeSteps, modes } = mode === "" ? list.all : ofMode.all;
    const axis: Axis = { steps, labels: mode === "" ? steps : modeSteps, modes };
    this.#axes.set(key, { version: found.version, list, ofMode, axis });
    return axis;
  }

  /** Mode number and mode step of a global step. */
  modeOf(run: number, step: number): { mode: number; modeStep: number } | undefined {
    const found = this.runs.get(run);
    if (!found) return undefined;
    const i = lastAtOrBefore(found.steps, step);
    if (i < 0 || found.steps[i] !== step) return undefined;
    return { mode: defined(found.modes[i]), modeStep: defined(found.modeSteps[i]) };
  }

  /** Drops the data of a run. */
  #drop(run: number) {
    for (const key of [...this.tensors.keys()]) if (key.startsWith(`${run}\n`)) this.tensors.delete(key);
    for (const key of [...this.series.keys()]) if (key.startsWith(`${run}\n`)) this.series.delete(key);
    for (const key of [...this.lives.keys()]) if (key.startsWith(`${run}\n`)) this.lives.delete(key);
    this.#differences = this.#differences.filter(({ head }) => head.a.run !== run && head.b.run !== run);
    this.#tiles = this.#tiles.filter(({ head }) => head.run !== run);
    this.#values = this.#values.filter(({ head }) => head.run !== run);
    this.diagnoses.delete(run);
    this.findings.delete(run);
    this.readings.delete(run);
    for (const [key, { a, b }] of [...this.partings]) if (a === run || b === run) this.partings.delete(key);
    for (const key of [...this.replays.keys()]) if (key.startsWith(`${run}/`)) this.replays.delete(key);
    this.explorer?.surveys.drop(run);
    this.restarts++;
  }

  #catalog(head: CatalogHead, arrays: Blocks) {
    const earlier = this.runs.get(head.run);
    const other = head.launches && earlier?.launch !== (head.launch ?? null);
    if (earlier && (earlier.head.restarted_at !== head.restarted_at || other)) this.#drop(head.run);
    const before = head.append ? earlier : undefined;
    const names = before?.names ?? [];
    // A spread would exceed the argument limit for a long list.
    for (const name of head.tensors) names.push(name);
    const collections = before?.collections ?? new Map<string, number[]>();
    for (const [name, indices] of Object.entries(head.collections)) {
      const list = collections.get(name) ?? [];
      for (const index of indices) list.push(index);
      collections.set(name, list);
    }
    const list = before?.list ?? new StepList();
    const added = arrays.step?.data as Float64Array | undefined;
    const modes = (arrays.mode?.data as Uint8Array | undefined) ?? new Uint8Array(added?.length ?? 0).fill(4);
    const modeNumbers = [...new Set([...(before?.modeNumbers ?? []), ...new Set(modes)])].sort();
    if (added?.length)
      list.add({
        steps: added,
        modes,
        modeSteps: (arrays.mode_step?.data as Float64Array | undefined) ?? added,
      });
    this.runs.set(head.run, {
      head,
      names,
      collections,
      list,
      ...list.all,
      modeNumbers,
      incidents: head.incidents ?? before?.incidents ?? [],
      hparams: head.hparams ?? before?.hparams ?? {},
      launches: head.launches ?? before?.launches ?? [],
      launch: (head.launches ? head.launch : before?.launch) ?? null,
      version: (this.runs.get(head.run)?.version ?? 0) + 1,
      namesVersion: (this.runs.get(head.run)?.namesVersion ?? 0) + (head.tensors.length > 0 || !head.append ? 1 : 0),
    });
  }

  #rules(head: RulesHead, arrays: Blocks) {
    if (!head.append) {
      const listed = new Set(head.rules.map((rule) => rule.id));
      for (const id of this.rules.keys()) if (!listed.has(id)) this.rules.delete(id);
    }
    head.rules.forEach((info, i) => {
      const before = this.rules.get(info.id);
      const keep = before && head.append && !info.restarted;
      const outcomes = keep ? before.outcomes : new Map<number, number>();
      const steps = arrays[`${i}.step`]?.data;
      const codes = arrays[`${i}.outcome`]?.data;
      if (steps && codes) for (let k = 0; k < steps.length; k++) outcomes.set(defined(steps[k]), defined(codes[k]));
      const judged = (keep && before.judged) || (codes?.some((code) => code === 1 || code === 2) ?? false);
      const findings = keep ? before.findings : new Map<number, Finding[]>();
      const fresh = new Map<number, Finding[]>();
      for (const finding of info.firings) fresh.set(finding.step, [...(fresh.get(finding.step) ?? []), finding]);
      for (const [step, list] of fresh) findings.set(step, list);
      this.rules.set(info.id, { info, outcomes, findings, judged, version: ++this.#ruleChanges });
    });
  }
}

/** The steps at which rules fired, ascending. */
export function firedSteps(rules: readonly RuleState[]): Float64Array {
  const fired = rules.flatMap(({ outcomes }) => [...outcomes].filter(([, outcome]) => outcome === 2));
  return Float64Array.from(new Set(fired.map(([step]) => step))).sort();
}
