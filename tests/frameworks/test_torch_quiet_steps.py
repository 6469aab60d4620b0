"""Quiet steps are recorded as they are by the way of other steps."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

import smdwidgets.pytorch as smd
from smdwidgets import CapturePlan, _core, create_trial
from smdwidgets.hooks.torch import quiet_steps
from smdwidgets.hooks.torch.quiet_steps import QuietSteps
from smdwidgets.hooks.torch.short_way import ShortWay

#: Tensors of the model are captured at every 16th step.
PLAN = CapturePlan(statistics=16, every=16)


class Training:
    """A model, and a loop of which single steps go another way."""

    def __init__(self, path, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.hook = smd.record(self.model, path, **{"plan": PLAN, **options})

    def loss(self):
        return (self.model(torch.randn(8, 4)) - 1).square().mean()

    def step(self, change=lambda: None):
        self.optimizer.zero_grad()
        self.loss().backward()
        change()
        self.optimizer.step()


def plain(training, step):
    training.step()


def evaluates(training, step):
    training.step()
    if step % 7 == 3:
        training.model.eval()
        with torch.no_grad():
            nn.functional.mse_loss(training.model(torch.ones(2, 4)), torch.ones(2, 1))
        training.model.train()


def clips(training, step):
    training.step(lambda: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.1) if step % 9 == 4 else None)


def saves_a_scalar(training, step):
    """A scalar before, in and after a step."""
    if step % 11 == 2:
        training.hook.save_scalar("before", step)
    training.step(lambda: training.hook.save_scalar("within", step) if step % 11 == 5 else None)
    if step % 11 == 8:
        training.hook.save_scalar("after", step)


def saves_a_loss(training, step):
    training.step()
    if step % 13 == 6:
        training.hook.loss(training.loss().detach(), "other")


def accumulates(training, step):
    if step % 10 == 7:
        training.loss().backward()
    training.step()


def updates_twice(training, step):
    training.step()
    if step % 10 == 7:
        training.optimizer.step()


def changes_the_rate(training, step):
    training.optimizer.param_groups[0]["lr"] = 0.05 / (1 + step)
    training.step()


def sets_a_tensor_as_rate(training, step):
    training.optimizer.param_groups[0]["lr"] = torch.tensor(0.01) if step % 10 == 7 else 0.01
    training.step()


def divides_the_loss(training, step):
    training.optimizer.zero_grad()
    (training.loss() / (2 if step % 10 == 7 else 1)).backward()
    training.optimizer.step()


def adds_a_parameter(training, step):
    if step == 40:
        training.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "lr": 0.5})
    training.step()


def freezes(training, step):
    training.model[0].requires_grad_(step % 20 < 10)
    training.step()


def raises_in_a_pass(training, step):
    training.step()
    if step % 10 == 7:
        with pytest.raises(RuntimeError):
            training.model(torch.ones(2, 3))


def sets_the_mode(training, step):
    if step % 20 in (5, 10):
        training.hook.set_mode("PREDICT" if step % 20 == 5 else "TRAIN")
    training.step()


def takes_a_closure(training, step):
    if step % 10 != 7:
        training.step()
        return

    def closure():
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss

    training.optimizer.step(closure)


def trains_another_model(training, step):
    training.step()
    if step % 10 == 7:
        other = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(other.parameters(), 0.1)
        other(torch.ones(1, 2)).sum().backward()
        optimizer.step()


def configures_a_collection(training, step):
    if step == 41:
        training.hook.get_collection("first").include("0.weight")
        training.hook.get_collection("first").save_config = smd.SaveConfig(save_interval=5)
        training.hook.include_collections.append("first")
    training.step()


def clips_each_time(training, step):
    training.step(lambda: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.1))


def clips_some_parameters(training, step):
    """First a part by its norm, then all by value; the part changes."""

    def clip():
        torch.nn.utils.clip_grad_norm_(training.model[2 if step % 10 < 8 else 0].parameters(), 0.1)
        torch.nn.utils.clip_grad_value_(training.model.parameters(), 0.05)

    training.step(clip)


def clips_twice(training, step):
    def clip():
        torch.nn.utils.clip_grad_norm_(training.model[0].parameters(), 0.1)
        torch.nn.utils.clip_grad_norm_(training.model[2].parameters(), 0.1)
        if step % 10 == 7:
            torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(2))], 0.1)

    training.step(clip)


def changes_the_norm_that_clipping_returns(training, step):
    training.step(lambda: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.1).mul_(2))


def stops_clipping(training, step):
    """Clipping changes nothing here: norms of another size would be an incident."""
    training.step(lambda: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1e3) if step % 30 < 20 else None)


def has_micro_batches(training, step):
    """Losses that are divided by their number; fewer of them at the end of an epoch."""
    training.optimizer.zero_grad()
    for _ in range(2 if step % 10 == 7 else 3):
        (training.loss() / 3).backward()
    training.optimizer.step()


def evaluates_between_micro_batches(training, step):
    training.optimizer.zero_grad()
    for batch in range(3):
        training.loss().backward()
        if step % 10 == 7 and batch == 1:
            training.model.eval()
            with torch.no_grad():
                training.model(torch.ones(2, 4))
            training.model.train()
    training.optimizer.step()


def clips_micro_batches(training, step):
    training.optimizer.zero_grad()
    for _ in range(2):
        training.loss().backward()
    if step % 10 != 7:
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1e3)
    training.optimizer.step()


def saves_scalars_each_time(training, step):
    """In a step and after it, of several types; not always all of them."""

    def save():
        training.hook.save_scalar("within", 0.5 * step)

    training.step(save)
    training.hook.save_scalar("count", step)
    if step % 10 != 7:
        training.hook.save_scalar("tensor", torch.tensor(step / 3))
    training.hook.save_scalar("array", np.float32(step / 7))


def saves_its_loss_each_time(training, step):
    """The hook then takes none from the backward pass."""
    training.optimizer.zero_grad()
    loss = training.loss()
    loss.backward()
    training.hook.save_scalar("train/loss", loss.item())
    training.optimizer.step()


def saves_a_scalar_with_the_name_of_a_weight(training, step):
    """The statistics of a weight have its change."""
    training.step()
    training.hook.save_scalar("weight_norm", training.model[0].weight.norm().item())


def changes_the_type_of_a_scalar(training, step):
    training.step()
    training.hook.save_scalar("value", step if step % 10 == 7 else float(step))


def saves_a_scalar_of_a_time(training, step):
    training.step()
    training.hook.save_scalar("value", 0.5, timestamp=1.0 if step % 10 == 7 else None)


def saves_a_scalar_before_each_pass(training, step):
    training.hook.save_scalar("index", float(step))
    training.step()


def saves_a_scalar_between_passes(training, step):
    training.optimizer.zero_grad()
    for batch in range(2):
        training.loss().backward()
        training.hook.save_scalar(f"batch_{batch}", 1.0 * step)
    torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
    training.optimizer.step()
    training.hook.save_scalar("after", 1.0 * step)


def stops_saving(training, step):
    training.step()
    if step < 40:
        training.hook.save_scalar("value", 0.5)


WAYS = [
    clips_each_time, clips_some_parameters, clips_twice, changes_the_norm_that_clipping_returns, stops_clipping,
    has_micro_batches, evaluates_between_micro_batches, clips_micro_batches, saves_scalars_each_time,
    saves_its_loss_each_time, saves_a_scalar_with_the_name_of_a_weight, changes_the_type_of_a_scalar, saves_a_scalar_of_a_time,
    saves_a_scalar_between_passes, stops_saving,
    plain, evaluates, clips, saves_a_scalar, saves_a_loss, accumulates, updates_twice, changes_the_rate,
    sets_a_tensor_as_rate, divides_the_loss, adds_a_parameter, freezes, raises_in_a_pass, sets_the_mode,
    takes_a_closure, trains_another_model, configures_a_collection,
]  # fmt: skip


def recorded(path, way, steps=70, last=lambda training: None):
    """Train; return what the run has and the weights at the end.

    The second value is the number of quiet steps. ``last`` is called before the hook is closed.
    """
    training = Training(path)
    steps_of_run, count = training.hook.parts.steps, 0
    repeat = steps_of_run.repeat

    def counted(step, mode_step):
        nonlocal count
        count += 1
        repeat(step, mode_step)

    steps_of_run.repeat = counted
    numbers = []
    for step in range(steps):
        way(training, step)
        numbers.append((training.hook.step, training.hook.mode, training.hook.mode_steps))
    last(training)
    training.hook.close()
    weights = [one.detach().numpy().tobytes() for one in training.model.parameters()]
    with create_trial(path) as trial:
        values = {
            (name, mode.name, step): value.tobytes()
            for name in trial.tensor_names()
            for mode in trial.modes()
            for step, value in trial.tensor(name).values(mode).items()
        }
        table = trial.statistics()
        statistics = [[str(one) for one in row] for row in zip(*table.values(), strict=True)]
        incidents = [(one.step, one.why) for one in trial.incidents()]
        recorded_steps = {mode.name: trial.steps(mode) for mode in trial.modes()}
    return (weights, numbers, recorded_steps, incidents, values, sorted(statistics)), count


@pytest.mark.parametrize("way", WAYS)
def test_run_is_that_of_the_longer_way(tmp_path, monkeypatch, way):
    monkeypatch.setattr(quiet_steps, "_LOOK_EVERY", 0.003)  # some steps between two looks
    quiet, count = recorded(tmp_path / "quiet", way)
    assert count
    monkeypatch.setattr(QuietSteps, "begin", lambda self, repeated: None)
    whole, count = recorded(tmp_path / "whole", way)
    assert count == 0
    for of_quiet, of_whole in zip(quiet, whole, strict=True):
        assert of_quiet == of_whole
    assert quiet[4]


def stops_in_a_pass(training):
    handle = training.model[2].register_forward_pre_hook(lambda module, args: training.hook.save_scalar("last", 1))
    training.loss()
    handle.remove()


def stops_before_the_backward_pass(training):
    training.loss()


def stops_before_the_update(training):
    training.loss().backward()


def stops_between_micro_batches(training):
    for _ in range(2):
        (training.loss() / 3).backward()


def stops_after_clipping(training):
    for batch in range(2):
        training.loss().backward()
        training.hook.save_scalar(f"batch_{batch}", 0.5)
    torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)


def stops_in_the_update(training):
    handle = training.optimizer.register_step_pre_hook(lambda *args: training.hook.save_scalar("last", 1.0))
    clips_each_time(training, 30)
    handle.remove()


UNFINISHED = [
    (plain, stops_in_a_pass),
    (plain, stops_before_the_backward_pass),
    (plain, stops_before_the_update),
    (has_micro_batches, stops_between_micro_batches),
    (saves_a_scalar_between_passes, stops_after_clipping),
    (clips_each_time, stops_in_the_update),
]


@pytest.mark.parametrize(("way", "last"), UNFINISHED)
def test_unfinished_step_is_that_of_the_longer_way(tmp_path, monkeypatch, way, last):
    quiet, count = recorded(tmp_path / "quiet", way, 30, last)
    assert count
    monkeypatch.setattr(QuietSteps, "begin", lambda self, repeated: None)
    assert recorded(tmp_path / "whole", way, 30, last)[0] == quiet


def test_incident_of_a_quiet_step_is_found_before_the_end(tmp_path):
    training = Training(tmp_path / "run")
    for step in range(60):
        training.step()
        if step == 36:
            with torch.no_grad():
                training.model[0].weight[0, 0] = torch.nan
    incidents = tmp_path / "run" / "incidents"
    ends = time.monotonic() + 60
    while not list(incidents.rglob("*.json*")) and time.monotonic() < ends:
        time.sleep(0.02)
    with create_trial(tmp_path / "run") as trial:
        assert [one.step for one in trial.incidents()] == [37]
    training.hook.close()


#: Trains for 40 steps, the last of them quiet.
SCRIPT = """
import os, signal, sys, time
from frameworks.test_torch_quiet_steps import Training
training = Training(sys.argv[1], flush_seconds=0.2)
for step in range(40):
    training.step()
