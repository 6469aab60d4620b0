"""Query random growing runs and compare with a model of a few dictionaries."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from python.trials import runs
from smdwidgets import create_trial, modes
from smdwidgets._core import reduction_name
from smdwidgets.exceptions import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)

NAMES = ["a", "b/c:0", "ü"]
steps = st.integers(0, 25)
saved = st.sampled_from(["value", "shape", "mean", "value+shape", "value+mean"])


class RandomRun(RuleBasedStateMachine):
    """What each worker wrote at each step, and the expected results."""

    @initialize(workers=st.integers(1, 3), lazy=st.sampled_from([None, True]), first=st.none() | st.integers(0, 10))
    def begin(self, workers: int, lazy: bool | None, first: int | None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="smdwidgets-"))
        self.workers = [f"worker_{rank}" for rank in range(workers)]
        self.written: dict[int, dict[str, dict[str, str]]] = defaultdict(dict)  # step, worker, name: what was saved
        self.mode: dict[int, tuple[modes, int]] = {}
        self.ended = False
        self.first = first or 0
        runs.collections(self.root, workers)
        self.trial = create_trial(self.root, lazy=lazy, range_steps=(first, None))

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "root", ""), ignore_errors=True)

    @staticmethod
    def value(name: str, step: int, worker: str) -> Any:
        return np.array([step, int(worker[-1]), NAMES.index(name)], np.float32)

    # ------------------------------------------------------------------------------------------------------ writing

    @precondition(lambda self: not self.ended)
    @rule(
        data=st.data(),
        step=steps,
        mode=st.sampled_from(modes),
        what=st.dictionaries(st.sampled_from(NAMES), saved, min_size=1),
    )
    def write(self, data: st.DataObject, step: int, mode: modes, what: dict[str, str]) -> None:
        left = [worker for worker in self.workers if worker not in self.written[step]]
        if not left:
            return
        worker = data.draw(st.sampled_from(left))
        count = sum(1 for there, _ in self.mode.values() if there == mode)
        mode, mode_step = self.mode.setdefault(step, (mode, step if mode == modes.GLOBAL else count))
        values: dict[str, Any] = {}
        shapes: dict[str, Any] = {}
        for name, kinds in what.items():
            for kind in kinds.split("+"):
                if kind == "value":
                    values[name] = self.value(name, step, worker)
                elif kind == "mean":
                    values[reduction_name("mean", False, name)] = np.float32(1000 + step)
                else:
                    shapes[name] = (9, step)
        runs.step(self.root, step, values, worker, mode, mode_step, shapes)
        if step >= self.first:
            self.written[step][worker] = what

    @precondition(lambda self: not self.ended)
    @rule()
    def end(self) -> None:
        runs.end(self.root)
        self.ended = True

    # ------------------------------------------------------------------------------------------------ expected results

    def all_steps(self) -> list[int]:
        return sorted(step for step, by_worker in self.written.items() if by_worker)

    def until(self) -> int:
        full = [step for step in self.all_steps() if self.ended or len(self.written[step]) == len(self.workers)]
        return max(full, default=-1)

    def has(self, step: int, name: str) -> list[str]:
        return sorted(worker for worker, what in self.written.get(step, {}).items() if name in what)

    @invariant()
    def the_run(self) -> None:
        if not hasattr(self, "trial"):
            return
        trial, every = self.trial, self.all_steps()
        complete = [step for step in every if step <= self.until()]
        assert trial.steps(show_incomplete_steps=True) == every
        assert trial.steps() == complete
        assert trial.last_complete_step == self.until()
        for mode in modes:
            if mode != modes.GLOBAL:
                of_mode = {self.mode[step][1]: step for step in every if self.mode[step][0] == mode}
                assert trial.steps(mode, show_incomplete_steps=True) == sorted(of_mode)
                assert trial.steps(mode) == sorted(ms for ms, step in of_mode.items() if step <= self.until())
                assert all(trial.global_step(mode, ms) == step for ms, step in of_mode.items())
                names = {n for step in of_mode.values() for what in self.written[step].values() for n in what}
                assert trial.tensor_names(mode=mode) == sorted(names)
        assert {*trial.modes(), modes.GLOBAL} == {*(self.mode[step][0] for step in every), modes.GLOBAL}
        assert trial.tensor_names() == sorted({n for s in every for what in self.written[s].values() for n in what})
        assert trial.loaded_all_steps == self.ended

    @rule(step=st.integers(-1, 30))
    def ask_about_a_step(self, step: int) -> None:
        trial, every, until = self.trial, self.all_steps(), self.until()
        if step not in every:
            # A step that no worker wrote is passed once the next step is complete.
            after = [later for later in every if later > step]
            passed = self.ended or bool(after and after[0] <= until)
            want = "UNAVAILABLE" if passed else "NOT_YET_AVAILABLE"
        else:
            want = "AVAILABLE" if step <= until else "NOT_YET_AVAILABLE"
        assert trial.has_passed_step(step).name == want
        assert trial.mode_modestep(step) == (self.mode[step] if step in every else (None, None))
        names = {name for what in self.written.get(step, {}).values() for name in what}
        assert trial.tensor_names(step=step) == sorted(names)

    @rule(step=steps, name=st.sampled_from(NAMES), worker=st.none() | st.sampled_from(["worker_0", "worker_2"]))
    def ask_for_a_value(self, step: int, name: str, worker: str | None) -> None:
        trial = self.trial
        there = any(self.has(s, name) for s in self.all_steps())
        assert trial.has_tensor(name) == there
        if not there:
            return
        tensor = trial.tensor(name)
        steps_of = [s for s in self.all_steps() if self.has(s, name)]
        assert tensor.steps(show_incomplete_steps=True) == steps_of
        assert tensor.steps() == [s for s in steps_of if s <= self.until()]
        workers = self.has(step, name)
        if not workers or (worker and worker not in workers):
            self.refused(tensor, step, worker, workers)
            return
        assert tensor.workers(step) == workers
        kinds = {one: self.written[step][one][name].split("+") for one in workers}
        asked = [worker] if worker else workers
        with_value = [one for one in asked if "value" in kinds[one]]
        with_mean = [one for one in asked if "mean" in kinds[one]]
        with_shape = [one for one in asked if "shape" in kinds[one]]
        calls = [lambda: tensor.value(step, worker=worker)]
        mode, mode_step = self.mode[step]
        if mode != modes.GLOBAL:
            calls.append(lambda: tensor.value(mode_step, mode, worker))
        for call in calls:
            if with_value:
                np.testing.assert_array_equal(call(), self.value(name, step, with_value[0]))
            else:
                error = self.raised(call, TensorUnavailableForStep)
                assert error.has_reductions == bool(with_mean)  # type: ignore[attr-defined]
        assert set(tensor.reduction_values(step, worker=worker)) == ({("mean", False)} if with_mean else set())
        if with_mean:
            assert tensor.reduction_value(step, "mean", worker=worker) == 1000 + step
        elif with_value:
            want = self.value(name, step, with_value[0]).mean()
            np.testing.assert_allclose(tensor.reduction_value(step, "mean", worker=worker), want, rtol=1e-6)
        if with_shape:
            assert tensor.shape(step, worker=worker) == (9, step)
        elif with_value:
            assert tensor.shape(step, worker=worker) == (3,)
        else:
            self.raised(lambda: tensor.shape(step, worker=worker), ShapeUnavailableForStep)

    def refused(self, tensor: Any, step: int, worker: str | None, workers: list[str]) -> None:
        if workers:
            error: type[SMDebugError] = InvalidWorker
        else:
            state = self.trial.has_passed_step(step).name
            error = {
                "AVAILABLE": TensorUnavailableForStep,
                "UNAVAILABLE": StepUnavailable,
                "NOT_YET_AVAILABLE": StepNotYetAvailable,
            }[state]
        self.raised(lambda: tensor.value(step, worker=worker), error)
        self.raised(lambda: tensor.shape(step, worker=worker), error)
        self.raised(lambda: tensor.reduction_value(step, "mean", worker=worker), error)

    @staticmethod
    def raised(call: Any, error: type[SMDebugError]) -> SMDebugError:
        try:
            call()
        except error as raised:
            return raised
        raise AssertionError(f"no {error.__name__}")

    @rule()
    def ask_for_all_at_once(self) -> None:
        table = self.trial.values(worker="*")
        want = [
            (name, step, worker)
            for name in sorted({n for s in self.all_steps() for what in self.written[s].values() for n in what})
            for step in self.all_steps()
            for worker in self.has(step, name)
            if "value" in self.written[step][worker][name].split("+")
        ]
        assert list(zip(table["name"], table["step"].tolist(), table["worker"], strict=True)) == want
        for (name, step, worker), value in zip(want, table["value"], strict=True):
            np.testing.assert_array_equal(value, self.value(name, step, worker))


TestRandomRuns = RandomRun.TestCase
TestRandomRuns.settings = settings(max_examples=30, stateful_step_count=30)
