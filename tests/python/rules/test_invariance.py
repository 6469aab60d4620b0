"""Rule results do not depend on evaluation order, worker names or the runner."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from python.rules.memory_trial import MemoryTrial
from smdwidgets import modes
from smdwidgets.rules import BUILTIN, RuleRunner
from smdwidgets.rules.builtin import SelectingRule, SimilarAcrossRuns

#: LossNotDecreasing compares at most every num_steps steps, counted from its first step, so its result depends on the
#: order.
ORDER_DEPENDENT = {"LossNotDecreasing"}
#: One writes files, the other checks the clock; neither judges steps.
NO_RESULTS = {"CreateXgboostReport", "StalledTrainingRule"}
RULES = [name for name in BUILTIN if name not in NO_RESULTS]
#: Parameters that make rules use earlier steps on short runs.
OPTIONS = {
    "LossNotDecreasing": {"num_steps": 2},
    "WeightUpdateRatio": {"num_steps": 20},
    "UnchangedTensor": {"num_steps": 2, "tensor_regex": "."},
    "TensorVariance": {"tensor_regex": ".", "max_threshold": 1},
    "GradientNormSpike": {"sensitivity": 50},
    "LossSpike": {"sensitivity": 50},
    "LearningRateSchedule": {"shape": "warmup"},
    "ClassImbalance": {"samples": 3},
    "CheckInputImages": {"threshold_samples": 3},
    "Overtraining": {"patience_train": 1, "patience_validation": 1},
    "Confusion": {"category_no": 3},
}

numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)
arrays = st.one_of(
    st.lists(numbers, min_size=0, max_size=6).map(np.array),
    st.just(np.zeros((20, 3))),
    st.just(np.linspace(-30, 30, 60).reshape(20, 3)),
    st.just(np.ones(())),
    numbers.map(np.float32),
)
NAMES = [
    "gradient/a", "weight/a", "loss_output_0", "relu_input_0", "relu_output_0", "tanh_input_0", "labels", "predictions",
    "embedding0_input_0", "feature_importance/weight/f0", "feature_importance/weight/f1", "learning_rate", "trees/Node", "Net_input_0",
]  # fmt: skip
COLLECTIONS = {
    "gradients": ["^gradient"],
    "weights": ["^weight"],
    "losses": ["loss"],
    "trees": ["^trees"],
    "metrics": [],
}


#: The run that SimilarAcrossRuns compares with; it has some of the tensors.
OTHER = MemoryTrial()
for at in range(0, 60, 3):
    for each in NAMES[::2]:
        OTHER.put(at, each, np.zeros((20, 3)))


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[int, str, int, modes, np.ndarray]]:
    """Generate the cells of a run: step, tensor, worker, mode, value."""
    cells = []
    workers = draw(st.integers(1, 3))
    for step in sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=7))):
        mode = draw(st.sampled_from([modes.GLOBAL, modes.TRAIN, modes.EVAL]))
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True)):
            for worker in range(draw(st.integers(1, workers))):
                cells.append((step, name, worker, mode, draw(arrays)))  # noqa: PERF401
    return cells


def made(cells: list[tuple[int, str, int, modes, np.ndarray]], names: list[int]) -> MemoryTrial:
    trial = MemoryTrial(**COLLECTIONS)
    for step, name, worker, mode, value in cells:
        trial.put(step, name, value, f"worker_{names[worker]}", mode)
    return trial


def rule_on(name: str, trial: MemoryTrial):
    kind, options = BUILTIN[name], dict(OPTIONS.get(name, {}))
    if issubclass(kind, SimilarAcrossRuns):
        options["other_trials"] = OTHER
    elif issubclass(kind, SelectingRule) and kind.needs_selector:
        options.setdefault("tensor_regex", ".")
    return kind(trial, **options)


def results(name: str, trial: MemoryTrial, steps: list[int]) -> dict[int, tuple[bool, bool]]:
    rule = rule_on(name, trial)
    found = {}
    for step in steps:
        fired = rule.evaluate(step)
        found[step] = fired, rule.skipped is not None
        assert fired == bool(rule.findings)
    return found


@settings(max_examples=15, report_multiple_bugs=False)
@given(cells=runs(), data=st.data())
def test_result_is_independent_of_order_and_worker_names(cells, data) -> None:
    plain = made(cells, [0, 1, 2])
    steps = plain.steps()
    shuffled = data.draw(st.permutations(steps))
    renamed = made(cells, data.draw(st.permutations([0, 1, 2])))
    runner = RuleRunner(made(cells, [0, 1, 2])).start()
    for name in RULES:
        expected = results(name, plain, steps)
        if name not in ORDER_DEPENDENT:
            assert results(name, plain, list(shuffled)) == expected, name
        assert results(name, renamed, steps) == expected, name
        evaluation = runner.add(rule_on(name, runner.trial))
        assert runner.wait(60)
        assert not evaluation.errors, (name, evaluation.message)
        assert {step: outcome == 2 for step, outcome in evaluation.outcomes.items()} == {
            step: fired for step, (fired, _) in expected.items()
        }, name
