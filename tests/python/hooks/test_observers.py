"""Observers receive every step on the writer's thread, and may keep its copies."""

from __future__ import annotations

import logging
import threading

import numpy as np

from smdwidgets.numpy import Hook
from smdwidgets.trials import create_trial


class Keep:
    """Keeps the copies of all steps in their slabs."""

    def __init__(self, hook):
        self.staging = hook.parts.recorder.queue.staging
        self.steps = {}
        self.finished_steps = []
        self.threads = set()

    def tensors(self, key, captured):
        self.threads.add(threading.current_thread().name)
        for one in captured:
            if one.copy.slab is not None:
                self.staging.retain(one.copy.slab)
            self.steps.setdefault(key[0], {})[one.name] = one.copy

    def statistics(self, key, statistics):
        pass

    def finished(self, key):
        self.finished_steps.append(key[0])


class ObservedHook(Hook):
    observer_class = Keep

    def _attach(self):
        super()._attach()
        self.observer = self.observer_class(self)
        self.parts.recorder.queue.observe(self.observer)


def train(hook, steps=20):
    with hook:
        for step in range(steps):
            hook.save_tensor("w", np.full(1000, step, "float32"), "weights")
            hook.step()


def test_observer_keeps_copies_while_their_memory_is_not_reused(tmp_path):
    hook = ObservedHook(tmp_path / "run")
    train(hook)
    seen = hook.observer
    assert seen.threads == {"smdwidgets-writer"}
    assert seen.finished_steps == list(range(20))
    assert [np.unique(seen.steps[step]["w"].array).tolist() for step in range(20)] == [[step] for step in range(20)]
    for step in range(20):
        hook.parts.recorder.queue.staging.release(seen.steps[step]["w"].slab)


class Fail(Keep):
    def tensors(self, key, captured):
        if key[0] == 3:
            raise ValueError("broken observer")
        super().tensors(key, captured)


class FailingHook(ObservedHook):
    observer_class = Fail


def test_observer_that_fails_is_removed_and_steps_are_written(tmp_path, caplog):
    hook = FailingHook(tmp_path / "run")
    with caplog.at_level(logging.ERROR):
        train(hook)
    assert [record.message for record in caplog.records] == ["observer Fail failed and was removed"]
    assert list(hook.observer.steps) == [0, 1, 2]
    with create_trial(tmp_path / "run") as trial:
        assert trial.tensor("w").steps() == list(range(20))
