/** Which rows of the Run Map are in sight. */
import type { MapRow } from "../../lib/map-rows";
import type { Scene } from "../../session/scene";
import type { MapList } from "./list";

interface Changes {
  /** the map was scrolled */
  scrolled(): void;
  /** a row was brought into sight */
  shown(row: MapRow): void;
}

export class MapScroll {
  /** of the map */
  height = 0;
  #top = 0;
  /** the run whose first finding has been shown, and the tensor in view then */
  #revealed: number | undefined;
  #tensor = "";
  /** the tensor whose row stays in sight, and the height for which it was brought there */
  #anchor: number | undefined;
  #anchored = 0;
  /** it is that of the first finding, which is shown with its module */
  #first = false;

  constructor(
    private readonly list: MapList,
    private readonly changes: Changes,
  ) {}

  /** Distance of the upper edge of the map from that of the first row. */
  get top(): number {
    return this.#top;
  }

  /** Height of all rows. */
  get total(): number {
    return this.list.rows.length * this.list.rowHeight;
  }

  /** The first row in sight and the one after the last; also rows that are `beyond` times the height of the map away. */
  range(beyond = 0): [number, number] {
    const { rows, rowHeight } = this.list;
    const first = Math.floor((this.#top - beyond * this.height) / rowHeight);
    const end = Math.ceil((this.#top + (1 + beyond) * this.height) / rowHeight);
    return [Math.max(0, first), Math.min(rows.length, end)];
  }

  /** The upper edge of a row in the map. */
  y(row: number): number {
    return row * this.list.rowHeight - this.#top;
  }

  indexAt(y: number): number {
    return Math.floor((y + this.#top) / this.list.rowHeight);
  }

  rowAt(y: number): MapRow | undefined {
    return this.list.rows[this.indexAt(y)];
  }

  /** Scrolls. No row is kept in sight any more. */
  to(top: number): void {
    const next = this.#within(top);
    if (next === this.#top) return;
    this.#top = next;
    this.#anchor = undefined;
    this.changes.scrolled();
  }

  /** Scrolls as little as brings a row into sight. */
  toRow(row: number): void {
    const { rowHeight } = this.list;
    const y = row * rowHeight;
    if (y < this.#top) this.to(y);
    else if (y + rowHeight > this.#top + this.height) this.to(y + rowHeight - this.height);
  }

  /** Brings the row of a tensor into sight; that of its module if it is folded. */
  reveal(tensor: number): void {
    this.#anchor = tensor;
    this.#anchored = this.height;
    this.#first = false;
    this.#show(tensor);
  }

  /** `before`: the rows before the list was updated. */
  update(scene: Scene, before: readonly MapRow[]): void {
    if (before !== this.list.rows) this.#keepInPlace(before);
    this.#top = this.#within(this.#top);
    this.#keepInSight(scene);
  }

  #within(top: number): number {
    return Math.max(0, Math.min(Math.round(top), this.total - this.height));
  }

  /** Keeps the row at the top where it was when rows above it come or go. */
  #keepInPlace(before: readonly MapRow[]) {
    const height = this.list.rowHeight;
    const first = Math.floor(this.#top / height);
    const keys = new Map(before.slice(first, first + 40).map(({ key }, i) => [key, first + i]));
    let [from, to] = [before.length, 0];
    for (const [i, { key }] of this.list.rows.entries()) {
      const at = keys.get(key) ?? before.length;
      if (at < from) [from, to] = [at, i];
      if (at === first) break;
    }
    if (from < before.length) this.#top += (to - from) * height;
  }

  /**
   * Brings a row into sight: that of the first finding once it is known, or of the tensor in the inspector; then that of
   * each tensor that is chosen. It stays in sight when the map becomes lower, until the rows are scrolled.
   */
  #keepInSight({ traits, run }: Scene) {
    if (!this.height || !run) return;
    const index = this.list.model.indexOf(traits.tensor);
    const before = this.#anchor;
    if (this.#revealed !== traits.run) {
      const first = traits.inspect && index >= 0 ? index : this.list.first(traits.run);
      if (first === undefined) return;
      this.#revealed = traits.run;
      this.#anchor = first;
      this.#first = first !== index;
    } else if (traits.tensor !== this.#tensor && index >= 0) {
      this.#anchor = index;
      this.#first = false;
    }
    this.#tensor = traits.tensor;
    if (this.#anchor === undefined || (this.#anchor === before && this.height === this.#anchored)) return;
    this.#anchored = this.height;
    this.#show(this.#anchor, this.#first);
  }

  #show(tensor: number, withModule = false) {
    const { rows, rowHeight } = this.list;
    let i = rows.findIndex((row) => row.tensors.length === 1 && row.tensors[0] === tensor);
    if (i < 0) i = rows.findIndex((row) => row.tensors.includes(tensor));
    if (i < 0) return;
    const y = i * rowHeight;
    const module = withModule ? rows.findIndex(({ open, tensors }) => open && tensors.includes(tensor)) : -1;
    if (module >= 0 || y < this.#top || y > this.#top + this.height - rowHeight) {
      const third = y - this.height / 3;
      const top = module < 0 ? third : Math.max(y - 0.75 * this.height, module * rowHeight - this.height / 4);
      // The map begins with a whole row, unless that hides this one.
      const first = Math.floor(top / rowHeight) * rowHeight;
      this.#top = this.#within(y + rowHeight > first + this.height ? first + rowHeight : first);
    }
    this.changes.shown(rows[i] as MapRow);
  }
}
