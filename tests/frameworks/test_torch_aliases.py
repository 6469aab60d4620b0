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


class Detector(nn.Module):
    """A model that returns its losses, and a number that is none of them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        scores = self.body(x)
        box, kind = scores[:, 0].pow(2).mean(), scores[:, 1].abs().mean()
        return {"box": box, "kind": {"focal": kind}, "scale": self.scale.exp(), "scores": scores}


def trained(folder, loss_of, micro_batches=1):
    """Train a detector for three updates; return its trial."""
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(folder, save_config=SaveConfig(save_interval=1)) as hook:
        hook.register_module(model)
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(micro_batches):
                loss_of(model(torch.randn(4, 3))).backward()
            optimizer.step()
    return create_trial(folder)


def test_parts_of_a_loss_are_series(tmp_path):
    trial = trained(tmp_path, lambda out: (out["box"] + 2 * out["kind"]["focal"]) / 4)
    assert trial.tensor_names(collection="losses") == ["box_output_0", "kind.focal_output_0", "loss_output_0"]
    values = {name: trial.tensor(f"{name}_output_0").value(2) for name in ("box", "kind.focal", "loss")}
    assert np.isclose(values["loss"], (values["box"] + 2 * values["kind.focal"]) / 4)


def test_parts_of_micro_batches_have_a_mean(tmp_path):
    trial = trained(tmp_path, lambda out: torch.stack([out["box"], out["kind"]["focal"]]).sum() / 2, micro_batches=2)
    found = [float(trial.tensor(f"box_output_{which}").value(1)) for which in ("0", "1", "mean")]
    assert np.isclose(found[2], (found[0] + found[1]) / 2)


def test_loss_of_one_term_has_no_parts(tmp_path):
    trial = trained(tmp_path, lambda out: out["box"] / 4)
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]
