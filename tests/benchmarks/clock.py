"""Timing shared by both sides, in CPU seconds; needs only Python."""

import gc
import json
import statistics
import time


def once(work):
    """Return the CPU and wall seconds of one call."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def rounds(work, count):
    """Return medians over some calls."""
    taken = [once(work) for _ in range(count)]
    return {"cpu": statistics.median(t[0] for t in taken), "wall": statistics.median(t[1] for t in taken)}


def best(works, count):
    """Return medians of CPU seconds of several functions, called alternately."""
    taken = [[once(work)[0] for work in works] for _ in range(count)]
    return [statistics.median(column) for column in zip(*taken)]  # noqa: B905 - also read by old Pythons


def print_result(result):
    """Print the result for the calling program."""
    print("RESULT " + json.dumps(result), flush=True)
