"""Time statistics by `dask.delayed` over smdebug.

Usage: `python peer_scale.py PATH STEPS`.

Runs in .venv-peers with Dask. One task for each step, which opens nothing: the trial is opened once in each process, as
a user would write it. Each task computes minimum, maximum, mean, standard deviation and norm with NumPy.
"""

import logging
import os
import sys
import time

from clock import print_result

os.environ["SMDEBUG_LOG_LEVEL"] = "off"
import dask
import numpy as np
from distributed import Client, LocalCluster
from smdebug.trials import create_trial

_trials = {}


def statistics(path, step):
    """Return the statistics of all tensors of a step."""
    logging.disable(logging.CRITICAL)
    if path not in _trials:
        _trials[path] = create_trial(path)
    trial = _trials[path]
    rows = []
    for name in trial.tensor_names(step=step):
        value = trial.tensor(name).value(step)
        rows.append((name, step, value.min(), value.max(), value.mean(), value.std(), np.linalg.norm(value)))
    return rows


def main(path, count):
    """Print seconds for some steps, with two workers."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        client.gather([client.submit(statistics, path, 0, workers=[worker], pure=False) for worker in client.run(int)])
        begin = time.perf_counter()
        tasks = [dask.delayed(statistics)(path, step) for step in range(count)]
        found = dask.compute(*tasks, scheduler=client)
        print_result({"seconds": time.perf_counter() - begin, "rows": sum(len(rows) for rows in found)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
