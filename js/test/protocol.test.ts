/** Page and kernel of different versions. */
import { expect, test } from "vitest";
import { PROTOCOL } from "../src/protocol/types";
import { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { mount } from "../src/view";
import { kind } from "../src/widgets/kinds/slider";

test.each([
  [PROTOCOL + 1, "Reload the page."],
  [PROTOCOL - 1, "Restart the kernel."],
])("a kernel of protocol %i is refused with the remedy: %s", (version, remedy) => {
  const el = document.createElement("div");
  const { signal } = new AbortController();
  mount(new Session(new State(new LocalModel({ _protocol: version }), signal), signal), kind, el, signal);
  expect(el.querySelector("strong")?.textContent).toBe(remedy);
  expect(el.textContent).toContain(`Protocol mismatch: kernel ${version}, page ${PROTOCOL}.`);
});
