"""What `smdwidgets demo` does."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdwidgets import demo
from smdwidgets._text import shown
from smdwidgets.demo.lab import Lab, executed, free_port, has_lab
from smdwidgets.exceptions import RunIOError, SMDebugValueError

FIRST = "01_look_around.ipynb"
#: The headless check needs no time for a user, so its training is shorter.
CHECK_SECONDS = 15.0


def run(args: argparse.Namespace) -> int:
    """Start the training and JupyterLab, and stop them on exit."""
    if args.seconds is not None and args.seconds >= 1e6:
        raise SMDebugValueError(f"invalid --seconds {args.seconds}; must be less than 1000000")
    port = free_port(args.port)
    # Clean up on SIGTERM as on Ctrl-C.
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        if not has_lab():
            return _show_page(Path(args.out or "smdwidgets-demo").expanduser().absolute(), args)
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


def _show_page(out: Path, args: argparse.Namespace) -> int:
    """Show the run without JupyterLab: train, diagnose, and save a page."""
    from smdwidgets import create_trial, diagnose, explore

    print("JupyterLab is not installed in this environment, so the demo shows a saved page.", flush=True)
    _make_folder(out)
    training = demo.TrainingProcess(str(out / "runs" / "demo"), args.seconds or 0.0)
    try:
        training.wait_for_first_steps()
        print(f"Training … {training.directory}", flush=True)
        training.wait()
    finally:
        training.stop()
    page = out / "demo.html"
    with create_trial(training.directory) as trial:
        print(f"\n{diagnose(trial)}\n", flush=True)
        explorer = explore(trial)
        explorer.to_html(page)
        explorer.close()
    print(f"Page:     {page}")
    print("For the notebook with the live training: pip install 'smdwidgets[lab]', then smdwidgets demo")
    if args.headless_check:
        return _rules_find_the_mistakes(training.directory)
    if not args.no_browser:
        webbrowser.open(page.as_uri())
    return 0


def _show(out: Path, port: int, args: argparse.Namespace) -> int:
    def stay(lab: Lab, training: demo.TrainingProcess) -> int:
        print(f"Run:      {training.directory}", flush=True)
        try:
            # Print the URL only once the server answers: users click it at once.
            lab.wait_until_up()
            print(f"Notebook: {lab.url}\nPress Ctrl-C to stop both.", flush=True)
            while lab.running:
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("\nStopping the training and JupyterLab …", flush=True)
        return 0

    return _with_both(out, port, args.seconds or demo.SECONDS, stay, browser=not args.no_browser)


def _check(out: Path, port: int, args: argparse.Namespace) -> int:
    def check_notebook(lab: Lab, training: demo.TrainingProcess) -> int:
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
    return _with_both(out, port, seconds, check_notebook, browser=False)


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
    """Start both processes, call `do`, and stop them even if it raises."""
    _copy_notebooks(out)
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


def _copy_notebooks(out: Path) -> None:
    """Create the directory and copy the notebooks into it.

    Existing copies are kept, because the user may have edited them.
    """
    _make_folder(out)
    try:
        for notebook in sorted(demo.notebooks().glob("*.ipynb")):
            if not (out / notebook.name).exists():
                shutil.copyfile(notebook, out / notebook.name)
    except OSError as error:
        raise RunIOError(
            error.errno, f"cannot copy the demo notebooks to {shown(str(out), 400)}: {error.strerror}"
        ) from error


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunIOError(error.errno, f"cannot create {shown(str(out), 400)}: {error.strerror}") from error
