"""Time one reader of a TensorBoard log in a separate process.

Usage: `python tensorboard_readers.py WHO LOG`.

Peak memory excludes that of importing the reader.
"""

import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from clock import once, print_result

UNLIMITED = dict.fromkeys(
    (
        "scalars",
        "histograms",
        "images",
        "audio",
        "tensors",
        "compressedHistograms",
        "graph",
        "meta_graph",
        "run_metadata",
    ),
    0,
)


def status(pid="self", field="VmHWM"):
    """Return kilobytes of a process, as reported by Linux."""
    return int(re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def timed(work):
    """Return the CPU and wall seconds of one reading, and the megabytes it took."""
    before = status(field="VmRSS")
    cpu, wall = once(work)
    return {"cpu": cpu, "wall": wall, "megabytes": (status() - before) / 1024}


def ours(log):
    """Read all scalars as columns and the locations of other values, with checksums."""
    from smdwidgets.trials import TensorBoardTrial

    return timed(lambda: kept.append(TensorBoardTrial("log", log, live=False)))


def ours_held(log):
    """The same, with all values in memory as they were written, images encoded.

    No file is needed to return them.
    """
    from smdwidgets.trials import TensorBoardTrial

    took = timed(lambda: kept.append(TensorBoardTrial("log", log, live=False, hold=True)))
    of = kept[-1].reader.run.log
    places = [of.find(name, step) for name in of.names() for step in of.steps_of(name)]
    if not all(place.number is not None or len(of.stored_value(place)) for place in places):
        raise AssertionError("a value is not held")
    return took


def ours_given(log):
    """The same, and return all values once: histograms as one array, images encoded."""
    from smdwidgets.trials import TensorBoardTrial

    def work():
        trial = TensorBoardTrial("log", log, live=False, hold=True)
        kept.append((trial, trial.histograms()))
        images = [name for name, _, kind, _, _ in trial.reader.run.log.series() if kind == "image"]
        kept.extend(trial.events(name) for name in images)

    return timed(work)


def ours_numbers(log):
    """Find the runs below a path, open the only one, and return all scalars."""
    from smdwidgets import create_trial
    from smdwidgets.sources import formats

    formats()  # as with the others, imports do not count
    return timed(lambda: kept.append(create_trial(log, live=False).scalars()))


def ours_cached(log):
    """Open a log again, with the cache of the first time."""
    from smdwidgets.trials import TensorBoardTrial

    cache = Path(log).parent / "cache"
    TensorBoardTrial("log", log, live=False, cache=cache).close()
    return timed(lambda: kept.append(TensorBoardTrial("log", log, live=False, cache=cache)))


def ours_created(log):
    """Open all runs below a directory, which are read at their first query."""
    from smdwidgets import create_trials

    return timed(lambda: kept.append(create_trials(log)))


def ours_all(log):
    """Open all runs below a directory and read them, with checksums."""
    from smdwidgets import create_trials

    return timed(lambda: kept.append(create_trials(log, lazy=False)))


def ours_table(log):
    """Make the table of all runs, with an empty index."""
    from smdwidgets.run_table import runs

    return timed(lambda: kept.append(runs(log, cache=Path(log).parent / f"index-{os.getpid()}.sqlite")))


def ours_table_again(log):
    """Make the table of all runs a second time."""
    from smdwidgets.run_table import runs

    index = Path(log).parent / f"index-{os.getpid()}.sqlite"
    runs(log, cache=index)
    return timed(lambda: kept.append(runs(log, cache=index)))


def accumulator(log):
    """TensorBoard's own reader in Python, without sampling."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return timed(lambda: kept.append(EventAccumulator(log, size_guidance=UNLIMITED).Reload()))


def tbparse(log):
    """tbparse, which converts from EventAccumulator to pandas."""
    from tbparse import SummaryReader

    return timed(lambda: kept.append(SummaryReader(log, extra_columns={"wall_time"}).scalars))


def server(log, *options):
    """TensorBoard's data server in Rust, one load of everything."""
    import tensorboard_data_server

    everything = ",".join(f"{plugin}=all" for plugin in ("scalars", "histograms", "images", "text", "audio"))
    command = [tensorboard_data_server.server_binary(), "--logdir", log, "--port", "0", "--reload", "once", "-vv"]
    command += ["--samples-per-plugin", everything, *options]
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        for line in process.stderr:
            if "Finished load cycle" in line:
                break
        wall = time.perf_counter() - start
        user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return {"cpu": cpu, "wall": wall, "megabytes": status(process.pid) / 1024}
    finally:
        process.kill()
        process.wait()


def server_checked(log):
    """The same with checksums on."""
    return server(log, "--checksum")


kept = []

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print_result(globals()[sys.argv[1]](sys.argv[2]))
