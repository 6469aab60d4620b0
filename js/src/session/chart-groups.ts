/** Divides scalars into charts by a regular expression: "(train|val)_loss" draws both curves in the chart "*_loss". */

export interface ChartGroup {
  title: string;
  tensors: { name: string /** what the groups of the expression matched */; matched: string }[];
}

/** More charts cannot be compared by eye. */
const MOST_CHARTS = 24;
const MOST_CURVES = 60;
const LONGEST_PATTERN = 1000;

const ofSessions = new WeakMap<object, ChartGroups>();

/** The groups of a session, which all views of its widget share. */
export function chartGroupsOf(session: object): ChartGroups {
  const groups = ofSessions.get(session) ?? new ChartGroups();
  ofSessions.set(session, groups);
  return groups;
}

export class ChartGroups {
  #key = "";
  #control: AbortController | undefined;
  groups: readonly ChartGroup[] = [];
  /** why there is none */
  error = "";

  /** Starts a search if the pattern or the names have changed; `changed` is called when it is done. */
  update(pattern: string, names: readonly string[], changed: () => void): void {
    const key = `${pattern}\n${names.length}\n${names.at(-1)}`;
    if (key === this.#key) return;
    this.#key = key;
    this.#control?.abort();
    const control = new AbortController();
    this.#control = control;
    const end = (groups: readonly ChartGroup[], error: string) => {
      this.groups = groups;
      this.error = error;
    };
    if (!pattern) return end([], "");
    if (pattern.length > LONGEST_PATTERN) return end([], "The pattern is too long");
    import("../lib/worker-regex")
      .then(({ searchInWorker }) => searchInWorker(names, pattern, control.signal))
      .then(
        (result) => {
          if (result.kind === "found") {
            const groups = grouped(names, result.captures);
            end(groups, groups.length ? "" : "No scalar matches");
          } else if (result.kind === "invalid") end([], result.message);
          else end([], result.kind === "timeout" ? "The pattern takes too long" : "This page permits no patterns");
          changed();
        },
        (reason) => {
          if (control.signal.aborted) return; // superseded by another search
          end([], String(reason));
          changed();
        },
      );
  }
}

export function grouped(
  names: readonly string[],
  captures: readonly (readonly [index: number, rest: string, matched: string])[],
): ChartGroup[] {
  const groups = new Map<string, ChartGroup>();
  for (const [index, title, matched] of captures.slice(0, MOST_CURVES)) {
    const group = groups.get(title) ?? { title, tensors: [] };
    group.tensors.push({ name: names[index] as string, matched });
    groups.set(title, group);
  }
  return [...groups.values()].slice(0, MOST_CHARTS);
}
