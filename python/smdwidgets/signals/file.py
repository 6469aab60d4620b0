"""Write the signals of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smdwidgets._lines import WorkerLines
from smdwidgets.signals.record import LARGEST_SIGNALS, SIGNALS_PREFIX, plain_values, written_line

__all__ = ["SignalFile", "SignalWriter"]


class SignalFile(WorkerLines):
    """The lines of the signals, up to a limit.

    Args:
        root: directory of the run.
        worker: name of the worker.
    """

    def __init__(self, root: Path, worker: str) -> None:
        super().__init__(root, SIGNALS_PREFIX, worker, "signals are not recorded")

    def append(self, lines: bytes) -> None:
        """Append lines; those beyond the limit are left out."""
        if self.size + len(lines) <= LARGEST_SIGNALS:
            super().append(lines)


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
        #: Bytes that were written.
        self.size = 0
        self._lines = append
        self._ids: dict[tuple[str, str], int] = {}
        self._off: set[str] = set()
        self._latest = 0

    def _append(self, lines: bytes) -> None:
        self.size += len(lines)
        self._lines(lines)

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
        """Write values at a step, by kind and layer.

        A step below an earlier one would mean that the training was resumed; those of an earlier step that arrive late
        belong to the latest one.
        """
        step = self._latest = max(step, self._latest)
        lines = [self._declaration(*key) for key in values if key not in self._ids]
        plain = {str(self._ids[key]): plain_values(one) for key, one in values.items()}
        if plain:
            self._append(b"".join([*lines, written_line({"step": step, "values": plain})]))

    def off(self, kind: str, reason: str) -> None:
        """A kind is not recorded: write why, once."""
        if kind not in self._off:
            self._off.add(kind)
            self._append(written_line({"kind": kind, "off": reason[:1000]}))
