/**
 * Search names with the browser's RegExp in a Web Worker. A backtracking pattern can take years and RegExp has no timeout, but a
 * worker can be terminated.
 */

const TIMEOUT_MS = 2000;

/** Index of a name, the name with `*` in place of what the groups matched, and what they matched. */
type Captures = [index: number, rest: string, matched: string];

type RegexResult =
  | { kind: "found"; captures: Captures[] }
  | { kind: "invalid"; message: string }
  | { kind: "timeout" }
  /** the page's Content-Security-Policy permits no worker */
  | { kind: "unavailable" };

const WORKER = `onmessage = ({ data: { names, pattern } }) => {
  try {
    const expression = new RegExp(pattern, "id");
    const captures = names.flatMap((name, index) => {
      const found = expression.exec(name);
      if (!found) return [];
      let rest = "", at = 0;
      for (const span of found.indices.slice(1))
        if (span && span[0] >= at) {
          rest += name.slice(at, span[0]) + "*";
          at = span[1];
        }
      return [[index, rest + name.slice(at), found.slice(1).filter((each) => each !== undefined).join(" ")]];
    });
    postMessage({ kind: "found", captures });
  } catch (error) {
    postMessage({ kind: "invalid", message: error.message });
  }
};`;

/** Rejects only when the signal aborts. */
export function searchInWorker(
  names: readonly string[],
  pattern: string,
  signal: AbortSignal,
  timeout = TIMEOUT_MS,
): Promise<RegexResult> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const url = URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" }));
    let worker: Worker | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const abort = () => {
      release();
      reject(signal.reason);
    };
    const release = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      worker?.terminate();
      URL.revokeObjectURL(url);
    };
    const finish = (result: RegexResult) => {
      release();
      resolve(result);
    };
    try {
      worker = new Worker(url);
    } catch {
      return finish({ kind: "unavailable" });
    }
    worker.onmessage = ({ data }: MessageEvent<RegexResult>) => finish(data);
    worker.onerror = (event) => {
      event.preventDefault();
      finish({ kind: "unavailable" });
    };
    signal.addEventListener("abort", abort);
    timer = setTimeout(() => finish({ kind: "timeout" }), timeout);
    worker.postMessage({ names, pattern });
  });
}
