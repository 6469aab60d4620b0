"""The state that the Trainer of Hugging Face writes: ``trainer_state.json``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.checkpoints import place_of
from smdwidgets.sources.columns import curves_of, rows_of_objects
from smdwidgets.sources.layout import json_fault
from smdwidgets.sources.source import Refusal, Scalars, Source
from smdwidgets.sources.tree import Tree

#: Largest file that is read.
_LARGEST: Final = 256 << 20
#: Entries of the state that are settings of the training.
_SETTINGS: Final = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
#: What was chosen by a metric of evaluations.
_CHOSEN: Final = ("best_metric", "best_global_step")


class TrainerStates:
    """The format of trainer states."""

    name = "trainer state"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the states of each run. The names of files do not matter."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(".json"):
            head = tree.head(key, 4096)
            if head.lstrip()[:1] == b"{" and b'"log_history"' in head and b'"global_step"' in head:
                found[place_of(key)[0]].append(key)
        return found

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the states of one run."""
        return TrainerStateSource(tree, files)

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return what is wrong with a file of the name that the Trainer gives its state."""
        if key.rpartition("/")[2] != "trainer_state.json":
            return None
        data = tree.head(key, _LARGEST)
        if not data:
            return Refusal("the file is empty", True)
        try:
            json.loads(data)
        except (ValueError, RecursionError) as error:
            return Refusal(json_fault(error, data), True)
        return Refusal("not a trainer state: it has no log_history and global_step")


class TrainerStateSource(Source):
    """The states of one run. The newest contains the history of the others."""

    def __init__(self, tree: Tree, files: Sequence[str]) -> None:
        self._tree = tree
        self._files = list(files)
        self._versions: list[object] = []
        self._state: dict[str, Any] = {}
        self._scalars: dict[str, Scalars] = {}
        self._problems: dict[str, str] = {}
        self._notes: list[tuple[str, str]] = []
        self.name = files[0]

    def refresh(self) -> bool:
        """Read the states that were written since the last call."""
        versions: list[object] = [self._tree.version(key) for key in self._files]
        if versions == self._versions:
            return False
        self._versions = versions
        for key in sorted(self._files, key=self._order, reverse=True):
            state = self._read(key)
            if state is None:
                continue
            # A state that is being written, or the first one of a training that began again, is no reason to go back.
            self._state, self.name = state, key
            rows = [row for row in state["log_history"] if isinstance(row, dict)]
            curves = curves_of(rows_of_objects(rows))
            self._scalars = curves.scalars
            if curves.problems:
                self._problems[key] = f"{self._tree.path(key)}: {curves.problems[0]}"
            self._notes = [(key, f"{self._tree.path(key)}: {note}") for note in curves.notes]
            return True
        return bool(self._problems)

    def _order(self, key: str) -> tuple[float, int]:
        """Order the states by time; several of one time by step."""
        version = self._tree.version(key)
        step = place_of(key)[1]
        return (0 if version is None else version[1] / 1e9, 1 << 62 if step is None else step)

    def _read(self, key: str) -> dict[str, Any] | None:
        self._problems.pop(key, None)
        path = self._tree.path(key)
        try:
            size = self._tree.size(key) or 0
            if size > _LARGEST:
                self._problems[key] = f"{path}: {size:,} bytes exceed the limit of {_LARGEST:,} for a trainer state"
                return None
            data = self._tree.read(key, 0, size)
            state = json.loads(data)
        except RunIOError as error:
            self._problems[key] = str(error)
            return None
        except (ValueError, RecursionError) as error:
            self._problems[key] = f"{path}: {json_fault(error, data)}"
            return None
        if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
            self._problems[key] = f"{path}: not a trainer state: log_history must be a list"
            return None
        return state

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the logged numbers by name."""
        return self._scalars

    def hparams(self) -> Mapping[str, Any]:
        """Return the settings that the state contains, and which checkpoint was the best."""
        names = *_SETTINGS, *_CHOSEN
        return {name: self._state[name] for name in names if isinstance(self._state.get(name), (int, float))}

    def ended(self) -> bool | None:
        """Return whether the last row is the summary that the Trainer logs at the end."""
        history = self._state.get("log_history") or [{}]
        return True if isinstance(history[-1], dict) and "train_runtime" in history[-1] else None

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age(self._files)

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return the states that cannot be read."""
        return list(self._problems.items())

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the states that are read in part."""
        return self._notes
