"""A history in one JSON file.

It is a list of objects or numbers, or an object with a list for each curve, or with lists of rows.
XGBoost and LightGBM return their evaluations in this way. Scripts write the ``history`` of Keras or their own at the
end of a training, Chainer its ``log``. Rows without a step are numbered. CatBoost's file has the numbers of an
iteration in lists, and their names beside them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe, words_of
from smdwidgets.sources.columns import curves_of, rows_of_objects
from smdwidgets.sources.layout import flat, json_fault, number_of, step_column
from smdwidgets.sources.source import Source
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.unnumbered import is_measure
from smdwidgets.sources.whole_files import CurveFiles

#: Largest file that is read.
_LARGEST: Final = 32 << 20
#: Bytes at its beginning that have the name of a curve; settings may precede it.
_BEGINNING: Final = 1 << 16
#: The name of Chainer's history, which has no ending.
_LOG: Final = "log"
#: A name at the beginning of a file without which it is not read as a whole: a measure, or a step.
_LIKELY: Final = re.compile(
    rb'(?i)"(?:[^"]{0,80}(?:loss|acc|err|mse|mae|auc|iou|map|f1|bleu|reward|return|perplexity|ppl|lr|rate|train|valid)[^"]{0,80}'
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
    head = tree.head(key, _BEGINNING).lstrip()
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


def _is_number(value: object) -> bool:
    return type(value) in (int, float) or (isinstance(value, str) and number_of(value) is not None)


def _are_numbers(values: Sequence[object]) -> bool:
    return (
        len(values) >= _FEWEST and all(type(value) in (int, float) for value in values) and float in map(type, values)
    )


def _flat_rows(values: Sequence[object]) -> list[dict[str, Any]]:
    """Return the objects of a list with flat names; none if it has anything else."""
    rows = [flat(row) for row in values if isinstance(row, dict)]
    return rows if len(rows) == len(values) else []


def _rows_of_object(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an object that has lists of numbers, or lists of rows.

    Objects within it name data sets, as in the evaluations of XGBoost and LightGBM. What a list of rows was measured on
    is in its name, if not in theirs.

    >>> _rows_of_object({"eval_log": [{"step": 5, "acc": 0.5}], "log": [{"step": 1, "loss": 2.5}]})
    [{'step': 5, 'eval/acc': 0.5}, {'step': 1, 'loss': 2.5}]
    >>> _rows_of_object({"train": {"rmse": [2.5, 1.5]}, "valid": {"rmse": [2.75, 2.0]}})
    [{'valid/rmse': 2.75, 'train/rmse': 2.5}, {'valid/rmse': 2.0, 'train/rmse': 1.5}]
    >>> _rows_of_object({"learn": {"RMSE": [2.5, 1.5]}})  # CatBoost
    [{'train/RMSE': 2.5}, {'train/RMSE': 1.5}]
    """
    if isinstance(content.get("learn"), dict):
        content = {"train" if name == "learn" else name: of for name, of in content.items()}
    lists = {name: values for name, values in flat(content).items() if isinstance(values, list)}
    numbers = {name: values for name, values in lists.items() if not any(isinstance(one, dict) for one in values)}
    of_rows = [_measured_on(name, rows) for name, values in lists.items() if (rows := _flat_rows(values))]
    columns = _rows_of_lists(numbers)
    if not columns and all(step_column(rows[0]) is not None for rows in of_rows):
        return [row for rows in of_rows for row in rows]
    # What has no steps is numbered together.
    joined: list[dict[str, Any]] = [{} for _ in range(max(map(len, [columns, *of_rows])))]
    for rows in [columns, *of_rows]:
        for row, values in zip(joined, rows, strict=False):
            row.update(values)
    return _numbered_on(joined)


def _numbered_on(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without their steps if these begin again, as in each epoch.

    >>> _numbered_on([{"step": 0, "loss": 0.5}, {"step": 0, "loss": 0.25}])
    [{'loss': 0.5}, {'loss': 0.25}]
    """
    step = step_column(rows[0])
    numbers = [row[step] for row in rows if isinstance(row.get(step), (int, float))] if step else []
    if all(one < other for one, other in pairwise(numbers)):
        return rows
    return [{name: value for name, value in row.items() if name != step} for row in rows]


def _measured_on(list_name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows whose names have what the name of their list says."""
    word = next((word for word in words_of(list_name) if ROLE_WORDS.get(word, Role.NONE).is_held_out), "")
    step = step_column(rows[0])
    if not word or any(describe(name).role is not Role.NONE for row in rows for name in row):
        return list(rows)
    return [{name if name == step else f"{word}/{name}": value for name, value in row.items()} for row in rows]


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
    if isinstance(content, list) and is_measure(_measure(stem)) and _are_numbers(content):
        return [{_measure(stem): value} for value in content]
    if isinstance(content, list):
        rows = _flat_rows(content)
    elif isinstance(content, dict) and (rows := _rows_of_catboost(content)):
        pass
    elif isinstance(content, dict) and content:
        rows = _rows_of_object(content)
    else:
        return []
    numbers = {name for row in rows for name, value in row.items() if _is_number(value)}
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
