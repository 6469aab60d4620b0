"""Draw the pictures of docs/rules.md: for each rule, a run on which it fires.

Usage: `python tools/rule_pictures.py [RULE ...]`.

The runs are trained here. The left panel mostly shows what the rule measures, from a second evaluation with limits that
always fire. The right panel shows the tensor at fault, drawn by plots.
"""

from __future__ import annotations

import io
import itertools
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

from smdwidgets import create_trial
from smdwidgets.numpy import Hook
from smdwidgets.rules import RuleEvent, RuleRunner
from smdwidgets.trials import Trial

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures" / "rules"
sys.path.insert(0, str(ROOT / "tests"))

from python.rules.data_trainings import boost, classify, data_parallel, embed  # noqa: E402
from python.rules.trainings import Training, train_and_validate  # noqa: E402

#: Readable on light and dark pages.
INK, FAULT, LIMIT = "#808590", "#e5484d", "#d97706"
STYLE = {
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.titlecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "text.color": INK, "legend.labelcolor": INK, "legend.framealpha": 0, "legend.fontsize": 8, "legend.edgecolor": "none",
    "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none", "axes.spines.top": False,
    "axes.spines.right": False, "font.size": 9, "axes.titlesize": 9, "axes.prop_cycle": mpl.cycler(color=["#3b82f6", "#10b981", "#a855f7", "#ec4899", "#f59e0b", "#14b8a6"]),
}  # fmt: skip

Draw = Callable[["Case"], None]


@dataclass
class Case:
    """A run on which a rule fires, with its picture."""

    trial: Trial
    rule: str
    parameters: dict[str, Any]
    firing: RuleEvent
    fired: list[int]
    ax: Any = None

    @property
    def step(self) -> int:
        """The first step at which it fires."""
        assert self.firing.step is not None
        return self.firing.step

    @property
    def tensor(self) -> str:
        """The tensor of the finding."""
        return self.firing.findings[0].subject

    def over_steps(self) -> None:
        """Finish a panel over steps, and mark the steps at which the rule fires."""
        steps = self.trial.steps()
        self.ax.set(xlabel="step", xlim=(steps[0] - 0.02 * len(steps), steps[-1] + 0.02 * len(steps)))
        self.ax.xaxis.get_major_locator().set_params(integer=True)
        self.ax.legend()
        for at, step in enumerate(self.fired):
            self.ax.axvline(step, color=FAULT, alpha=0.9 if at == 0 else 0.15, linewidth=1.5, zorder=0)
        self.ax.annotate(
            "fires", (self.step, 1), xycoords=("data", "axes fraction"), xytext=(3, -9), textcoords="offset points",
            color=FAULT, fontsize=8,
        )  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """How a rule is shown: the failing training, the rule's parameters, the panels."""

    train: Callable[[Path], object]
    panels: tuple[Draw, ...]
    parameters: dict[str, Any] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------------------
# panels


def measured(*, log: bool = False, label: str = "", **limits: Any) -> Draw:
    """Plot what the rule measures at every step, and its limit.

    The measurements come from an evaluation with `limits`, which everything exceeds.
    """

    def draw(case: Case) -> None:
        evaluation = judged(case.trial, case.rule, {**case.parameters, **limits})
        curves: dict[str, dict[int, float]] = {}
        for event in evaluation.firings:
            for finding in event.findings:
                if finding.value is not None and np.isfinite(finding.value):
                    of = finding.subject + (f" of {finding.worker}" if finding.worker else "")
                    curve = curves.setdefault(of, {})
                    curve[finding.step] = max(finding.value, curve.get(finding.step, finding.value), key=abs)
        shown = sorted(curves, key=lambda name: name != case.tensor)[:5]
        for name in shown:
            case.ax.plot(*zip(*sorted(curves[name].items()), strict=True), ".-", label=name, markersize=3, linewidth=1)
        limit = case.firing.findings[0].limit
        if limit is not None:
            case.ax.axhline(limit, color=LIMIT, linestyle="--", linewidth=1, label="limit")
        if log:
            case.ax.set_yscale("log")
        case.ax.set(title=label)
        case.over_steps()

    return draw


