"""Signals of PyTorch trainings.

What is read, equal results, failures, and a blow-up that is seen before its loss moves.
"""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import smdwidgets
from smdwidgets.pytorch import Hook, record

DATA = torch.tensor([character % 64 for character in Path(torch.__file__).read_bytes()])


class Attention(nn.Module):
    """Attention by a function that was imported by name, or written out."""

    def __init__(self, width, heads, kind="sdpa"):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.seen = None

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.kind == "grouped":
            k, v = k[:, :2], v[:, :2]
        with torch.no_grad():
            every = k.repeat_interleave(self.heads // k.shape[1], 1)
            scores = (q @ every.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            self.seen = scores.masked_fill(~mask, -math.inf)
        if self.kind == "softmax":
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
            y = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
        elif self.kind == "masked":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        elif self.kind == "added":
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(length, length).masked_fill(~mask, -1e9))
        else:
            y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kind == "grouped")
        return self.proj(y.transpose(1, 2).reshape(rows, length, width))


class Experts(nn.Module):
    """A mixture of 8 experts, of which 2 are chosen."""

    def __init__(self, width):
        super().__init__()
        self.router = nn.Linear(width, 8, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(8))
        self.bias, self.balance = torch.zeros(8), 0.0

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probabilities = self.router(flat).softmax(-1)
        chosen = (probabilities + self.bias).topk(2, -1).indices
        load = torch.bincount(chosen.flatten(), minlength=8) / chosen.numel()
        self.balance = 8 * (load * probabilities.mean(0)).sum()
        weights = probabilities.gather(-1, chosen)
        total = torch.zeros_like(flat)
        for expert, layer in enumerate(self.experts):
            row, column = (chosen == expert).nonzero(as_tuple=True)
            if len(row):
                total = total.index_add(0, row, layer(flat[row]) * weights[row, column, None])
        return total.view_as(x)


class Block(nn.Module):
    def __init__(self, width, heads, kind, experts):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads, kind)
        self.other_norm = nn.LayerNorm(width)
        self.mlp = (
            Experts(width)
            if experts
            else nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.other_norm(x))


