"""TreeDepth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.selector import Selector

#: Larger numbers are not node numbers.
LARGEST = 2**53

TREES = Selector(("trees",), (r"^trees/",))


class TreeDepth(BuiltinRule):
    """Detect XGBoost trees that are too deep.

    Fires when the deepest tree at a step is deeper than `depth`. A tree with a single node has depth 0.

    If the columns `ID`, `Yes` and `No` of the trees were saved, the depth is the length of the longest path. Otherwise
    it is floor(log2(n + 1)) for the largest node number n in column `Node` (or `ID`). This is exact if nodes are
    numbered by their position in a full binary tree, and too small if they are numbered in order of creation.

    What to do: change `max_depth`, `min_child_weight` or `gamma`, or use `grow_policy="lossguide"` with `max_leaves`.
    """

    depth = Real(4.0, "Depth above which the rule fires.", minimum=0.0)

    def judge(self, step: int) -> None:
        names = self.measurements.names(TREES, step)
        if not names:
            raise NothingToJudge("no tensor of collection 'trees' at this step")
        found = self.measurements.cached(("tree depth", step), lambda: self._depth(names, step))
        if found is None:
            raise NothingToJudge(
                "none of the tree columns ID, Yes, No and Node that are needed for the depth was saved at this step"
            )
        depth, name, tree = found
        if depth > self.depth:
            message = f"tree {tree} has depth {depth}, more than {number(self.depth)}"
            self.blame(name, step, depth, self.depth, message)

    def _depth(self, names: tuple[str, ...], step: int) -> tuple[int, str, str] | None:
        """Return the largest depth over all workers, its tensor and its tree."""
        workers = dict.fromkeys(worker for name in names for worker in self.measurements.workers(name, step))
        found = [each for worker in workers if (each := self._depth_of_worker(names, step, worker)) is not None]
        return max(found, default=None)

    def _depth_of_worker(self, names: tuple[str, ...], step: int, worker: str | None) -> tuple[int, str, str] | None:
        columns = {name.rpartition("/")[2]: name for name in names}
        values: dict[str, NDArray[Any]] = {}
        for column in ("ID", "Yes", "No", "Node", "Tree"):
            if column in columns:
                try:
                    values[column] = np.asarray(self.measurements.value(columns[column], step, worker)).reshape(-1)
                except SMDebugError:
                    continue
        if {"ID", "Yes", "No"} <= values.keys():
            depths = longest_paths(values["ID"], values["Yes"], values["No"])
            if depths:
                tree = max(depths, key=lambda each: (depths[each], each))
                return depths[tree], columns["ID"], tree
        for column in ("Node", "ID"):
            if column in values and (numbers := _node_numbers(values[column])) is not None and numbers.size:
                at = int(numbers.argmax())
                tree = str(values["Tree"][at]) if "Tree" in values and len(values["Tree"]) == len(numbers) else "0"
                return int(numbers[at] + 1).bit_length() - 1, columns[column], tree
        return None


def longest_paths(ids: NDArray[Any], yes: NDArray[Any], no: NDArray[Any]) -> Mapping[str, int]:
    """Return the longest path from each tree's root, in edges.

    The tree's name is the part of its node names before the dash.

    >>> longest_paths(np.array(["0-0", "0-1", "0-2"]), np.array(["0-1", "", ""]), np.array(["0-2", "", ""]))
    {'0': 1}
    """
    names = [_text(each) for each in ids]
    known = set(names)
    children = {
        name: [child for child in (_text(left), _text(right)) if child in known]
        for name, left, right in zip(names, yes, no, strict=False)
    }
    below = {child for each in children.values() for child in each}
    depths: dict[str, int] = {}
    for root in (name for name in names if name not in below):
        tree = root.partition("-")[0]
        level, depth, seen = [root], 0, {root}
        while level:
            level = [child for name in level for child in children.get(name, ()) if child not in seen]
            seen.update(level)  # damaged files can contain cycles
            depth += bool(level)
        depths[tree] = max(depths.get(tree, 0), depth)
    return depths


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _node_numbers(values: NDArray[Any]) -> NDArray[np.int64] | None:
    numbers: NDArray[np.int64]
    if values.dtype.kind in "iu":
        numbers = values[values < LARGEST].astype(np.int64)
        return numbers
    if values.dtype.kind == "f":
        numbers = values[np.abs(values) < LARGEST].astype(np.int64)  # also drops NaN
        return numbers
    found = [re.fullmatch(r"(?:\d+-)?(\d{1,18})", _text(value)) for value in values]
    return np.array([int(each[1]) for each in found if each], dtype=np.int64)
