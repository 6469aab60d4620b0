"""Compare what two sides of a client did; each difference is one line of text."""

from __future__ import annotations

import math
import re
from typing import Any

from clients.launch import Outcome

RELATIVE = 1e-4  # of printed numbers and of statistics: sums are not always added in the same order
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
#: Lines that print times, dates, addresses or progress bars.
_NOT_COMPARED = re.compile(
    r"\b(?:sec(?:onds?)?|time|elapsed|ms/|s/step|us/|it/s|\d+m?s\b)|0x[0-9a-f]+|\d\d:\d\d:\d\d|\x08|\r", re.I
)


def close(first: float, second: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second or abs(first - second) <= RELATIVE * max(abs(first), abs(second), 1e-6)


def same(first: Any, second: Any) -> bool:
    """Whether two descriptions of values are equal.

    Arrays with different bytes are compared by their statistics.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        if "sha" in first and "sha" in second and first["sha"] == second["sha"] and first["shape"] == second["shape"]:
            return bool(first["dtype"] == second["dtype"])
        if "float" in first and "float" in second:
            return close(float(first["float"]), float(second["float"]))
        keys = (set(first) | set(second)) - {"sha"}
        return all(key in first and key in second and same(first[key], second[key]) for key in keys)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, float) and isinstance(second, float):
        return close(first, second)
    return bool(first == second)


def _numbers(line: str) -> tuple[str, list[float]]:
    return _NUMBER.sub("#", line), [float(found) for found in _NUMBER.findall(line)]


def output_difference(first: str, second: str, *, numbers: bool = True) -> str | None:
    """The first line of output that differs; numbers are compared with a tolerance."""
    a, b = (
        [line.rstrip() for line in text.split("\n") if line.strip() and not _NOT_COMPARED.search(line)]
        for text in (first, second)
    )
    for one, other in zip(a, b, strict=False):
        (text, found), (text2, found2) = _numbers(one), _numbers(other)
        if text != text2 or (numbers and not (len(found) == len(found2) and all(map(close, found, found2)))):
            return f"prints {other[:80]!r} for {one[:80]!r}"
    if len(a) != len(b):
        return f"prints {len(b)} lines for {len(a)}"
    return None


def _few(names: Any) -> str:
    names = sorted(map(str, names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _sets(what: str, first: list[str], second: list[str]) -> list[str]:
    missing, extra = set(first) - set(second), set(second) - set(first)
    return [
        *([f"{what} missing ({len(missing)}): {_few(missing)}"] if missing else []),
        *([f"{what} added ({len(extra)}): {_few(extra)}"] if extra else []),
    ]


def run_differences(first: dict[str, Any], second: dict[str, Any], *, values: bool) -> list[str]:
    """How a run that smdwidgets wrote differs from the one that smdebug wrote."""
    if "unreadable" in first or "unreadable" in second:
        return (
            [] if first == second else [f"run is readable only on one side: {first.get('unreadable', 'smdebug’s run')}"]
        )
    found = _sets("tensors", first["names"], second["names"])
    for mode in first["steps"]:
        if first["steps"][mode] != second["steps"].get(mode):
            found.append(f"{mode} steps are {_range(second['steps'].get(mode, []))} for {_range(first['steps'][mode])}")
    if first["workers"] != second["workers"]:
        found.append(f"workers are {second['workers']} for {first['workers']}")
    if first["loaded_all_steps"] != second["loaded_all_steps"]:
        found.append(f"loaded_all_steps is {second['loaded_all_steps']} for {first['loaded_all_steps']}")
    shared = set(first["names"]) & set(second["names"])
    a, b = _filled(first), _filled(second)
    found += _sets("collections", list(a), list(b))
    found += [
        f"collection {name} differs in {_few((a[name] ^ b[name]) & shared)}"
        for name in sorted(a.keys() & b.keys())
        if (a[name] ^ b[name]) & shared
    ]
    both = [key for key in first["values"] if key in second["values"]]
    pairs = [(key, first["values"][key], second["values"][key]) for key in both]
    if values:
        specific = {name: names for name, names in first["collections"].items() if name not in ("all", "default")}
        of = {name: collection for collection, names in sorted(specific.items(), reverse=True) for name in names}
        differing: dict[str, list[str]] = {}
        for key, one, other in pairs:
            if not same(one, other):
                differing.setdefault(of.get(key.rpartition(" at step ")[0], "no collection"), []).append(key)
        for collection, keys in sorted(differing.items()):
            found.append(f"values of {collection} differ ({len(keys)} of {len(both)}): {_few(keys)}")
    else:
        other_form = [key for key, one, other in pairs if _form(one) != _form(other)]
        if other_form:
            found.append(f"dtypes or shapes differ ({len(other_form)} of {len(both)}): {_few(other_form)}")
    return found


#: Names that Keras 2 gives to variables, and Keras 3's for the same: (pattern, replacement).
KERAS_NAMES = (
    (re.compile(r"^([^/]+)/weights/.*?([^/]+):0$"), r"\1/weights/\2"),
    (re.compile(r"^weights/([^/]+)/(?:.*/)?([^/]+):0$"), r"\1/weights/\2"),
)


def with_keras_names(run: dict[str, Any]) -> dict[str, Any]:
    """Rename a run of Keras 2 to the names of Keras 3, to find other differences."""
    if "unreadable" in run:
        return run

    def renamed(name: str) -> str:
        for pattern, replacement in KERAS_NAMES:
            name = pattern.sub(replacement, name)
        return name

    def key(name: str) -> str:
        tensor, at, where = name.rpartition(" at step ")
        return f"{renamed(tensor)}{at}{where}"

    return {
        **run,
        "names": sorted(map(renamed, run["names"])),
        "collections": {name: sorted(map(renamed, of)) for name, of in run["collections"].items()},
        "values": {key(name): value for name, value in run["values"].items()},
    }


def _filled(run: dict[str, Any]) -> dict[str, set[str]]:
    return {name: set(of) for name, of in run["collections"].items() if of}


def _form(value: Any) -> Any:
    return (value.get("dtype"), value.get("shape")) if isinstance(value, dict) else value


def _range(steps: list[int]) -> str:
    return (
        f"{len(steps)} ({', '.join(map(str, steps[:4]))}{' … ' + str(steps[-1]) if len(steps) > 4 else ''})"
        if steps
        else "none"
    )


def answer_differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Answers (cells, rules) that differ."""
    found = []
    for key, one in first.items():
        other = second.get(key)
        if isinstance(one, dict) and isinstance(other, dict) and "printed" in one:
            if "raises" in one and "raises" not in other:
                continue  # counted by cells_gained()
            if one.get("raises") != other.get("raises"):
                found.append(
                    f"{key} ends with {other.get('raises', 'no exception')} for {one.get('raises', 'no exception')}"
                )
                continue
            if difference := output_difference(one["printed"], other.get("printed", "")):
                found.append(f"{key} {difference}")
            one, other = (
                {name: value for name, value in answer.items() if name != "printed"} for answer in (one, other)
            )
        if not same(one, other):
            found.append(f"{key} is {str(other)[:90]} for {str(one)[:90]}")
    return found


def cells_gained(first: dict[str, Any], second: dict[str, Any]) -> int:
    """The number of answers that only smdwidgets gives."""
    raises = [
        {key for key, one in side.items() if isinstance(one, dict) and "raises" in one} for side in (first, second)
    ]
    return len(raises[0] - raises[1])


def test_differences(first: dict[str, str], second: dict[str, str]) -> tuple[list[str], int]:
    """Return tests that pass only with smdebug, and the number that pass only here."""
    fails = [
        f"{name} fails: {second.get(name, _collection(second)).partition(': ')[2][:120]}"
        for name, outcome in first.items()
        if outcome == "passed" and second.get(name) != "passed"
    ]
    gained = sum(outcome == "passed" and first.get(name) != "passed" for name, outcome in second.items())
    return fails, gained


def _collection(outcomes: dict[str, str]) -> str:
    return next((text for text in outcomes.values() if text.startswith("error")), "not run")


def differences(first: Outcome, second: Outcome, kind: str, *, values: bool) -> tuple[list[str], str]:
    """Return all differences of smdwidgets (`second`) from smdebug (`first`).

    The second result is a short summary of what was equal.
    """
    if second.timed_out:
        return ["time-out: smdebug and smdwidgets" if first.timed_out else "time-out: smdwidgets"], ""
    if kind == "tests" and not first.error and not second.error:
        tests, other = first.result["outcomes"], second.result["outcomes"]
        passed = sum(outcome == "passed" for outcome in tests.values())
        fails, gained = test_differences(tests, other)
        return fails, f"{passed - len(fails)} of {passed} passing tests" + (
            f", {gained} pass with smdwidgets only" if gained else ""
        )
    found: list[str] = []
    if first.error or second.error:
        one, other = (
            f"{side.error['type']}: {side.error['message']}" if side.error else "no exception"
            for side in (first, second)
        )
        if (first.error or {}).get("type") != (second.error or {}).get("type"):
            found.append(f"ends with {other[:160]} for {one[:160]}")
    elif first.status != second.status:
        found.append(f"exit status is {second.status} for {first.status}")
    if first.error and not second.error:
        return found, ""
    equal_parts = []
    if kind in ("notebook", "rules") and not found and not first.error:
        one, other = first.result["answers"], second.result["answers"]
        found += answer_differences(one, other)
        gained = cells_gained(one, other)
        raised = sum("raises" in answer for answer in one.values() if isinstance(answer, dict)) - gained
        what = "cells" if kind == "notebook" else "answers"
        equal_parts.append(f"{len(one) - raised - gained} of {len(one)} {what}")
        equal_parts += [f"{raised} raise in both"] if raised else []
        equal_parts += [f"{gained} run with smdwidgets only"] if gained else []
    elif not found and (difference := output_difference(first.output, second.output, numbers=values)):
        found.append(difference)
    else:
        equal_parts.append("output")
    by_line: dict[str, list[str]] = {}
    for run in sorted(first.runs.keys() | second.runs.keys()):
        name, _, library = run.rpartition(" by ")
        if run not in second.runs:
            lines = ["is missing"]
        elif run not in first.runs:
            lines = ["is added"]
        else:
            lines = run_differences(first.runs[run], second.runs[run], values=values)
        for line in lines:
            by_line.setdefault(f"{name}: {line}", []).append(library)
    libraries = {run.rpartition(" by ")[2] for run in (*first.runs, *second.runs)}
    # Report differences in what both libraries read only once.
    found += [line if set(by) == libraries else f"{line} (read by {', '.join(by)})" for line, by in by_line.items()]
    names = {run.rpartition(" by ")[0] for run in first.runs}
    if names:
        tensors = max(len(one.get("names", ())) for one in first.runs.values())
        equal_parts.append(f"{len(names)} run{'s' if len(names) > 1 else ''} of {tensors} tensors")
    elif kind == "script":
        equal_parts.append("no run written")
    return found, ", ".join(equal_parts)
