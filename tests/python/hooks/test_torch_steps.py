"""Test the state machine that decides when a PyTorch step begins and ends.

It needs no PyTorch.
"""

from __future__ import annotations

import pytest

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks.torch.steps import Level, Steps


class Log:
    """Record what the state machine does.

    T and E begin a training and an evaluation step.
    """

    def __init__(self, optimizers=False):
        self.events = ""
        self.messages = []
        self.forgotten = 0
        self.optimizers = optimizers

    def begin(self, training):
        self.events += "T" if training else "E"

    def end(self):
        self.events += "."

    def settle(self):
        self.events += "!"

    def suspend(self):
        self.events += "("

    def resume(self):
        self.events += ")"

    def forget_next_pass(self):
        self.forgotten += 1

    def updates_expected(self):
        self.events += "?"
        return self.optimizers

    def say(self, message):
        self.messages.append(message)


@pytest.fixture
def log():
    return Log()


def forward(steps, **how):
    recorded = steps.forward(**{"training": True, **how})
    steps.forward_ended()
    return recorded


def backward(steps):
    steps.backward_begins()
    steps.backward_ends()


def update(steps, *optimizers):
    for optimizer in optimizers:
        steps.update_begins(optimizer)
        steps.update_ends(optimizer)


def learn(steps, *optimizers, batches=1):
    for _ in range(batches):
        forward(steps)
        backward(steps)
    update(steps, *optimizers)


def test_invalid_choice():
    with pytest.raises(SMDebugValueError, match="choose from auto, optimizer, forward, manual"):
        Steps(Log(), "epoch")


def test_plain_loop(log):
    steps = Steps(log)
    for _ in range(3):
        learn(steps, "a")
    steps.close()
    assert log.events == "T!.T!.T!."


def test_forward_passes_without_optimizers(log):
    steps = Steps(log)
    for _ in range(3):
        forward(steps)
    for _ in range(2):
        forward(steps)
        backward(steps)
    assert log.events == "T?.T.T.T.T"


def test_siamese_passes_whose_updates_are_not_seen():
    log = Log(optimizers=True)
    steps = Steps(log)
    for _ in range(66):
        forward(steps)
        forward(steps)
        backward(steps)
    assert steps.level is Level.FORWARD
    assert log.events.replace("?", "") == "T.T.T"


@pytest.mark.parametrize("known", ["registered", "existing"])
def test_accumulation_from_the_first_step_on(known):
    log = Log(optimizers=known == "existing")
    steps = Steps(log)
    if known == "registered":
        steps.register("a")
    for _ in range(2):
        learn(steps, "a", batches=4)
    assert log.events.replace("?", "") == "T!.T!"


def test_accumulation_of_more_micro_batches_than_are_waited_for():
    log = Log(optimizers=True)
    steps = Steps(log)
    learn(steps, "a", batches=100)
    assert steps.level is Level.OPTIMIZER
    assert len(log.messages) == 1
    log.events = ""
    for _ in range(3):
        learn(steps, "a", batches=100)  # which are known now
    assert log.events == ".T!.T!.T!"
    assert len(log.messages) == 1


def test_registered_optimizers_make_a_round(log):
    steps = Steps(log)
    for optimizer in "dg":
        steps.register(optimizer)
    for _ in range(3):
        for _ in range(5):
            learn(steps, "d")
        learn(steps, "g")
    assert log.events == "T!.T!.T!"


def test_optimizer_that_no_longer_steps_is_not_waited_for(log):
    steps = Steps(log)
    for optimizer in "ab":
        steps.register(optimizer)
    learn(steps, "a", "b")
    for _ in range(100):
        learn(steps, "a")
    assert log.events.count("!") == 1 + 100 - 63


def test_deleted_optimizer_is_not_waited_for(log):
    steps = Steps(log)
    for optimizer in "ab":
        steps.register(optimizer)
    learn(steps, "a", "b")
    steps.forget("b")
    learn(steps, "a")
    assert log.events == "T!.T!"


def test_a_round_ends_with_an_optimizer_of_something_else(log):
    """It was named, and turns out to update no parameter of the model."""
    steps = Steps(log)
    for optimizer in "ab":
        steps.register(optimizer)
    for _ in range(3):
        learn(steps, "a")
        steps.forget("b")
    assert log.events == "T!.T!.T!"


def test_optimizer_that_is_first_seen_completes_the_round_before(log):
    steps = Steps(log)
    for _ in range(3):
        learn(steps, "a", "b")
    assert log.events == "T!.T!.T!"


def test_many_optimizers_one_of_each_parameter(log):
    steps = Steps(log)
    for _ in range(3):
        forward(steps)
        steps.backward_begins()
        update(steps, *range(300))
        steps.backward_ends()
    assert log.events == "T!.T!.T!"


def test_closure_with_several_passes(log):
    steps = Steps(log)
    for _ in range(2):
        steps.update_begins("lbfgs")
        for _ in range(4):
            forward(steps)
            backward(steps)
        steps.update_ends("lbfgs")
    assert log.events == "T!.T!"


def test_updates_without_a_pass_of_the_model(log):
    steps = Steps(log)
    for _ in range(3):
        backward(steps)
        update(steps, "a")
    assert log.events == "T!.T!.T!"