def global_norm(case: Case) -> None:
    """The norm of all gradients together."""
    table = case.trial.reductions(case.trial.tensor_names(collection="gradients"), reductions=["l2"])
    steps = sorted(set(table["step"].tolist()))
    norms = [np.sqrt((table["l2"][table["step"] == step] ** 2).sum()) for step in steps]
    case.ax.plot(steps, norms, ".-", label="norm of all gradients", markersize=3, linewidth=1)
    case.ax.axhline(case.firing.findings[0].limit, color=LIMIT, linestyle="--", linewidth=1, label="limit")
    case.ax.set_yscale("log")
    case.over_steps()


def changes(*tensors: str) -> Draw:
    """The largest change of some tensors since the previous step."""

    def draw(case: Case) -> None:
        steps = case.trial.steps()
        for name in tensors:
            values = [case.trial.tensor(name).value(step) for step in steps]
            moved = [np.abs(b - a).max() for a, b in itertools.pairwise(values)]
            case.ax.plot(steps[1:], moved, ".-", label=name, markersize=3, linewidth=1)
        case.ax.set_title("largest change since the step before")
        case.over_steps()

    return draw


def first_element(case: Case) -> None:
    """One weight on each worker."""
    tensor = case.trial.tensor(case.tensor)
    for worker in case.trial.workers():
        values = [tensor.value(step, worker=worker)[0] for step in case.trial.steps()]
        case.ax.plot(case.trial.steps(), values, ".-", label=worker, markersize=3, linewidth=1)
    case.ax.set_title(f"{case.tensor}[0]")
    case.over_steps()


def curves(regex: str, *, log: bool = False) -> Draw:
    """Scalars of the run."""

    def draw(case: Case) -> None:
        case.trial.plot.scalars(regex, ax=case.ax)
        if log:
            case.ax.set_yscale("log")
        case.ax.set_title("")
        case.over_steps()

    return draw


def distribution(tensor: str | None = None) -> Draw:
    """A tensor over all steps: the one at fault, or the named one."""

    def draw(case: Case) -> None:
        case.trial.tensor(tensor or case.tensor).plot.distribution(ax=case.ax)
        case.over_steps()

    return draw


def plane(tensor: str | None = None, before: int = 0, limits: tuple[float, float] | None = None) -> Draw:
    """A tensor at the first firing, or some steps before.

    With `limits`, the colours span them, about zero.

    """

    def draw(case: Case) -> None:
        case.trial.tensor(tensor or case.tensor).plot.heatmap(case.step - before, ax=case.ax)
        case.ax.set_aspect("auto")
        image = case.ax.images[-1]
        if limits is not None:
            image.set(cmap="RdBu_r", clim=limits)
        elif image.get_array().min() == image.get_array().max():  # constant: draw it in the colour of zero
            image.set_clim(image.get_array().min(), image.get_array().min() + 1.0)

    return draw


def histograms(*tensors: str, scale: str = "linear") -> Draw:
    """The distribution of the elements of some tensors at the first firing."""

    def draw(case: Case) -> None:
        for name in tensors:
            case.trial.tensor(name).plot.histogram(case.step, scale=scale, ax=case.ax, bins=48)
            case.ax.patches[-1].set(label=name, alpha=0.7)
        case.ax.set_title(f"step {case.step}")
        case.ax.legend()

    return draw


def confusion(before: int = 0) -> Draw:
    """Predictions against labels at the first firing, or before it."""

    def draw(case: Case) -> None:
        step = case.step - before
        labels = case.trial.tensor("labels").value(step)
        said = case.trial.tensor("predictions").value(step).argmax(axis=1)
        counts = np.zeros((3, 3), int)
        np.add.at(counts, (labels, said), 1)
        case.ax.imshow(counts, cmap="Blues")
        for at, count in np.ndenumerate(counts):
            case.ax.text(*reversed(at), count, ha="center", va="center", color="white" if count else INK)
        case.ax.set(xlabel="predicted", ylabel="label", title=f"step {step}", xticks=range(3), yticks=range(3))

    return draw


def against(other: Callable[[Path], object]) -> Draw:
    """The loss of the run and that of another run."""

    def draw(case: Case) -> None:
        with create_trial(case.parameters["other_trials"]) as trial:
            case.trial.plot.compare(trial, "loss", ax=case.ax)
        case.over_steps()

    return draw


