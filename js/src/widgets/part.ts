/** What every visible part is, and what it may know. */

import type { Theme } from "../draw/theme";
import type { KeyCapture } from "../lib/key-capture";
import type { Scene, Session } from "../session/session";

/** What a part may know: the session, the page's colours, and how to ask for the next frame. */
export interface Context {
  session: Session;
  signal: AbortSignal;
  keys: KeyCapture;
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