class GPT(nn.Module):
    def __init__(self, width=32, heads=4, layers=2, length=32, kind="sdpa", experts=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, kind, experts) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, 0, 0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(directory, steps=20, each=None, seed=0, rate=1e-3, **options):
    """Train a model, with a hook if there is a directory."""
    torch.manual_seed(seed)
    model = GPT(**options)
    batches = torch.Generator().manual_seed(seed)
    hook = None if directory is None else record(model, directory, recorder_bytes=0)
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.95))
    losses = []
    for step in range(steps):
        if each is not None:
            each(step, model, optimizer)
        at = torch.randint(0, len(DATA) - 33, (8,), generator=batches)
        rows = torch.stack([DATA[one : one + 33] for one in at.tolist()])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        balance = sum(block.mlp.balance for block in model.blocks) if options.get("experts") else 0.0
        optimizer.zero_grad()
        (loss + 0.02 * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    if hook is not None:
        hook.close()
    return losses, model


@pytest.mark.parametrize("kind", ["sdpa", "grouped", "masked", "added", "softmax"])
def test_attention_is_read_per_layer_and_head(tmp_path, kind):
    exact = []

    def each(step, model, optimizer):
        if step:
            exact.append([block.attention.seen for block in model.blocks])

    train(tmp_path / "run", 18, each, rate=3e-2, kind=kind)
    signals = smdwidgets.create_trial(tmp_path / "run").signals("attention_max")
    assert [one.layer for one in signals] == ["blocks.0.attention", "blocks.1.attention"]
    assert signals.values.shape[1] == 4
    assert {0, 8, 16} <= {*signals.steps.tolist()}
    entropies = smdwidgets.create_trial(tmp_path / "run").signals("attention_entropy")
    for layer, signal in enumerate(signals):
        largest = exact[16][layer].amax((0, 2, 3)).numpy()
        sampled = signal.at(16)
        assert (sampled <= largest * 1.0001).all()
        assert np.median(sampled / largest) > 0.5
        shares = exact[16][layer].softmax(-1)
        entropy = -torch.xlogy(shares, shares).sum(-1)[..., 1:] / torch.arange(2, 33).log()
        assert np.abs(entropies[layer].at(16) - entropy[:, :, 15:].mean((0, 2)).numpy()).max() < 0.1


def test_the_training_is_bit_equal_with_and_without_signals(tmp_path):
    for experts in (False, True):
        alone, model = train(None, 20, experts=experts)
        state = torch.get_rng_state()
        recorded, other = train(tmp_path / f"run{experts}", 20, experts=experts)
        assert recorded == alone
        assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
        assert torch.equal(torch.get_rng_state(), state)
        assert len(smdwidgets.create_trial(tmp_path / f"run{experts}").signals()) > 5


def test_an_open_hook_keeps_no_model_alive_whose_signals_were_read(tmp_path):
    model = GPT(experts=True)
    hook = record(model, tmp_path / "run")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(DATA[:64].view(2, 32)).square().mean().backward()
        optimizer.step()
    blocks = [weakref.ref(model), *map(weakref.ref, model.blocks)]
    del model, optimizer
    gc.collect()
    assert [one() for one in blocks] == [None] * 3
    hook.close()
    assert smdwidgets.create_trial(tmp_path / "run").signals("residual_rms")


def test_functions_of_torch_are_the_original_ones_outside_of_a_pass(tmp_path):
    originals = F.scaled_dot_product_attention, torch.softmax, torch.topk, torch.Tensor.softmax, torch.Tensor.topk
    inside = []

    class Model(GPT):
        def forward(self, tokens):
            inside.append(F.scaled_dot_product_attention)
            if len(inside) == 2:
                raise KeyError("stop")
            return super().forward(tokens)

    model = Model()
    hook = record(model, tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(10):
        try:
            model(DATA[:32][None]).sum().backward()
        except KeyError:
            continue
        optimizer.step()
        now = F.scaled_dot_product_attention, torch.softmax, torch.topk, torch.Tensor.softmax, torch.Tensor.topk
        assert now == originals
    hook.close()
    assert scaled_dot_product_attention is originals[0]
    assert "softmax" not in vars(torch.Tensor)
    assert inside[0] is not originals[0]


def test_optimizer_and_residual_stream_are_read(tmp_path):
    train(tmp_path / "run", 18)
    trial = smdwidgets.create_trial(tmp_path / "run")
    assert trial.signals().kinds == [
        "attention_max",
        "attention_entropy",
        "residual_rms",
        "residual_kurtosis",
        "log_z",
        "update_ratio",
        "stale",
        "sigma_max",
    ]
    update = trial.signals("update_ratio")[0]
    assert update.names[0] == "GPT_tokens.weight"
    weights = [index for index, name in enumerate(update.names) if name.endswith("weight")]
    assert ((update.values[:, weights] > 0) & (update.values[:, weights] < 1)).all()
    sigma = trial.signals("sigma_max")[0]
    assert all(name.endswith("weight") for name in sigma.names)
    assert np.abs(trial.signals("log_z")[0].values - math.log(64)).max() < 1
    first = trial.signals("stale")[0].values[
        0
    ]  # the moments are those of one gradient, 0 for tokens that did not occur
    assert np.median(first) == pytest.approx(1, abs=1e-3)
    assert first.max() < 1.001
    assert trial.signals("residual_rms")[0].values.shape[1] == 2


def test_the_largest_singular_value_approaches_the_exact_one(tmp_path):
    _, model = train(tmp_path / "run", 200, rate=1e-4)
    sigma = smdwidgets.create_trial(tmp_path / "run").signals("sigma_max")[0]
    by_name = {f"GPT_{name}": one for name, one in model.named_parameters()}
    exact = [float(torch.linalg.matrix_norm(by_name[name].detach(), 2)) for name in sigma.names]
    assert (np.abs(sigma.values[-1] / exact - 1) < 0.1).all()


def test_a_dead_expert_and_a_collapse_are_found_which_the_loss_does_not_show(tmp_path):
    def dies(step, model, optimizer):
        model.blocks[1].mlp.bias[3] = -10.0 if step >= 60 else 0.0

    def collapses(step, model, optimizer):
        model.blocks[0].mlp.bias[:2] = 3.0 if step >= 60 else 0.0

    for name, each, kind, layer in (
        ("dead", dies, "dead_experts", "blocks.1.mlp"),
        ("collapsed", collapses, "experts_collapsed", "blocks.0.mlp"),
        ("healthy", None, None, None),
    ):
        train(tmp_path / name, 160, each, experts=True)
        kinds = {one.kind: one for one in smdwidgets.diagnose(tmp_path / name).findings}
        if kind is None:
            assert not {*kinds} & {"dead_experts", "experts_collapsed"}
            continue
        assert kinds[kind].subject == layer
        assert 60 <= kinds[kind].first <= 110
        if kind == "dead_experts":
            assert "Expert 3" in kinds[kind].title


def test_a_model_that_should_have_signals_and_has_none_says_why(tmp_path):
    class OwnAttention(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    class MoELayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            return sum(expert(x) for expert in self.experts)

    model = nn.Sequential(OwnAttention(), MoELayer())
    hook = record(model, tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(40):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    hook.close()
    off = smdwidgets.create_trial(tmp_path / "run").signals().off
    assert "scaled_dot_product_attention" in off["attention_max"]
    assert "topk" in off["router_load"]


def test_a_fused_kernel_that_shows_no_logits_is_named(tmp_path, monkeypatch):
    class OwnAttention(nn.Module):
        def forward(self, x):
            return flash_attn_varlen_func(x, self.training)

    def flash_attn_varlen_func(x, scale):
        return x * torch.sigmoid(x) * scale

    def reason(model):
        hook = record(model, tmp_path / "run", overwrite=True, recorder_bytes=0)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(40):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        hook.close()
        return smdwidgets.create_trial(tmp_path / "run").signals().off["attention_max"]

    monkeypatch.setattr(sys.modules[__name__], "flash_attn_varlen_func", flash_attn_varlen_func, raising=False)
    assert "attends by flash_attn_varlen_func, whose arguments show no logits" in reason(
        nn.Sequential(nn.Linear(8, 8), OwnAttention())
    )
    monkeypatch.undo()
    model = nn.Sequential(nn.Linear(8, 8), OwnAttention())
    model.config = type("Config", (), {"_attn_implementation": "flash_attention_2"})()
    assert "attends by flash_attention_2" in reason(model)


def test_a_failure_is_said_and_does_not_reach_the_training(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("planted")

    monkeypatch.setattr("smdwidgets.signals.torch.fused.of_tensors", fails)
    alone, _ = train(None, 12)
    losses, _ = train(tmp_path / "run", 12)
    assert losses == alone
    signals = smdwidgets.create_trial(tmp_path / "run").signals()
    assert "planted" in signals.off["attention_max"]
    assert "residual_rms" in signals.kinds


def test_only_trainings_with_a_plan_are_read_unless_asked(tmp_path):
    for name, options, count in (
        ("plan", {}, True),
        ("no", {"signals": False}, False),
        ("all", {"save_all": True}, False),
        ("asked", {"save_all": True, "signals": True}, True),
    ):
        model = GPT()
        with Hook(tmp_path / name, **options) as hook:
            hook.register_module(model)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            model(DATA[:32][None]).sum().backward()
            optimizer.step()
        assert bool(len(smdwidgets.create_trial(tmp_path / name).signals())) is count


def test_evaluations_and_compiled_models_are_not_read(tmp_path):
    model = GPT()
    hook = record(model, tmp_path / "run")
    model.eval()
    with torch.no_grad():
        model(DATA[:32][None])
    hook.close()
    assert not (tmp_path / "run" / "signals").exists()


def test_grouped_cross_and_packed_attention_have_values():
    import random

    from smdwidgets.signals.torch.attention import of_tensors

    q, k = torch.randn(3, 8, 40, 16), torch.randn(3, 2, 77, 16)
    for mask in (None, torch.ones(40, 77, dtype=torch.bool), torch.zeros(3, 1, 1, 77), torch.zeros(3, 8, 40, 77)):
        largest, entropy = of_tensors((q, k, k, mask), {"enable_gqa": True}, random.Random(0))
        assert largest.shape == entropy.shape == (8,)
        assert largest.isfinite().all()
        assert (entropy <= 1.0001).all()
    blocked = torch.zeros(40, 77, dtype=torch.bool)
    largest, entropy = of_tensors((q, k, k, blocked), {}, random.Random(0))
    assert (largest == -math.inf).all()
    assert of_tensors((q[0], q[0], q[0]), {}, random.Random(0))[0].shape == (1,)
    assert of_tensors((q[:, :, :0], k, k), {}, random.Random(0)) is None
    one = of_tensors((q[:1, :, :1], k[:1, :, :1], k[:1, :, :1]), {}, random.Random(0))
    assert one[1].isnan().all()


def test_the_sampled_maximum_is_near_the_exact_one():
    import random

    from smdwidgets.signals.torch.attention import of_tensors

    draws = torch.Generator().manual_seed(0)
    hidden = torch.ones(128, 128, dtype=torch.bool).triu(1)
    errors = []
    for number in range(8):
        q, k = (torch.randn(8, 4, 128, 16, generator=draws) for _ in range(2))
        q = q * (0.3 * torch.randn(8, 4, 128, 1, generator=draws)).exp()  # as trained models have
        exact = (q @ k.transpose(-1, -2) / 4).masked_fill(hidden, -math.inf).amax((0, 2, 3))
        for options in ({"is_causal": True}, {"attn_mask": ~hidden}):
            sampled = of_tensors((q, k, k), options, random.Random(number))[0]
            assert (sampled <= exact * 1.0001).all()
            errors.append(1 - sampled / exact)
    assert float(torch.cat(errors).median()) < 0.15  # 0.35 with queries that are chosen evenly


def test_logits_with_a_sink_are_read_as_they_were_before_a_shift():
    import random

    from smdwidgets.signals.torch.attention import of_softmax

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.sinks = nn.Parameter(torch.tensor([3.0, -50.0, 0.5, 200.0]))

    module, scores = Attention(), 10 * torch.randn(2, 4, 16, 16)
    logits = torch.cat([scores, module.sinks[None, :, None, None].expand(2, -1, 16, 1)], -1)
    exact = scores[:, :, 8:].amax((0, 2, 3))
    for shift in (0.0, logits.amax(-1, keepdim=True)):
        shares = (logits - shift).softmax(-1)
        largest, entropy = of_softmax((logits - shift, -1), {}, shares, module, random.Random(0))
        assert torch.allclose(largest, exact, atol=1e-4)
        assert entropy.isfinite().all()


def loss_moves(losses):
    """Return the first step from which losses are above their best running mean."""
    means = [losses[0]]
    for loss in losses[1:]:
        means.append(means[-1] + (loss - means[-1]) / 10)
    rest = np.array(losses) - means
    for step in range(30, len(losses) - 3):
        before = rest[max(0, step - 40) : step]
        limit = max(0.15, 6 * float(np.median(np.abs(before - np.median(before)))))
        above = np.array(losses[step : step + 8]) - min(means[:step]) > limit
        if above[0] and above.sum() >= min(5, len(above)):
            return step
    return None


def test_a_blow_up_is_diagnosed_50_steps_before_the_loss_moves(tmp_path):
    def ramp(step, model, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-3 * 1000 ** (step / 150)

    losses, _ = train(tmp_path / "run", 150, ramp, width=48)
    moves = loss_moves(losses)
    assert moves is not None
    command = [sys.executable, "-m", "smdwidgets", "diagnose", str(tmp_path / "run"), "--until", str(moves - 50)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "weights_blow_up" in done.stdout or "attention_logits_grow" in done.stdout
    finding = next(one for one in smdwidgets.diagnose(tmp_path / "run").findings if one.kind == "attention_logits_grow")
    assert finding.subject.startswith("blocks.")
    assert finding.first < moves - 20


def test_signals_of_the_script_and_of_the_hook_share_a_file(tmp_path):
    model = GPT()
    hook = record(model, tmp_path / "run", recorder_bytes=0)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(20):
        hook.save_signal("router_load", "mine", torch.tensor([0.5, 1.5]), most=2)
        model(DATA[step : step + 32][None]).logsumexp(-1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        hook.save_signal("residual_rms", "mine", [float(step)])
    hook.close()
    trial = smdwidgets.create_trial(tmp_path / "run")
    assert trial.problems() == []
    for name in ("router_load/mine", "residual_rms/mine"):
        assert len(trial.signal(name)) >= 19
    assert len(trial.signals("attention_max")[0]) >= 3
    assert len(trial.signals("stale")[0]) >= 3


def test_logits_that_are_all_nan_give_no_warning(tmp_path):
    def breaks(step, model, optimizer):
        if step == 4:
            model.tokens.weight.data.fill_(math.nan)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tmp_path / "run", 12, breaks)
    assert not [one for one in caught if issubclass(one.category, RuntimeWarning)]
    logits = smdwidgets.create_trial(tmp_path / "run").signals("attention_max")
    assert np.isnan(logits.values[:, :, -1]).all()


def test_weights_that_explode_give_no_warning():
    from smdwidgets.signals.torch.optimizers import OptimizerHealth

    weight, other = nn.Parameter(torch.full((20, 20), 1e30)), nn.Parameter(torch.ones(20, 20))
    weight.grad, other.grad = torch.full((20, 20), 1e30), torch.ones(20, 20)
    optimizer, health = torch.optim.Adam([weight, other], 0.1), OptimizerHealth()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert health.is_due(1)
        health.before(optimizer)
        optimizer.step()
        measured = health.after(optimizer)
    assert measured["update_ratio"][1][1] == pytest.approx(0.1)
    assert measured["stale"][1][1] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_trainings_give_no_finding(tmp_path, seed):
    train(tmp_path / "run", 80, seed=seed, rate=(1e-3, 3e-3, 6e-3)[seed])
    kinds = {one.kind for one in smdwidgets.diagnose(tmp_path / "run").listed}
    assert not kinds & {"attention_logits_grow", "weights_blow_up", "second_moments_lag"}


@pytest.fixture
def read_updates():
    """Return a function that makes updates, and counts the signals that it writes."""
    from smdwidgets.signals.file import SignalWriter
    from smdwidgets.signals.torch.session import TorchSignals

    def read_updates(updates, seconds):
        read = []
        torch.manual_seed(0)
        model = nn.Linear(16, 16)
        signals = TorchSignals(
            SignalWriter(lambda lines: read.append(lines.count(b'"values"'))),
            lambda: 0,
            lambda module: "model",
            list,
            lambda: 1,
            lambda module: False,
            lambda: False,
            seconds,
        )
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(updates):
            signals.enters(model, ())
            model(torch.ones(2, 16)).sum().backward()
            signals.leaves(model, None)
            signals.before_update(optimizer)
            optimizer.step()
            signals.after_update(optimizer)
        signals.close()
        return sum(read)

    return read_updates


def test_reading_that_costs_too_much_becomes_rarer(read_updates):
    clock = iter(range(10**9))  # every look at the clock takes a second
    assert 2 <= read_updates(256, lambda: float(next(clock))) <= 12


def test_the_start_of_short_updates_ends_though_reading_has_taken_little_time(read_updates):
    first, later = (read_updates(updates, lambda: 0.0) for updates in (256, 768))
    assert first >= 100
    assert (later - first) / first < 0.6  # every 8th of twice as many updates
