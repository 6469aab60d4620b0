"""Small NumPy trainings: classification, sequences, several workers, boosting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from smdwidgets._core import StepWriter
from smdwidgets.numpy import Hook


def classify(
    path: Path, *, mean: float = 0.0, rare: float = 1 / 3, swapped: int | None = None, steps: int = 12
) -> None:
    """Train softmax regression on small images of three classes.

    `rare` is the share of class 2. From step `swapped` on, labels 1 and 2 are exchanged, as in a wrongly joined data
    set.
    """
    random = np.random.default_rng(1)
    prototypes = random.normal(size=(3, 48))
    weight = np.zeros((48, 3))
    shares = np.array([(1 - rare) / 2, (1 - rare) / 2, rare])
    with Hook(path) as hook:
        for step in range(steps):
            labels = random.choice(3, size=100, p=shares)
            pixels = prototypes[labels] + 0.1 * random.normal(size=(100, 48))
            images = (pixels - pixels.mean()).reshape(100, 3, 4, 4) + mean
            if swapped is not None and step >= swapped:
                labels = np.array([0, 2, 1])[labels]
            scores = np.exp(pixels @ weight)
            scores /= scores.sum(axis=1, keepdims=True)
            if step:  # before the first update all predictions are equal
                hook.save_tensor("labels", labels, "labels")
                hook.save_tensor("predictions", scores, "predictions")
            hook.save_tensor("Net_input_0", images, "inputs")
            hook.step()
            weight += 2.0 * pixels.T @ (np.eye(3)[labels] - scores) / 100


def embed(path: Path, *, padded_from: int = 99) -> None:
    """Train an embedding on token sequences, mostly padding from `padded_from` on."""
    random = np.random.default_rng(0)
    table = random.normal(size=(50, 4))
    with Hook(path) as hook:
        for step in range(10):
            tokens = random.integers(1, 50, size=(8, 20))
            tokens[:, 7 if step >= padded_from else 12 :] = 0
            table[tokens.reshape(-1)] *= 0.99
            hook.save_tensor("model.embedding_input_0", tokens, "inputs")
            hook.step()


def data_parallel(path: Path, *, lost_at: int, workers: int = 3, order: list[int] | None = None) -> None:
    """Train least squares data-parallel.

    Gradients are averaged over workers. From step `lost_at` on, worker 1 uses only its local gradient.
    """
    (path / "collections" / "000000000").mkdir(parents=True)
    collection = {
        "include_regex": [], "reduction_config": None, "save_config": None, "save_histogram": True,
    }  # fmt: skip
    for worker in range(workers):
        content = {
            "collections": {
                name: {**collection, "name": name, "tensor_names": [tensor]}
                for name, tensor in (("weights", "w"), ("gradients", "gradient/w"), ("losses", "loss"))
            },
            "_meta": {"num_workers": workers},
        }
        target = path / "collections" / "000000000" / f"worker_{worker}_collections.json"
        target.write_text(json.dumps(content))
    random = np.random.default_rng(2)
    truth = random.normal(size=5)
    weights = [np.zeros(5) for _ in range(workers)]
    for step in range(12):
        batches = [random.normal(size=(32, 5)) for _ in range(workers)]
        errors = [x @ w - x @ truth for x, w in zip(batches, weights, strict=True)]
        slopes = [2 * x.T @ error / 32 for x, error in zip(batches, errors, strict=True)]
        mean = np.mean(slopes, axis=0)
        for worker in order or range(workers):
            writer = StepWriter(str(path), step, f"worker_{worker}", 4, step)
            writer.tensor("w", weights[worker])
            writer.tensor("gradient/w", slopes[worker])
            writer.tensor("loss", np.float64((errors[worker] ** 2).mean()))
            writer.finish()
        weights = [w - 0.1 * (slopes[k] if step >= lost_at and k == 1 else mean) for k, w in enumerate(weights)]
    (path / "training_job_end.ts").write_text("")


def boost(path: Path, *, depth_from: int = 99, heavy_from: int = 99, task: str = "binary") -> None:
    """Save a boosting run: metrics, importances, labels, predictions and trees."""
    random = np.random.default_rng(3)
    labels = {
        "binary": random.integers(0, 2, 80),
        "multi": random.integers(0, 3, 90),
        "regression": random.normal(size=80),
    }[task]
    with Hook(path) as hook:
        for step in range(10):
            if step == 0:
                hook.save_tensor("hyperparameters/max_depth", np.array(4), "hyperparameters")
            hook.save_tensor("train-rmse", np.float64(1.0 / (step + 1)), "metrics")
            hook.save_tensor("validation-rmse", np.float64(1.2 / (step + 1) + 0.1), "metrics")
            for feature in range(6):
                weight = 100.0 if feature == 0 and step >= heavy_from else 5.0 + feature
                for kind in ("weight", "gain", "cover"):
                    hook.save_tensor(
                        f"feature_importance/{kind}/f<{feature}>", np.float64(weight), "feature_importance"
                    )
            noise = 1.0 / (step + 1)
            if task == "binary":
                predictions = np.clip(labels * (1 - noise) + random.random(80) * noise, 0, 1)
            elif task == "multi":
                predictions = np.eye(3)[labels] * (1 - noise) + random.random((90, 3)) * noise
            else:
                predictions = labels + noise * random.normal(size=80)
            hook.save_tensor("labels", labels, "labels")
            hook.save_tensor("predictions", predictions, "predictions")
            depth = 6 if step >= depth_from else 3
            hook.save_tensor("trees/Node", np.arange(2 ** (depth + 1) - 1), "trees")
            hook.step()
