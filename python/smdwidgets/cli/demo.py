"""A live training to look at, and JupyterLab on the notebook that shows it.

A small classifier trains for two minutes in a process of its own and writes every step. Two mistakes are planted in it,
and rules find them. Ctrl-C ends everything.

Examples:
  smdwidgets demo
  smdwidgets demo --no-browser --port 8899 --out ~/look
  smdwidgets demo --headless-check

Exit codes: 0 ended by Ctrl-C or checked well, 1 the check found something wrong, 2 it could not be started
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdwidgets import demo
from smdwidgets._text import shown
from smdwidgets.demo.lab import Lab, executed, free_port, require_lab
from smdwidgets.exceptions import RunIOError, SMDebugValueError

FIRST = "01_look_around.ipynb"
#: The headless check does not watch; it trains as fast as it can.
CHECK_SECONDS = 15.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("--out", metavar="DIR", help="where the run and the notebooks go (default: ./smdwidgets-demo)")
    parser.add_argument("--port", type=int, metavar="N", help="JupyterLab's port (default: 8888, or a free one)")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long the training lasts (default: 120)")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    parser.add_argument(
        "--headless-check",
        action="store_true",
        help="start everything, execute the notebook in a real kernel, print what a person would see, and end",
    )


def run(args: argparse.Namespace) -> int:
    """Starts the training and JupyterLab, and ends them."""
    require_lab()
    if args.seconds is not None and not 0 <= args.seconds < 1e6:
        raise SMDebugValueError("--seconds takes a number of seconds from 0 on.")
    if args.port is not None and not 0 < args.port < 1 << 16:
        raise SMDebugValueError("--port takes a number from 1 to 65535.")
    port = free_port(args.port)
    # `kill` is to leave as little behind as Ctrl-C.
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        if not args.headless_check:
            return _show(Path(args.out or "smdwidgets-demo").expanduser().absolute(), port, args)
        if args.out:
            return _check(Path(args.out).expanduser().absolute(), port, args)
        with tempfile.TemporaryDirectory(prefix="smdwidgets-demo-", ignore_cleanup_errors=True) as folder:
            return _check(Path(folder), port, args)
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _show(out: Path, port: int, args: argparse.Namespace) -> int:
    def stay(lab: Lab, training: demo.TrainingProcess) -> int:
        print(f"The run:      {training.directory}", flush=True)
        try:
            # An address that is shown before it answers is clicked before it answers.
            lab.wait_until_up()
            print(f"The notebook: {lab.url}\nCtrl-C ends both.", flush=True)
            while lab.running:
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("\nEnding the training and JupyterLab …", flush=True)
        return 0

    return _with_both(out, port, args.seconds or demo.SECONDS, stay, browser=not args.no_browser)


def _check(out: Path, port: int, args: argparse.Namespace) -> int:
    def look(lab: Lab, training: demo.TrainingProcess) -> int:
        lab.wait_until_up()
        print(f"JupyterLab serves {lab.notebook}\n", flush=True)
        os.environ[demo.RUN_VARIABLE] = training.directory
        try:
            for source, shows in executed(out / lab.notebook):
                print("\n".join(f"    {line}" for line in source.splitlines()))
                print("\n".join(shows), end="\n\n" if shows else "\n", flush=True)
        finally:
            del os.environ[demo.RUN_VARIABLE]
        training.wait()
        return _rules_find_the_mistakes(training.directory)

    seconds = CHECK_SECONDS if args.seconds is None else args.seconds
    return _with_both(out, port, seconds, look, browser=False)


def _rules_find_the_mistakes(run: str) -> int:
    from smdwidgets.rules import RuleRunner
    from smdwidgets.trials import create_trial

    with create_trial(run) as trial:
        runner = RuleRunner(trial)
        for name, parameters in demo.RULES.items():
            runner.add(name, **parameters)
        runner.start().wait()
        for evaluation in runner:
            first = evaluation.first_firing
            print(f"{evaluation.name}: " + (f"fired at step {first.step}, {first.message}" if first else "not fired"))
        return 0 if all(evaluation.fired for evaluation in runner) else 1


def _with_both(
    out: Path, port: int, seconds: float, do: Callable[[Lab, demo.TrainingProcess], int], *, browser: bool
) -> int:
    """Run something while both processes are there, and end them whatever happens."""
    _lay_out(out)
    training = demo.TrainingProcess(str(out / "runs" / "demo"), seconds)
    try:
        training.wait_for_first_steps()
        lab = Lab(
            out,
            FIRST,
            port,
            browser=browser,
            log=out / "jupyterlab.log",
            environment={demo.RUN_VARIABLE: training.directory},
        )
        try:
            return do(lab, training)
        finally:
            lab.stop()
    finally:
        training.stop()


def _lay_out(out: Path) -> None:
    """The folder with copies of the notebooks; those that are there already, which a person may have changed, stay."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(demo.notebooks().glob("*.ipynb")):
            if not (out / notebook.name).exists():
                shutil.copyfile(notebook, out / notebook.name)
    except OSError as error:
        raise RunIOError(
            error.errno, f"The demo can't be laid out in {shown(str(out), 400)}: {error.strerror}"
        ) from error
