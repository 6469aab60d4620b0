"""Attention that one kernel computes: flex attention and packed sequences."""

from __future__ import annotations

import math
import random
import sys

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import smdwidgets
from smdwidgets.pytorch import record
from smdwidgets.signals.torch.attention import measured
from smdwidgets.signals.torch.fused import FUSED, of_attention

HEADS, SIZE = 4, 8
LENGTHS = [7, 30, 1, 12]
compiled_flex = torch.compile(flex_attention, backend="eager")


def drawn(*shape, seed=0):
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class All:
    """Chooses the first of what it may choose."""

    def randrange(self, stop):
        return 0


def starts_of(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def dense(query, key, lengths, key_lengths, window=(-1, -1), cap=0.0):
    """Return the sample of all queries, one sequence after the other."""
    logits = torch.full((HEADS, len(query), len(key)), -math.inf)
    key = key.repeat_interleave(HEADS // key.shape[1], 1)
    begin = key_begin = 0
    for length, key_length in zip(lengths, key_lengths, strict=True):
        one = torch.einsum("qhd,khd->hqk", query[begin : begin + length], key[key_begin : key_begin + key_length])
        one = one / math.sqrt(SIZE)
        one = cap * torch.tanh(one / cap) if cap else one
        distance = torch.arange(key_length) - key_length - (torch.arange(length) - length)[:, None]
        hidden = (distance < -window[0] if window[0] >= 0 else distance > key_length + length) | (
            distance > window[1] if window[1] >= 0 else distance > key_length + length
        )
        logits[:, begin : begin + length, key_begin : key_begin + key_length] = one.masked_fill(hidden, -math.inf)
        begin, key_begin = begin + length, key_begin + key_length
    return measured(logits[None], logits[None].softmax(-1))


@pytest.fixture
def every_query(monkeypatch):
    monkeypatch.setattr("smdwidgets.signals.torch.fused.QUERIES", 1 << 20)
    monkeypatch.setattr("smdwidgets.signals.torch.attention.QUERIES", 1 << 20)


def same(sample, expected):
    for one, other in zip(sample, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", [HEADS, 2])
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (5, 0), (3, 2)])
def test_packed_sequences_are_read_as_each_alone(every_query, heads, window):
    query, key = drawn(sum(LENGTHS), HEADS, SIZE), drawn(sum(LENGTHS), heads, SIZE, seed=1)
    starts, longest = starts_of(LENGTHS), sum(LENGTHS)
    expected = dense(query, key, LENGTHS, LENGTHS, window)
    args = (query, key, key, starts, starts, longest, longest)
    same(FUSED["varlen_attn"](args, {"window_size": window, "enable_gqa": True}, All()), expected)
    causal = {"causal": True} if window[1] == 0 else {}
    flash = {"window_size": (window[0], -1) if causal else window, **causal}
    same(FUSED["flash_attn_varlen_func"](args, flash, All()), expected)


def test_packed_cross_attention_is_aligned_at_the_ends(every_query):
    others = [9, 30, 4, 2]
    query, key = drawn(sum(LENGTHS), HEADS, SIZE), drawn(sum(others), HEADS, SIZE, seed=1)
    args = (query, key, key, starts_of(LENGTHS), starts_of(others), sum(LENGTHS), 30)
    sample = FUSED["flash_attn_varlen_func"](args, {"causal": True, "softcap": 5.0}, All())
    # The first queries of the last sequence see no key, and do not count.
    same(sample, dense(query, key, LENGTHS, others, (-1, 0), 5.0))
    assert float(sample[0].max()) <= 5


def test_rows_of_flash_attention_are_read(every_query):
    query, key = drawn(1, 20, HEADS, SIZE), drawn(1, 20, 2, SIZE, seed=1)
    sample = FUSED["flash_attn_func"]((query, key, key), {"causal": True, "softmax_scale": None}, All())
    same(sample, dense(query[0], key[0], [20], [20], (-1, 0)))


def test_jagged_tensors_are_read(every_query):
    parts = [drawn(length, HEADS, SIZE, seed=length) for length in LENGTHS]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    sample = of_attention((jagged, jagged, jagged), {"is_causal": True}, All())
    same(sample, dense(torch.cat(parts), torch.cat(parts), LENGTHS, LENGTHS, (-1, 0)))


def test_padding_after_the_last_sequence_is_left_out(every_query):
    query = drawn(sum(LENGTHS) + 6, HEADS, SIZE)
    query[sum(LENGTHS) :] = 100
    args = (query, query, query, starts_of(LENGTHS), starts_of(LENGTHS), 60, 60)
    real = query[: sum(LENGTHS)]
    same(FUSED["varlen_attn"](args, {}, All()), dense(real, real, LENGTHS, LENGTHS))


def test_a_long_sequence_is_sampled_near_its_queries():
    length, count = 64, 40
    query = drawn(length * count, HEADS, SIZE)
    starts = starts_of([length] * count)
    exact = dense(query, query, [length] * count, [length] * count, (-1, 0))[0]
    chance = random.Random(0)
    args = (query, query, query, starts, starts, length, length)
    samples = [FUSED["varlen_attn"](args, {"window_size": (-1, 0)}, chance)[0] for _ in range(20)]
    largest = torch.stack(samples).amax(0)
    assert (largest <= exact + 1e-4).all()
    assert (largest > 0.6 * exact).all()


@pytest.mark.parametrize("has_mask", [True, False])
def test_flex_attention_is_read_with_its_scores_and_mask(every_query, has_mask):
    rows, length = 2, 24
    query, key = drawn(rows, HEADS, length, SIZE), drawn(rows, 2, length, SIZE, seed=1)
    slopes = torch.rand(HEADS)

    def change(score, row, head, at, key_at):
        return score - slopes[head] * (at - key_at)

    def mask(row, head, at, key_at):
        return (at >= key_at) & (key_at >= row)

    kwargs = {"enable_gqa": True, "score_mod": change}
    if has_mask:
        kwargs["block_mask"] = create_block_mask(mask, rows, None, length, length, device="cpu")
    sample = FUSED["flex_attention"]((query, key, key), kwargs, All())
    at = torch.arange(length)
    logits = query @ key.repeat_interleave(2, 1).transpose(-1, -2) / math.sqrt(SIZE)
    logits = logits - slopes[:, None, None] * (at[:, None] - at)
    if has_mask:
        row = torch.arange(rows)[:, None, None, None]
        logits = logits.masked_fill(~((at[:, None] >= at) & (at >= row)), -math.inf)
    late = logits[:, :, length // 2 :]
    same(sample, measured(late, late.softmax(-1)))


class FlexAttention(nn.Module):
    """Attends by flex attention, called by its name, by another one, or compiled."""

    def __init__(self, how, cap=0.0):
        super().__init__()
        self.how, self.cap = how, cap
        self.qkv = nn.Linear(HEADS * SIZE, 3 * HEADS * SIZE)
        self.out = nn.Linear(HEADS * SIZE, HEADS * SIZE)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).detach()
        call = {"named": flex_attention, "compiled": compiled_flex}.get(self.how)
        if self.how == "module":
            call = sys.modules["torch.nn.attention.flex_attention"].flex_attention
        y = call(q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -math.inf))
        return x + self.out(y.transpose(1, 2).reshape(x.shape))  # on a CPU, gradients do not reach it


