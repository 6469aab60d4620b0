"""Run the code cells of a notebook on a prepared run, and report their values."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import describe
import stubs

CELL_SECONDS = 20
MOST_PRINTED = 100_000  # characters of a cell
SKIPPED_MAGICS = ("%%writefile", "%%bash", "%%sh", "%%html", "%%javascript", "%%capture_png")


class _CellTimeout(BaseException):
    pass


def _redirect(prepared: str) -> Callable[[], Any]:
    """Redirect every way of opening a remote run to the prepared one.

    Returns a function that opens it.
    """
    trials: Any = importlib.import_module("smdebug.trials")
    create_trial = trials.create_trial

    def opened(path: Any = None, *args: Any, **named: Any) -> Any:
        there = isinstance(path, str) and Path(path).is_dir()
        return create_trial(path if there else prepared)

    trials.create_trial = opened
    for name in ("LocalTrial", "S3Trial"):
        if hasattr(trials, name):
            setattr(trials, name, lambda *args, **named: create_trial(prepared))
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("smdebug.trials.utils").create_trial = opened  # type: ignore[attr-defined]
    return partial(create_trial, prepared)


def _code(source: str) -> str | None:
    lines = source.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith(SKIPPED_MAGICS):
        return None
    kept = []
    for line in lines:
        bare = line.lstrip()
        indent = line[: len(line) - len(bare)]
        kept.append(indent + "pass" if bare.startswith(("!", "%")) else line)
    return "\n".join(kept)


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _CellTimeout

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _run_cell(number: int, source: str, names: dict[str, Any], drawn: list[Any]) -> dict[str, Any] | None:
    code = _code(source)
    if code is None:
        return None
    file = f"<cell {number}>"
    drawn.clear()
    printed = io.StringIO()
    answer: dict[str, Any] = {}
    try:
        tree = ast.parse(code, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed), _limited(CELL_SECONDS):
            exec(compile(tree, file, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), file, "eval"), names)
                answer["value"] = describe.describe(value)
    except _CellTimeout:
        answer["raises"] = "time-out"
    except Exception as error:
        answer["raises"] = type(error).__name__
        print(f"cell {number}: {type(error).__name__}: {error}", file=sys.stderr)
    # A loop that polls prints as often as the machine allows.
    answer["printed"] = (
        "" if answer.get("raises") == "time-out" else describe.without_time(printed.getvalue()[:MOST_PRINTED])
    )
    if drawn and answer.get("raises") != "time-out":
        answer["drawn"] = list(drawn)
    return answer


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Return the value, output and drawn data of each code cell, or its exception."""
    drawn: list[Any] = []

    def listener(name: str, args: tuple[Any, ...]) -> None:
        described = [describe.describe(arg) for arg in args if not isinstance(arg, stubs.Anything)]
        if described and len(drawn) < 500:
            drawn.append([name, *described])

    stubs.install(listener)
    trial = _redirect(job["prepared"])
    time.sleep = lambda seconds: None  # polling loops need not wait for a run that has ended
    sys.argv = [job["path"]]
    names = stubs.Names(listener, trial)
    names["__name__"] = "__main__"
    answers: dict[str, Any] = {}
    cells = json.loads(Path(job["path"]).read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
        answer = _run_cell(number, "".join(cell["source"]), names, drawn)
        if answer is not None:
            answers[f"cell {number}"] = answer
    return {"answers": answers}
