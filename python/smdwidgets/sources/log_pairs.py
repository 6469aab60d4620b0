"""Names and numbers in a line that a program printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe

#: Longest line that is read; a longer one is no line of numbers.
LONGEST_LINE: Final = 20_000
_NUMBER: Final = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|NaN|NAN|inf|Inf|INF|Infinity)(?![A-Za-z]))"
#: A part of a name. Words of a name are separated by one space.
_WORD: Final = r"(?<![\w/.])[A-Za-z_@][\w@./()%+\-]{0,80}(?:'s(?=[ ]))?"
#: A number ends before what is no unit, and is no part of a time such as 1:30:00. It may end a sentence.
_END: Final = r"(?P<unit>%|[A-Za-z]{0,4}(?:/[A-Za-z]+)?)(?:/(?P<of>\d+))?(?![\w:/\-]|\.(?!\s|$))"
_NAMED: Final = re.compile(
    rf"""["']?(?P<name>{_WORD}(?:[ ][\w@./()%+\-]{{1,80}}){{0,6}}?)["']?\s*[:=]\s*["'\[(]*"""
    rf"""(?P<value>{_NUMBER}){_END}(?:["'\]),]*\s*\(\s*(?P<mean>{_NUMBER})\s*\))?"""
)
_SPACED: Final = re.compile(
    rf"(?P<name>{_WORD}(?:[ ][A-Za-z_][\w@./\-]{{0,80}}){{0,3}}?)\s+"
    rf"(?P<value>{_NUMBER}){_END}(?:\s*\(\s*(?P<mean>{_NUMBER})\s*\))?"
)
#: Names and numbers that stand in parentheses, and one of them.
_PARTS: Final = re.compile(r"\(([^()=:]{3,200})\)")
_PART: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w./\-]{0,80}) (?P<value>[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|nan|inf)\s*")
#: The unit of the number before a name, at the end of a sentence.
_UNIT_BEFORE: Final = re.compile(r"(?:m?s|sec|min|h)\. ")
MULTIPLES: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
#: Numbers of steps in a line of no known trainer, the best first.
STEPS: Final = tuple(
    re.compile(rf"(?i)(?<![\w/]){words}(?![a-z])[ \t:=#(\[\x22\x27]{{1,8}}(?P<step>\d+)(?:(?P<unit>[KM])\b)?(?![\d.])")
    for words in ("(?:global[_ ]?step|num_updates)", "(?:step|iter(?:ation)?|update)s?", "epoch")
)
#: Kinds of which one makes lines of unknown origin those of a training.
_TELLING: Final = frozenset(
    {Kind.LOSS, Kind.METRIC, Kind.REWARD, Kind.LEARNING_RATE, Kind.GRADIENT_NORM, Kind.LOSS_SCALE}
)
POSITIONS: Final = frozenset({"epoch", "step", "iter", "iteration", "batch", "global_step", "global step", "eta", "i"})
#: What a logger prints before a message: "INFO - epoch: 3".
_LEVEL: Final = re.compile(r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\s+-+\s+")


class Pairs(Enum):
    """How names and numbers are written."""

    #: ``name: number`` or ``name=number``.
    NAMED = _NAMED
    #: ``name number``.
    SPACED = _SPACED


def pairs_in(text: str, pairs: Pairs, *, multiples: bool = False, mean: bool = False) -> Iterator[tuple[str, float]]:
    """Yield the names and numbers in a text.

    >>> list(pairs_in("loss: 1.5  (1.6) | Accuracy: 9800/10000 | eta: 1:20:00", Pairs.NAMED))
    [('loss', 1.5), ('Accuracy', 0.98)]
    >>> list(pairs_in("tokens_per_sec: 8.9K", Pairs.NAMED, multiples=True))
    [('tokens_per_sec', 8900.0)]
    >>> list(pairs_in("10:00 - INFO - Testing loss: 0.5", Pairs.NAMED))
    [('Testing loss', 0.5)]
    >>> list(pairs_in("loss: 37.8 (recon 37.5, kl 0.25)", Pairs.NAMED))
    [('loss', 37.8), ('recon', 37.5), ('kl', 0.25)]
    """
    for match in pairs.value.finditer(text):
        number = float(((match["mean"] if mean else None) or match["value"]).replace(",", ""))
        if match["of"] and int(match["of"]):
            number /= int(match["of"])
        if multiples:
            number *= MULTIPLES.get(match["unit"], 1.0)
        name = match["name"].strip().removesuffix(" value")
        name = name[level.end() :] if (level := _LEVEL.match(name)) else name
        name = name[unit.end() :] if (unit := _UNIT_BEFORE.match(name)) else name
        if match["unit"] == "%" and name.lower() in ROLE_WORDS:
            name = f"{name} accuracy"
        yield name, number
    if pairs is Pairs.NAMED:
        for inside in _PARTS.findall(text):
            parts = [_PART.fullmatch(part) for part in inside.split(",")]
            yield from [
                (part["name"], float(part["value"])) for part in parts if part is not None and None not in parts
            ]


@dataclass
class Row:
    """The numbers of one step."""

    step: int
    values: dict[str, float] = field(default_factory=dict)


def of_role(name: str, role: Role) -> str:
    """Return the name of a number that was measured on held-out data."""
    return f"{'test' if role is Role.TEST else 'val'}/{name}"


def printed_number(cell: str) -> float | None:
    """Return the number that a cell is, or None.

    >>> printed_number("20.5"), printed_number("1e+03"), printed_number("yes")
    (20.5, 1000.0, None)
    """
    return float(cell.replace(",", "")) if re.fullmatch(_NUMBER, cell) else None


def has_numbers(line: str) -> bool:
    """Return whether a line has a number with the name of a loss, metric or rate.

    >>> has_numbers("test accuracy: 0.9"), has_numbers("numpy==2.1")
    (True, False)
    """
    return tells(name for name, _ in pairs_in(line, Pairs.NAMED))


def tells(names: Iterable[str]) -> bool:
    """Return whether one of the names is that of a loss, metric or rate."""
    return any(describe(name).kind in _TELLING for name in names if name.lower() not in POSITIONS)
