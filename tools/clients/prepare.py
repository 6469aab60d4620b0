"""Write the small run that a client reads.

It has the tensors that the client names, over training and evaluation steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLLECTIONS = {
    "gradient/": "gradients",
    "feature_importance": "feature_importance",
    "average_shap": "average_shap",
    "full_shap": "full_shap",
    "scalar/": "scalars",
    "loss": "losses",
    "train-": "metrics",
    "validation-": "metrics",
    "acc": "metrics",
    "labels": "labels",
    "predictions": "predictions",
}


def saved(step: int) -> bool:
    """Whether a step of a mode is saved: the first ones, then every fiftieth."""
    return step < 20 or step % 50 == 0


def write(path: str, names: list[str], shapes: dict[str, list[int]], steps: int) -> None:
    """Write the run.

    Args:
        path: Its directory.
        names: The tensors.
        shapes: Shapes of some of them; the others have 6 × 4 elements, or one element for a loss or a metric.
        steps: The number of training steps; as many steps of evaluation alternate with them.
    """
    import numpy as np

    from smdwidgets.numpy import Hook, SaveConfig, modes

    random = np.random.RandomState(7)
    hook: Any = Hook(path, save_config=SaveConfig(save_interval=1), save_all=True)
    with hook:
        for step in range(steps):
            for mode in (modes.TRAIN, modes.EVAL):
                hook.set_mode(mode)
                if saved(step):
                    for name in names:
                        collection = next((to for part, to in COLLECTIONS.items() if part in name), "default")
                        scalar = collection in ("losses", "metrics", "scalars", "feature_importance", "average_shap")
                        shape = shapes.get(name, [1] if scalar else [6, 4])
                        value: Any = random.rand(*shape) * (0.99**step) + (0.1 if scalar else -0.5)
                        if collection in ("labels", "predictions"):
                            value = random.randint(0, 3, shape)
                        elif name.endswith(("input_1", "input_tokens")) and len(shape) == 1:
                            value = random.randint(0, 4, shape)
                        hook.save_tensor(name, np.asarray(value, dtype=np.float32), collection)
                hook.step()


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    write(job["path"], job["names"], job["shapes"], job["steps"])
