"""A history in one JSON file.

It is a list of objects, or an object with a list for each curve.
Scripts write the ``history`` of Keras or their own in this way at the end of a training, Chainer its ``log``. Rows
without a step are numbered. CatBoost's file has the numbers of an iteration in lists, and their names beside them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe, words_of
from smdwidgets.sources.columns import curves_of, rows_of_objects
from smdwidgets.sources.layout import flat, json_fault, step_column
from smdwidgets.sources.source import Source
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.unnumbered import is_measure
from smdwidgets.sources.whole_files import CurveFiles

#: Largest file that is read.
_LARGEST: Final = 32 << 20
#: The name of Chainer's history, which has no ending.
_LOG: Final = "log"
#: A name at the beginning of a file without which it is not read as a whole: a measure, or a step.
_LIKELY: Final = re.compile(
    rb'(?i)"(?:[^"]{0,80}(?:loss|acc|err|mse|mae|auc|iou|map|f1|bleu|reward|return|perplexity|ppl|lr|rate)[^"]{0,80}'
    rb'|it|itr|iter|iteration|step|epoch)"\s*:'
)
#: A word in the names of files, which is no measure.
_HISTORY: Final = "history"
#: Numbers of a list that is a curve.
_FEWEST: Final = 2
#: What a series of a training measures; a JSON file with other lists is other data.
_OF_TRAININGS: Final = frozenset([Kind.LOSS, Kind.METRIC, Kind.REWARD, Kind.LEARNING_RATE])


class JsonHistories:
    """The format of histories."""

    name = "JSON history"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the histories of each directory."""
        runs: defaultdict[str, list[str]] = defaultdict(list)
        logs = [key for key in tree.keys if key.endswith(_LOG) and key.rpartition("/")[2] == _LOG]
        for key in [*tree.named(".json"), *logs]:
            if tree.recognizes(self.name, key, partial(_is_history, tree, key)):
                runs[key.rpartition("/")[0]].append(key)
        return runs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the histories of one directory."""
        return JsonHistorySource(tree, files)


def _is_history(tree: Tree, key: str) -> bool:
    head = tree.head(key, 4096).lstrip()
    is_list, is_object = head.startswith(b"["), head.startswith(b"{")
    if not (is_list or is_object) or b'"log_history"' in head or (tree.size(key) or 0) > _LARGEST:
        return False
    stem = _stem(key)
    if (_LIKELY.search(head) is None and not _names_training(stem)) or (is_object and b"[" not in head):
        return False
    try:
        return bool(rows_of(json.loads(tree.head(key, _LARGEST)), stem))
    except (ValueError, RecursionError):
        return False


def _stem(key: str) -> str:
    return key.rpartition("/")[2].rpartition(".")[0]


def _names_training(stem: str) -> bool:
    """Return whether the name of a file says that its lists are those of a training.

    >>> [_names_training(stem) for stem in ("training_history", "loss_history", "val_losses", "price_history")]
    [True, True, True, False]
    """
    of_training = any(ROLE_WORDS.get(word) is Role.TRAINING for word in words_of(stem))
    return is_measure(_measure(stem)) or (of_training and _HISTORY in words_of(stem))


def _measure(stem: str) -> str:
    """Return what a file measures by its name.

    >>> _measure("loss_history"), _measure("val_losses")
    ('loss', 'val_losses')
    """
    return re.sub(f"(?i){_HISTORY}", "", stem).strip(" _.-")


def _rows_of_models(content: Mapping[str, Any], stem: str) -> list[dict[str, Any]]:
    """Return the rows of lists with names of models; none for other data.

    >>> _rows_of_models({"VAE": [0.5, 0.25]}, "training_history"), _rows_of_models({"VAE": [1.5, 0.5]}, "loss_history")
    ([{'VAE': 0.5}, {'VAE': 0.25}], [{'VAE/loss': 1.5}, {'VAE/loss': 0.5}])
    """
    lists = [*content.values()]
    if not _names_training(stem) or not all(isinstance(one, list) and len(one) >= _FEWEST for one in lists):
        return []
    # Numbers that are all integers may count anything.
    kinds = [{type(value) for value in one} for one in lists]
    if not all(float in one and one <= {float, int, type(None)} for one in kinds):
        return []
    ending = f"/{_measure(stem)}" if is_measure(_measure(stem)) else ""
    return _rows_of_lists({name + ending: values for name, values in content.items()})


def _rows_of_lists(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    length = max((len(values) for values in columns.values()), default=0)
    return [{name: values[at] for name, values in columns.items() if at < len(values)} for at in range(length)]


def rows_of(content: Any, stem: str = "") -> list[dict[str, Any]]:
    """Return the rows of a history; none if it is other data.

    ``stem`` is the name of the file without its ending: it may name the lists of a training, where their own names do
    not.

    >>> rows_of({"loss": [0.5, 0.25], "val_loss": [0.75]})
    [{'loss': 0.5, 'val_loss': 0.75}, {'loss': 0.25}]
    >>> rows_of([{"epoch": 1, "loss": 0.5}]), rows_of([{"name": "ann", "age": 1}]), rows_of({"size": [1, 2]})
    ([{'epoch': 1, 'loss': 0.5}], [], [])
    """
    if isinstance(content, list):
        rows = [flat(row) for row in content if isinstance(row, dict)]
        rows = rows if len(rows) == len(content) else []
    elif isinstance(content, dict) and (rows := _rows_of_catboost(content)):
        pass
    elif isinstance(content, dict) and content:
        columns = {name: values for name, values in content.items() if isinstance(values, list)}
        rows = _rows_of_lists(columns)
    else:
        return []
    numbers = {name for row in rows for name, value in row.items() if type(value) in (int, float)}
    step = step_column(numbers) or ""
    numbers.discard(step)
    is_training = any(describe(name).kind in _OF_TRAININGS for name in numbers)
    # A step beside numbers of the training is enough, whatever these are called.
    is_training |= bool(step) and any(describe(name).role is Role.TRAINING for name in numbers)
    if is_training:
        return rows
    return _rows_of_models(content, stem) if isinstance(content, dict) and not step else []


def _rows_of_catboost(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each iteration of CatBoost's file; none for another file.

    >>> meta = {"learn_sets": ["learn"], "learn_metrics": [{"name": "RMSE", "best_value": "Min"}]}
    >>> _rows_of_catboost({"meta": meta, "iterations": [{"iteration": 0, "learn": [0.5]}]})
    [{'iteration': 0, 'train/RMSE': 0.5}]
    """
    about, iterations = content.get("meta"), content.get("iterations")
    if not isinstance(about, dict) or not isinstance(iterations, list):
        return []
    names: dict[str, list[str]] = {}
    for data, role in (("learn", "train"), ("test", "test")):
        sets, metrics = about.get(f"{data}_sets", [data]), about.get(f"{data}_metrics")
        if not isinstance(sets, list) or not isinstance(metrics, list):
            continue
        of_data = [metric.get("name") if isinstance(metric, dict) else metric for metric in metrics]
        for one in sets:
            names[str(one)] = [f"{role if one == data else one}/{metric}" for metric in of_data]
    rows = []
    for number, iteration in enumerate(iterations):
        if not isinstance(iteration, dict):
            return []
        row: dict[str, Any] = {"iteration": iteration.get("iteration", number)}
        for data, of_set in names.items():
            values = iteration.get(data)
            row.update(zip(of_set, values if isinstance(values, list) else [], strict=False))
        rows.append(row)
    return rows


class JsonHistorySource(CurveFiles):
    """The histories of one run."""

    def __init__(self, tree: Tree, files: Sequence[str]) -> None:
        super().__init__(tree, files[0] if len(files) == 1 else files[0].rpartition("/")[0] or "histories", files)

    def _read(self, key: str, version: Version) -> None:
        data = self._tree.read(key, 0, min(version[0], _LARGEST))
        try:
            self._curves[key] = curves_of(rows_of_objects(rows_of(json.loads(data), _stem(key))))
        except (ValueError, RecursionError) as error:
            self._problems[key] = f"{self._tree.path(key)}: {json_fault(error, data)}"
