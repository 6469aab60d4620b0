"""Convert labels and predictions to class numbers, for rules on classification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Larger values are not class numbers.
LARGEST = 2.0**53

__all__ = ["LABELS", "PREDICTIONS", "class_numbers"]

#: Names of labels and predictions: SageMaker's names, and the inputs of PyTorch's loss modules.
LABELS = (r".*labels", r"(?i)(cross_?entropy|nll|bce)[^/]*_input_1")
PREDICTIONS = (r".*predictions", r"(?i)(cross_?entropy|nll|bce)[^/]*_input_0")


def class_numbers(
    labels: NDArray[Any], predictions: NDArray[Any], argmax: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return flat class numbers of labels and predictions, of equal length.

    Scores are converted to the class with the largest score if `argmax` is True, or if the predictions have one axis
    more than the labels. One-hot labels of the scores' shape are converted too. Single scores between 0 and 1 are
    probabilities of class 1. Returns None if the shapes or types do not match.

    >>> class_numbers(np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]]), argmax=False)
    (array([0, 1]), array([0, 1]))
    """
    labels, predictions = (_squeezed(each) for each in (labels, predictions))
    if labels.dtype.kind not in "fiub" or predictions.dtype.kind not in "fiub":
        return None
    if predictions.ndim == labels.ndim + 1:
        axis = _axis_of_scores(labels, predictions)
        if axis is None:
            return None
        predictions = predictions.argmax(axis)
    elif argmax and predictions.ndim > 1 and predictions.shape == labels.shape:
        predictions, labels = predictions.argmax(-1), labels.argmax(-1)
    elif argmax and predictions.ndim > 1:
        predictions = predictions.argmax(-1)
    if labels.size != predictions.size:
        return None
    pair = labels.reshape(-1), predictions.reshape(-1)
    known = (np.abs(pair[0]) < LARGEST) & (np.abs(pair[1]) < LARGEST)  # also drops NaN
    return _as_classes(pair[0][known]), _as_classes(pair[1][known])


def _squeezed(array: NDArray[Any]) -> NDArray[Any]:
    """Remove trailing axes of length 1; keep at least one axis."""
    while array.ndim > 1 and array.shape[-1] == 1:
        array = array[..., 0]
    return array.reshape(1) if array.ndim == 0 else array


def _axis_of_scores(labels: NDArray[Any], predictions: NDArray[Any]) -> int | None:
    """Return the axis of the predictions that the labels lack, the last axis first."""
    axis: int
    for axis in (predictions.ndim - 1, *range(1, predictions.ndim - 1)):
        if predictions.shape[:axis] + predictions.shape[axis + 1 :] == labels.shape:
            return axis
    return None


def _as_classes(values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind == "f" and values.size and values.min() >= 0 and values.max() <= 1 and (values % 1 != 0).any():
        return (values >= 0.5).astype(np.int64)
    return values.astype(np.int64)
