"""Read one TensorBoard log of 1 GB with one thread and with two, in turn.

Wall time, because waiting is the subject; the least of some rounds. On a machine that is busy otherwise two threads
gain nothing.

Usage: python tests/benchmarks/bench_long_log.py [--rounds 5] [--scale 1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import report
from bench_tensorboard import scalars
from clock import once

from smdwidgets import _core

#: Copies of a log of a million scalars that make 1 GB.
COPIES = 18


def main() -> None:
    """Print the table and write it."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--scale", type=float, default=1.0, help="share of 1 GB that is written")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "part")
        scalars(part, 1_000_000)
        [written] = part.iterdir()
        content = written.read_bytes()
        log = Path(folder, "log")
        log.mkdir()
        with (log / written.name).open("wb") as out:
            for _ in range(max(1, round(COPIES * options.scale))):
                out.write(content)
        size = (log / written.name).stat().st_size

        def read(threads: int) -> tuple[float, float]:
            """Return CPU and wall seconds."""
            events = _core.EventLog([("", "worker_0", 4, "")])
            return once(lambda: events.refresh_local(str(log), threads))

        taken = [(read(1), read(2)) for _ in range(options.rounds)]
    (one_cpu, two_cpu), (one, two) = (
        [min(pair[at][kind] for pair in taken) for at in (0, 1)] for kind in (0, 1)
    )  # fmt: skip
    ratio = one / two
    rows = [
        [
            f"one log of {size / 1e9:.2f} GB, two threads",
            f"{two:.2f} s ({two_cpu:.2f} s of CPU)",
            f"one thread: {one:.2f} s ({one_cpu:.2f} s of CPU)",
            f"{ratio:.2f}x faster",
            ">= 1.7x",
            "yes" if ratio >= 1.7 else "**no**",
        ]
    ]
    body = (
        f"`python tests/benchmarks/bench_long_log.py`. Wall time, the least of {options.rounds} rounds in turn; load average "
        f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores.\n\n"
        + report.table(["what", "ours", "beside", "ratio", "target", "met"], rows)
    )
    print(body)
    report.write_section("One long log", body)


if __name__ == "__main__":
    main()
