"""Process of a process pool: answers calls until its input ends."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from smdwidgets import _core
from smdwidgets.exceptions import ExecutorError
from smdwidgets.executors.calls import call
from smdwidgets.executors.frames import read_frame, write_frame


def main() -> None:
    """Answer calls from standard input on standard output.

    What a task prints goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cancel = _core.Cancel()
    while True:
        try:
            content = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = False, call(content, cancel)
        except Exception as error:
            answer = True, error
        write_frame(answers, _dumps(answer))


def _dumps(answer: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps((True, ExecutorError(f"cannot send the result of a task: {answer[1]!r}: {error}")))