def arrivals(case: Case) -> None:
    """When the steps were written."""
    times = [path.stat().st_mtime for path in sorted(Path(case.trial.path).glob("index/*/*.json"))]
    at = np.array(times) - times[0]
    case.ax.step([*at, at[-1] + STALLED], [*range(len(at)), len(at) - 1], where="post")
    case.ax.axvline(at[-1] + STALLED, color=FAULT)
    case.ax.annotate("fires", (at[-1] + STALLED, 1), xycoords=("data", "axes fraction"), xytext=(-26, -9), textcoords="offset points", color=FAULT, fontsize=8)  # fmt: skip
    case.ax.set(xlabel="seconds", ylabel="newest step")


# --------------------------------------------------------------------------------------------------------------
# trainings

STALLED = 1.0


def stalling(path: Path) -> None:
    """A training that stalls.

    The hook is closed only after the rule has seen it.

    """
    with Hook(path) as hook:
        for step in range(12):
            hook.save_tensor("loss_output_0", 1.0 / (step + 1), "losses")
            hook.step()
            PAUSE.wait(0.1)
        HALTED.set()
        PAUSE.wait(60)


PAUSE, HALTED = threading.Event(), threading.Event()


def schedule(path: Path) -> None:
    """A training that is resumed without the state of its scheduler."""
    weight = np.ones(3)
    with Hook(path) as hook:
        for step in range(30):
            rate = 0.1 * 0.9 ** (step if step < 18 else step - 18)
            weight -= rate * 2 * weight
            hook.save_scalar("learning_rate", rate)
            hook.step()


def run(**faults: Any) -> Callable[[Path], object]:
    return lambda path: Training(**faults).run(path)


def on(training: Callable[..., object], **faults: Any) -> Callable[[Path], object]:
    return lambda path: training(path, **faults)


HEALTHY = run()
WIDE = (6, 32, 32, 3)

PICTURES_OF: dict[str, Picture] = {
    "VanishingGradient": Picture(
        run(widths=(6, *[12] * 14, 3), activation="sigmoid", scale=0.5, steps=20),
        (
            measured(log=True, label="mean |g|", threshold=1e9),
            histograms("gradient/fc0.weight", "gradient/fc14.weight", scale="log"),
        ),
    ),
    "ExplodingTensor": Picture(
        run(widths=(6, 16, 3), rate=2.5, steps=40),
        (curves("loss", log=True), plane("fc1.weight", before=1)),
    ),
    "PoorWeightInitialization": Picture(
        run(scale=6.0, rate=1e-6, steps=10), (distribution("relu1_input_0"), histograms("relu1_input_0", "relu0_input_0"))
    ),
    "SaturatedActivation": Picture(
        run(activation="tanh", at={7: {"rate": 1e4}, 8: {"rate": 0.0}}, steps=16),
        (distribution("tanh0_input_0"), plane("tanh0_output_0")),
    ),
    "DeadRelu": Picture(
        run(widths=WIDE, at={10: {"kick": -50.0}}, steps=20),
        (plane("relu0_output_0", before=1), plane("relu0_output_0")),
    ),
    "WeightUpdateRatio": Picture(
        run(at={11: {"rate": 1e-11}}), (measured(log=True, label="mean |w - w0| / mean |w0|", small_threshold=1e9),)
    ),
    "TensorVariance": Picture(
        run(at={14: {"rate": 20.0}}, clip=1.0),
        (measured(log=True, label="variance", max_threshold=0), distribution()),
        {"collection_names": "weights", "max_threshold": "10"},
    ),
    "UnchangedTensor": Picture(
        run(at={12: {"frozen": (0,)}}), (changes("fc0.weight", "fc1.weight", "fc2.weight"),), {"collection_names": "weights"}
    ),
    "AllZero": Picture(
        run(widths=WIDE, at={10: {"kick": -50.0}}, steps=20),
        (distribution("gradient/fc0.weight"), plane("gradient/fc0.weight")),
        {"collection_names": "gradients"},
    ),
    "ClassImbalance": Picture(on(classify, rare=0.03), (histograms("labels"), plane("predictions"))),
    "Confusion": Picture(on(classify, swapped=7), (confusion(before=1), confusion())),
    "LossNotDecreasing": Picture(run(at={15: {"rate": 0.0}}, steps=45), (curves("loss"),)),
    "Overfit": Picture(on(train_and_validate, noise=3.0, epochs=20), (curves("loss"),), {"ratio_threshold": 1.0}),
    "Overtraining": Picture(on(train_and_validate, noise=1.0, epochs=30, rate=0.3), (curves("loss", log=True),)),
    "SimilarAcrossRuns": Picture(run(at={6: {"rate": 0.2}}), (against(HEALTHY), measured(log=True, label="largest difference", rtol=0, atol=0))),
    "StalledTrainingRule": Picture(stalling, (arrivals,), {"threshold": STALLED}),
    "CheckInputImages": Picture(on(classify, mean=0.5), (measured(label="mean of a channel", threshold_mean=0), histograms("Net_input_0")), {"threshold_mean": 0.45}),
    "NLPSequenceRatio": Picture(on(embed, padded_from=5), (plane(before=1), plane())),
    "FeatureImportanceOverweight": Picture(on(boost, heavy_from=6), (measured(label="share of the three largest", threshold=0), curves("importance/weight"))),
    "TreeDepth": Picture(on(boost, depth_from=4), (measured(label="depth", depth=0),)),
    "GradientNormSpike": Picture(
        run(at={21: {"label_scale": 60.0}, 22: {"label_scale": 1.0}}, rate=0.01, clip=0.05),
        (global_norm, distribution("gradient/fc2.weight")),
    ),
    "LossSpike": Picture(run(at={21: {"label_scale": 30.0}, 22: {"label_scale": 1.0}}, rate=0.01, clip=0.05), (curves("loss", log=True),)),
    "WeightNormGrowth": Picture(run(at={10: {"rate": 20.0}}, clip=0.5), (measured(log=True, label="times the first norm", threshold=1, min_rms=0), distribution())),
    "ActivationCollapse": Picture(
        run(activation="tanh", widths=WIDE, steps=16, at={8: {"kick": 14.0}}),
        (plane(before=1), plane(limits=(-1, 1))),
    ),
    "LearningRateSchedule": Picture(schedule, (curves("learning_rate"),), {"shape": "decreasing"}),
    "WorkerDivergence": Picture(on(data_parallel, lost_at=6), (first_element, measured(log=True, label="distance from the others", rtol=0, atol=0))),
}  # fmt: skip


