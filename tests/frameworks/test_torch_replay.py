"""Recording changes nothing, and steps are executed again bit for bit."""

from __future__ import annotations

import gc
import json
import logging
import random
import re
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

import smdwidgets.pytorch as smd
from frameworks import replay_loops
from smdwidgets import create_trial, diagnose
from smdwidgets.exceptions import CannotReplay
from smdwidgets.hooks.core.process import open_hooks
from smdwidgets.replay.files import Recording
from smdwidgets.replay.protocol import StepObserver, sentence
from smdwidgets.replay.torch.loop import Place
from smdwidgets.storage import LocalStorage


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    yield
    torch.set_num_threads(before)
    for hook in open_hooks():
        hook.close()


def seed():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def states(names):
    """Return copies of everything that a replay must put back."""
    tensors = [
        one.detach().clone()
        for value in names.values()
        if isinstance(value, nn.Module)
        for one in (*value.parameters(), *value.buffers())
    ]
    for value in names.values():
        if isinstance(value, torch.optim.Optimizer):
            for state in value.state.values():
                tensors += [one.clone() for one in state.values() if isinstance(one, torch.Tensor)]
    plain = {key: value for key, value in names.items() if isinstance(value, int | float | list | dict)}
    return tensors, json.dumps(plain, default=lambda one: str(type(one))), torch.get_rng_state(), random.getstate()


def same(one, other):
    tensors = len(one[0]) == len(other[0]) and all(map(torch.equal, one[0], other[0]))
    return tensors and one[1] == other[1] and torch.equal(one[2], other[2]) and one[3] == other[3]


def recorded(loop, folder, **options):
    """Run a loop with a hook, and return its names and an incident at its end."""
    hooks = []

    def start(*parts):
        hooks.append(smd.Hook(folder, **({"replay": "auto"} | options)))
        for one in parts:
            (hooks[0].register_module if isinstance(one, nn.Module) else hooks[0].register_optimizer)(one)

    names = loop(start)
    hooks[0].dump("a test")
    hooks[0].close()
    assert hooks[0].guard.failures == []
    with create_trial(folder) as trial:
        return names, trial.incidents()[-1]


@pytest.mark.parametrize("loop", replay_loops.LOOPS, ids=lambda one: one.__name__)
def test_loop_trains_as_without_hook_and_is_executed_again_bit_for_bit(loop, tmp_path):
    plain = states(loop(lambda *parts: None))
    seed()
    names, incident = recorded(loop, tmp_path / "run")
    live = states(names)
    assert all(map(torch.equal, plain[0], live[0]))
    replay = incident.replay
    results = replay.run()
    assert sentence(results, replay.expected) == f"bit-equal, {replay.expected} of {replay.expected} steps"
    assert replay.expected >= 8
    assert same(live, states(names))


# ---------------------------------------------------------------------------------------------- what cannot be recorded


def with_closure(start):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = replay_loops.classes()
    start(model)

    def counter():
        count = 0

        def more():
            nonlocal count
            count += 1
            return count

        return more

    more = counter()
    for _epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            (F.cross_entropy(model(x), y) * (1 + 0.01 * more())).backward()
            opt.step()
    return locals()


def with_iterator(start):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = replay_loops.classes()
    factors = iter([1 + 0.01 * one for one in range(200)])
    start(model)
    for _epoch in range(2):
        for x, y in loader:
            opt.zero_grad()
            (F.cross_entropy(model(x), y) * next(factors)).backward()
            opt.step()
    return locals()


def with_hidden_state(start):
    hidden = {"value": torch.zeros(8)}
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = replay_loops.classes()
    start(model)

    class Slots:
        __slots__ = ("count",)

    slots = Slots()
    slots.count = 0
    for _epoch in range(2):
        for x, y in loader:
            slots.count += 1
            opt.zero_grad()
            (F.cross_entropy(model(x - hidden["value"]), y) * (1 + 0.01 * slots.count)).backward()
            opt.step()
    return locals()


