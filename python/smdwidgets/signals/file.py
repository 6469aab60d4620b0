"""Write the signals of one worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdwidgets._core import worker_file_name
from smdwidgets.signals.record import LARGEST_SIGNALS, SIGNALS_PREFIX, plain_values, written_line

__all__ = ["SignalFile", "SignalWriter"]

logger = logging.getLogger("smdwidgets.hooks")


class SignalFile:
    """Appends lines to the file of a worker.

    A failure is logged once, and ends the writing.

    Args:
        root: directory of the run.
        worker: name of the worker.
        send: uploads a finished file, given by its key.
    """

    def __init__(self, root: Path, worker: str, send: Callable[[str], object] | None = None) -> None:
        self._path = root / SIGNALS_PREFIX / f"{worker_file_name(worker)}.jsonl"
        self._key = f"{SIGNALS_PREFIX}/{self._path.name}"
        self._send = send
        self._failed = False
        self.size = 0

    def append(self, lines: bytes) -> None:
        """Append lines; the first ones create the file."""
        if self._failed or self.size + len(lines) > LARGEST_SIGNALS:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A line that a killed process has left incomplete must not run into the next one.
            with self._path.open("a+b") as file:
                end = file.seek(0, 2)
                if end and not self.size:
                    file.seek(end - 1)
                    lines = lines if file.read(1) == b"\n" else b"\n" + lines
                file.write(lines)
                self.size = end + len(lines)
        except OSError as error:
            self._failed = True
            logger.warning("cannot write %s: %s; signals are not recorded", self._path, error)

    def close(self) -> None:
        """Upload the file, if the run is in a bucket."""
        if self._send is not None and self.size and not self._failed:
            self._send(self._key)


class SignalWriter:
    """Declares signals and writes their values.

    Args:
        append: appends lines to the file; must not raise.

    >>> lines = []
    >>> writer = SignalWriter(lines.append)
    >>> writer.write(8, {("log_z", ""): [2.5]})
    >>> print(lines[0].decode())
    7c3c0f06 {"id":0,"kind":"log_z","layer":"","order":0}
    7334ca7b {"step":8,"values":{"0":[2.5]}}
    <BLANKLINE>
    """

    def __init__(self, append: Callable[[bytes], object]) -> None:
        self._append = append
        self._ids: dict[tuple[str, str], int] = {}
        self._off: set[str] = set()

    def declare(
        self, kind: str, layer: str, names: Sequence[str] = (), most: float | None = None, *, again: bool = False
    ) -> None:
        """Declare a signal.

        Args:
            kind: identifier of its kind.
            layer: name of the layer or optimizer.
            names: names of its rows.
            most: the largest value that a row can have.
            again: whether a declaration replaces an earlier one.
        """
        if again or (kind, layer) not in self._ids:
            self._append(self._declaration(kind, layer, names, most))

    def _declaration(self, kind: str, layer: str, names: Sequence[str] = (), most: float | None = None) -> bytes:
        number = self._ids.setdefault((kind, layer), len(self._ids))
        content: dict[str, Any] = {"id": number, "kind": kind, "layer": layer, "order": number}
        if names:
            content["names"] = list(names)
        if most is not None:
            content["most"] = most
        return written_line(content)

    def write(self, step: int, values: Mapping[tuple[str, str], Iterable[float]]) -> None:
        """Write values at a step, by kind and layer."""
        lines = [self._declaration(*key) for key in values if key not in self._ids]
        plain = {str(self._ids[key]): plain_values(one) for key, one in values.items()}
        if plain:
            self._append(b"".join([*lines, written_line({"step": step, "values": plain})]))

    def off(self, kind: str, reason: str) -> None:
        """A kind is not recorded: write why, once."""
        if kind not in self._off:
            self._off.add(kind)
            self._append(written_line({"kind": kind, "off": reason[:1000]}))
