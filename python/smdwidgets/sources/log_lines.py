"""The lines of a known trainer, in order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe, words_of
from smdwidgets.sources.layout import step_column
from smdwidgets.sources.log_pairs import (
    POSITIONS,
    STEPS,
    Pairs,
    Row,
    of_role,
    pairs_in,
    printed_number,
    tells,
)
from smdwidgets.sources.log_trainers import ROLES, Block, LogLine, Trainer

#: Characters at the beginning of a line that may name its data.
_LONGEST_HEAD: Final = 40


class Reader:
    """Reads the lines of a trainer in order. Remembers step, epoch and block.

    >>> from smdwidgets.sources.log_trainers import TRAINERS
    >>> [mnist] = [trainer for trainer in TRAINERS if trainer.name == "PyTorch example mnist"]
    >>> reader = Reader(mnist)
    >>> lines = "Train Epoch: 1 [0/640 (0%)]\\tLoss: 2.5", "Test set: Average loss: 2.25"
    >>> rows = [reader.read(line) for line in lines]
    >>> [(row.step, row.values) for row in rows]
    [(0, {'Loss': 2.5}), (0, {'test/Average loss': 2.25})]
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._step = 0
        self._epoch: int | None = None
        self._first_epoch: int | None = None
        #: The last batch of an epoch of unknown length, and the batches before each epoch.
        self._batch = 0
        self._before: dict[int, int] = {}
        self._block: LogLine | None = None
        self._box = Row(0)
        self._group = ""
        #: The numbers of the box that have few digits; the name of the step in boxes, and its last number.
        self._rounded: set[str] = set()
        self._step_of_boxes = ""
        self._box_number = math.nan
        #: Whether the last line is one of this trainer, with numbers or without.
        self.recognized = False
        #: Whether a line had a step. Other lines may look like those of another program.
        self.has_step = False
        #: The names of all numbers that the trainer has printed.
        self._names: set[str] = set()

    def read(self, line: str) -> Row | None:
        """Return the numbers of a line; None if it has none that belong to a step."""
        self.recognized = True
        for kind in self._trainer.lines:
            head = kind.head.search(line) if kind.mark in line else None
            if head is None:
                continue
            if kind.block is Block.BOX:
                return self._end_box(kind)
            self._block = kind if kind.block is not Block.NONE else None
            return self._read_line(kind, head, line)
        self.recognized = self._block is not None
        if self._block is None:
            return None
        if self._block.block is Block.BOX:
            self._read_box(line)
            self.recognized = self._block is not None
            return None
        body = self._block.body.match(line) if self._block.body else None
        if body is None:
            return None
        return self._row(self._block, self._block.prefix, pairs_in(line[body.end() :], Pairs.NAMED))

    @property
    def in_block(self) -> bool:
        """Whether the next line may belong to this trainer without a mark of it."""
        return self._block is not None

    def beside(self, line: str) -> Row | None:
        """Return the numbers of a line that the script prints beside those of its trainer.

        They belong to the last step. Lines before the first step are settings; names of the trainer are its own.

        >>> from smdwidgets.sources.log_trainers import TRAINERS
        >>> [mnist] = [trainer for trainer in TRAINERS if trainer.name == "PyTorch example mnist"]
        >>> reader = Reader(mnist)
        >>> row = reader.read("Train Epoch: 1 [0/640 (0%)]\\tLoss: 2.5")
        >>> reader.beside("====> Test set loss: 2.25 (recon: 2.0, kl: 0.25)").values
        {'Test set loss': 2.25, 'test/recon': 2.0, 'test/kl': 0.25}
        """
        if not self._names:
            return None
        words = words_of(line[:_LONGEST_HEAD])
        role = next((ROLE_WORDS[word] for word in words[:3] if word in ROLE_WORDS), Role.TRAINING)
        values: dict[str, float] = {}
        pairs = list(pairs_in(line, Pairs.NAMED))
        if not tells(dict(pairs)) and (role.is_held_out or any(step.search(line) for step in STEPS)):
            pairs = [pair for pair in pairs_in(line, Pairs.SPACED) if tells(pair[:1])]
        for name, number in pairs:
            said = describe(name)
            if said.role is Role.NONE and role.is_held_out:
                name = of_role(name, role)
            if name.lower() not in POSITIONS and said.kind is not Kind.LEARNING_RATE and name not in self._names:
                values.setdefault(name, number)
        return Row(self._step, values) if tells(values) else None

    def _read_line(self, kind: LogLine, head: re.Match[str], line: str) -> Row | None:
        groups = head.groupdict()
        role = groups.get("role")
        if kind.counts:
            self._step += 1
            self.has_step = True
        self._find_step(groups, holds_out=ROLES.get(role or "", kind.prefix) not in ("", "train/"))
        if kind.pairs is None:
            return None
        pairs = pairs_in(line[head.end() :], kind.pairs, multiples=kind.multiples, mean=kind.mean)
        model = groups.get("model")
        return self._row(kind, (f"{model}/" if model else "") + (kind.prefix or ROLES.get(role or "", "")), pairs)

    def _find_step(self, groups: Mapping[str, str | None], *, holds_out: bool) -> None:
        step, epoch, batch, of = (groups.get(name) for name in ("step", "epoch", "batch", "of"))
        previous = self._epoch
        self.has_step |= step is not None or epoch is not None
        if epoch is not None:
            self._epoch = int(epoch)
            self._first_epoch = self._epoch if self._first_epoch is None else self._first_epoch
        if step is not None:
            self._step = int(step)
        elif self._epoch is not None and of is not None and batch is not None:
            if not holds_out:  # batches of an evaluation do not count
                self._step = max(0, self._epoch - (self._first_epoch or 0)) * int(of) + int(batch)
        elif self._epoch is not None and epoch is not None and batch is not None:
            self._step = self._numbered_on(self._epoch, previous, int(batch))
        elif self._epoch is not None and epoch is not None:
            self._step = self._epoch

    def _numbered_on(self, epoch: int, previous: int | None, batch: int) -> int:
        """Return the step of a batch in an epoch whose length is not printed.

        The last batch of an epoch that was printed counts as its length. An epoch that comes again is a restart.
        """
        if previous is None or previous not in self._before:
            self._before = {epoch: 0}
        elif epoch < previous:
            self._before = {one: before for one, before in self._before.items() if one <= epoch}
            self._before.setdefault(epoch, 0)
        elif epoch > previous:
            self._before[epoch] = self._before[previous] + self._batch
        self._batch = batch
        return self._before[epoch] + batch

    def _row(self, kind: LogLine, prefix: str, pairs: Iterator[tuple[str, float]]) -> Row | None:
        values: dict[str, float] = {}
        for name, number in pairs:
            if kind.step_name and name.endswith(kind.step_name) and number == math.floor(number):
                self._step, self.has_step = int(number), True
            elif name.lower() not in POSITIONS or not number.is_integer():
                values.setdefault(prefix + kind.names.get(name, name) + kind.suffix, number)
        self._names |= values.keys()
        return Row(self._step, values) if values else None

    # A box: each group has its name in a row without a number.

    def _read_box(self, line: str) -> None:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 2 or not line.lstrip().startswith("|"):
            self._block = None
            return
        name, value = cells
        if not value:
            self._group = name
            return
        number = printed_number(value)
        if number is not None:
            name = self._group + name if self._group.endswith("/") else name
            self._box.values[name] = number
            if "e" in value:
                self._rounded.add(name)

    def _end_box(self, kind: LogLine) -> Row | None:
        box, self._box, self._group = self._box, Row(0), ""
        self._block = kind
        own = next((name for name in box.values if name.endswith(kind.step_name)), None)
        if own is None and self._step_of_boxes in ("", *box.values):
            own = self._step_of_boxes or step_column(box.values)
        number = math.nan if own is None else box.values.pop(own)
        rounded, self._rounded = self._rounded, set()
        if own is None or not math.isfinite(number):
            return None
        # Steps that are rounded alike are numbered on.
        box.step = max(int(number), self._step + 1) if own in rounded and number == self._box_number else int(number)
        self._step, self._step_of_boxes, self._box_number, self.has_step = box.step, own, number, True
        self._names |= box.values.keys()
        return box if box.values else None
