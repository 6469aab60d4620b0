"""ActivationCollapse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real

#: Larger tensors are subsampled evenly to these numbers of samples and units.
MOST_SAMPLES, MOST_UNITS = 512, 512


class ActivationCollapse(SelectingRule):
    """Detect layers whose output is nearly the same for every input.

    Treats a tensor as a matrix of samples (axis 0) by units (the other axes). Fires when the mean variance of the units
    over the samples, relative to the mean square of the outputs, is at most `min_variance`. Also fires when the
    effective rank of the centred matrix is below `min_rank_percent` percent of its maximum, min(samples - 1, units).
    The effective rank is the exponential of the entropy of the normalised singular values. It measures the number of
    directions in which the samples vary.

    Tensors with fewer than 4 samples or 2 units are not judged. Very large tensors are subsampled evenly to 512 samples
    and 512 units.

    What to do: add normalisation or use a smaller learning rate. In self-supervised learning, add a variance or
    redundancy term, or use larger batches.
    """

    sagemaker = False
    needs_selector = False

    tensor_regex = regex_parameter((r"(?i)^(?!gradient)(?!.*loss).*(_|/)outputs?([_/:]\d+)*$",))
    min_variance = Real(1e-6, "Relative variance over the samples at or below which the rule fires.", minimum=0.0)
    min_rank_percent = Real(
        5.0,
        "Effective rank, relative to its maximum, below which the rule fires.",
        minimum=0.0,
        maximum=100.0,
        unit="%",
    )

    def judge(self, step: int) -> None:
        rows = self.rows(self.selector, step)
        judged = False
        for name, worker in rows:
            found = self._spread(name, step, worker)
            if found is None:
                continue
            judged = True
            variance, rank, possible = found
            percent = 100.0 * rank / possible
            if variance <= self.min_variance:
                message = f"relative variance over the samples {number(variance)} is not above min_variance={number(self.min_variance)}"
                self.blame(name, step, variance, self.min_variance, message, worker)
            elif percent < self.min_rank_percent:
                message = f"effective rank {number(rank)} is {number(percent)} % of the maximum {possible}, below {number(self.min_rank_percent)} %"
                self.blame(name, step, percent, self.min_rank_percent, message, worker)
        if not judged:
            raise NothingToJudge("no output at this step is finite with at least 4 samples and 2 units")

    def _spread(self, name: str, step: int, worker: str | None) -> tuple[float, float, int] | None:
        def compute() -> tuple[float, float, int] | None:
            try:
                return spread(self.measurements.value(name, step, worker))
            except SMDebugError:
                return None

        return self.measurements.cached(("spread", name, step, worker), compute)


def spread(value: NDArray[Any]) -> tuple[float, float, int] | None:
    """Return relative variance over samples, effective rank and maximum rank.

    Returns None for tensors that are not numeric, too small or not finite.

    >>> variance, rank, possible = spread(np.eye(8))
    >>> round(rank, 3), possible
    (7.0, 7)
    """
    if value.dtype.kind not in "fiu" or value.ndim < 2 or not value.size:
        return None
    matrix = value.reshape(value.shape[0], -1)
    samples, units = matrix.shape
    if samples < 4 or units < 2:
        return None
    matrix = matrix[:: -(-samples // MOST_SAMPLES), :: -(-units // MOST_UNITS)].astype(np.float64)
    if not np.isfinite(matrix).all():
        return None
    scale = np.abs(matrix).max()
    if scale == 0:
        return 0.0, 0.0, min(matrix.shape[0] - 1, matrix.shape[1])
    matrix = matrix / scale
    centred = matrix - matrix.mean(axis=0)
    variance = float((centred**2).mean() / (matrix**2).mean())
    sizes = np.linalg.svd(centred, compute_uv=False)
    total = sizes.sum()
    if total == 0:
        return variance, 0.0, min(matrix.shape[0] - 1, matrix.shape[1])
    parts = sizes[sizes > 0] / total
    rank = float(np.exp(-(parts * np.log(parts)).sum()))
    return variance, rank, min(matrix.shape[0] - 1, matrix.shape[1])
