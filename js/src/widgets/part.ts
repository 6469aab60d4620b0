/** What every visible part is, and what it may know. */
import type { Keys } from "../lib/keys";
import type { Scene, Session } from "../session";
import type { Theme } from "../theme";

/** What a part may know: the session, the page's colours, and how to ask for the next frame. */
export interface Context {
  session: Session;
  signal: AbortSignal;
  keys: Keys;
  theme(): Theme;
  /** draw again at the next frame */
  redraw(): void;
  /** what is drawn on canvases waits until all elements are up to date */
  paint(picture: () => void): void;
}

export interface Part {
  readonly el: HTMLElement;
  update(scene: Scene): void;
}