def test_rollouts_are_not_recorded(log):
    steps = Steps(log)
    steps.register("a")
    for _ in range(2):
        assert not forward(steps, gradients=False)
        learn(steps, "a")
    assert log.events == "T!.T!"


def test_first_evaluation_pass_is_recorded_and_others_with_a_value(log):
    steps = Steps(log)
    learn(steps, "a")
    for recorded in (True, False, False):
        assert forward(steps, training=False) is recorded
        steps.value_arrives("loss")
    steps.value_arrives("accuracy")
    forward(steps, training=False)
    learn(steps, "a")
    assert log.events == "T!.E!.E!.E!.T!"


def test_values_after_several_evaluation_passes_belong_to_the_recorded_one(log):
    steps = Steps(log)
    learn(steps, "a")
    for _ in range(2):
        for _ in range(3):
            forward(steps, training=False)
        steps.value_arrives("val_loss")
        steps.value_arrives("val_accuracy")
        assert log.events == "T!.E!!"
        log.events = ""
        learn(steps, "a")
        assert log.events == ".T!"
        log.events = "T!"


def test_complete_step_that_awaits_values_continues_after_the_evaluation(log):
    steps = Steps(log)
    steps.awaits_values = True
    for ended in (True, False):
        learn(steps, "a")
        for _ in range(2):
            forward(steps, training=False)
        steps.value_arrives("val_loss")
        if ended:
            steps.evaluation_ended()
            steps.value_arrives("train_loss_epoch")
    learn(steps, "a")
    assert log.events == "T!(E!.).T!(E!.).T!"


def test_evaluation_by_set_mode_is_a_step_each_pass(log):
    steps = Steps(log)
    learn(steps, "a")
    steps.mode_changed(training=False)
    assert [forward(steps, training=False, mode_is_set=True) for _ in range(3)] == [True] * 3
    assert log.events == "T!.E.E.E"


@pytest.mark.parametrize("mode_is_set", [True, False])
def test_evaluation_between_micro_batches(log, mode_is_set):
    steps = Steps(log)
    steps.register("a")
    forward(steps)
    backward(steps)
    if mode_is_set:
        steps.mode_changed(training=False)
    forward(steps, training=False, mode_is_set=mode_is_set)
    if mode_is_set:
        steps.mode_changed(training=True)
    learn(steps, "a")
    learn(steps, "a")
    assert log.events == "T(E.)!.T!"


def test_training_that_ends_in_an_evaluation_between_micro_batches(log):
    steps = Steps(log)
    steps.register("a")
    forward(steps)
    forward(steps, training=False)
    steps.close()
    assert log.events == "T(E.)."


def test_manual_steps_rise_above_updates(log):
    steps = Steps(log)
    learn(steps, "a")
    steps.step()
    for _ in range(2):
        learn(steps, "a")
        learn(steps, "a")
        steps.step()
    steps.step()  # without a pass: counted, to keep the numbers of the script
    assert log.events == "T!.T.T.T."


def test_evaluation_between_manual_steps(log):
    steps = Steps(log, "manual")
    for _ in range(2):
        learn(steps, "a")
        assert [forward(steps, training=False) for _ in range(2)] == [True, False]
        steps.step()
    assert log.events == "T(E.).T(E.)."


def test_fixed_forward_level(log):
    steps = Steps(log, "forward")
    steps.register("a")
    for _ in range(2):
        learn(steps, "a", batches=2)
    assert log.events == "T.T!.T.T!"


def test_fixed_optimizer_level_waits_without_end(log):
    steps = Steps(log, "optimizer")
    for _ in range(200):
        forward(steps)
        backward(steps)
    assert log.events == "T"
    assert not log.messages


def test_value_that_is_saved_before_the_first_pass_precedes_each_pass(log):
    steps = Steps(log)
    assert not steps.precedes("batch")  # no step has begun: it waits for the first one anyway
    for _ in range(3):
        forward(steps)
        assert not steps.precedes("batch")  # of two micro-batches, both belong to the step
        backward(steps)
        update(steps, "Adam")
        assert steps.precedes("batch")
        assert not steps.precedes("accuracy")


def test_value_before_evaluation_passes_precedes_each_of_them(log):
    steps = Steps(log)
    steps.precedes("batch")
    forward(steps)
    backward(steps)
    update(steps, "Adam")
    for _ in range(3):
        assert steps.precedes("batch")
        forward(steps, training=False)
        assert not steps.precedes("accuracy")
    assert log.forgotten == 2  # passes that are no steps


def test_value_before_the_first_step_of_a_manual_loop_belongs_to_the_open_step(log):
    steps = Steps(log, "manual")
    steps.precedes("batch")
    forward(steps)
    assert not steps.precedes("batch")
    steps.step()
    assert not steps.precedes("batch")  # nothing is open, so it waits


def test_passes_that_share_a_backward_pass_share_a_step_without_an_optimizer(log):
    steps = Steps(log)
    for _ in range(3):
        forward(steps)
        forward(steps)
        backward(steps)
    # The first backward pass shows that two passes belong together.
    assert log.events.count("T") == 4
