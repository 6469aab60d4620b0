/** The cell of the Run Map under the pointer: its row and step are marked, and a line of text says what it is. */
import type { Survey } from "../../data/survey";
import { h, setVisible } from "../../lib/dom";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";
import type { MapList } from "./list";
import type { CellPositions } from "./positions";
import type { MapScroll } from "./scroll";
import { cellText, rowText } from "./text";

export class MapHover {
  readonly cross = h("div", { class: "smdw-map-cross", hidden: true });
  readonly band = h("div", { class: "smdw-map-band", hidden: true });
  /** what the pointer is over, in one line; "" if it is elsewhere */
  text = "";

  constructor(
    private readonly session: Session,
    private readonly list: MapList,
    private readonly scroll: MapScroll,
    private readonly positions: CellPositions,
  ) {}

  update(
    { traits, stepAxis: axis }: Scene,
    survey: Survey | undefined,
    at: { x: number; y: number } | undefined,
  ): void {
    const row = at && this.scroll.rowAt(at.y);
    const inPlot = at && at.x >= axis.left && at.x < axis.right;
    const place = inPlot && row ? this.positions.at(row, axis.step(at.x)) : undefined;
    setVisible(this.cross, place !== undefined);
    setVisible(this.band, row !== undefined);
    this.text = "";
    if (!row || !at) return;
    this.band.style.transform = `translateY(${this.scroll.y(this.scroll.indexAt(at.y))}px)`;
    this.band.style.height = `${this.list.rowHeight}px`;
    if (!place) {
      this.text = row.id;
      return;
    }
    const x = axis.x((place.first + place.last) / 2) - axis.left;
    this.cross.style.transform = `translateX(${x}px)`;
    this.text = `${rowText(place)} \u00b7 ${cellText(this.session.store, traits.run, survey, place)}`;
  }
}
