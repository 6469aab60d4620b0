"""One reader of a TensorBoard log, timed in a process of its own: `python tensorboard_readers.py WHO LOG`.

Peak memory is what the process has beyond what importing the reader took.
"""

import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from clock import once, said

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
    """Kilobytes of a process, as Linux says."""
    return int(re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def timed(work):
    """CPU and wall seconds of one reading, and megabytes it took."""
    before = status(field="VmRSS")
    cpu, wall = once(work)
    return {"cpu": cpu, "wall": wall, "megabytes": (status() - before) / 1024}


def ours(log):
    """From nothing to every scalar as a column and everything else by place, all checksums verified."""
    from smdwidgets.trials import TensorBoardTrial

    return timed(lambda: kept.append(TensorBoardTrial("log", log, live=False)))


def ours_held(log):
    """The same, and all values held as they were written, images still encoded: no file is needed to give them."""
    from smdwidgets.trials import TensorBoardTrial

    took = timed(lambda: kept.append(TensorBoardTrial("log", log, live=False, hold=True)))
    of = kept[-1]._run.log
    places = [of.find(name, step) for name in of.names() for step in of.steps_of(name)]
    if not all(place.number is not None or len(of.stored_value(place)) for place in places):
        raise AssertionError("a value is not held")
    return took


def ours_given(log):
    """The same, and all values given once: histograms as one array, every event of the images as it was written."""
    from smdwidgets.trials import TensorBoardTrial

    def work():
        trial = TensorBoardTrial("log", log, live=False, hold=True)
        kept.append((trial, trial.histograms()))
        images = [name for name, _, kind, _, _ in trial._run.log.series() if kind == "image"]
        kept.extend(trial.events(name) for name in images)

    return timed(work)


def ours_cached(log):
    """A second opening, where a cache was kept at the first."""
    from smdwidgets.trials import TensorBoardTrial

    cache = Path(log).parent / "cache"
    TensorBoardTrial("log", log, live=False, cache=cache).close()
    return timed(lambda: kept.append(TensorBoardTrial("log", log, live=False, cache=cache)))


def accumulator(log):
    """TensorBoard's own reader in Python, nothing sampled away."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return timed(lambda: kept.append(EventAccumulator(log, size_guidance=UNLIMITED).Reload()))


def tbparse(log):
    """tbparse, which goes through EventAccumulator to pandas."""
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
    """The same with its checksums on."""
    return server(log, "--checksum")


kept = []

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    said(globals()[sys.argv[1]](sys.argv[2]))