@pytest.mark.parametrize("loop", [with_closure, with_iterator, with_hidden_state], ids=lambda one: one.__name__)
def test_state_that_cannot_be_kept_is_noticed_at_the_first_step(loop, tmp_path):
    names, incident = recorded(loop, tmp_path / "run")
    live = states(names)[0]
    results = incident.replay.run()
    assert results[0].equal is False
    text = sentence(results, incident.replay.expected)
    assert text.startswith(f"differs from step {results[0].step} on, the first one: something outside of the recording")
    assert all(map(torch.equal, live, states(names)[0]))


def test_passed_step_and_state_are_used(tmp_path):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    class Hidden:
        def __init__(self):
            self.count = 0

    keep = {"object": Hidden()}  # no name of the loop is that of the object
    hook = smd.record(model, tmp_path / "run", replay="auto")

    @hook.replayable
    def step(batch):
        x, y = batch
        keep["object"].count += 1
        opt.zero_grad()
        (F.cross_entropy(model(x), y) * (1 + 0.01 * keep["object"].count)).backward()
        opt.step()

    hook.replayable(step, state=[keep["object"]])
    list(map(step, replay_loops.classes()))
    hook.dump("a test")
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        replay = trial.incidents()[-1].replay
    count = keep["object"].count
    results = replay.run()
    assert sentence(results, replay.expected) == f"bit-equal, {replay.expected} of {replay.expected} steps"
    assert keep["object"].count == count


# --------------------------------------------------------------------------------------------------------------- safety


def nan_in_row_300(start):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    x = torch.randn(320, 8)
    x[300, 2] = float("nan")
    loader = DataLoader(TensorDataset(x, torch.randint(0, 3, (320,))), 8, shuffle=True)
    start(model)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    return locals()


def test_incident_of_a_bad_row_names_its_batch(tmp_path):
    hooks = []
    nan_in_row_300(lambda model: hooks.append(smd.record(model, tmp_path / "run", replay="auto")))
    hooks[0].close()
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        assert "NaN" in incident.why[0]
        assert 300 in incident.row_ids()
        assert 300 in incident.rows
        row = incident.row_ids().index(300)
        assert np.isnan(incident.batch()[0][row, 2])
        assert np.isfinite(np.delete(incident.batch()[0], row, 0)).all()
        finding = next(one for one in diagnose(trial).findings if one.first == incident.step)
        assert finding.kind == "input_not_finite"
        assert f"The batch of step {incident.step} has rows " in finding.text
        assert "of the data set" in json.dumps(finding.to_json())
        replay = incident.replay
        results = replay.run()
        assert sentence(results, replay.expected).startswith("bit-equal")
        at = next(one for one in results if one.step == incident.step)
        assert all(loss != loss for loss in at.losses)


@pytest.mark.parametrize("begins", [20, 21])
def test_step_in_progress_while_files_are_written_is_whole_or_left_out(begins, tmp_path):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    hook = smd.record(model, tmp_path / "run", replay=True)
    written = None
    for number, (x, y) in enumerate(replay_loops.classes(rows=800)):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if number == begins:
            hook.flush()
            written = hook._replaying.begin(tmp_path / "own", 19, lambda nbytes: True)
        if number == 60:  # the recorder has given up the step that was in progress
            assert min(hook._replaying.recorder._steps) > begins
            written.extend()
            break
        loss.backward()
        opt.step()
        hook.flush()
    recording = Recording.open(LocalStorage(str(tmp_path)), "own")
    assert [one.step for one in recording.recorded] == list(range(recording.keyframe, recording.recorded[-1].step + 1))
    assert recording.recorded[-1].step >= begins
    assert all(one.losses and one.digest is not None for one in recording.recorded)


class Settings:
    """An object with a value that a step changes, and secrets."""

    def __init__(self):
        self.seen = 0
        self.api_key = "sk-1234567890"
        self.environment = {"HOME": "/", "AWS_SECRET_ACCESS_KEY": "sk-1234567890"}


