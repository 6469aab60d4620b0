"""Lines of no known trainer: names and numbers that repeat."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe
from smdwidgets.sources.layout import split
from smdwidgets.sources.log_pairs import (
    MULTIPLES,
    POSITIONS,
    STEPS,
    Pairs,
    Row,
    has_numbers,
    of_role,
    pairs_in,
    tells,
)
from smdwidgets.sources.markdown_tables import cells_of

#: A name and a number between two bars.
_CELL: Final = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w./\-]{0,80}(?: [A-Za-z_][\w./\-]{0,80})?) +(?P<value>[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)\s*"
)
#: What a line with a number contains.
_DIGIT: Final = re.compile(r"\d|(?i:nan|inf)")
#: Words of a name that tell the step: "loss after epoch 3: 0.5".
_STEP_IN_NAME: Final = re.compile(
    r"(?i)[ ]*(?:\b(?:after|at|of|for|in)[ ])?\b(?P<word>epoch|step|iter(?:ation)?)[ ]+(?P<step>\d+)\b"
    r"(?:[ ]?/[ ]?\d+\b)?(?:[ ]+-+(?=[ ]))?"
)
#: The place in an epoch: "Step [20/500]", "batch 20/500".
_BATCH: Final = re.compile(
    r"(?i)(?<![\w/])(?:step|iter(?:ation)?|batch(?:_idx)?|i|it)[ \t:=#(\[\x22\x27]{1,8}"
    r"(?P<batch>\d+)\s*/\s*(?P<of>\d+)(?![\d.])"
)
#: The same behind the number of the epoch: "Epoch 1 [20/500]", "Epoch 1/9 [20/500 (4%)]", "epoch 1 | 20/ 500 batches".
_BATCH_OF_EPOCH: Final = re.compile(
    r"(?i)(?<![\w/])epoch[ \t:=#(\[]{1,8}\d+(?:/\d+)?[\])]?[ \t:,]*(?:\|(?=[\s\d/]+batches\b)|\[)\s*"
    r"(?P<batch>\d+)\s*/\s*(?P<of>\d+)(?:\s*\([\d. ]+%\))?\s*(?:\]|batches)"
)
#: The step at the beginning of a line: "[000500/50000] loss 0.5", "[1/8][20/500] Loss_D: 0.5".
_BRACKETED: Final = re.compile(
    r"\s*(?:\[\s*(?P<epoch>\d+)\s*/\s*\d+\s*\]\s*)?\[\s*(?P<batch>\d+)\s*/\s*(?P<of>\d+)\s*\](?!\s*\[\s*\d+\s*/)"
)
#: Kinds that are no measure of a training beside an epoch and a batch, where any other name is one.
_BESIDES: Final = frozenset({Kind.TIME, Kind.COUNT, Kind.RESOURCE, Kind.SETTING})


def _of_one_role(values: dict[str, float]) -> dict[str, float]:
    """Return the numbers of a line that begins with a loss of held-out data.

    Its losses and metrics without a role belong to the same data.

    >>> _of_one_role({"val Loss": 0.5, "Acc": 0.75}), _of_one_role({"train Loss": 0.5, "Acc": 0.75})
    ({'val Loss': 0.5, 'val/Acc': 0.75}, {'train Loss': 0.5, 'Acc': 0.75})
    """
    said = {name: describe(name) for name in values}
    roles = {one.role for one in said.values()} - {Role.NONE}
    first = said[next(iter(values))]
    if len(roles) != 1 or not first.role.is_held_out or len(values) < 2:
        return values
    judged = (Kind.LOSS, Kind.METRIC)
    return {
        of_role(name, first.role) if said[name].role is Role.NONE and said[name].kind in judged else name: number
        for name, number in values.items()
    }


def _is_position_of_role(name: str) -> bool:
    """Return whether a name is a place in some data, not a measure.

    >>> _is_position_of_role("Testing Epoch"), _is_position_of_role("Testing loss")
    (True, False)
    """
    role, _, place = name.lower().partition(" ")
    return role in ROLE_WORDS and place in POSITIONS


#: Between two columns of a table; what its first column is called; a cell that is a number, or a time.
_GAP: Final = re.compile(r"\s{2,}|\t")
_FIRST_COLUMNS: Final = ("epoch", "e", "step", "iter", "iteration")
_NUMBER_ALONE: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|-inf")
_TIME_ALONE: Final = re.compile(r"\(?\d+(?::\d\d)+\)?")
_LONGEST_FIRST: Final = max(map(len, _FIRST_COLUMNS))
_FEWEST_COLUMNS: Final = 3
_LONGEST_HEADING: Final = 400


class ColumnReader:
    """Reads lines of no known trainer: names and numbers that repeat.

    >>> reader = ColumnReader()
    >>> row = reader.read("[12:30:05] epoch 3, train loss = 0.5, lr: 1e-3")
    >>> row.step, row.values
    (3, {'train loss': 0.5, 'lr': 0.001})
    >>> row = reader.read("Loss after epoch 4: 0.25")
    >>> row.step, row.values
    (4, {'Loss': 0.25})
    >>> reader = ColumnReader()
    >>> [reader.read(f"Epoch [{epoch}/9], Step [400/500], Loss: 0.5").step for epoch in (1, 2)]
    [400, 900]
    >>> reader.read("Epoch [2/9], Val Loss: 0.5").step
    900
    >>> reader = ColumnReader()
    >>> [reader.read(f"[epoch {epoch}, step {step}] loss: 0.5").step for epoch in (1, 2) for step in (100, 200)]
    [100, 200, 300, 400]
    >>> reader = ColumnReader()
    >>> [reader.read(f"| epoch   {epoch} |   200/  500 batches | loss  4.5").step for epoch in (1, 2)]
    [200, 700]
    >>> reader = ColumnReader()
    >>> [reader.read(f"step:{step} loss:0.5").step for step in (800, "1K", "1K", "2K")]
    [800, 1000, 1001, 2000]
    >>> reader = ColumnReader()
    >>> lines = "epoch  train_loss  error_rate", "1      1.52        0.25    (00:31)"
    >>> [reader.read(line) for line in lines][1].values
    {'train_loss': 1.52, 'error_rate': 0.25}
    >>> lines = "| epoch |  lr  | train_loss | time |", "|   2   | 1e-3 |   0.5  | 0.1s |"
    >>> [reader.read(line) for line in lines][1].values
    {'lr': 0.001, 'train_loss': 0.5}
    """

    def __init__(self) -> None:
        self._step = -1
        self._row_of: set[str] = set()
        #: The last epoch with batches, its last batch, and the number of batches before each epoch.
        self._epoch = self._batch = -1
        self._before: dict[int, int] = {}
        #: The last step that a line named, whether rows were counted since, and what is added to named steps for them.
        self._named, self._is_counted, self._shift = -1, False, 0
        #: The last step in brackets, and how many were before those that begin again.
        self._bracketed, self._before_brackets = -1, 0
        #: The names of the columns below a line of names.
        self._columns: list[str] = []
        #: Whether commas separate them, or bars.
        self._is_cut = self._is_barred = False

    def read(self, line: str) -> Row | None:
        """Return the numbers of a line; None if none is one of a training."""
        if self._is_heading(line):
            return None
        if self._columns and (row := self._below_heading(line)) is not None:
            return row
        if _DIGIT.search(line) is None:
            return None
        values: dict[str, float] = {}
        step = self._step_of(line)
        for name, number in pairs_in(line, Pairs.NAMED):
            if match := _STEP_IN_NAME.search(name):
                step = int(match["step"])
                name = (name[: match.start()] + name[match.end() :]).strip()
            if name and name.lower() not in POSITIONS:
                values.setdefault(name, number)
        if not tells(values):
            spaced = {name: number for name, number in pairs_in(line, Pairs.SPACED) if tells([name])}
            values |= spaced | (_cells(line) if spaced else {})
        elif "|" in line:  # "step 10 | train loss 2.5 | BLEU: 0.1"
            values = _cells(line) | values
        if not tells(values) and not (_measures(values) and _has_place(line)):
            return None
        values = {name: number for name, number in _of_one_role(values).items() if not _is_position_of_role(name)}
        if step is None:
            # Lines without a step: a name that comes again begins the next one.
            if self._step < 0 or not self._row_of.isdisjoint(values):
                self._step, self._row_of = self._step + 1, set()
                self._is_counted = self._named >= 0
            self._row_of |= values.keys()
        else:
            step = self._after_counted(step)
            if step != self._step:
                self._row_of = set()
            self._step = step
            if self._bracketed >= 0:  # the next line may have the same step
                self._row_of |= values.keys()
        return Row(self._step, values)

    def _is_heading(self, line: str) -> bool:
        """Whether a line names columns, which are remembered.

        The tables of spaCy and fastai have such lines.
        """
        # Few lines begin like one, and splitting them takes longer than this test.
        if len(line) >= _LONGEST_HEADING or not line.lstrip(" \t|")[:_LONGEST_FIRST].lower().startswith(
            (",", *_FIRST_COLUMNS)
        ):
            return False
        is_barred = line.count("|") >= _FEWEST_COLUMNS - 1
        columns = cells_of(line) if is_barred else _GAP.split(line.strip())
        if is_cut := len(columns) == 1 and "," in line:
            columns = split(line, ",")
        first = columns[0].lower() if len(columns) >= _FEWEST_COLUMNS else ""
        # pandas writes no name of the first column, which numbers the rows.
        if first not in _FIRST_COLUMNS and not (is_cut and not columns[0] and len(columns) >= _FEWEST_COLUMNS):
            return False
        if not tells(columns) or any(_NUMBER_ALONE.fullmatch(one) or (is_cut and ":" in one) for one in columns):
            return False
        if has_numbers(line):  # "Epoch   1/9: train loss=0.5  val loss=0.6", with spaces that align the numbers
            return False
        self._columns, self._is_cut, self._is_barred = columns, is_cut, is_barred
        return True

    def _below_heading(self, line: str) -> Row | None:
        """Return the numbers of a line below the names of columns."""
        cells = split(line, ",") if self._is_cut else cells_of(line) if self._is_barred else line.split()
        count = len(self._columns)
        numbers = [float(cell) if _NUMBER_ALONE.fullmatch(cell) else None for cell in cells]
        if self._is_barred and len(cells) != count:
            return None
        # Between bars, a number may have a unit, or be missing.
        is_time = [
            _TIME_ALONE.fullmatch(cell) is not None or (self._is_cut and not cell) or self._is_barred for cell in cells
        ]
        if (
            len(cells) < count
            or (self._is_cut and len(cells) > count)
            or ((self._is_cut or self._is_barred) and numbers[0] is None)
            or not all(one is not None or time for one, time in zip(numbers, is_time, strict=True))
        ):
            return None
        by_name = {
            name: number for name, number in zip(self._columns, numbers[:count], strict=True) if number is not None
        }
        steps = [by_name[name] for name in by_name if name.lower() in ("#", "step", "iter", "iteration")]
        step = (steps or [numbers[0] or 0.0])[0]
        values = {name: number for name, number in by_name.items() if name.lower() not in (*_FIRST_COLUMNS, "#", "")}
        if not step.is_integer() or not tells(values):
            return None
        self._step = int(step)
        return Row(self._step, values)

    def _step_of(self, line: str) -> int | None:
        """Return the step that a line names; None if it names none.

        Batches that begin again with each epoch are counted over all epochs.
        """
        *best, of_epoch = STEPS
        step = next((self._number_of(match) for pattern in best if (match := pattern.search(line))), None)
        epoch, batch = of_epoch.search(line), _BATCH.search(line) or _BATCH_OF_EPOCH.search(line)
        if epoch is None:
            return step if step is not None else self._step_in_brackets(line)
        if step is None and batch is None:
            # What follows the batches of an epoch, such as a validation, has the step of the last one.
            return int(epoch["step"]) if self._epoch < 0 else self._step
        if step is not None and batch is not None and step != int(batch["batch"]):
            return step
        number, at = int(epoch["step"]), int(batch["batch"]) if batch is not None else step or 0
        if number != self._epoch:
            # An epoch that comes again is a restart: it has the batches before it that it had.
            before = max((count for one, count in self._before.items() if one <= number), default=0)
            if 0 <= self._epoch < number and at <= self._batch:
                before += self._batch if batch is None else max(self._batch, int(batch["of"]))
            self._before = {one: count for one, count in self._before.items() if one < number} | {number: before}
            self._epoch = number
        self._batch = at
        return self._before[number] + at

    def _after_counted(self, step: int) -> int:
        """Return the step of a line by the rows that were counted before it.

        Batches without a number may stand between lines that number the epochs.
        """
        if self._epoch >= 0:  # batches have numbers
            return step
        if step < self._named:  # a restart
            self._shift = 0
        elif step > self._named and self._is_counted and step + self._shift <= self._step:
            self._shift = self._step + 1 - step
        self._named, self._is_counted = step, False
        return step + self._shift

    def _step_in_brackets(self, line: str) -> int | None:
        """Return the step with which a line begins; None if it begins otherwise.

        Such steps may begin again with each epoch. Lines of one step are counted on.
        """
        match = _BRACKETED.match(line)
        if match is None:
            return None
        at = int(match["batch"])
        if match["epoch"]:
            return int(match["epoch"]) * int(match["of"]) + at
        if at == self._bracketed:
            return None
        if at < self._bracketed:
            self._before_brackets += max(self._bracketed, int(match["of"]))
        self._bracketed = at
        return self._before_brackets + at

    def _number_of(self, match: re.Match[str]) -> int:
        """Return the number of a step; steps that are rounded alike are numbered on."""
        number, unit = int(match["step"]), match["unit"]
        return max(number * int(MULTIPLES[unit.upper()]), self._step + 1) if unit else number


def _has_place(line: str) -> bool:
    """Return whether a line says which batch of an epoch it is about.

    >>> _has_place("Epoch 1, Step 100: Rec=0.5"), _has_place("Epoch 1 [20/500]"), _has_place("epoch 1: size=5")
    (True, True, False)
    """
    *best, of_epoch = STEPS
    is_numbered = of_epoch.search(line) is not None
    return is_numbered and any(pattern.search(line) for pattern in (*best, _BATCH, _BATCH_OF_EPOCH))


def _measures(names: Iterable[str]) -> bool:
    """Return whether one of the names may be what a training measures.

    >>> _measures(["Rec", "Total"]), _measures(["time", "epoch"])
    (True, False)
    """
    return any(describe(name).kind not in _BESIDES for name in names if name.lower() not in POSITIONS)


def _cells(line: str) -> dict[str, float]:
    """Return the numbers of the parts between bars that are a name and a number.

    >>> _cells("10:00:00 epoch 1/60 | train_loss 0.5876 | train_kl 0.0175 | active_units 0/8")
    {'train_loss': 0.5876, 'train_kl': 0.0175}
    >>> _cells("Eval step 100 | train loss 1.92 | val loss 1.93 | BLEU: 0.0")
    {'train loss': 1.92, 'val loss': 1.93}
    """
    cells = (_CELL.fullmatch(cell) for cell in line.split("|"))
    numbers = {match["name"]: float(match["value"]) for match in cells if match is not None}
    return {name: number for name, number in numbers.items() if name.split()[-1].lower() not in POSITIONS}
