"""W&B's own reader in a separate process.

Usage: `python peer_wandb.py write FILE ROWS` or `python peer_wandb.py read FILE`.

Runs in an environment with `wandb==0.25.1` and NumPy: later versions have no reader in Python. The file has the records
that `Run.log` writes: an item of JSON for each name, and the step, time and running time that W&B adds.
"""

import json
import random
import sys

import numpy as np
from clock import once, print_result
from wandb.proto import wandb_internal_pb2 as proto
from wandb.sdk.internal.datastore import DataStore

#: What a training logs at each step.
NAMES = ("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch")


def write(path, rows):
    """Write a run of so many rows."""
    random.seed(1)
    store = DataStore()
    store.open_for_write(path)
    run = proto.Record()
    run.run.run_id = "bench"
    run.run.display_name = "bench"
    store.write(run)
    for step in range(rows):
        record = proto.Record(num=step)
        values = {name: random.random() for name in NAMES}
        values |= {"_step": step, "_timestamp": 1.7e9 + step + random.random(), "_runtime": step + random.random()}
        for name, value in values.items():
            item = record.history.item.add()
            item.nested_key.append(name)
            item.value_json = json.dumps(value)
        record.history.step.num = step
        store.write(record)
    store.close()
    print_result({})


def records(path):
    """Yield the parsed records of a file."""
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = proto.Record()
        record.ParseFromString(data)
        yield record


def columns(path):
    """Return steps and values of each name, as arrays."""
    found = {}
    for record in records(path):
        if record.WhichOneof("record_type") != "history":
            continue
        row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        step = row["_step"]
        for name, value in row.items():
            if not name.startswith("_") and isinstance(value, int | float):
                steps, values = found.setdefault(name, ([], []))
                steps.append(step)
                values.append(value)
    return {name: (np.array(steps), np.array(values, float)) for name, (steps, values) in found.items()}


def read(path):
    """Time the reader alone, and with the numbers in columns."""
    kept = []
    scan, _ = once(lambda: sum(1 for _ in records(path)))
    cpu, wall = once(lambda: kept.append(columns(path)))
    sums = {name: float(values.sum()) for name, (_, values) in kept[0].items()}
    print_result({"scan": scan, "cpu": cpu, "wall": wall, "sums": sums})


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]))
    else:
        read(sys.argv[2])
