/**
 * The view of a widget as a short string, which opens the same view of the run elsewhere: `smdw2.` and base64url of JSON
 * with the traits that differ from their defaults. It names runs and tensors rather than indices.
 * python/smdwidgets/widgets/state_string.py does the same; tests/vectors/state.json has cases for both.
 */

import { equal } from "../lib/equal";
import { truncate } from "../lib/format";
import { TRAIT_TYPES, type TraitType } from "../protocol/trait-types";
import { DEFAULTS, type Traits } from "../protocol/types";

const PREFIX = "smdw2.";
const MOST = 2048;
const LARGEST = 2 ** 53;
/** Missing things that a sentence lists. */
const NAMED = 4;
/** Following the newest step is what step -1 means. */
export const STATE_NAMES = Object.keys(TRAIT_TYPES)
  .filter((name) => name !== "follow")
  .sort() as (keyof Traits)[];

type Fields = Record<string, unknown>;

/** What exists here. */
export interface Known {
  /** names of the runs, in order */
  runs: readonly string[];
  hasTensor(name: string): boolean;
  hasStep(run: number, step: number): boolean;
}

/** The traits of a string, undefined if it cannot be read, and a sentence about what is missing. */
export interface Restored {
  traits: Partial<Traits> | undefined;
  missing: string;
}

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The runs' names, numbered where several are equal. */
function runLabels(names: readonly string[]): string[] {
  return names.map((name, at) => {
    const number = names.slice(0, at).filter((each) => each === name).length + 1;
    return number === 1 ? name : `${name} (${number})`;
  });
}

/** The state string of traits. The largest values are left out if it would be too long. */
export function encodeState(traits: Partial<Traits>, runs: readonly string[]): string {
  const labels = runLabels(runs);
  const label = (index: unknown) => labels[index as number] ?? -1;
  const named = (found: Fields) => ("run" in found ? { ...found, run: label(found.run) } : found);
  const texts = new Map<string, string>();
  for (const name of STATE_NAMES) {
    const value = traits[name];
    if (value === undefined || equal(value, DEFAULTS[name])) continue;
    texts.set(name, JSON.stringify(name === "run" ? label(value) : eachObject(value, named)));
  }
  while (true) {
    const json = `{${[...texts].map(([name, text]) => `"${name}":${text}`).join(",")}}`;
    const made = PREFIX + base64(new TextEncoder().encode(json));
    if (made.length <= MOST) return made;
    const size = (name: string) => new TextEncoder().encode(texts.get(name)).length;
    const largest = [...texts.keys()].reduce((a, b) => (size(b) >= size(a) ? b : a));
    texts.delete(largest);
  }
}

export function decodeState(text: string, known: Known): Restored {
  const read = parse(text);
  if (typeof read === "string") return { traits: undefined, missing: `The state string ${read}, and was not used.` };
  const labels = runLabels(known.runs);
  const traits: Fields = {};
  const missing: string[] = [];
  for (const name of Object.keys(read).sort()) {
    if (!STATE_NAMES.includes(name as keyof Traits)) {
      missing.push(`setting ${quoted(name)}`);
      continue;
    }
    const absent: string[] = [];
    const value = resolved(name, read[name], labels, known, absent);
    missing.push(...absent);
    if (value === undefined) continue;
    if (!fits(value, TRAIT_TYPES[name] as TraitType)) missing.push(`setting ${quoted(name)}`);
    else traits[name] = value;
  }
  const step = (traits.step as number | undefined) ?? -1;
  if (step >= 0 && !known.hasStep((traits.run as number | undefined) ?? 0, step)) missing.push(`step ${step}`);
  return { traits: traits as Partial<Traits>, missing: sentence(missing) };
}

/** The JSON object of a string, or what is wrong with it. */
function parse(given: string): Fields | string {
  if (given.length > MOST + 100) return "is longer than 2,048 characters";
  const text = given.trim();
  const version = /^smdw(\d{1,9})\./.exec(text);
  if (!version) return `does not begin with '${PREFIX}'`;
  if (version[0] !== PREFIX) return `has version ${version[1]} instead of 2`;
  const coded = text.slice(PREFIX.length);
  try {
    if (!/^[\w-]*$/.test(coded)) throw new SyntaxError();
    const bytes = Uint8Array.from(atob(coded.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const read: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
    if (isObject(read)) return read;
  } catch {
    // not base64, not UTF-8 or not JSON
  }
  return "is cut off or damaged";
}

/** A value with indices of runs, without the items of a list that name what does not exist; undefined if nothing is left. */
function resolved(name: string, value: unknown, labels: readonly string[], known: Known, absent: string[]): unknown {
  const index = (label: unknown, none: boolean) => {
    if (none && label === -1) return -1;
    const at = labels.indexOf(label as string);
    if (at < 0) absent.push(`run ${quoted(label)}`);
    return at < 0 ? undefined : at;
  };
  const isAbsent = (tensor: unknown) => {
    if (typeof tensor !== "string" || !tensor || known.hasTensor(tensor)) return false;
    absent.push(`tensor ${quoted(tensor)}`);
    return true;
  };
  const resolve = (found: Fields): Fields | undefined => {
    const run = "run" in found ? index(found.run, true) : null;
    if (run === undefined || isAbsent(found.tensor)) return undefined;
    return run === null ? found : { ...found, run };
  };
  if (name === "run") return index(value, false);
  if (name === "tensor" || name === "lane") return isAbsent(value) ? undefined : value;
  const changed = eachObject(value, resolve);
  return Array.isArray(changed) ? changed.filter((each) => each !== undefined) : changed;
}

/** Changes an object, or the objects in a list. */
function eachObject(value: unknown, change: (found: Fields) => unknown): unknown {
  if (isObject(value)) return change(value);
  return Array.isArray(value) ? value.map((each) => (isObject(each) ? change(each) : each)) : value;
}

function fits(value: unknown, type: TraitType): boolean {
  if (typeof type === "string") {
    if (type === "str") return typeof value === "string" && !/\p{Surrogate}/u.test(value);
    if (type === "bool") return typeof value === "boolean";
    if (type === "null") return value === null;
    return typeof value === "number" && Math.abs(value) <= LARGEST && (type === "float" || Number.isInteger(value));
  }
  if ("is" in type) return value === type.is;
  if ("any" in type) return type.any.some((each) => fits(value, each));
  if ("list" in type) return Array.isArray(value) && value.every((each) => fits(each, type.list));
  if ("items" in type)
    return (
      Array.isArray(value) && value.length === type.items.length && type.items.every((item, i) => fits(value[i], item))
    );
  if (!isObject(value)) return false;
  if ("map" in type) return Object.values(value).every((each) => fits(each, type.map));
  const names = Object.keys(type.fields);
  return (
    Object.keys(value).every((name) => names.includes(name) || names.includes(`${name}?`)) &&
    names.every((name) => {
      const plain = name.replace("?", "");
      const type_ = type.fields[name] as TraitType;
      return Object.hasOwn(value, plain) ? fits(value[plain], type_) : plain !== name;
    })
  );
}

function base64(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function quoted(name: unknown): string {
  return `'${truncate(typeof name === "string" ? name : (JSON.stringify(name) ?? ""), 60)}'`;
}

function sentence(missing: readonly string[]): string {
  const unique = [...new Set(missing)];
  if (!unique.length) return "";
  const listed = unique.slice(0, NAMED);
  if (unique.length > NAMED) listed.push(`${unique.length - NAMED} more`);
  const last = listed.pop() as string;
  return `The view is restored without ${listed.length ? `${listed.join(", ")} and ${last}` : last}.`;
}
