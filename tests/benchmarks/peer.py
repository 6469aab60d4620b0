"""Time the peers in a separate process: `python peer.py WHAT RUN [SAMPLE]`.

Runs in .venv-peers.
"""

import logging
import os
import sys
from pathlib import Path

from clock import print_result, rounds

OPS = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")


def smdebug_trial(run):
    """Open a trial of smdebug, with logging off."""
    os.environ["SMDEBUG_LOG_LEVEL"] = "off"
    from smdebug.trials import create_trial

    logging.disable(logging.CRITICAL)
    return create_trial(run)


def open_run(run, sample):
    """Open a run and list names and locations of all tensors."""
    smdebug_trial(run)

    def once():
        trial = smdebug_trial(run)
        assert trial.tensor_names()
        assert trial.steps()

    return rounds(once, 3)


def parse_json(run, sample):
    """Read and parse the index files with orjson, and keep nothing."""
    import orjson

    def once():
        for folder in sorted(os.scandir(Path(run) / "index"), key=lambda entry: entry.name):
            for file in sorted(entry.name for entry in os.scandir(folder)):
                with open(os.path.join(folder, file), "rb") as f:  # noqa: PTH118, PTH123 - the quickest way
                    orjson.loads(f.read())

    return rounds(once, 5)


def values(run, sample):
    """Time `value()` of some tensors at some steps, per value."""
    trial = smdebug_trial(run)
    tensors, steps = [trial.tensor(name) for name in sorted(trial.tensor_names())], trial.steps()
    pairs = [(tensor, step) for step in steps for tensor in tensors][:sample]

    def once():
        for tensor, step in pairs:
            tensor.value(step)

    once()
    return {"cpu": rounds(once, 3)["cpu"] / len(pairs)}


def reductions(run, sample):
    """Time the 18 reductions of some tensors at some steps, per tensor and step."""
    trial = smdebug_trial(run)
    tensors, steps = [trial.tensor(name) for name in sorted(trial.tensor_names())], trial.steps()
    pairs = [(tensor, step) for step in steps for tensor in tensors][:sample]

    def once():
        for tensor, step in pairs:
            for op in OPS:
                tensor.reduction_value(step, op)
                tensor.reduction_value(step, op, abs=True)

    return {"cpu": rounds(once, 1)["cpu"] / len(pairs)}


if __name__ == "__main__":
    what = {"open": open_run, "json": parse_json, "value": values, "reductions": reductions}
    print_result(what[sys.argv[1]](sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None))
