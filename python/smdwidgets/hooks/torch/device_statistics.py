"""Statistics of a tensor on a GPU, in one pass over its elements.

Each program of the kernel reads a part of the tensor and writes one row of sums in double precision. Only these rows
are copied to the host, where the writer's thread adds them up. The kernels are compiled by Triton, which PyTorch brings
along where it supports GPUs.

The change of a parameter is that of up to 65,536 of its elements, scaled: a copy of the whole parameter would take as
much memory on the GPU as the model.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from smdwidgets.hooks.torch.copying import is_in_memory
from smdwidgets.hooks.torch.device import Described, Sample

__all__ = ["describe", "is_dense"]

#: Types of elements that single precision holds exactly.
_DTYPES = frozenset([torch.float16, torch.bfloat16, torch.float32])
#: Numbers of a row: four counts, extremes, and sums of the elements, of their magnitudes and of their squares.
_NUMBERS = 9
#: Elements that a program reads at once, and most programs of a tensor.
_BLOCK, _PROGRAMS = 1024, 396
#: Eight elements a thread: with twice as many, its sums do not fit into registers. A sum may be
#: fused with the square before it, which Triton asks for in words.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}
#: Most elements of one launch, so that places are numbers of 32 bits.
_LAUNCH = 1 << 30
_INFINITY = tl.constexpr(float("inf"))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sum(values, rows, count, BLOCK: tl.constexpr, NUMBERS: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    """Write a row of numbers of every ``num_programs``-th block."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    nan = tl.zeros([BLOCK], tl.int32)
    below, above, zeros = nan, nan, nan
    low = tl.full([BLOCK], _INFINITY, tl.float32)
    high = -low
    total = tl.zeros([BLOCK], tl.float64)
    magnitudes, squares = total, total
    for begin in range(program * BLOCK, count, tl.num_programs(0) * BLOCK):
        inside = begin + lanes < count
        value = tl.load(values + begin + lanes, mask=inside, other=0.0).to(tl.float32)
        finite = inside & (tl.abs(value) < _INFINITY)
        nan += (inside & (value != value)).to(tl.int32)
        below += (inside & (value == -_INFINITY)).to(tl.int32)
        above += (inside & (value == _INFINITY)).to(tl.int32)
        zeros += (inside & (value == 0)).to(tl.int32)
        low = tl.minimum(low, tl.where(finite, value, _INFINITY))
        high = tl.maximum(high, tl.where(finite, value, -_INFINITY))
        wide = tl.where(finite, value, 0.0).to(tl.float64)
        total += wide
        magnitudes += tl.abs(wide)
        squares += wide * wide
    row = rows + program * NUMBERS
    tl.store(row, tl.sum(nan).to(tl.float64))
    tl.store(row + 1, tl.sum(below).to(tl.float64))
    tl.store(row + 2, tl.sum(above).to(tl.float64))
    tl.store(row + 3, tl.sum(zeros).to(tl.float64))
    tl.store(row + 4, tl.min(low).to(tl.float64))
    tl.store(row + 5, tl.max(high).to(tl.float64))
    tl.store(row + 6, tl.sum(total))
    tl.store(row + 7, tl.sum(magnitudes))
    tl.store(row + 8, tl.sum(squares))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _change(values, before, sums, count, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    """Write sums of squares of the change of a sample, and replace the sample."""
    program = tl.program_id(0)
    lanes = program * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < count
    value = tl.load(values + lanes.to(tl.int64) * stride, mask=inside, other=0.0).to(tl.float32)
    earlier = tl.load(before + lanes, mask=inside, other=0.0)
    both = (tl.abs(value) < _INFINITY) & (tl.abs(earlier) < _INFINITY)
    difference = tl.where(both, value.to(tl.float64) - earlier.to(tl.float64), 0.0)
    tl.store(sums + program, tl.sum(difference * difference))
    tl.store(before + lanes, value, mask=inside)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills one part of memory, in any order, for the kernels."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.dtype in _DTYPES
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and is_in_memory(tensor)
        and tensor.data_ptr() % 16 == 0  # for other places, a kernel would be compiled once more
        and bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))
    )


def describe(tensor: torch.Tensor, sample: Sample | None = None) -> Described:
    """Queue the kernels for a dense tensor, and bring a sample up to date.

    Return numbers on the device, and what makes statistics of them.
    """
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    parts = [(part, min(_PROGRAMS, triton.cdiv(part.numel(), _BLOCK))) for part in flat.split(_LAUNCH)]
    rows = sum(programs for _, programs in parts)
    sampled = 0 if sample is None else sample.values.numel()
    numbers = torch.empty(rows * _NUMBERS + triton.cdiv(sampled, _BLOCK), dtype=torch.float64, device=tensor.device)
    at = 0
    for part, programs in parts:
        _sum[programs,](part, numbers[at:], part.numel(), BLOCK=_BLOCK, NUMBERS=_NUMBERS, **_OPTIONS)
        at += programs * _NUMBERS
    if sample is not None:
        programs = triton.cdiv(sampled, _BLOCK)
        _change[programs,](flat, sample.values, numbers[at:], sampled, sample.stride, BLOCK=_BLOCK, **_OPTIONS)
    scale = tensor.numel() / sampled if sample is not None and sample.is_before else None
    return numbers, functools.partial(_combined, rows=rows, count=tensor.numel(), scale=scale)


def _combined(numbers: NDArray[np.float64], rows: int, count: int, scale: float | None) -> dict[str, float]:
    """Return the statistics of a tensor, with the names of the core.

    Args:
        numbers: what the kernels have written.
        rows: number of rows of the tensor; sums of its change follow.
        count: number of elements.
        scale: elements of the tensor by those of the sample; None: there is no change.
    """
    table = numbers[: rows * _NUMBERS].reshape(rows, _NUMBERS)
    sums = table.sum(0)
    finite = count - int(sums[:3].sum())
    low, high = (float(table[:, 4].min()), float(table[:, 5].max())) if finite else (math.nan, math.nan)
    mean = float(sums[6]) / finite if finite else math.nan
    variance = float(sums[8]) / finite - mean * mean if finite else math.nan
    return {
        "count": count,
        "nan": sums[0],
        "neg_inf": sums[1],
        "pos_inf": sums[2],
        "zeros": sums[3],
        "saturated": 0,  # only types of 8 and 4 bits have these
        "subnormal": 0,
        "min": low,
        "max": high,
        "mean": mean,
        "std": math.sqrt(max(variance, 0.0)) if finite else math.nan,
        "l1": float(sums[7]),
        "l2": math.sqrt(float(sums[8])),
        "abs_max": max(abs(low), abs(high)),
        "update": math.nan if scale is None else math.sqrt(scale * float(numbers[rows * _NUMBERS :].sum())),
    }
