"""Statistics of tensors that nvdlfw-inspect logs for Transformer Engine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from smdwidgets._text import shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.columns import LARGEST_STEP, are_equal
from smdwidgets.sources.growing_lines import GrowingLines
from smdwidgets.sources.source import Scalars, Source, TensorStatistics
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.tree import Tree

#: A line: time, level, name of layer, tensor and statistic, iteration, value.
_LINE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,(\d{1,6}))? - [A-Z]{1,20} - (.{1,1000}?) ?\t+ ?iteration=(\d{1,18}) ?\t+ ?value=([-+.\w]{1,400})\s*"
)
#: The directory of the logs of a run.
_FOLDER: Final = "nvdlfw_inspect_statistics_logs"
_RANK: Final = re.compile(r"globalrank-(\d{1,9})\.log$")
#: The columns of statistics by the ends of names.
_COLUMNS: Final = {
    "min": "min",
    "max": "max",
    "mean": "mean",
    "std": "std",
    "l1_norm": "l1",
    "l2_norm": "l2",
    "cur_amax": "abs_max",
    "numel": "count",
    "num_zeros": "zeros",
}
_OF_TENSOR: Final = re.compile(rf"(.+)_({'|'.join(_COLUMNS)})")
#: Lines at the beginning in which one of a statistic is looked for, and longest line.
_SEARCHED, _LONGEST = 50, 2_000


class InspectLogs:
    """The format of the logs: a file for each rank."""

    name = "nvdlfw-inspect statistics"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the logs of each run."""
        logs: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(".log"):
            if tree.recognizes(self.name, key, partial(_is_log, tree, key)):
                folder = key.rpartition("/")[0]
                # The directory belongs to the run above it.
                run = folder.rpartition("/")[0] if folder.rpartition("/")[2] == _FOLDER else folder
                logs[run].append(key)
        return logs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the logs of one run."""
        return InspectLogSource(tree, files)


def _is_log(tree: Tree, key: str) -> bool:
    lines = tree.head(key).split(b"\n")[:_SEARCHED]
    return any(_statistic(line.decode("utf-8", "replace")) is not None for line in lines)


class Statistic(NamedTuple):
    """One line."""

    name: str
    step: int
    value: float
    time: float


def _statistic(line: str) -> Statistic | None:
    r"""Return the statistic of a line; None for another line.

    >>> _statistic("2026-01-02 03:04:05,678 - INFO - fc1_gradient_max \t\t iteration=000012 \t\t value=0.5000")[:3]
    ('fc1_gradient_max', 12, 0.5)
    """
    match = _LINE.fullmatch(line) if len(line) <= _LONGEST else None
    if match is None:
        return None
    try:
        second = datetime.fromisoformat(match[1]).timestamp()
        value, step = float(match[5]), int(match[4])
    except (ValueError, OverflowError):
        return None
    return Statistic(match[3], min(step, LARGEST_STEP), value, second + int((match[2] or "0").ljust(6, "0")) / 1e6)


class InspectLogSource(Source):
    """The logs of one run, which may grow."""

    def __init__(self, tree: Tree, files: Sequence[str]) -> None:
        self.name = files[0] if len(files) == 1 else files[0].rpartition("/")[0] or "statistics logs"
        self._tree = tree
        self._lines = {key: GrowingLines(tree, key) for key in files}
        self._columns = {key: StepColumns() for key in files}
        self._problems: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read new lines."""
        changed = [self._refresh(key, lines) for key, lines in self._lines.items() if lines.changed()]
        return any(changed)

    def _refresh(self, key: str, lines: GrowingLines) -> bool:
        try:
            if lines.rewritten():
                self._columns[key] = StepColumns()
            statistics = (_statistic(line) for _, line in lines.new())
            self._columns[key].append_each(
                ({one.name: one.value}, one.step, one.time) for one in statistics if one is not None
            )
        except RunIOError as error:
            self._problems[key] = str(error)
        else:
            self._problems.pop(key, None)
        return True

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the statistics; names have the rank where ranks logged different numbers."""
        by_rank = [(_rank_of(key), columns.scalars()) for key, columns in self._columns.items()]
        names = dict.fromkeys(name for _, scalars in by_rank for name in scalars)
        series: dict[str, Scalars] = {}
        for name in names:
            own = [(rank, scalars[name]) for rank, scalars in by_rank if name in scalars]
            if all(are_equal(one, own[0][1]) for _, one in own):
                series[name] = own[0][1]
            else:
                series |= {f"{name} ({rank})": one for rank, one in own}
        return series

    def statistics(self) -> TensorStatistics:
        """Return the statistics of tensors by rank.

        The first rank counts where others logged the same.
        """
        by_worker: dict[str, dict[str, dict[str, Scalars]]] = {}
        for key, columns in self._columns.items():
            tensors: defaultdict[str, dict[str, Scalars]] = defaultdict(dict)
            for name, one in columns.scalars().items():
                if match := _OF_TENSOR.fullmatch(name):
                    tensors[match[1]][_COLUMNS[match[2]]] = one
            earlier = list(by_worker.values())
            own = by_worker.setdefault(_rank_of(key).replace("rank ", "worker_"), {})
            own |= {
                tensor: one
                for tensor, one in tensors.items()
                if not any(_are_same(one, other.get(tensor, {})) for other in earlier)
            }
        return {worker: tensors for worker, tensors in by_worker.items() if tensors}

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age(list(self._lines))

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        return list(self._problems.items())

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return what is left out."""
        return [(key, f"{self._tree.path(key)}: {note}") for key, one in self._columns.items() for note in one.notes]


def _rank_of(key: str) -> str:
    match = _RANK.search(key)
    return f"rank {int(match[1])}" if match else shown(key.rpartition("/")[2], 100)


def _are_same(one: Mapping[str, Scalars], other: Mapping[str, Scalars]) -> bool:
    return one.keys() == other.keys() and all(are_equal(one[column], other[column]) for column in one)
