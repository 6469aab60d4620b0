"""Recognize tables with a column of steps, and split lines into cells."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from smdwidgets.naming.scalars import Kind, Role, describe

#: Names of columns that number the rows, the best first.
_STEPS: Final = dict.fromkeys(
    (
        "global_step",
        "step",
        "_step",
        "steps",
        "iteration",
        "iter",
        "iterations",
        "iters",
        "total_timesteps",
        "timesteps",
        "num_timesteps",
        "timesteps_total",
        "training_iteration",
        "epoch",
        "epochs",
    )
)
#: Names that also number something else. They number the rows of a training beside a loss, a reward, a rate, or a
#: number that was measured on the data of a training.
_SHORT_STEPS: Final = dict.fromkeys(
    (
        *("it", "itr", "n_iter", "num_updates", "n_updates", "updates", "update", "boosting_round", "round"),
        *("epoch_idx", "epoch_num", "ep", "episodes", "episode", "generation", "generations", "progress/tick"),
        *("num_episodes", "num episodes", "n_episodes"),
        *("timestep", "time_step", "timestepssofar", "env_steps", "env_step", "total_frames", "frames", "frame"),
    )
)
#: Names of which a metric is enough, such as the score of an episode, if the table has no text.
_EPISODES: Final = frozenset(("episode", "episodes", "generation", "generations"))
_OF_TRAININGS: Final = (Kind.LOSS, Kind.REWARD, Kind.LEARNING_RATE)
_EPOCHS: Final = dict.fromkeys(("epoch", "epochs", "epoch_idx", "epoch_num", "ep"))
_TIMES: Final = dict.fromkeys(("timestamp", "wall_time", "_timestamp", "wall time"))
#: Separators of columns, by preference where they split the header alike. None: any white space.
_SEPARATORS: Final = ("\t", ",", ";", "|", None)
#: Cells that mean "no value". NaN is a value, which a rule may look for.
_MISSING: Final = frozenset({"", "na", "n/a", "#n/a", "null", "none", "-", "--", "?", "<na>", "missing"})
#: Spellings of NaN that `float` does not know.
_NAN: Final = re.compile(r"[+-]?(?:1\.#(?:qnan|snan|ind|nan)\d*|nan\([^)]*\)|s?qnan|1\.#ind0*)", re.IGNORECASE)
_INFINITE: Final = re.compile(r"([+-]?)1\.#inf0*", re.IGNORECASE)
#: A number as PyTorch or NumPy print it: "tensor(0.5, device='cuda:0')", "np.float32(0.5)".
_PRINTED: Final = re.compile(
    r"(?:tensor|array|(?:np\.|numpy\.)?float(?:16|32|64))\(([-+.\deE]+|-?nan|-?inf)(?:,[^()]*(?:\([^()]*\))?)?\)"
)
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
#: A step and the number of steps: "3/300".
_STEP_OF: Final = re.compile(r"(\d+) ?/ ?\d+")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?")
#: Rows that are looked at to tell a table of a training from other data.
ROWS: Final = 20

#: Control sequences of terminals: colours, movements of the cursor, titles.
_CONTROL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\))")
#: Names of the statistics of StyleGAN.
_STATISTICS: Final = {"num", "mean", "std"}
#: A byte order mark.
BOM: Final = "\ufeff"


class Layout(NamedTuple):
    """How a table is written."""

    #: Whether each line is a JSON object. Otherwise columns are separated.
    json_lines: bool
    #: The separator; None: white space.
    separator: str | None = ","
    #: The first line, with the names of columns; empty for JSON lines.
    header: str = ""
    #: Offset of the first row.
    start: int = 0
    #: The end of a line: a line feed, after a carriage return or not, or a carriage return alone.
    line_end: bytes = b"\n"
    #: The names of columns, where the header does not say them. A column without a name is not read.
    names: tuple[str, ...] = ()
    #: The column whose sum so far is the step, if none is.
    summed: str = ""


def layout_of(beginning: bytes) -> Layout | None:
    """Return the layout of a table with steps, or None for any other file.

    >>> layout_of(b"epoch; loss\\n1; 0,5\\n")
    Layout(json_lines=False, separator=';', header='epoch; loss', start=12, line_end=b'\\n', names=(), summed='')
    >>> layout_of(b"name,age\\nann,1\\n")
    """
    if b"\0" in beginning:
        return None
    line_end = line_end_of(beginning)
    lines = beginning.split(line_end)
    start = 0
    for number, data in enumerate(lines[: ROWS + 20]):
        start += len(data) + 1
        line = without_controls(data.decode("utf-8", "replace")).rstrip("\r").removeprefix(BOM)
        bare = line.strip()
        if not bare:
            continue
        if bare.startswith("{"):
            is_json = _is_json_lines(_texts(lines[number : number + ROWS]))
            return Layout(True, line_end=line_end) if is_json else None
        header = bare.lstrip("#").strip() if bare.startswith("#") else line
        separator = _separator(header)
        names = split(header, separator)
        if any(_CLOCK.fullmatch(word) for name in names for word in name.split()):
            return None  # a line of a log, which has a time
        if step_column(names) is not None:
            layout = Layout(False, separator, header, min(start, len(beginning)), line_end)
            return layout if _has_numbers(layout, names, _texts(lines[number + 1 : number + 1 + ROWS])) else None
        if not bare.startswith("#"):
            return None
    return None


def without_controls(text: str) -> str:
    """Return a text without the control sequences of terminals.

    >>> without_controls("\x1b[32m0.5\x1b[0m")
    '0.5'
    """
    return _CONTROL.sub("", text) if "\x1b" in text else text


def line_end_of(beginning: bytes) -> bytes:
    """Return what ends the lines of a file.

    >>> line_end_of(b"step,loss\\r1,2\\r"), line_end_of(b"step,loss\\r\\n")
    (b'\\r', b'\\n')
    """
    return b"\n" if b"\n" in beginning or b"\r" not in beginning.rstrip() else b"\r"


def _texts(lines: Iterable[bytes]) -> list[str]:
    texts = (without_controls(line.decode("utf-8", "replace")).strip().removeprefix(BOM) for line in lines)
    return [text for text in texts if text]


def _is_json_lines(lines: Iterable[str]) -> bool:
    for line in lines:
        row = json_row(line)
        if row is None:
            return False
        step = step_column(row)
        if step is not None and len(row) > 1 and not isinstance(row[step], list):
            return True
    return False


def _separator(header: str) -> str | None:
    # White space separates words within names, too, so it is tried last.
    present = [one for one in _SEPARATORS if one is not None and one in header]
    names = {one: split(header, one) for one in present}
    usable = [one for one in present if len(names[one]) > 1 and step_column(names[one]) is not None]
    return max(usable, key=lambda one: len(names[one]), default=None)


def _has_numbers(layout: Layout, names: Sequence[str], lines: Sequence[str]) -> bool:
    """Return whether the first rows, if any, have a step and a number."""
    rows = [split(line, layout.separator) for line in lines]
    step = step_column(names)
    if not rows or step is None:
        return len(names) > 1
    at = list(names).index(step)
    # Progress bars have words such as "3/300", too.
    step_of = step_in if layout.separator is not None else str
    if not _is_sure(names, step) and any(
        number_of(cell) is None and not is_missing(cell) for row in rows for cell in row
    ):
        return False
    return any(
        len(row) > at
        and number_of(step_of(row[at])) is not None
        and any(number_of(cell) is not None for column, cell in enumerate(row) if column != at)
        for row in rows
    )


def split(line: str, separator: str | None) -> list[str]:
    """Split a line into cells without surrounding white space.

    >>> split('step, "a, b" ,c', ",")
    ['step', 'a, b', 'c']
    """
    if separator is None:
        return line.split()
    try:
        [cells] = csv.reader([line], delimiter=separator, quoting=quoting_of(line), skipinitialspace=True)
    except (csv.Error, ValueError):
        cells = line.split(separator)
    return [cell.strip() for cell in cells]


def quoting_of(text: str) -> Literal[0, 3]:
    """Return how the `csv` module treats quotes: as text if one is never closed."""
    return csv.QUOTE_NONE if text.count('"') % 2 else csv.QUOTE_MINIMAL


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of columns without duplicates and empty names.

    >>> distinct(["loss", "loss", ""])
    ['loss', 'loss (2)', 'column 3']
    """
    taken: dict[str, int] = {}
    found = []
    for at, name in enumerate(names, 1):
        name = name or f"column {at}"
        while name in taken:
            taken[name] += 1
            name = f"{name} ({taken[name]})"
        taken[name] = 1
        found.append(name)
    return found


