"""The difference of two values of tensors, element by element."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown, visible
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.tables import LIMITS

if TYPE_CHECKING:
    import pandas

#: Changed elements that are found together with the difference.
_TOP = 64
#: Changed elements in a repr.
_SHOWN = 8


@dataclass(frozen=True)
class Saved:
    """A value, and where it was saved."""

    tensor: str
    step: int
    value: NDArray[Any] = field(repr=False, compare=False)
    mode: ModeKeys = ModeKeys.GLOBAL
    worker: str | None = None
    run: str = ""

    @property
    def at(self) -> str:
        """The step, in words."""
        return f"step {self.step}" if self.mode == ModeKeys.GLOBAL else f"step {self.step} of {self.mode.name}"

    def __str__(self) -> str:
        worker = f" of {visible(self.worker, 60)}" if self.worker else ""
        return f"{shown(self.tensor)} at {self.at}{worker}"


class Difference:
    """``a - b``, element by element.

    Returned by ``tensor.difference`` and ``trial.difference``. The shapes are equal, the dtypes may differ. The
    difference is float64, complex128 if one of the two is complex, and each element of it is rounded once.

    >>> difference = trial.tensor("fc1.weight").difference(200, 100)     # doctest: +SKIP
    >>> difference.value().max(), difference.changed(3)["index"]         # doctest: +SKIP
    """

    def __init__(self, a: Saved, b: Saved) -> None:
        for one in (a, b):
            if one.value.dtype.kind in "USOT":
                raise SMDebugTypeError(f"cannot subtract text: {one} is not numeric")
        if a.value.shape != b.value.shape:
            raise SMDebugValueError(f"cannot subtract {b} from {a}: shapes {b.value.shape} and {a.value.shape} differ")
        #: The value from which the other one is subtracted.
        self.a = a
        #: The value that is subtracted.
        self.b = b
        self._top = _TOP
        self._found = _core.difference(a.value, b.value, _TOP)

    def value(self) -> NDArray[Any]:
        """Return the difference, in a new array."""
        return np.array(self._found["value"])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the difference, and of both values."""
        return self.a.value.shape

    @property
    def statistics(self) -> dict[str, int | float]:
        """Statistics of the difference.

        ``count``, ``changed`` (elements that are not equal; a NaN in both is), ``nan``, ``neg_inf``, ``pos_inf`` and
        ``zeros``; ``min``, ``max``, ``mean``, ``std``, ``l1``, ``l2`` and ``abs_max`` of the finite differences.
        Complex differences count by magnitude.
        """
        found = _core.tensor_statistics(self._found["value"])
        count = found.pop("count")
        for about_types in ("update", *LIMITS):
            del found[about_types]
        return {"count": count, "changed": self._found["changed"], **found}

    def changed(self, k: int = 12) -> Columns:
        """Return the ``k`` elements that changed most, largest first.

        The columns are ``index`` (a tuple for each element), ``a``, ``b`` and ``difference``. An element that is not
        finite in one of the two changed most of all. Of equal changes the first in C order comes first.
        """
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 0:
            raise SMDebugValueError(f"k must be an integer >= 0, got {k!r}")
        if k > self._top:
            self._found = _core.difference(self.a.value, self.b.value, int(k))
            self._top = int(k)
        flat = self._found["top"][:k].astype(np.intp)
        index = np.empty(len(flat), object)
        index[:] = [tuple(map(int, np.unravel_index(at, self.shape))) for at in flat]
        a, b, apart = (array.reshape(-1)[flat] for array in (self.a.value, self.b.value, self._found["value"]))
        return Columns({"index": index, "a": a, "b": b, "difference": apart})

    def to_pandas(self, k: int = 12) -> pandas.DataFrame:
        """Return :meth:`changed` as a DataFrame. Requires pandas."""
        return self.changed(k).to_pandas()

    def _facts(self) -> list[str]:
        s, dtypes = self.statistics, list(dict.fromkeys(one.value.dtype.name for one in (self.a, self.b)))
        shape = " × ".join(map(str, self.shape)) or "one value"
        odd = int(s["nan"] + s["neg_inf"] + s["pos_inf"])
        counts = f"{s['count']:,} elements, {s['changed']:,} changed" + (f", {odd:,} not finite" if odd else "")
        numbers = "  ".join(f"{name} {s[name]:.4g}" for name in ("min", "mean", "max", "std", "l2"))
        minus = self.b.at if self._same_tensor() else str(self.b)
        return [f"{self.a} − {minus}", f"{' − '.join(dtypes)}, {shape}; {counts}", numbers]

    def _same_tensor(self) -> bool:
        return (self.a.run, self.a.tensor, self.a.worker) == (self.b.run, self.b.tensor, self.b.worker)

    def __repr__(self) -> str:
        table = [repr(self.changed(_SHOWN))] if self._found["changed"] else []
        return "\n".join([*self._facts(), *table])

    def _repr_html_(self) -> str:
        facts = "<br>".join(html.escape(line) for line in self._facts())
        return f"<p>{facts}</p>{self.changed(_SHOWN)._repr_html_() if self._found['changed'] else ''}"
