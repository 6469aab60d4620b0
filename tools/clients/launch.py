"""Run one side of one client in a separate process, with a time-out and a log."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.catalog import PREPARED, RUN, Client
from steps import SetupError

CHILD = Path(__file__).parent / "child" / "main.py"
OBSERVE = CHILD.with_name("observe.py")
PREPARE = Path(__file__).parent / "prepare.py"
SIDES = ("smdebug", "smdwidgets")


@dataclass
class Outcome:
    """What one side did."""

    status: int | None = None  # exit status; None after a time-out
    seconds: float = 0.0
    error: dict[str, Any] | None = None
    output: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)  # by path, as each library reads it
    log: Path = Path()

    @property
    def timed_out(self) -> bool:
        return self.status is None

    def short(self) -> str:
        """Return the outcome in a few words."""
        if self.timed_out:
            return "time-out"
        if self.error:
            return str(self.error["type"])
        if self.status:
            return f"exit status {self.status}"
        return f"ok, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Sides:
    """What is needed to run both sides."""

    smdebug: Path  # interpreters
    smdwidgets: Path
    package: Path  # directory of the package smdwidgets
    smdebug_path: tuple[str, ...]  # directories to import smdebug from, before the environment's
    referee: Path | None  # interpreter with smdebug that reads both runs
    reader: Path  # interpreter that reads both runs with smdwidgets


def _environment(directory: Path, package: Path | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "SM_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {
        **kept,
        "HOME": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
        "SMDEBUG_LOG_LEVEL": "off",
        "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0",
        "SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT": "1",
        **({"PYTHONPATH": str(package)} if package else {}),
    }


def _finish(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for a process and its children; None if they had to be killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Data loaders leave processes behind; Ctrl-C ends them too.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_side(
    client: Client,
    side: str,
    program: Path,
    root: Path,
    prepared: Path | None,
    sides: Sides,
    folder: Path,
    seconds: float,
) -> Outcome:
    """Run a client with one library.

    Args:
        client: The client.
        side: `smdebug` or `smdwidgets`.
        program: The file to run.
        root: The directory that its imports resolve against.
        prepared: The run that it reads, if it reads one.
        sides: Interpreters and packages.
        folder: Where the log and the working directory go.
        seconds: The time-out.
    """
    directory = folder / side
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run = directory / "run"
    arguments = [one.replace(RUN, str(run)).replace(PREPARED, str(prepared)) for one in client.arguments]
    result, job, log = folder / f"{side}.json", folder / f"{side}.job.json", folder / f"{side}.log"
    result.unlink(missing_ok=True)
    job.write_text(
        json.dumps(
            {
                "side": side,
                "kind": client.kind,
                "path": str(program),
                "arguments": arguments,
                "directory": str(directory),
                "root": str(root),
                "prepared": str(prepared) if prepared else "",
                "result": str(result),
                "smdebug_path": list(sides.smdebug_path),
            }
        )
    )
    env = _environment(directory, sides.package if side == "smdwidgets" else None)
    if client.config is not None:
        config = directory / "hook.json"
        config.write_text(json.dumps(client.config).replace(RUN, str(run)))
        env["SMDEBUG_CONFIG_FILE_PATH"] = str(config)
    python = sides.smdebug if side == "smdebug" else sides.smdwidgets
    outcome = Outcome(log=log)
    began = time.monotonic()
    # Not in the working directory: sockets of data loaders live here, and their paths must be short.
    with (
        tempfile.TemporaryDirectory(prefix="client-", ignore_cleanup_errors=True) as scratch,
        log.open("wb") as stderr,
        (folder / f"{side}.out").open("wb") as stdout,
    ):
        process = subprocess.Popen(
            [str(python), str(CHILD), str(job)],
            cwd=directory,
            env={**env, "TMPDIR": scratch},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        outcome.status = _finish(process, seconds)
    outcome.seconds = time.monotonic() - began
    outcome.output = (
        (folder / f"{side}.out").read_text(encoding="utf-8", errors="replace").replace(str(directory), "DIRECTORY")
    )
    if result.is_file():
        outcome.result = json.loads(result.read_text(encoding="utf-8"))
        outcome.error = outcome.result.get("error")
    elif not outcome.timed_out:
        outcome.error = {"type": "NoResult", "message": f"exit status {outcome.status}, see the log"}
    return outcome


def runs_in(directory: Path) -> list[Path]:
    """Return the directories of runs below a working directory.

    pytest's temporary directory is excluded.
    """
    found: set[Path] = set()
    for mark in ("collections", "events", "index"):
        found.update(path.parent for path in directory.rglob(mark) if path.is_dir())
    return sorted(path for path in found if "tmp" not in path.relative_to(directory).parts)


def read_runs(directory: Path, sides: Sides, folder: Path, seconds: float) -> dict[str, dict[str, Any]]:
    """Every run below a directory, as each library reads it.

    `PATH by LIBRARY` is the key.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in runs_in(directory):
        name = run.relative_to(directory).as_posix()
        for library, python in (("smdebug", sides.referee), ("smdwidgets", sides.reader)):
            if python is None:
                continue
            env = _environment(directory, sides.package if library == "smdwidgets" else None)
            if library == "smdebug" and sides.smdebug_path:
                env["PYTHONPATH"] = os.pathsep.join(sides.smdebug_path)
            command = [str(python), str(OBSERVE), library, str(run)]
            with (folder / "reading.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
                try:
                    out, _ = process.communicate(timeout=seconds)
                except subprocess.TimeoutExpired:
                    out = b""
                finally:
                    _finish(process, 0)
            answer = json.loads(out) if process.returncode == 0 and out else {"unreadable": f"by {library}"}
            found[f"{name} by {library}"] = answer
    return found


def prepare(client: Client, names: list[str], sides: Sides, folder: Path) -> Path:
    """Write the run that a client reads, with smdwidgets' hook for numpy."""
    path = folder / "prepared"
    shutil.rmtree(path, ignore_errors=True)
    job = folder / "prepare.json"
    shapes = {name: list(shape) for name, shape in client.shapes.items()}
    job.write_text(
        json.dumps(
            {"path": str(path), "names": names, "shapes": shapes, "steps": 20 if client.kind == "rules" else 1501}
        )
    )
    env = _environment(folder, sides.package)
    command = [str(sides.reader), str(PREPARE), str(job)]
    done = subprocess.run(command, env=env, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"cannot prepare a run for {client.name}: {done.stderr.strip()[-300:]}")
    return path
