/** The interface of visible components. */

import type { Theme } from "../draw/theme";
import type { KeyCapture } from "../lib/key-capture";
import type { Scene, Session } from "../session/session";

/** What a component may use. */
export interface Context {
  session: Session;
  signal: AbortSignal;
  keys: KeyCapture;
  theme(): Theme;
  /** schedule a redraw in the next animation frame */
  redraw(): void;
  /** draw on a canvas after all DOM updates of the frame */
  paint(picture: () => void): void;
}

export interface Part {
  readonly el: HTMLElement;
  /** the element that the axis of steps spans, if it is not `el` */
  readonly stage?: HTMLElement;
  update(scene: Scene): void;
}