def _column(names: Iterable[str], wanted: Mapping[str, None]) -> str | None:
    """Return the column with the best of these names, or with one as last part.

    >>> _column(["rollout/loss", "time/total_timesteps"], _STEPS)
    'time/total_timesteps'
    """
    by_name: dict[str, str] = {}
    by_last: dict[str, str] = {}
    for name in names:
        plain = name.strip().lower()
        if plain in wanted:
            by_name.setdefault(plain, name)
        elif "/" in plain and (last := plain.rpartition("/")[2]) in wanted:
            by_last.setdefault(last, name)
    for known in (by_name, by_last):
        for one in wanted:
            if one in known:
                return known[one]
    return None


def step_column(names: Iterable[str]) -> str | None:
    """Return the column that numbers the rows, or None.

    >>> step_column(["epoch", "step", "loss"]), step_column(["name", "age"])
    ('step', None)
    >>> step_column(["ep", "train_mse"]), step_column(["round", "player"])
    ('ep', None)
    """
    names = [*names]
    usual = _column(names, _STEPS)
    if usual is not None:
        return usual
    short = _column(names, _SHORT_STEPS)
    if short is None or _is_sure(names, short):
        return short
    is_measured = short.lower() in _EPISODES and any(describe(name).kind is Kind.METRIC for name in names)
    return short if is_measured else None


