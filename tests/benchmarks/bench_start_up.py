"""Measure the CPU of imports and of the command line.

Each figure is the least of some alternating rounds of whole processes.

Usage: python tests/benchmarks/bench_start_up.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import report

NOTEBOOK = "import numpy, anywidget, ipywidgets"
PROGRAMS = {
    "python": ["-c", ""],
    "numpy": ["-c", "import numpy"],
    "notebook": ["-c", NOTEBOOK],
    "import": ["-c", "import smdwidgets"],
    "explore": ["-c", f"{NOTEBOOK}\nfrom smdwidgets import explore"],
    "--help": ["-m", "smdwidgets", "--help"],
    "--version": ["-m", "smdwidgets", "--version"],
    "completion": ["-m", "smdwidgets", "completion", "bash"],
}


def cpu(arguments: list[str]) -> float:
    """Return the CPU seconds of a process."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the table and write it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rounds", type=int, default=7)
    rounds = asked.parse_args().rounds
    taken = {name: [cpu(arguments)] for name, arguments in PROGRAMS.items()}
    for _ in range(rounds):
        for name, arguments in PROGRAMS.items():
            taken[name].append(cpu(arguments))
    # The first round compiles the modules.
    least = {name: min(times[1:]) for name, times in taken.items()}

    def row(what: str, name: str, beside: str, peer: str, most: float | None) -> list[str]:
        more = least[name] - least[beside]
        target = "" if most is None else f"<= {most * 1e3:.0f} ms"
        met = "" if most is None else "yes" if more <= most else "**no**"
        return [what, f"{more * 1e3:.0f} ms", f"{peer}: {least[beside] * 1e3:.0f} ms", target, met]

    rows = [
        row("`import smdwidgets`", "import", "python", "python", None),
        row("`smdwidgets.explore`", "explore", "notebook", "numpy, anywidget, ipywidgets", 0.06),
        *(
            row(f"`smdwidgets {name}`", name, "python", "python", 0.08)
            for name in ("--help", "--version", "completion")
        ),
        row("for comparison: `import numpy`", "numpy", "python", "python", None),
    ]
    table = report.table(["what", "added CPU", "beside", "target", "met"], rows)
    body = (
        f"`python tests/benchmarks/bench_start_up.py`. CPU of whole processes, the least of {rounds} rounds.\n\n{table}"
    )
    print(body)
    report.write_section("Start-up", body)


if __name__ == "__main__":
    main()
