"""Report on an XGBoost training, as an HTML page or a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import markup
from smdwidgets.naming.scalars import by_role
from smdwidgets.rules.classes import class_numbers
from smdwidgets.rules.findings import number
from smdwidgets.rules.report import charts, scores
from smdwidgets.rules.report.data import Contents, contents_of
from smdwidgets.rules.report.files import notebook, page, write
from smdwidgets.rules.report.section import Section

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["XgboostReport"]

MOST_CLASSES = 50
BINS = 10
TASKS = ("binary", "multiclass", "regression")


class XgboostReport:
    """Report on an XGBoost training.

    Uses the saved metrics, feature importances, labels and predictions.

    ::

        report = XgboostReport(create_trial("runs/higgs"))
        report.task                        # "binary", "multiclass" or "regression"
        report.to_html("report.html")      # one file, no network, no script
        report.to_notebook("report.ipynb")

    `plot_step` limits the report to data up to that step; None means the last step. Sections without saved data name
    the missing data.
    """

    def __init__(self, trial: Trial, plot_step: int | None = None) -> None:
        self.path = str(trial.path)
        self.plot_step = plot_step
        self.contents: Contents = contents_of(trial, plot_step)
        self.task = task_of(self.contents)

    # ------------------------------------------------------------------------------------------------------ sections

    def sections(self) -> list[Section]:
        """Return the sections that apply to the task, in order."""
        makers: list[tuple[str, Callable[[], Section], tuple[str, ...]]] = [
            ("labels", self.labels, TASKS),
            ("loss", self.loss, TASKS),
            ("importance", self.importance, TASKS),
            ("confusion", self.confusion, TASKS[:2]),
            ("precision", self.precision, TASKS[:2]),
            ("diagonal", self.diagonal, TASKS[:2]),
            ("roc", self.roc, TASKS[:1]),
            ("residuals", self.residuals, TASKS[2:]),
            ("error_by_label", self.error_by_label, TASKS[2:]),
        ]
        made = [make() for _, make, tasks in makers if self.task in tasks]
        return [*made, self.hyperparameters()]

    def labels(self) -> Section:
        """Distribution of the true labels."""
        title = "Distribution of true labels"
        last = self._last()
        if last is None:
            return _missing(title, "labels and predictions")
        labels = last[1].reshape(-1)
        if self.task == "regression":
            return Section(title, charts.bars(_histogram(labels, 20), "labels by value"))
        classes, counts = np.unique(labels.astype(np.int64), return_counts=True)
        html = charts.bars(
            {f"class {each}": int(count) for each, count in zip(classes, counts, strict=True)}, "labels by class"
        )
        ratio = counts.max() / counts.min()
        remarks = (
            (
                f"The largest class has {number(ratio)} times as many labels as the smallest; check the scores of each class.",
            )
            if ratio > 10
            else ()
        )
        return Section(title, html, remarks)

    def loss(self) -> Section:
        """Metrics over steps, with remarks on overfitting and underfitting."""
        title = "Loss over steps"
        if not self.contents.metrics:
            return _missing(title, "metrics")
        training, validation = by_role({name: values[-1] for name, (_, values) in self.contents.metrics.items()})
        groups: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
        for name, series in self.contents.metrics.items():
            key = next((each for each in {**training, **validation} if name.endswith(each)), name)
            groups.setdefault(key, {})[name] = series
        html = "".join(charts.lines(group, "step", key) for key, group in groups.items())
        remarks = tuple(remark for group in groups.values() for remark in _fit_remarks(group))
        return Section(title, html, remarks)

    def importance(self) -> Section:
        """Feature importance by weight, gain and coverage."""
        title = "Feature importance"
        parts = []
        for kind, meaning in (
            ("weight", "weight: number of splits"),
            ("gain", "gain: average gain of splits"),
            ("cover", "coverage: average number of samples of splits"),
        ):
            if features := self.contents.importance.get(kind):
                parts.append(
                    charts.bars(dict(sorted(features.items(), key=lambda each: (-each[1], each[0]))[:20]), meaning)
                )
        return Section(title, "".join(parts)) if parts else _missing(title, "feature_importance")

    def confusion(self) -> Section:
        """Confusion matrix at the last step."""
        title = "Confusion matrix"
        matrix = self._matrix()
        if matrix is None:
            return _missing(title, "labels and predictions of classes")
        return Section(title, charts.heat(matrix, "prediction", "label"), tuple(_confused(matrix)))

    def precision(self) -> Section:
        """Precision, recall and F1 by class and averaged, at the last step."""
        title = "Precision, recall, F1"
        matrix = self._matrix()
        if matrix is None:
            return _missing(title, "labels and predictions of classes")
        rows = scores.precision_recall(matrix)
        head = "<tr><th>class</th><th>precision</th><th>recall</th><th>F1</th><th>labels</th></tr>"
        body = "".join(
            f"<tr><td>{markup(name)}</td><td>{row.precision:.4f}</td><td>{row.recall:.4f}</td><td>{row.f1:.4f}</td><td>{row.support}</td></tr>"
            for name, row in rows.items()
        )
        return Section(title, f"<table>{head}{body}</table>", (f"Accuracy is {rows['micro'].precision:.4f}.",))

    def diagonal(self) -> Section:
        """Accuracy of each class over steps."""
        title = "Accuracy of each class over steps"
        classes = self._classes()
        series: dict[str, tuple[list[float], list[float]]] = {}
        for step in sorted(self.contents.predictions):
            both = self._classified(step)
            if both is None or not classes:
                continue
            matrix = scores.confusion_matrix(*both, classes)
            for each, total in enumerate(matrix.sum(axis=1)):
                if total:
                    at, values = series.setdefault(f"class {each}", ([], []))
                    at.append(step)
                    values.append(float(matrix[each, each] / total))
        return (
            Section(title, charts.lines(series, "step", "accuracy"))
            if series
            else _missing(title, "labels and predictions of classes")
        )

    def roc(self) -> Section:
        """ROC curve at the last step, and the area under it."""
        title = "ROC curve"
        last = self._last()
        if last is None:
            return _missing(title, "labels and predictions")
        labels, predictions = last[1].reshape(-1), last[2]
        flat = predictions[:, 1] if predictions.ndim == 2 and predictions.shape[1] == 2 else predictions.reshape(-1)
        if flat.size != labels.size or len(np.unique(labels)) < 2:
            return _missing(title, "one score per label, and labels of both classes")
        false_rate, true_rate = scores.roc(labels.astype(np.int64), flat.astype(np.float64))
        area = scores.area_under(false_rate, true_rate)
        chart = charts.lines(
            {f"AUC = {area:.4f}": (false_rate.tolist(), true_rate.tolist())},
            "false positive rate",
            "true positive rate",
            diagonal=True,
        )
        return Section(title, chart, (f"The area under the curve is {area:.4f}; 0.5 is chance.",))

    def residuals(self) -> Section:
        """Distribution of the residuals at the last step."""
        title = "Distribution of residuals at the last step"
        last = self._last()
        if last is None or last[1].size != last[2].size:
            return _missing(title, "labels and predictions")
        residual = last[2].reshape(-1).astype(np.float64) - last[1].reshape(-1)
        mean, spread = float(np.nanmean(residual)), float(np.nanstd(residual))
        remarks = [f"Mean residual {number(mean)}, standard deviation {number(spread)}."]
        if abs(mean) > 0.1 * spread > 0:
            remarks.append(f"Predictions are too {'high' if mean > 0 else 'low'} on average.")
        return Section(title, charts.bars(_histogram(residual, 20), "prediction - label"), tuple(remarks))

    def error_by_label(self) -> Section:
        """Mean absolute error over steps, for ten bins of labels."""
        title = "Absolute validation error by label over steps"
        last = self._last()
        if last is None or last[1].size != last[2].size:
            return _missing(title, "labels and predictions")
        labels = last[1].reshape(-1).astype(np.float64)
        edges = np.linspace(float(np.nanmin(labels)), float(np.nanmax(labels)), BINS + 1)
        series: dict[str, tuple[list[float], list[float]]] = {}
        for step, (true, predicted) in sorted(self.contents.predictions.items()):
            if true.size != predicted.size:
                continue
            error = np.abs(predicted.reshape(-1).astype(np.float64) - true.reshape(-1))
            where = np.clip(np.searchsorted(edges, true.reshape(-1), "right") - 1, 0, BINS - 1)
            for each in range(BINS):
                if (where == each).any():
                    at, values = series.setdefault(f"{edges[each]:.4g} to {edges[each + 1]:.4g}", ([], []))
                    at.append(step)
                    values.append(float(error[where == each].mean()))
        return Section(title, charts.lines(series, "step", "mean absolute error"))

    def hyperparameters(self) -> Section:
        """Hyperparameters of the training."""
        title = "Hyperparameters"
        saved = self.contents.hyperparameters
        if not saved:
            return _missing(title, "hyperparameters")
        body = "".join(
            f"<tr><td>{markup(name)}</td><td>{markup(value)}</td></tr>" for name, value in sorted(saved.items())
        )
        return Section(title, f"<table>{body}</table>")

    # --------------------------------------------------------------------------------------------------------- files

    def html(self) -> str:
        """Return the report as one HTML page without external resources or scripts."""
        return page(f"XGBoost training report: {self.contents.name}", self._introduction(), self.sections())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the HTML page atomically."""
        return write(path, self.html())

    def to_notebook(self, path: str | os.PathLike[str]) -> Path:
        """Write a notebook with the code and output of each section."""
        return write(path, notebook(self.path, self.plot_step, self._introduction(), self._named_sections()))

    def _repr_html_(self) -> str:
        body = "".join(f"<h3>{markup(each.title)}</h3>{each.html}{each.remarks_html()}" for each in self.sections())
        return f'<style>{charts.STYLE}</style><div class="smdw-report">{body}</div>'

    def _named_sections(self) -> list[tuple[str, Section]]:
        names = {
            "Distribution of true labels": "labels",
            "Loss over steps": "loss",
            "Feature importance": "importance",
            "Confusion matrix": "confusion",
            "Precision, recall, F1": "precision",
            "Accuracy of each class over steps": "diagonal",
            "ROC curve": "roc",
            "Distribution of residuals at the last step": "residuals",
            "Absolute validation error by label over steps": "error_by_label",
            "Hyperparameters": "hyperparameters",
        }
        return [(names[section.title], section) for section in self.sections()]

    def _introduction(self) -> list[str]:
        steps = sorted(
            {step for at, _ in self.contents.metrics.values() for step in at} | set(self.contents.predictions)
        )
        parts = [
            f"Task: {self.task}.",
            f"{len(steps)} saved steps" + (f", {steps[0]} to {steps[-1]}." if steps else "."),
        ]
        if self.contents.problems:
            parts.append(f"{len(self.contents.problems)} tensors could not be read: {self.contents.problems[0]}")
        return parts

    # ------------------------------------------------------------------------------------------------------- reading

    def _last(self) -> tuple[int, NDArray[Any], NDArray[Any]] | None:
        if not self.contents.predictions:
            return None
        step = max(self.contents.predictions)
        return step, *self.contents.predictions[step]

    def _classified(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        return class_numbers(*self.contents.predictions[step], argmax=False)

    def _classes(self) -> int:
        pairs = [both for step in self.contents.predictions if (both := self._classified(step)) is not None]
        top = max((int(each.max(initial=0)) for both in pairs for each in both), default=-1)
        return min(max(top + 1, 2), MOST_CLASSES) if pairs else 0

    def _matrix(self) -> NDArray[np.int64] | None:
        last = self._last()
        both = None if last is None else self._classified(last[0])
        return None if both is None else scores.confusion_matrix(*both, self._classes())


def task_of(contents: Contents) -> str:
    """Return the task, from the saved objective or else from labels and predictions."""
    objective = contents.hyperparameters.get("objective", "")
    if objective.startswith("binary:"):
        return "binary"
    if objective.startswith("multi:"):
        return "multiclass"
    if objective.startswith(("reg:", "count:", "survival:", "rank:")) and objective != "reg:logistic":
        return "regression"
    if not contents.predictions:
        return "regression"
    labels, predictions = contents.predictions[max(contents.predictions)]
    whole = labels.dtype.kind in "iub" or bool((labels == np.floor(labels)).all())
    classes = len(np.unique(labels))
    if not whole or classes > MOST_CLASSES:
        return "regression"
    if predictions.ndim == 2 and predictions.shape[1] > 2:
        return "multiclass"
    if classes <= 2 and float(np.nanmin(predictions)) >= 0 and float(np.nanmax(predictions)) <= 1:
        return "binary"
    if predictions.dtype.kind in "iub" or bool((predictions == np.floor(predictions)).all()):
        return "multiclass"
    return "regression"


def _fit_remarks(group: dict[str, tuple[list[int], list[float]]]) -> list[str]:
    """Compare the ends of training and validation curves."""
    training, validation = by_role({name: values[-1] for name, (_, values) in group.items()})
    remarks = []
    for key in training.keys() & validation.keys():
        low, high = training[key], validation[key]
        series = next(pair for name, pair in group.items() if name.endswith(key) and pair[1][-1] == high)
        best = int(np.nanargmin(series[1])) if np.isfinite(series[1]).any() else len(series[1]) - 1
        if key.endswith(("auc", "map", "ndcg")):
            continue  # higher values of these metrics are better
        overfit = low > 0 and (high - low) / low > 0.1
        if overfit:
            above = number(100 * (high - low) / low)
            remarks.append(f"{key}: validation is {above} % above training: this indicates overfitting.")
        if best < len(series[1]) - 1:
            value, step = number(series[1][best]), series[0][best]
            remarks.append(f"{key}: validation was best ({value}) at step {step}; later rounds did not improve it.")
        elif len(series[1]) > 2 and not overfit:
            remarks.append(f"{key}: validation is best at the last step: more rounds may help (underfitting).")
    return remarks


def _confused(matrix: NDArray[np.int64]) -> list[str]:
    off = matrix - np.diag(np.diagonal(matrix))
    if not off.any():
        return ["All predictions are correct."]
    label, prediction = np.unravel_index(int(off.argmax()), off.shape)
    return [f"Most frequent error: class {label} predicted as class {prediction}, {off[label, prediction]} times."]


def _histogram(values: NDArray[Any], bins: int) -> dict[str, float]:
    flat = values.reshape(-1).astype(np.float64)
    counts, edges = np.histogram(flat[np.isfinite(flat)], bins)
    return {f"{edges[at]:.4g} to {edges[at + 1]:.4g}": int(count) for at, count in enumerate(counts)}


def _missing(title: str, what: str) -> Section:
    return Section(title, "", (f"Not shown: this section needs {what}.",))