def _is_sure(names: Iterable[str], step: str) -> bool:
    """Return whether names say that a column numbers the steps of a training.

    >>> _is_sure(["it", "train_kl"], "it"), _is_sure(["episode", "score"], "episode")
    (True, False)
    """
    if _column([step], _STEPS) is not None:
        return True
    said = ((name, describe(name)) for name in names if name != step)
    return any(one.kind in _OF_TRAININGS or (one.role is Role.TRAINING and one.base != name) for name, one in said)


def step_in(cell: str) -> str:
    """Return the step in a cell that also says how many there are.

    >>> step_in("3/300"), step_in("3")
    ('3', '3')
    """
    match = _STEP_OF.fullmatch(cell.strip()) if "/" in cell else None
    return match[1] if match else cell


def epoch_column(names: Iterable[str]) -> str | None:
    """Return the column of epochs, or None."""
    return _column(names, _EPOCHS)


def time_column(names: Iterable[str]) -> str | None:
    """Return the column with the time of writing, or None."""
    return _column(names, _TIMES)


def number_of(cell: str) -> float | None:
    """Return the number in a cell; None if it is missing or not a number.

    >>> [number_of(cell) for cell in ("1e-3", "-NaN", "1.#QNAN", "nan(ind)", "N/A", "0,5", "-1.#INF", "tensor(1)")]
    [0.001, nan, nan, nan, None, 0.5, -inf, 1.0]
    >>> number_of("tensor(0.5, device='cuda:0')"), number_of("7_0.5")
    (0.5, None)
    """
    cell = cell.strip()
    if "_" in cell:  # Python's separator of digits; in a log it separates two numbers
        return None
    try:
        return float(cell)
    except ValueError:
        pass
    if is_missing(cell):
        return None
    if printed := _PRINTED.fullmatch(cell):
        return number_of(printed[1])
    if _NAN.fullmatch(cell):
        return math.nan
    if found := _INFINITE.fullmatch(cell):
        return -math.inf if found[1] == "-" else math.inf
    if _DECIMAL_COMMA.fullmatch(cell):
        return float(cell.replace(",", "."))
    return None


def is_missing(cell: str) -> bool:
    """Return whether a stripped cell means that there is no value.

    >>> is_missing("N/A"), is_missing("loss")
    (True, False)
    """
    return cell.lower() in _MISSING


def json_row(line: str) -> dict[str, Any] | None:
    """Return the values of a JSON object by flat name; None for anything else.

    >>> json_row('{"step": 1, "train": {"loss": NaN}}')
    {'step': 1, 'train/loss': nan}
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return flat(found) if isinstance(found, dict) else None


def json_fault(error: Exception, data: bytes) -> str:
    """Return where JSON is damaged: where it ends, if it is incomplete.

    >>> for text in (b'{"a": 1, "b', b'{"a": 1, b}'):
    ...     try:
    ...         json.loads(text)
    ...     except ValueError as error:
    ...         print(json_fault(error, text))
    JSON ends at byte 11: Unterminated string
    invalid JSON at byte 9: Expecting property name enclosed in double quotes
    """
    if not isinstance(error, json.JSONDecodeError):
        return f"invalid JSON: {error}" if isinstance(error, ValueError) else "invalid JSON: it is nested too deeply"
    at = len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    reason = error.msg.removesuffix(" starting at").removesuffix(":")
    is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    return f"JSON ends at byte {len(data):,}: {reason}" if is_cut else f"invalid JSON at byte {at:,}: {reason}"


def flat(given: Mapping[str, Any], prefix: str = "", separator: str = "/") -> dict[str, Any]:
    """Return nested mappings as one, with the names of parts joined.

    Statistics of a number are its mean.

    >>> flat({"Loss": {"G": {"num": 64, "mean": 0.5, "std": 0.25}}})
    {'Loss/G': 0.5}
    """
    found: dict[str, Any] = {}
    below = [(prefix, given)]
    while below:
        start, mapping = below.pop()
        for name, value in mapping.items():
            if isinstance(value, Mapping):
                if value.keys() == _STATISTICS:
                    found[f"{start}{name}"] = value["mean"]
                else:
                    below.append((f"{start}{name}{separator}", value))
            else:
                found[f"{start}{name}"] = value
    return found