def judged(trial: Trial, rule: str, parameters: dict[str, Any]) -> Any:
    """Evaluate a rule on a run."""
    runner = RuleRunner(trial)
    evaluation = runner.add(rule, **parameters)
    if rule == "StalledTrainingRule":
        events = runner.events(timeout=60)
        runner.start()
        next(event for event in events if event.kind == "fired")
        PAUSE.set()
    else:
        runner.start()
    runner.wait(120)
    return evaluation


def drawn(rule: str, folder: Path) -> Image.Image:
    """Train, evaluate and draw."""
    picture = PICTURES_OF[rule]
    run, parameters = folder / "run", dict(picture.parameters)
    if rule == "SimilarAcrossRuns":
        HEALTHY(folder / "before")
        parameters["other_trials"] = str(folder / "before")
    if rule == "StalledTrainingRule":
        thread = threading.Thread(target=picture.train, args=(run,))
        thread.start()
        HALTED.wait(60)
    else:
        picture.train(run)
    with create_trial(run, wait=60) as trial:
        evaluation = judged(trial, rule, parameters)
        if not evaluation.fired:
            sys.exit(f"error: {rule} does not fire: {evaluation.message}")
        fired = [step for step, outcome in evaluation.outcomes.items() if outcome == 2]
        case = Case(trial, rule, parameters, evaluation.first_firing, fired)
        figure, axes = plt.subplots(1, len(picture.panels), figsize=(9, 2.8), layout="constrained", squeeze=False)
        for panel, case.ax in zip(picture.panels, axes[0], strict=True):
            panel(case)
        text = evaluation.first_firing.message
        figure.suptitle(textwrap.fill(f"step {case.step}: {text}", 120), fontsize=9, color=FAULT)
        written = io.BytesIO()
        figure.savefig(written, dpi=130)
        plt.close(figure)
    if rule == "StalledTrainingRule":
        thread.join()
    return Image.open(written)


def main(rules: list[str]) -> None:
    """Draw these rules, or all."""
    mpl.use("agg")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for rule in rules or PICTURES_OF:
            if rule not in PICTURES_OF:
                sys.exit(f"error: no picture is made of {rule!r}; there are {', '.join(PICTURES_OF)}")
            with tempfile.TemporaryDirectory() as folder:
                drawn(rule, Path(folder)).save(PICTURES / f"{rule}.webp", lossless=True, method=6)


if __name__ == "__main__":
    main(sys.argv[1:])
