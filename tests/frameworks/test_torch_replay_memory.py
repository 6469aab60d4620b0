"""What a recording keeps in memory stays within its bound."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd
from smdwidgets import create_trial
from smdwidgets.replay.live import find_live
from smdwidgets.replay.torch.loop import Place
from smdwidgets.replay.torch.recording import Delivery, Frame, StepRecord
from smdwidgets.replay.torch.state import State


def _held(recorder):
    """Return the bytes of all tensors and arrays that a recorder refers to."""
    storages = {}
    names = ("_deliveries", "_steps", "_frames", "_spare", "_pending", "_now", "_rng_end")
    todo, seen = [getattr(recorder, name) for name in names], set()
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, (str, int, float, type(None), weakref.ref, Place)):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, np.ndarray):
            storages[one.ctypes.data] = one.nbytes
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, (list, tuple, set, frozenset)):
            todo += one
        elif isinstance(one, (Delivery, StepRecord, Frame, State)):
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            todo += [
                *getattr(one, "__dict__", {}).values(),
                *(getattr(one, name) for name in slots if hasattr(one, name)),
            ]
    return sum(storages.values())


@pytest.mark.parametrize("kind", ["batches", "states", "objects", "passes"])
def test_memory_of_ring_and_keyframes_stays_below_the_bound(kind, tmp_path):
    rows, width, bound = {
        "batches": (200, 100, 1 << 20),
        "states": (1, 250, 2 << 20),
        "objects": (1, 30, 2 << 20),
        "passes": (1, 4, 1 << 20),
    }[kind]
    model = nn.Linear(width, width)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    averages = [torch.zeros(70_000) for _ in range(2)] if kind == "objects" else []
    hook = smd.record(model, tmp_path / "run", recorder_bytes=bound, replay=True)
    recorder = hook._replaying.recorder
    most, frames = 0, set()
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(rows * 60, width)), rows)):
        opt.zero_grad()
        for _ in range(8 if kind == "passes" else 1):
            model(x).square().mean().backward()
        opt.step()
        for one in averages:
            one.add_(1)
        most = max(most, _held(recorder))
        frames |= {one.step for one in recorder._frames}
        if number in (20, 40):
            hook.dump("why")
            hook.flush()
    assert most <= 1.1 * bound
    assert frames, kind
    hook.close()


def test_copies_that_were_written_are_given_back(tmp_path):
    """A training is kept to be executed again, its copies are not."""
    model = nn.Linear(30, 30)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    hook = smd.record(model, tmp_path / "run", replay=True)
    states = []
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(40, 30)), 1)):
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
        states += [weakref.ref(one) for one in hook._replaying.recorder._frames]
        if number == 20:
            hook.dump("why")
            hook.flush()
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        replay = trial.incidents()[0].replay
    snapshot = find_live(replay._folder)._recording.snapshot
    assert not snapshot.frame.state.tensors
    assert all(one.batch is None for one in snapshot.deliveries)
    assert not snapshot.later
    gc.collect()
    assert all(ref() is None for ref in states)
    assert all(one.equal for one in replay.run())
