"""The widget in a page that offers only what every notebook host offers.

VS Code, Colab and other hosts load anywidget's module in another page: without JupyterLab's CSS variables, without
`experimental.invoke`, under a strict Content-Security-Policy, over a connection that may double or reorder messages.
This page is such a host; its other end is the real widget in this process.
"""

from __future__ import annotations

import base64
import json
import queue
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import smdwidgets
from e2e import runs
from e2e.looking import Looking
from e2e.test_explorer import expect_histogram_of

ORIGIN = "http://127.0.0.1:9"  # every request is answered by the test
POLICY = (
    "default-src 'none'; script-src 'self' blob:; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE = "<!doctype html><title>host</title><body><script type='module' src='/host.js'></script>"
#: The module of a host: a model with get, set, save_changes, on, off and send, and nothing more.
HOST = """
const decode = (value) => {
  if (Array.isArray(value)) return value.map(decode);
  if (!value || typeof value !== "object") return value;
  if (typeof value.$bytes === "string")
    return new DataView(Uint8Array.from(atob(value.$bytes), (char) => char.charCodeAt(0)).buffer);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, decode(each)]));
};
const state = decode(await (await fetch("/state.json")).json());
const listeners = new Map();
const emit = (name, ...words) => { for (const each of [...(listeners.get(name) ?? [])]) each(...words); };
let unsaved = {};
const model = {
  get: (name) => state[name],
  set(name, value) {
    state[name] = value;
    unsaved[name] = value;
    emit(`change:${name}`);
  },
  save_changes() {
    toKernel({ method: "update", state: unsaved });
    unsaved = {};
  },
  on(name, call) { listeners.set(name, [...(listeners.get(name) ?? []), call]); },
  off(name, call) { listeners.set(name, (listeners.get(name) ?? []).filter((each) => each !== call)); },
  send(content) { toKernel({ method: "custom", content }); },
};
const style = document.createElement("style");
style.textContent = state._css;
const el = document.createElement("div");
document.body.append(style, el);
const url = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
const widget = await (await import(url)).default();
const control = new AbortController();
const given = window.hostHasSignal ? { signal: control.signal } : {};
const end = await widget.initialize?.({ model, ...given });
const clear = await widget.render?.({ model, el, ...given });
window.hostClose = () => { control.abort(); clear?.(); end?.(); };
for (;;) {
  for (const message of await fromKernel()) {
    const { content, buffers } = decode(message);
    emit("msg:custom", content, buffers);
  }
  await new Promise((on) => setTimeout(on, 10));
}
"""


class Host:
    """A page with a widget, and the connection between them."""

    def __init__(self, browser: Browser, widget: Any, order: str, signal: bool) -> None:
        self.widget = widget
        self.order = order
        self.sent: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.problems: list[str] = []
        widget.comm.send = self._keep
        self.page: Page = browser.new_page(viewport={"width": 1000, "height": 900})
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        self.page.expose_function("toKernel", self._to_kernel)
        self.page.expose_function("fromKernel", self._from_kernel)
        self.page.add_init_script(f"window.hostHasSignal = {json.dumps(signal)}")
        self.page.route("**/*", self._serve)
        self.page.goto(f"{ORIGIN}/")

    def _serve(self, route: Any) -> None:
        path = route.request.url.removeprefix(ORIGIN)
        state = {name: value for name, value in self.widget.get_state().items() if isinstance(name, str)}
        found = {
            "/": (PAGE, "text/html"),
            "/host.js": (HOST, "text/javascript"),
            "/state.json": (json.dumps(encoded(state)), "application/json"),
        }.get(path)
        if found is None:
            self.problems.append(f"request for {route.request.url}")
            return route.abort()
        headers = {"Content-Security-Policy": POLICY} if path == "/" else {}
        return route.fulfill(body=found[0], content_type=found[1], headers=headers)

    def _keep(self, data: dict[str, Any] | None = None, buffers: Any = None, **_: Any) -> None:
        if data and data.get("method") == "custom":
            self.sent.put(encoded({"content": data["content"], "buffers": list(buffers or [])}))

    def _to_kernel(self, data: dict[str, Any]) -> None:
        for _ in range(2 if self.order == "doubled" else 1):
            self.widget._handle_msg({"content": {"data": {**data, "buffer_paths": []}}, "buffers": []})

    def _from_kernel(self) -> list[dict[str, Any]]:
        messages = [self.sent.get() for _ in range(self.sent.qsize())]
        if self.order == "doubled":
            return [message for message in messages for _ in range(2)]
        if self.order == "swapped":
            return [message for at in range(0, len(messages), 2) for message in reversed(messages[at : at + 2])]
        return messages


def encoded(value: Any) -> Any:
    """Return a value for JSON; bytes become objects that the page decodes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {name: encoded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@pytest.mark.parametrize(("order", "signal"), [("kept", False), ("doubled", True), ("swapped", True)])
def test_a_host_with_the_least_that_hosts_offer(
    browser: Browser, tmp_path: Path, shots: Path, order: str, signal: bool
) -> None:
    widget = smdwidgets.explore(str(runs.write(tmp_path / "run")), tensor=runs.WEIGHT)
    host = Host(browser, widget, order, signal)
    look = Looking(host.page.locator(".smdw"))
    expect(look.el).to_be_visible()
    look.at_step(29)
    look.has_steps(30)
    # The sentence moves the track when it arrives.
    expect(look.el.get_by_role("region", name="Diagnosis").get_by_role("button").first).to_be_visible()
    look.drag(0.9, 0.2, 0.5)
    step = int(look.box.input_value())
    assert 12 <= step <= 17
    expect_histogram_of(look, runs.weight(step))
    expect(look.el.locator(".smdw-name")).to_have_text(runs.WEIGHT)
    look.keys("ArrowRight").at_step(step + 1)
    expect_histogram_of(look, runs.weight(step + 1))
    expect(look.box).to_have_value(str(step + 1))
    shots.mkdir(parents=True, exist_ok=True)
    host.page.screenshot(path=str(shots / f"host-{order}.png"))
    host.page.evaluate("() => window.hostClose()")
    expect(look.el).to_have_count(0)
    host.page.close()
    widget.close()
    assert host.problems == []
    assert widget.step == step + 1
