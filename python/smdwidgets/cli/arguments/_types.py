"""Types of arguments, and options that several commands have."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from smdwidgets._text import did_you_mean, shown
from smdwidgets.modes import ModeKeys, as_mode


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, which says itself what it does not know."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._unknown(rest[0]))
        return known, rest

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"one argument too many: {shown(word)}"
        option = word.partition("=")[0]
        options = [name for action in self._actions for name in action.option_strings if name != "--help"]
        return f"unknown option {shown(option)}.{did_you_mean(option, options)} `{self.prog} --help` lists them"


def step_range(text: str) -> range:
    """Parse ``100``, ``100:200``, ``100:`` or ``:200``; the end is exclusive."""
    begin, colon, end = text.partition(":")
    try:
        first = int(begin) if begin else 0
        last = (int(end) if end else sys.maxsize) if colon else first + 1
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"invalid step range {text!r}; give a step such as 100 or a range such as 100:200"
        ) from None
    if first < 0 or last <= first:
        raise argparse.ArgumentTypeError(
            f"empty step range {text!r}; the start must be at least 0 and less than the end"
        )
    return range(first, last)


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers in a range, both ends inclusive."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            limit = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"invalid value {text!r}; must be an integer {limit}")
        return number

    return parse


def positive(text: str) -> float:
    """Parse a number above zero."""
    return _number(text, lambda number: number > 0, "above 0")


def not_negative(text: str) -> float:
    """Parse a number of at least zero."""
    return _number(text, lambda number: number >= 0, "of at least 0")


def _number(text: str, is_valid: Callable[[float], bool], limit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not is_valid(number):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; must be a number {limit}")
    return number


def mode(text: str) -> ModeKeys:
    """Parse the name of a mode."""
    try:
        return as_mode(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).replace("modes.", "")) from None


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """Add the option for a Dask cluster."""
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="read with the workers of this Dask scheduler, such as tcp://host:8786"
    )
