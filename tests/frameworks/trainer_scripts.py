"""Run scripts of trainers in separate processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from endings.running import run_script
from smdwidgets import Trial
from smdwidgets.diagnosis.reading import ScalarReader, source_of


def run(script: str, folder: Path, *arguments: object) -> list[str]:
    """Run a script with arguments; return the lines that it printed after "out: ".

    Trainers print other lines.
    """
    done = run_script(script, folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert "recording failed" not in done.stderr, done.stderr
    return [line.removeprefix("out: ") for line in done.stdout.splitlines() if line.startswith("out: ")]


def run_workers(script: str, folder: Path, workers: int, *arguments: object) -> None:
    """Run a script as the workers of one training, as torchrun starts them."""
    path = folder / "train.py"
    path.write_text(script, encoding="utf-8")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    world = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(path), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(workers)
    ]
    for process in started:
        output = process.communicate(timeout=280)[0]
        assert process.returncode == 0, output
        assert "recording failed" not in output, output


def diagnosed(trial: Trial) -> dict[tuple[str, str], tuple[str, str]]:
    """Return kind and role of each series in the diagnosis, by name and mode."""
    series = ScalarReader(source_of(trial), {}).update()
    return {(one.name, one.mode): (one.kind.value, one.role.value) for one in series}
