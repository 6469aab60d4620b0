/** Data that the view needs: requested once for each key, after a rest, and again when the connection was lost. */
import { equal } from "../lib/equal";
import { IdleTimer } from "../lib/idle-timer";
import type { KernelRequest, KernelResponse } from "../protocol/types";
import type { RequestStatus } from "./connection";
import type { Session } from "./session";

interface Options {
  /** milliseconds without another key before the request is sent */
  rest?: number;
  /** another key cancels the request at once, not only when the next one is sent */
  cancelsAtOnce?: boolean;
}

export class Resource<K = unknown> {
  readonly #timer: IdleTimer;
  readonly #options: Required<Options>;
  /** of the last request, and of the one that waits for a rest */
  #sent: K | undefined;
  #waiting: K | undefined;
  #epoch = 0;

  constructor(
    private readonly session: Session,
    private readonly slot: string,
    signal: AbortSignal,
    { rest = 0, cancelsAtOnce = false }: Options = {},
  ) {
    this.#timer = new IdleTimer(signal);
    this.#options = { rest, cancelsAtOnce };
  }

  /** The request that runs or has failed. */
  get status(): RequestStatus | undefined {
    return this.session.connection.requests.get(this.slot);
  }

  /**
   * Requests what the key stands for, unless it is the last one, and returns whether the request waits. `request`
   * may return undefined: the data is there.
   */
  update(
    key: K,
    request: () => KernelRequest | undefined,
    rest = this.#options.rest,
    answered?: (response: KernelResponse) => void,
  ): boolean {
    const { connection, epoch } = this.session;
    if (epoch !== this.#epoch) this.#sent = undefined;
    this.#epoch = epoch;
    if (equal(key, this.#waiting)) return true;
    this.skip();
    if (equal(key, this.#sent)) return false;
    if (this.#options.cancelsAtOnce) this.cancel();
    this.#waiting = key;
    const send = async () => {
      this.#waiting = undefined;
      this.#sent = key;
      const message = request();
      const response = message && (await connection.request(this.slot, message));
      if (response) answered?.(response);
    };
    if (rest) this.#timer.schedule(rest, send);
    else void send();
    return rest > 0;
  }

  /** Nothing more is needed now. A request that runs continues. */
  skip(): void {
    this.#waiting = undefined;
    this.#timer.cancel();
  }

  /** The data is not needed any more. */
  cancel(): void {
    this.skip();
    if (this.#sent === undefined) return;
    this.#sent = undefined;
    this.session.connection.cancel(this.slot);
  }
}
