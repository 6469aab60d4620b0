"""Checkpoints are read as PyTorch and safetensors read them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import smdwidgets

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def tensors():
    """Return tensors of every dtype and of many layouts."""
    torch.manual_seed(7)
    found = {str(dtype).removeprefix("torch."): (torch.randn(3, 4) * 5).to(dtype) for dtype in DTYPES}
    base = torch.arange(60.0).reshape(3, 4, 5)
    return found | {
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "transposed": base.permute(2, 0, 1),
        "strided": base[:, ::2, 1:4],
        "tied": base,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def same(value, tensor):
    """Return whether an array has the bytes and the shape of a tensor."""
    expected = tensor.detach().contiguous()
    return value.shape == tuple(expected.shape) and np.ascontiguousarray(value).tobytes() == bytes(
        expected.flatten().view(torch.uint8).tolist() if expected.numel() else b""
    )


def test_values_of_a_checkpoint(tmp_path):
    torch.save({"state_dict": tensors(), "step": 9, "optimizer": {"state": {}}}, tmp_path / "last.pt")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.problems() == []
    assert trial.steps() == [9]
    loaded = torch.load(tmp_path / "last.pt", weights_only=True)["state_dict"]
    assert trial.tensor_names() == sorted(loaded)
    for name, tensor in loaded.items():
        assert same(trial.tensor(name).value(9), tensor), name


def test_values_of_safetensors(tmp_path):
    saved = {name: tensor.detach().contiguous().clone() for name, tensor in tensors().items()}
    save_file(saved, tmp_path / "model-3.safetensors")
    trial = smdwidgets.create_trial(tmp_path)
    for name, tensor in load_file(tmp_path / "model-3.safetensors").items():
        assert same(trial.tensor(name).value(3), tensor), name


def test_a_whole_model_has_the_names_of_its_state_and_is_not_loaded(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(model, tmp_path / "step_1.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        torch.load(tmp_path / "step_1.pt", weights_only=True)
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.problems() == []
    assert trial.tensor_names() == sorted(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert same(trial.tensor(name).value(1), tensor), name


def test_other_objects_are_left_out_by_name(tmp_path):
    torch.save({"w": torch.ones(2), "array": np.ones(2)}, tmp_path / "step_1.pt")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        torch.load(tmp_path / "step_1.pt", weights_only=True)
    trial = smdwidgets.create_trial(tmp_path)
    [(_, message)] = trial.problems()
    assert "left out: array (numpy" in message
    assert trial.tensor_names() == ["w"]


def test_optimizer_is_read_beside_a_model_and_other_state_is_not(tmp_path):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    saved = {
        "net": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 4,
    }
    torch.save(saved, tmp_path / "best.ckpt")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.problems() == []
    assert trial.steps() == [4]
    names = {"weight", "bias"}
    states = {f"optimizer/0/{name}/{key}" for name in names for key in ("exp_avg", "exp_avg_sq", "step")}
    assert set(trial.tensor_names()) == names | states
    for key in ("exp_avg", "exp_avg_sq"):
        assert same(trial.tensor(f"optimizer/0/weight/{key}").value(4), optimizer.state[model.weight][key]), key