assert training.hook.loop.quiet.is_active
"""
#: Ways to end it, and what the run says of them.
ENDS = {
    "": "completed",
    "sys.exit()": "completed",
    "training.loss()": "completed",
    "raise ValueError": "exception",
    "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)": "signal",
    "if not os.fork(): training.step(); sys.exit()\nos.wait()": "completed",
}


@pytest.mark.parametrize("end", ENDS)
def test_process_that_ends_leaves_quiet_steps(tmp_path, end):
    subprocess.run([sys.executable, "-c", SCRIPT + end, str(tmp_path / "run")], check=False)
    with create_trial(tmp_path / "run") as trial:
        assert sorted(trial.tensor("loss_output_0").values()) == list(range(40))
        assert sorted(trial.tensor("optimizer/SGD/gradient_norm").steps()) == list(range(40))
        assert trial.run_end().how == ENDS[end]


def test_killed_process_leaves_quiet_steps(tmp_path):
    """The training has not ended its last step, and queues none of the last 0.1 s."""
    script = SCRIPT + "print('trained', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n"
        ends = time.monotonic() + 60
        steps: list[int] = []
        while steps != list(range(40)) and time.monotonic() < ends:
            time.sleep(0.05)
            with create_trial(tmp_path / "run") as trial:
                steps = trial.tensor("loss_output_0").steps()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with create_trial(tmp_path / "run") as trial:
        losses = trial.tensor("loss_output_0").values()
    assert sorted(losses) == list(range(40))
    assert np.isfinite(list(losses.values())).all()


def test_steps_of_several_ways_follow_each_other(tmp_path, monkeypatch):
    """Each way interrupts the quiet steps of the one before."""
    ways = [
        plain, clips, saves_a_scalar, evaluates, clips_each_time, saves_a_loss, accumulates, saves_scalars_each_time,
    ]  # fmt: skip

    def way(training, step):
        ways[step // 5 % len(ways)](training, step)

    quiet, count = recorded(tmp_path / "quiet", way, 120)
    assert count
    monkeypatch.setattr(QuietSteps, "begin", lambda self, repeated: None)
    assert recorded(tmp_path / "whole", way, 120)[0] == quiet


def has_batches_in_the_middle(training, step):
    """Rows of batches are recorded for some steps only."""
    if 40 <= step < 50:
        if step == 40:
            data = torch.utils.data.TensorDataset(torch.arange(10.0))
            training.batches = iter(torch.utils.data.DataLoader(data))
        next(training.batches)
    training.step()


def is_compiled(training, step):
    """The graph of the model gives no signals."""
    if step == 0:
        training.model.compile(backend="eager")
    training.step()


def is_seen_of(path, way, monkeypatch, short):
    """Train; return what signals and replay have recorded.

    The second value is the number of events that went the short way.
    """
    count = 0
    with monkeypatch.context() as patch:
        if not short:
            patch.setattr(ShortWay, "begin", lambda self, optimizer: None)
        training = Training(path)
        for shortcut in training.hook.loop.short_way._takes:
            take = training.hook.loop.short_way._takes[shortcut]

            def counted(*args, take=take):
                nonlocal count
                taken = take(*args)
                count += taken
                return taken

            training.hook.loop.short_way._takes[shortcut] = counted
        signals = training.hook._signalling.signals
        signals._is_start, signals._every = False, 16
        signals._adapt = lambda: None  # which depends on the time that reading takes
        written = []
        monkeypatch.setattr(signals._writer, "write", lambda step, values: written.append((step, sorted(values))))
        for step in range(120):
            way(training, step)
        last = training.hook.loop.quiet._parts.steps.step
        known = training.hook._replaying.recorder.snapshot(last)
        steps = [(one.step, len(one.batches)) for one in known.steps if one.step > last - 14]  # others may be given up
        training.hook.loop.short_way.end()
        state = signals._updates, signals._noisy_updates, signals._batches.last_passes, signals._batches.passes
        training.hook.close()
    numbers = [one.number for one in known.steps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    rows = [one.rows for one in known.deliveries]
    return (written, steps, rows, state), count


@pytest.mark.parametrize(
    "way",
    [
        plain,
        evaluates,
        clips,
        clips_each_time,
        has_micro_batches,
        updates_twice,
        raises_in_a_pass,
        has_batches_in_the_middle,
        is_compiled,
    ],
)
def test_parts_that_miss_events_know_as_much(tmp_path, monkeypatch, way):
    seen, count = is_seen_of(tmp_path / "short", way, monkeypatch, True)
    assert count > 100
    expected, count = is_seen_of(tmp_path / "long", way, monkeypatch, False)
    assert count == 0
    assert seen == expected
    assert seen[0]


def test_time_of_the_short_way_is_counted(tmp_path):
    training = Training(tmp_path / "run")
    for step in range(60):
        before = training.hook.guard.gate.seconds
        plain(training, step)
        assert training.hook.guard.gate.seconds > before
    training.hook.close()


def test_patterns_that_a_script_appends_are_seen(tmp_path):
    """The hook, which is not called, looks at the list some times a second."""
    training = Training(tmp_path / "run")
    collection = training.hook.get_collection("weights")
    plan, quiet = training.hook.parts.plan, training.hook.loop.quiet
    while not quiet.is_active:
        training.step()
    collection.include_regex.append("another")
    assert plan.has_changed()
    for _ in range(100_000):
        training.step()
        if not plan.has_changed():
            break
    else:
        pytest.fail("the change was not seen")
    training.hook.close()


def test_norm_of_gradients():
    parameters = [nn.Parameter(torch.ones(size)) for size in ((3, 5), (7,), (), (0,))]
    assert _core.norm_of_gradients(parameters, torch.Tensor, 100) is None
    for one in parameters:
        one.grad = torch.randn_like(one)
    together = torch.cat([one.grad.reshape(-1) for one in parameters]).numpy()
    assert _core.norm_of_gradients(parameters, torch.Tensor, 100) == _core.norm(together)
    assert _core.norm_of_gradients(parameters, torch.Tensor, 23) is not None
    assert _core.norm_of_gradients(parameters, torch.Tensor, 22) is None
    whole = parameters[0].grad
    for other in (torch.ones(5, 3).T, torch.eye(3, 5).to_sparse()):
        parameters[0].grad = other
        assert _core.norm_of_gradients(parameters, torch.Tensor, 100) is None
    parameters[0].grad = whole
    double = nn.Parameter(torch.ones(2, dtype=torch.float64))
    double.grad = torch.ones(2, dtype=torch.float64)
    assert _core.norm_of_gradients([*parameters, double], torch.Tensor, 100) is None
    assert _core.norm_of_gradients([], torch.Tensor, 100) is None


def test_gradients_that_are_not_plain_memory_are_not_read():
    """Freed storages, other types and views with gaps are left to PyTorch."""

    def norm_of(*gradients, most=100):
        parameters = [nn.Parameter(torch.zeros_like(one).float()) for one in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return _core.norm_of_gradients(parameters, torch.Tensor, most)

    assert norm_of(torch.full((2, 2), 3.0), torch.zeros(0), torch.arange(8.0)[6:]) == pytest.approx(11.0)
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    for one in (freed, torch.ones(4, 4).t()[:, :2], torch.ones(101)):
        assert norm_of(one) is None
    assert _core.norm_of_gradients([nn.Parameter(torch.ones(2))], torch.Tensor, 100) is None