def trained(folder, how, signals=True):
    torch.manual_seed(0)
    model = nn.Sequential(FlexAttention(how), FlexAttention(how))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    hook = record(model, folder, recorder_bytes=0, signals=signals, checks=False)
    for step in range(12):
        loss = model(drawn(2, 16, HEADS * SIZE, seed=step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    hook.close()
    return smdwidgets.create_trial(folder).signals(), float(loss)


@pytest.mark.parametrize("how", ["named", "module", "compiled"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_of_a_model_is_recorded_and_changes_nothing(tmp_path, how):
    before = flex_attention, sys.modules["torch.nn.attention.flex_attention"].flex_attention, compiled_flex
    signals, loss = trained(tmp_path / "run", how)
    logits = signals.of("attention_max")
    assert [one.layer.rpartition("_")[2] for one in logits] == ["0", "1"]
    assert logits[0].values.shape[1] == HEADS
    assert (logits.values > 0).all()
    assert "attention_max" not in signals.off
    assert (flex_attention, sys.modules["torch.nn.attention.flex_attention"].flex_attention, compiled_flex) == before
    assert trained(tmp_path / "without", how, signals=False)[1] == loss


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_model_is_read_beside_another_that_is_compiled(tmp_path):
    other = nn.Linear(4, 4)
    other.compile(backend="eager")
    other(torch.randn(2, 4))
    signals, _ = trained(tmp_path / "run", "named")
    assert "attention_max" not in signals.off
    assert len(signals.of("attention_max")) == 2


@pytest.mark.parametrize("option", ["alibi_slopes", "own"])
def test_unusual_arguments_are_said(tmp_path, monkeypatch, option):
    def flash_attn_func(x, **options):
        return x * 1.0

    class OwnAttention(nn.Module):
        def forward(self, x):
            x = x.view(2, 4, 2, 2)
            return sys.modules[__name__].flash_attn_func(x, **{option: torch.ones(2)})

    monkeypatch.setattr(sys.modules[__name__], "flash_attn_func", flash_attn_func, raising=False)
    model = nn.Sequential(nn.Linear(16, 16), OwnAttention())
    hook = record(model, tmp_path / "run", recorder_bytes=0)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(40):
        model(torch.ones(2, 16)).sum().backward()
        optimizer.step()
    hook.close()
    off = smdwidgets.create_trial(tmp_path / "run").signals().off
    assert "attends by flash_attn_func, whose arguments show no logits" in off["attention_max"]
