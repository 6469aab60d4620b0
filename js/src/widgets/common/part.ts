/** The interface of visible components. */

import type { Theme } from "../../draw/theme";
import type { KeyCapture } from "../../lib/key-capture";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";
import type { State } from "../../session/state";

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

/** What a kind of widget is made of. */
export interface WidgetKind {
  /** undefined: a session without surveys and queries */
  session?(state: State, signal: AbortSignal): Session;
  layout(context: Context): Part;
  /** requests what is in view; undefined: it needs only what the kernel pushes */
  requester?(session: Session, signal: AbortSignal): { update(scene: Scene): void };
}
