"""A client of the widget protocol for tests without a browser."""

from __future__ import annotations

import itertools
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

from python.widgets.protocol_checks import check_packet, check_reply
from smdwidgets import _core
from smdwidgets.incident import Incident
from smdwidgets.pictures import unpack

Packet = tuple[dict[str, Any], dict[str, Any]]


class Page:
    """Sends requests to a widget, and collects its replies.

    The replies must agree with protocol.json.
    """

    def __init__(self, widget: Any) -> None:
        self._widget = widget
        self._numbers = itertools.count()
        self._replies: dict[str, queue.Queue[tuple[dict[str, Any], list[Packet]]]] = {}
        self._lock = threading.Lock()
        self._whats: dict[str, str] = {}
        self.faults: list[str] = []
        self.updates: list[Packet] = []
        self.sizes: list[int] = []
        widget.request_handler._queue._send = self._receive

    def _receive(self, message: dict[str, Any], buffers: Any) -> None:
        packets = [unpack(buffer) for buffer in buffers]
        try:
            what = self._whats.get(message.get("id", ""))
            if what is not None or message["kind"] == "news":  # the kernel itself made the request of a pushed reply
                check_reply(message, [head["kind"] for head, _ in packets], what)
            for head, arrays in packets:
                check_packet(head, arrays)
        except ValueError as fault:  # raised by `wait`: an exception here would go to the kernel
            self.faults.append(str(fault))
        with self._lock:
            self.sizes.append(sum(len(buffer) for buffer in buffers))
            if message["kind"] == "news":
                self.updates += packets
                return
            waiting = self._replies.setdefault(message["id"], queue.Queue())
        waiting.put((message, packets))

    def start(self, what: str, number: str = "", **arguments: Any) -> str:
        """Send a request without waiting for the reply; return its id."""
        number = number or f"t{next(self._numbers)}"
        with self._lock:
            self._replies.setdefault(number, queue.Queue())
            self._whats[number] = what
        self._widget.request_handler.handle_message({"kind": "ask", "id": number, "what": what, **arguments})
        return number

    def known(self, number: str) -> bool:
        """Whether a request or reply has this id."""
        return number in self._replies

    def cancel(self, number: str) -> None:
        self._widget.request_handler.handle_message({"kind": "cancel", "id": number})

    def wait(self, number: str, seconds: float = 30.0) -> tuple[dict[str, Any], list[Packet]]:
        """Wait for the reply; return its last message, and all its packets."""
        packets: list[Packet] = []
        with self._lock:
            replies = self._replies.setdefault(number, queue.Queue())
        while True:
            message, more = replies.get(timeout=seconds)
            packets += more
            assert not self.faults, self.faults
            if message["kind"] in {"answer", "error"}:
                return message, packets

    def ask(self, what: str, **arguments: Any) -> tuple[dict[str, Any], list[Packet]]:
        return self.wait(self.start(what, **arguments))

    def frames(self, tensor: str, **arguments: Any) -> dict[int, dict[str, Any]]:
        """Request frames; return them by step, with later editions replacing earlier ones."""
        message, packets = self.ask("frames", role="main", run=0, tensor=tensor, worker="", near=-1, **arguments)
        assert message["kind"] == "answer", message
        return by_step(packets)


def by_step(packets: list[Packet]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for head, arrays in packets:
        if head["kind"] != "frames":
            continue
        for i, step in enumerate(arrays["step"]):
            row = {name: array[i] for name, array in arrays.items() if len(array) == len(arrays["step"])}
            if "edges" in arrays and arrays["edges"].ndim == 1:
                row["edges"] = arrays["edges"]
            found[int(step)] = {**row, "head": head}
    return found


def save(root: Path, step: int, tensors: dict[str, Any], *, mode: int = 4, worker: str = "worker_0") -> None:
    """Write one step of a run."""
    with _core.StepWriter(root, step, worker, mode) as writer:
        for name, value in tensors.items():
            writer.tensor(name, value)


def save_incident(root: Path, step: int, why: str, steps: range) -> None:
    """Write the record of an incident, as a flight recorder does."""
    folder = root / "incidents" / "worker_0"
    folder.mkdir(parents=True, exist_ok=True)
    record = Incident("worker_0", step, (why,), steps=tuple(steps), dense_until=steps[-1])
    (folder / f"{step}_0_{step}.json").write_bytes(record.to_json())


def begin(root: Path, collections: str = "{}") -> Path:
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    (folder / "worker_0_collections.json").write_text(
        f'{{"collections": {collections}, "_meta": {{"num_workers": 1}}}}'
    )
    return root


def end(root: Path) -> Path:
    (root / "training_job_end.ts").touch()
    return root


def weights(step: int, shape: tuple[int, ...] = (32, 48)) -> Any:
    return np.random.default_rng(step).normal(step / 10, 1 + step / 20, shape).astype(np.float32)
