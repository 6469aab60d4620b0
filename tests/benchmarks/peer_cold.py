"""Time smdebug reading values for the first time: `python peer_cold.py RUN`.

The names and steps come from RUN's `asked.json`. Prints one JSON object.
"""

import json
import sys
from pathlib import Path

from clock import once, print_result


def main(run):
    """Read every value once."""
    from smdebug.trials import create_trial

    trial = create_trial(run)
    steps = trial.steps()
    assert steps
    tensors = {name: trial.tensor(name) for name in trial.tensor_names()}
    asked = json.loads(Path(run, "asked.json").read_text())

    def work():
        for name, step in asked:
            assert tensors[name].value(step).size == 64

    print_result({"seconds": once(work)[0] / len(asked)})


if __name__ == "__main__":
    main(sys.argv[1])
