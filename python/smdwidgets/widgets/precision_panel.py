"""A table of what formats of 8 and 4 bits would make of the tensors in view."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ipywidgets import HTML

from smdwidgets._text import byte_size, markup
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials.precision import FORMATS, FormatLoss, TensorPrecision, precision_of, saved_until, worst_first
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.trial import Trial

if TYPE_CHECKING:
    from smdwidgets.widgets.view import RunView

__all__ = ["PrecisionPanel"]

logger = logging.getLogger("smdwidgets.widgets")

#: Bytes of tensors, as float32, that are cast at a step, and rows that are kept.
_MOST_BYTES: Final = 256 << 20
_KEPT: Final = 4096

_NUMBER: Final = 'style="text-align:right;padding:1px 8px;white-space:nowrap"'
_NOTABLE: Final = 'style="text-align:right;padding:1px 8px;white-space:nowrap;font-weight:600;color:#b3261e"'
_NAME: Final = 'style="text-align:left;padding:1px 8px"'


class PrecisionPanel(HTML):  # type: ignore[misc]  # ipywidgets has no types
    """What E4M3, E5M2, MXFP8 and NVFP4 would make of tensors, over a step slider.

    The tensor in view comes first, then the tensors that lose most. The table follows the widget: another step, run,
    worker or tensor changes it. It is computed in a thread, for the last step that was asked for.

    >>> explorer = smdwidgets.explore("runs/gpt")                          # doctest: +SKIP
    >>> explorer.precision()                                               # doctest: +SKIP

    Args:
        widget: the widget to follow.
        tensors: names of tensors; None: all of several numbers, as long as they have at most 256 MB together.
        most: rows of tensors that are not in view.
        scaled: whether E4M3 and E5M2 have a scale, by which the largest value becomes the largest number.
    """

    def __init__(
        self, widget: RunView, tensors: Iterable[str] | None = None, most: int = 10, *, scaled: bool = True
    ) -> None:
        super().__init__()
        self._is_closed = False
        self._widget = widget
        self._tensors = None if tensors is None else tuple(tensors)
        self._most, self._scaled = most, scaled
        self._lock = threading.Lock()
        self._rows: OrderedDict[tuple[Any, ...], TensorPrecision] = OrderedDict()
        #: The number of the last change, that of the table, and the thread that makes it.
        self._asked = self._shown = 0
        self._thread: threading.Thread | None = None
        widget.observe(self._changed, ["run", "step", "tensor", "worker"])
        self._changed(None)

    def close(self) -> None:
        """Remove the table, and follow the widget no longer."""
        if not self._is_closed:
            self._is_closed = True
            self._widget.unobserve(self._changed, ["run", "step", "tensor", "worker"])
        super().close()

    def wait(self) -> None:
        """Wait until the table is that of the step in view."""
        thread = self._thread
        if thread is not None:
            thread.join()

    # --------------------------------------------------------------------------------------------------------- updates

    def _changed(self, change: Any) -> None:
        with self._lock:
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="smdwidgets-precision", daemon=True)
                self._thread.start()

    def _follow(self) -> None:
        while True:
            with self._lock:
                if self._asked == self._shown or self._is_closed:
                    self._thread = None
                    return
                number = self._asked
            try:
                html = self._table(number)
            except Exception as error:  # the cell shows why there is no table
                logger.debug("cannot make the table of formats", exc_info=True)
                html = f"<p>{markup(f'{type(error).__name__}: {error}', 1000)}</p>"
            if html is not None and not self._is_closed:
                self.value = html
            with self._lock:
                self._shown = number

    def _table(self, number: int) -> str | None:
        """Return the table; None if another step was asked for meanwhile."""
        widget = self._widget
        trial, shown, worker = widget.trial, widget.tensor, widget.worker or None
        with no_refresh(trial):
            steps = trial.steps(show_incomplete_steps=True)
            step = widget.step if widget.step >= 0 else steps[-1] if steps else -1
            first = [
                row
                for row in self._read(trial, [shown] if shown else [], step, worker)
                if isinstance(row, TensorPrecision)
            ]
            others: list[TensorPrecision] = []
            left_out = 0
            for row in self._read(trial, self._names(trial), step, worker):
                if number != self._asked:
                    return None
                if isinstance(row, int):
                    left_out += row
                elif row.name != shown:
                    others.append(row)
        return _html(first, worst_first(others), self._most, step, left_out)

    def _names(self, trial: Trial) -> Sequence[str]:
        if self._tensors is None:
            return trial.tensor_names()
        return [name for name in self._tensors if trial.has_tensor(name)]

    def _read(
        self, trial: Trial, names: Sequence[str], step: int, worker: str | None
    ) -> Iterator[TensorPrecision | int]:
        """Yield rows, and the bytes of tensors that are left out because of their size."""
        bytes_left = _MOST_BYTES
        for name in names:
            place = saved_until(trial.reader, name, step, worker)
            if place is None:
                continue
            at, count = place
            key = (str(trial.path), trial.restarts, name, at, worker)
            row = self._rows.get(key)
            if row is None:
                if 4 * count > bytes_left and self._tensors is None:
                    yield 4 * count
                    continue
                bytes_left -= 4 * count
                try:
                    value = trial.tensor(name).passing().value(at, worker=worker)
                except SMDebugError:  # damaged at this step
                    continue
                row = self._rows[key] = TensorPrecision(name, at, precision_of(value, scaled=self._scaled))
                while len(self._rows) > _KEPT:
                    self._rows.popitem(last=False)
            yield row


def _html(
    first: Sequence[TensorPrecision], others: Sequence[TensorPrecision], most: int, step: int, left_out: int
) -> str:
    if not (first or others):
        return f"<p>No tensor of several numbers has a value up to step {step:,}.</p>"
    shown = [*first, *others[:most]]
    heads = "".join(f'<th colspan="3" style="text-align:center">{one}</th>' for one in FORMATS)
    parts = "".join(f"<th {_NUMBER}>{word}</th>" for word in ("flushed", "saturated", "error")) * len(FORMATS)
    rows = "".join(_row(one, is_first=one in first) for one in shown)
    notes = [f"{len(others) - most:,} more tensors lose less" if len(others) > most else ""]
    notes.append(f"left out: tensors of {byte_size(left_out)}; name them with tensors=" if left_out else "")
    text = ". ".join(["Shares of the values other than zero; error relative to their size", *filter(None, notes)])
    return (
        f'<table style="border-collapse:collapse"><caption style="text-align:left">What formats of 8 and 4 bits would make '
        f"of the tensors at step {step:,}, the worst first</caption>"
        f"<thead><tr><th {_NAME}>tensor</th><th {_NUMBER}>step</th>{heads}</tr><tr><th></th><th></th>{parts}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>{markup(text, 1000)}.</p>"
    )


def _row(one: TensorPrecision, *, is_first: bool) -> str:
    name = markup(one.name, 200)
    cells = "".join(_cells(loss) for loss in one.formats)
    return f"<tr><td {_NAME}>{f'<b>{name}</b>' if is_first else name}</td><td {_NUMBER}>{one.step:,}</td>{cells}</tr>"


def _cells(loss: FormatLoss) -> str:
    style = _NOTABLE if loss.is_notable else _NUMBER
    return f"<td {style}>{loss.flushed:.2%}</td><td {style}>{loss.saturated:.2%}</td><td {style}>{loss.error:.3f}</td>"
