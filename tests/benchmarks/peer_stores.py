"""Time smdebug on a run on S3: `python peer_stores.py URL VALUES`.

Runs in .venv-peers; the endpoint is in AWS_ENDPOINT_URL.
"""

import logging
import os
import sys
import time

from clock import print_result

os.environ["SMDEBUG_LOG_LEVEL"] = "off"
from smdebug.trials import create_trial

logging.disable(logging.CRITICAL)


def main(url: str, values: int) -> None:
    """Return wall seconds of opening, and of reading some values."""
    begin = time.perf_counter()
    trial = create_trial(url)
    steps = trial.steps()
    opened = time.perf_counter()
    for n in range(values):
        trial.tensor(f"t{n % 10}").value(steps[n // 10])
    print_result({"open": opened - begin, "read": time.perf_counter() - opened, "steps": len(steps)})


main(sys.argv[1], int(sys.argv[2]))
