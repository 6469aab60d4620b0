"""Time smdebug seeing a new step: `python peer_trial.py TEMPLATE STEPS`.

Prints one JSON object.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from clock import once, print_result
from growing import Growing


def main(template, steps):
    """Add steps to a run of so many steps, and poll for each."""
    from smdebug.trials import create_trial

    with tempfile.TemporaryDirectory() as folder:
        run = Growing(Path(folder) / "run", Path(template), steps)
        trial = create_trial(str(run.root))
        taken = []
        for _ in range(30):
            step = run.grow()
            taken.append(once(trial.refresh_data)[0])
            assert trial.has_passed_step(step).name == "AVAILABLE"
        print_result({"refresh": statistics.median(taken)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