def test_secrets_of_the_script_are_in_no_file_and_survive_a_replay(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--token=sk-1234567890"])
    monkeypatch.setenv("TOKEN", "sk-1234567890")
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    settings = Settings()
    hook = smd.record(model, tmp_path / "run", replay=True)
    for x, y in replay_loops.classes(rows=160):
        opt.zero_grad()
        (F.cross_entropy(model(x), y) * (1 + settings.seen / 100)).backward()
        opt.step()
        settings.seen += 1
    hook.dump("a test")
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        replay = trial.incidents()[0].replay
        assert all(one.equal for one in replay.run())
        state = replay.recording.light["state"]["objects"]
        assert "seen" in json.dumps(state)
    assert (settings.seen, settings.api_key) == (20, "sk-1234567890")
    assert settings.environment["AWS_SECRET_ACCESS_KEY"] == "sk-1234567890"
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"sk-1234567890" not in path.read_bytes(), path


def test_a_replay_leaves_nothing_in_the_run_while_the_hook_is_open(tmp_path):
    model = replay_loops.mlp(8, 16, 3, nn.Dropout(0.2))
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loader = replay_loops.classes(rows=320)
    hook = smd.record(model, tmp_path / "run", checks=True, replay="auto")
    for number, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        hook.save_scalar("mine", float(loss.detach()))
        loss.backward()
        opt.step()
        if number == 20:
            hook.dump("a test")
            hook.flush()
    hook.flush()
    trial = create_trial(tmp_path / "run")
    before = trial.tensor_names(), len(trial.incidents()), hook.global_step
    replay = trial.incidents()[0].replay
    results = replay.run()
    assert sentence(results, replay.expected).startswith("bit-equal"), results
    hook.flush()
    trial.close()
    with create_trial(tmp_path / "run") as trial:
        assert (trial.tensor_names(), len(trial.incidents()), hook.global_step) == before
        assert set(trial.steps()) <= set(range(40))
    for x, y in loader:  # the training goes on
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        assert len(trial.steps(mode="TRAIN")) == 80


class Raises(StepObserver):
    def __init__(self, error):
        self.error, self.seen = error, []

    def begin_step(self, step):
        self.seen.append(step)
        if len(self.seen) == 3:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_live_state_is_put_back_also_after_an_error(tmp_path, error):
    names, incident = recorded(replay_loops.python_values, tmp_path / "run")
    live = states(names)
    observer = Raises(error)
    with pytest.raises(type(error)):
        incident.replay.run([observer])
    assert len(observer.seen) == 3
    assert same(live, states(names))
    assert sentence(incident.replay.run(), incident.replay.expected).startswith("bit-equal")


class WithoutRow(StepObserver):
    def batch(self, step, batch):
        x, y = batch
        keep = ~torch.isnan(x).any(1)
        return x[keep], y[keep]


def test_observers_change_batches_and_see_steps(tmp_path):
    hooks = []
    names = nan_in_row_300(lambda model: hooks.append(smd.record(model, tmp_path / "run", replay="auto")))
    hooks[0].close()
    with create_trial(tmp_path / "run") as trial:
        replay = trial.incidents()[0].replay
    results = replay.run([WithoutRow()])
    assert all(np.isfinite(loss) for one in results for loss in one.losses)
    assert any(one.equal is False for one in results)
    assert len(replay.run(last=replay.steps[2])) == 3
    assert torch.isnan(names["model"][0].weight).any()


class Word(str):
    """A text that is made of two arguments, so that it cannot be copied."""

    def __new__(cls, text, offset):
        return super().__new__(cls, text)


def test_value_that_cannot_be_copied_is_left_out():
    word, count = Word("a", 3), [2]
    place = Place.of(sys._getframe())
    assert place.values["count"] == count
    assert "word" not in place.values
    assert place.names["word"]() is word


def test_a_failing_recorder_never_reaches_the_training(tmp_path, monkeypatch, caplog):
    from smdwidgets.replay.torch import recording

    def fail(*args, **options):
        raise RuntimeError("no memory")

    plain = states(replay_loops.mlp_adam(lambda *parts: None))[0]
    seed()
    for name in ("Delivery", "torch_states", "user_frames", "_storage"):
        with monkeypatch.context() as patch:
            patch.setattr(recording, name, fail)
            hooks = []
            seed()
            names = replay_loops.mlp_adam(
                lambda model, to=hooks, of=name: to.append(smd.record(model, tmp_path / of, replay="auto"))
            )
            hooks[0].dump("why")
            hooks[0].close()
        assert all(map(torch.equal, plain, states(names)[0]))
        assert [one for one in hooks[0].guard.failures if "no memory" in one], name
        with create_trial(tmp_path / name) as trial:
            assert len(trial.steps()) == 40


def test_memory_stays_below_the_bound_and_the_reason_is_said(tmp_path):
    model = nn.Linear(1000, 1000)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    hook = smd.record(model, tmp_path / "run", recorder_bytes=7_000_000, replay="auto")
    recorder = hook._replaying.recorder
    for _ in range(12):
        for (x,) in DataLoader(TensorDataset(torch.randn(64, 1000)), 8):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
            assert recorder.nbytes <= 3_500_000
    hook.dump("why")
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[-1]
        assert incident.recorded["keyframe"] is None
        # Gradients and states of the optimizer belong to it after the first step.
        why_not = incident.recorded["why_not"]
        assert re.fullmatch(r"no keyframe: the budget holds none \(a state takes (4|16)\.0 MB of 3\.5 MB\)", why_not)
        assert incident.row_ids(95) == list(range(56, 64))
        assert incident.batch(95)[0].shape == (8, 1000)
        with pytest.raises(CannotReplay, match="the budget holds none"):
            incident.replay.run()


@pytest.mark.parametrize(("tick", "frames"), [(0.0, [10]), (1.0, [1, 2])], ids=["free", "slow"])
def test_keyframes_are_rarer_while_recording_takes_long(tick, frames, tmp_path, monkeypatch):
    """The clock moves while something is recorded, but not in a search for objects."""
    from smdwidgets.replay.torch import recording, state

    class Clock:
        now = 0.0

        @classmethod
        def perf_counter(cls):
            cls.now += tick
            return cls.now

    monkeypatch.setattr(recording, "time", Clock)
    monkeypatch.setattr(state, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    model = nn.Linear(4, 1)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    hook = smd.record(model, tmp_path / "run", replay=True)
    recorder = hook._replaying.recorder
    steps = set()
    for (x,) in DataLoader(TensorDataset(torch.randn(80, 4)), 1):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
        states = [one.state for one in recorder._frames]
        assert all(one.nbytes >= sum(each.nbytes for each in one.tensors.values()) > 0 for one in states)
        steps |= {one.step for one in recorder._frames}
    hook.close()
    assert len(steps) in frames
    assert recorder.every == 8


def test_pass_without_a_batch_of_the_loader_is_no_beginning(tmp_path, monkeypatch):
    """A script begins with a batch, not in the middle of an iteration."""
    from smdwidgets.replay.torch import recording

    class Clock:
        @staticmethod
        def perf_counter():
            return 0.0

    monkeypatch.setattr(recording, "time", Clock)  # a keyframe every 8 steps
    model = nn.Linear(4, 1)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    hook = smd.record(model, tmp_path / "run", replay=True)
    for (x,) in DataLoader(TensorDataset(torch.randn(16, 4)), 1):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
    model(x)
    assert hook._replaying.recorder._frames[-1].step == 16
    hook.dump("why")
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        assert trial.incidents()[0].recorded["keyframe"] in (0, 8)


@pytest.mark.parametrize(("option", "rows", "batch"), [("ids", True, False), (False, False, False), (True, True, True)])
def test_option_says_what_is_kept(tmp_path, option, rows, batch):
    _, incident = recorded(replay_loops.mlp_adam, tmp_path / "run", replay=option)
    assert (incident.recorded is not None) == rows
    if rows:
        assert len(incident.row_ids(39)) == 8
    if batch:
        assert len(incident.batch(39)) == 2
    elif rows:
        with pytest.raises(LookupError, match="only its rows were kept"):
            incident.batch(39)


def test_option_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(ValueError, match='choose "auto", True, False or "ids"'):
        smd.Hook(tmp_path / "run", replay="all")


def test_an_open_hook_keeps_no_model_alive(tmp_path):
    names = None
    hooks = []
    names = replay_loops.mlp_adam(lambda model: hooks.append(smd.record(model, tmp_path / "run", replay="auto")))
    model = weakref.ref(names["model"])
    del names
    gc.collect()
    assert model() is None
    hooks[0].close()


def test_printing_logging_and_saving_are_held_back(tmp_path, capsys, caplog):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    hook = smd.record(model, tmp_path / "run", replay="auto")
    for number, (x, y) in enumerate(replay_loops.classes()):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        print("batch", number)
        logging.getLogger("mine").warning("batch %d", number)
        torch.save(model.state_dict(), tmp_path / "model.pt")
    hook.dump("why")
    hook.close()
    capsys.readouterr()
    caplog.clear()
    (tmp_path / "model.pt").unlink()
    with create_trial(tmp_path / "run") as trial:
        replay = trial.incidents()[-1].replay
    assert sentence(replay.run(), replay.expected).startswith("bit-equal")
    assert capsys.readouterr().out == ""
    assert caplog.messages == []
    assert not (tmp_path / "model.pt").exists()
    print("again")
    assert capsys.readouterr().out == "again\n"


# ----------------------------------------------------------------------------------------------------------------- rows


class Numbered(Dataset):
    """Rows whose first value is their index."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.full((4,), float(index))


class NumberedStream(IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from (torch.full((4,), float(one * 1000 + number)) for one in range(24 // count))


class Identified(Numbered):
    def __getitem__(self, index):
        return {"x": super().__getitem__(index), "id": 100 + index}


def loaders():
    data = Numbered()
    yield "sequential", DataLoader(data, 4)
    yield "shuffled", DataLoader(data, 4, shuffle=True)
    yield "distributed", DataLoader(data, 4, sampler=DistributedSampler(data, 2, 1, shuffle=True))
    yield "weighted", DataLoader(data, 4, sampler=WeightedRandomSampler([1.0] * 48, 40))
    yield "batch_sampler", DataLoader(data, batch_sampler=[[3, 1], [40, 2, 7], [5, 6]])
    yield "no_batches", DataLoader(data, batch_size=None)
    yield "subset", DataLoader(Subset(data, range(10, 40)), 4)
    yield "drop_last", DataLoader(data, 5, drop_last=True, shuffle=True)
    yield "two_workers", DataLoader(data, 4, shuffle=True, num_workers=2)
    yield "persistent", DataLoader(data, 4, shuffle=True, num_workers=2, persistent_workers=True)
    yield "any_order", DataLoader(data, 4, shuffle=True, num_workers=2, in_order=False)
    yield "iterable", DataLoader(NumberedStream(), 4)
    yield "iterable_workers", DataLoader(NumberedStream(), 4, num_workers=2)
    yield "column", DataLoader(Identified(), 4, shuffle=True)


@pytest.mark.parametrize("name", [name for name, _ in loaders()])
def test_rows_of_every_batch_are_those_that_the_loader_gave(name, tmp_path):
    loader = dict(loaders())[name]
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), 0.0)
    hook = smd.record(model, tmp_path / "run", replay="auto")
    expected = []
    for _epoch in range(2):
        for batch in loader:
            x = batch["x"] if isinstance(batch, dict) else batch
            expected.append(torch.atleast_2d(x)[:, 0].tolist())
            opt.zero_grad()
            model(x).mean().backward()
            opt.step()
    hook.dump("why")
    hook.close()
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[-1]
        steps = [one.step for one in incident.replay.recording.recorded]
        assert len(steps) >= 3
        for step in steps:
            rows = incident.row_ids(step)
            if name == "column":
                rows = [one - 100 for one in rows]
            elif name == "subset":
                rows = [one + 10 for one in rows]
            elif name.startswith("iterable"):
                rows = [number * 1000 + worker for worker, number in rows]
            assert rows == expected[step], step


def test_two_hooks_of_a_process_both_know_the_rows(tmp_path):
    model = replay_loops.mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    others = nn.Linear(8, 1)
    hooks = [smd.record(others, tmp_path / "other", replay="auto"), smd.record(model, tmp_path / "run", replay="auto")]
    rows = []
    loader = replay_loops.classes()
    for x, y in loader:
        rows.append([(loader.dataset.tensors[0] == one).all(1).nonzero()[0].item() for one in x])
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    hooks[1].dump("why")
    for hook in hooks:
        hook.close()
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[-1]
        assert [incident.row_ids(step) for step in range(12, 20)] == rows[12:]
