/** Groups tensor names by collection and path, and flattens the open groups to rows for a virtual list. */
import { compareNatural, naturalOrder } from "./natural-order";

export interface Row {
  kind: "group" | "tensor";
  /** text of the row */
  label: string;
  /** of a group: its path; of a tensor: its name */
  id: string;
  level: number;
  open: boolean;
  /** number of tensors in a group */
  size: number;
  /** position among its siblings, for screen readers */
  place: number;
  siblings: number;
}

interface Node {
  groups: Map<string, Node>;
  leaves: string[];
  size: number;
}

/** Collections that contain every tensor. */
const CATCH_ALL = new Set(["all", "default"]);

const node = (): Node => ({ groups: new Map(), leaves: [], size: 0 });

/** Splits a name: "gradient/conv1.weight:0" into ["gradient", "conv1", "weight:0"]. */
export function path(name: string): string[] {
  if (name.length > 400) return [name];
  const parts = name.split(/[/.](?=[^/.])/).filter(Boolean);
  return parts.length ? parts : [name];
}

/** Number of name parts that the parent groups show; the first part of a prefix is the collection. */
const depth = (prefix: string) => prefix.split("\u0000").length - 1;

/** The name without its first parts. */
function tail(name: string, parts: number): string {
  let at = 0;
  for (const part of path(name).slice(0, parts)) at = name.indexOf(part, at) + part.length;
  return name.slice(at).replace(/^[/.]+/, "") || name;
}

/**
 * The members of the collections that are part of another one, by the larger collection: losses are also scalars. A
 * tensor is listed in the smaller one. Of equal collections, the first by name lists the tensors.
 */
function subsets(collections: readonly (readonly [string, readonly number[]])[]) {
  const sets = collections.map(([name, indices]) => ({ name, indices, set: new Set(indices) }));
  const out = new Map<string, (readonly number[])[]>();
  sets.forEach((large, i) => {
    const parts = sets.filter(
      (small, k) =>
        (small.set.size < large.set.size || (small.set.size === large.set.size && k < i)) &&
        small.indices.every((index) => large.set.has(index)),
    );
    out.set(
      large.name,
      parts.map(({ indices }) => indices),
    );
  });
  return out;
}

export class Tree {
  readonly #root = node();

  constructor(names: readonly string[], collections: ReadonlyMap<string, readonly number[]>) {
    const placed = new Set<number>();
    const put = (group: string, index: number) => {
      placed.add(index);
      const name = names[index];
      if (name === undefined) return;
      const parts = path(name);
      let at = this.#child(this.#root, group);
      at.size++;
      for (const part of parts.slice(0, -1)) {
        at = this.#child(at, part);
        at.size++;
      }
      at.leaves.push(name);
    };
    const order = naturalOrder(names);
    const rank = new Uint32Array(names.length);
    order.forEach((index, place) => {
      rank[index] = place;
    });
    const byRank = (a: number, b: number) => (rank[a] as number) - (rank[b] as number);
    const named = [...collections].filter(([name]) => !CATCH_ALL.has(name)).sort(([a], [b]) => compareNatural(a, b));
    const within = subsets(named);
    for (const [collection, indices] of named) {
      const elsewhere = new Set(within.get(collection)?.flat());
      for (const index of indices.filter((each) => !elsewhere.has(each)).sort(byRank)) put(collection, index);
    }
    const rest = named.length && placed.size ? "other tensors" : "all tensors";
    for (const index of order) if (!placed.has(index)) put(rest, index);
  }

  #child(parent: Node, name: string): Node {
    const found = parent.groups.get(name) ?? node();
    parent.groups.set(name, found);
    return found;
  }

  rows(closed: ReadonlySet<string>): Row[] {
    const out: Row[] = [];
    const walk = (parent: Node, prefix: string, level: number) => {
      const siblings = parent.groups.size + parent.leaves.length;
      let place = 0;
      for (const [first, child] of parent.groups) {
        // A chain of single groups is one row: "fc1 / sub".
        let name = first;
        let label = first;
        let at = child;
        while (level > 1 && at.leaves.length === 0 && at.groups.size === 1) {
          const [[next, only]] = [...at.groups] as [[string, Node]];
          name = `${name}\u0000${next}`;
          label = `${label} / ${next}`;
          at = only;
        }
        // A group with a single tensor is replaced by the tensor.
        const [only] = at.leaves;
        if (level > 1 && at.size === 1 && only !== undefined) {
          out.push({
            kind: "tensor",
            label: tail(only, depth(prefix)),
            id: only,
            level,
            open: false,
            size: 1,
            place: ++place,
            siblings,
          });
          continue;
        }
        const id = prefix ? `${prefix}\u0000${name}` : name;
        const open = !closed.has(id);
        out.push({ kind: "group", label, id, level, open, size: at.size, place: ++place, siblings });
        if (open) walk(at, id, level + 1);
      }
      for (const leaf of parent.leaves) {
        const label = tail(leaf, Math.min(depth(prefix), path(leaf).length - 1));
        out.push({ kind: "tensor", label, id: leaf, level, open: false, size: 1, place: ++place, siblings });
      }
    };
    walk(this.#root, "", 1);
    return out;
  }
}
