"""Inputs and outputs with a key have an alias and keep their number."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import nn

from smdwidgets import SaveConfig, create_trial, modes
from smdwidgets.pytorch import Hook


@dataclasses.dataclass
class Scores:
    """The output of a module."""

    loss: torch.Tensor | None
    logits: torch.Tensor


class Keyed(nn.Module):
    """A model that is called by keyword and returns a data class."""

    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x, mask=None, labels=None):
        parts = self.head(x, mask=mask)
        loss = None if labels is None else nn.functional.mse_loss(parts["scores"], labels)
        return Scores(loss, parts["scores"])


class Head(nn.Module):
    """A module with a dictionary as its output."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, mask):
        scores = self.linear(x * mask)
        return {"scores": scores, "pyramid": [scores * 2, scores * 3]}


def test_keys_are_aliases_and_keep_their_numbers(tmp_path):
    model = Keyed()
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, mask = torch.randn(4, 3), torch.ones(4, 3)
    for _ in range(2):
        hook.set_mode(modes.TRAIN)
        optimizer.zero_grad()
        model(x, mask=mask, labels=torch.zeros(4, 2)).loss.backward()
        optimizer.step()
        hook.set_mode(modes.EVAL)
        with torch.no_grad():
            expected = model(x, mask=mask).logits
    hook.close()
    with create_trial(tmp_path) as trial:
        assert trial.aliases() == {
            "Keyed_input.mask": "Keyed_input_1",
            "Keyed_input.labels": "Keyed_input_2",
            "Keyed_output.loss": "Keyed_output_0",
            "Keyed_output.logits": "Keyed_output_1",
            "head_input.mask": "head_input_1",
            "head_output.scores": "head_output_0",
            "head_output.pyramid.0": "head_output_1",
            "head_output.pyramid.1": "head_output_2",
        }
        # Without a loss, the logits of an evaluation are not moved to the loss' number.
        logits = trial.tensor("Keyed_output.logits")
        assert logits.shape(logits.steps(mode=modes.EVAL)[0], mode=modes.EVAL) == (4, 2)
        last = logits.steps(mode=modes.EVAL)[-1]
        np.testing.assert_array_equal(logits.value(last, mode=modes.EVAL), expected.numpy())
        assert trial.tensor("Keyed_output_0").steps(mode=modes.EVAL) == []
        assert trial.tensor("Keyed_output.loss").shape(trial.steps(mode=modes.TRAIN)[0], mode=modes.TRAIN) == ()


def test_a_key_of_a_later_call_has_the_call_in_its_alias(tmp_path):
    head = Head()
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1))
    hook.register_module(head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    x, mask = torch.randn(4, 3), torch.ones(4, 3)
    for _ in range(2):
        (head(x, mask)["scores"].sum() + head(x, mask)["scores"].sum()).backward()
        optimizer.step()
    hook.close()
    with create_trial(tmp_path) as trial:
        aliases = trial.aliases()
        assert aliases["Head_output.scores"] == "Head_output_0"
        assert aliases["Head_output.scores_1"] == "Head_output_3"
        assert len(set(aliases.values())) == len(aliases) == 6
