"""Faults that signals of large models show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import RunData, Series
from smdwidgets.diagnosis.tensor_layers import median, median_of
from smdwidgets.finding import Curve, Evidence, Finding
from smdwidgets.signals import SIGNAL_KINDS, Signal, Signals
from smdwidgets.signals.rows import row_of

__all__ = ["signals"]

#: Attention logits that are large at so many saves in succession, and the size that is projected.
(LARGE_LOGIT, PROJECTED), SAVES = SIGNAL_KINDS["attention_max"].limits, 3
#: Growth of a logit that is none of the first ones.
GROWN = 2.0
#: Saves whose slope is projected, and how far at most, as a multiple of the steps so far.
_SLOPE, _FAR = 8, 3.0
#: Growth of the largest singular value, and the median update of matrices, that together are a fault.
GROWTH, LARGE_UPDATE = 20.0, SIGNAL_KINDS["update_ratio"].limits[0]
#: A matrix whose first singular value is below this part of the median began at zero.
_FROM_ZERO = 0.05
#: Root of squared gradients over second moments in the median of matrices, saves, and steps without a judgement.
STALE, STALE_SAVES, STALE_AFTER = SIGNAL_KINDS["stale"].limits[0], 2, 20
#: Steps over which loads are averaged; the largest load as a share of what it can be, for so many steps.
AVERAGED, COLLAPSED, COLLAPSED_STEPS = 10.0, 0.85, 15
#: The largest load that a training logs, as a share of the tokens.
LOGGED_LOAD = 0.7
#: The load of a dead expert, that of one that lived, for so many steps; saves at least.
DEAD, ALIVE, DEAD_STEPS, LEAST_SAVES = 0.05, 0.25, 25, 5
#: Fewest experts of a router whose shares are logged one by one.
FEWEST_EXPERTS = 4
_POINTS = 60

Floats = NDArray[np.float64]


def signals(data: RunData) -> Iterator[Finding]:
    """Yield what the signals of a run show."""
    yield from _logged_loads(data)
    yield from _logged_zeros(data)
    if not len(data.signals):
        return
    yield from _attention(data.signals.of("attention_max"))
    yield from _weights(data.signals)
    yield from _moments(data.signals)
    for router in data.signals.of("router_load"):
        yield from _router(router)


def lasting(holds: NDArray[np.bool_], count: int) -> int | None:
    """Return where something first holds at ``count`` places in succession.

    >>> lasting(np.array([True, False, True, True]), 2), lasting(np.array([True]), 2)
    (2, None)
    """
    run = 0
    for index, one in enumerate(holds.tolist()):
        run = run + 1 if one else 0
        if run == count:
            return index - count + 1
    return None


def _rank(worker: str) -> int:
    number = worker.rpartition("_")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


def _curve(signal: Signal, values: NDArray[np.floating], begin: int) -> Curve:
    finite = np.flatnonzero(np.isfinite(values))
    at = (
        finite[np.unique(np.linspace(0, len(finite) - 1, min(_POINTS, len(finite))).astype(int))]
        if len(finite)
        else finite
    )
    return Curve(signal.name, tuple(signal.steps[at].tolist()), tuple(values[at].astype(float).tolist()), begin)


# ----------------------------------------------------------------------------------------------------------- attention


def _attention(logits: Signals) -> Iterator[Finding]:
    grown: list[tuple[int, int, Signal]] = []
    for place, signal in enumerate(logits):
        with np.errstate(invalid="ignore"):
            at = lasting(np.any(_grown(signal.values), axis=1), SAVES)
        if at is not None:
            grown.append((int(signal.steps[at]), place, signal))
    if not grown:
        return
    grown.sort()
    first, _, signal = grown[0]
    at = int(np.searchsorted(signal.steps, first))
    head = int(np.nanargmax(np.where(np.isnan(signal.values[at]), -np.inf, signal.values[at])))
    values = signal.values[:, head].astype(np.float64)
    largest = float(np.nanmax(values))
    names = [*(one.layer for _, _, one in grown), row_of(signal, head)]
    facts = {"tensor": signal.layer, "head": head, "largest": largest, "projection": _projection(signal.steps, values)}
    evidence = [
        Evidence(
            f"head {head} of `{signal.layer}`: largest logit {values[at]:.3g} at step {first:,}",
            signal.layer,
            first,
            float(values[at]),
            LARGE_LOGIT,
            signal.worker,
            _curve(signal, values, first),
        )
    ]
    for step, _, other in grown[1:4]:
        top = float(np.nanmax(other.values))
        evidence.append(Evidence(f"largest logit up to {top:.3g}", other.layer, step, top, LARGE_LOGIT, other.worker))
    confidence = "high" if first > STALE_AFTER else "medium"
    yield Finding.of(
        "attention_logits_grow",
        "warning",
        confidence,  # type: ignore[arg-type]
        first,
        int(signal.steps[-1]),
        names,
        facts,
        evidence,
        rank=_rank(signal.worker),
    )


def _grown(values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return where logits are large and have grown, head by head.

    Those of unscaled embeddings are large from the first step on, and stay so.
    """
    finite = np.isfinite(values)
    first = values[finite.argmax(axis=0), np.arange(values.shape[1])]
    grown: NDArray[np.bool_] = (values > LARGE_LOGIT) & ((values > GROWN * np.abs(first)) | (values > PROJECTED))
    return grown


def _projection(steps: NDArray[np.int64], values: Floats) -> str:
    """Return when a growing logit reaches 100.

    It follows from the slope of the logarithm at the last saves.

    >>> _projection(np.arange(0, 80, 8), 2.0 ** np.arange(10) / 10)
    'at this rate 100 at step 79'
    >>> _projection(np.arange(3), np.array([10, 120, 200.0]))
    'above 100 since step 1'
    """
    above = np.flatnonzero(values > PROJECTED)
    if len(above):
        return f"above {PROJECTED:.0f} since step {int(steps[above[0]]):,}"
    latest = np.flatnonzero(np.isfinite(values) & (values > 0))[-_SLOPE:]
    if len(latest) >= SAVES:
        x, y = steps[latest].astype(np.float64), np.log(values[latest])
        slope, level = np.polyfit(x - x[-1], y, 1)
        last = float(x[-1])
        if slope > 0 and (ahead := (np.log(PROJECTED) - level) / slope) < _FAR * max(last, 1.0):
            return f"at this rate {PROJECTED:.0f} at step {int(last + max(ahead, 1.0)):,}"
    return "no longer growing"


# ------------------------------------------------------------------------------------------------------------- weights


def _weights(every: Signals) -> Iterator[Finding]:
    updates = {(one.layer, one.worker): one for one in every.of("update_ratio")}
    for sigma in every.of("sigma_max"):
        update = updates.get((sigma.layer, sigma.worker))
        if update is None or len(sigma) < SAVES + 1:
            continue
        start = sigma.values[0].astype(np.float64)
        with np.errstate(all="ignore"):
            usable = start > _FROM_ZERO * median(start)
            growth = np.where(usable, sigma.values / np.where(usable, start, 1), 0)
        largest = np.nanmax(growth, axis=1, initial=0)
        columns = [index for index, name in enumerate(update.names) if name in set(sigma.names)]
        _, here, there = np.intersect1d(sigma.steps, update.steps, return_indices=True)
        if not columns or not len(here):
            continue
        middle = median_of(update.values[there][:, columns].T)
        at = lasting((largest[here] > GROWTH) & (middle > LARGE_UPDATE), SAVES)
        if at is None:
            continue
        first, row = int(sigma.steps[here[at]]), int(np.argmax(growth[here[at]]))
        name = sigma.row_name(row)
        grown = float(largest[here[at]])
        facts = {"tensor": name, "growth": grown, "update": float(middle[at])}
        text = f"largest singular value {start[row]:.3g} → {float(sigma.values[here[at], row]):.3g}"
        evidence = Evidence(text, name, first, grown, GROWTH, sigma.worker, _curve(sigma, sigma.values[:, row], first))
        last, rank = int(sigma.steps[-1]), _rank(sigma.worker)
        yield Finding.of("weights_blow_up", "warning", "medium", first, last, [name], facts, [evidence], rank=rank)


def _moments(every: Signals) -> Iterator[Finding]:
    for signal in every.of("stale"):
        if signal.values.shape[1] < 2:
            continue
        middle = median_of(signal.values.T)
        at = lasting((middle > STALE) & (signal.steps >= STALE_AFTER + signal.steps[0]), STALE_SAVES)
        if at is None:
            continue
        first, ratio = int(signal.steps[at]), float(middle[at])
        row = int(np.nanargmax(signal.values[at]))
        facts = {"ratio": ratio, "count": signal.values.shape[1]}
        text = f"root of squared gradients over second moments {ratio:.2g} in the median"
        evidence = Evidence(
            text, signal.row_name(row), first, ratio, STALE, signal.worker, _curve(signal, middle, first)
        )
        names, rank = [signal.row_name(row)], _rank(signal.worker)
        yield Finding.of("second_moments_lag", "warning", "medium", first, None, names, facts, [evidence], rank=rank)


# ------------------------------------------------------------------------------------------------------------- routers


def averaged(steps: NDArray[np.int64], values: NDArray[np.floating]) -> Floats:
    """Return a running mean over steps.

    It forgets over 10 steps, however often values were saved.

    >>> averaged(np.array([0, 1]), np.array([[0.0], [1.0]])).ravel().round(2).tolist()
    [0.0, 0.1]
    """
    mean = np.empty(values.shape, np.float64)
    for index, row in enumerate(np.nan_to_num(values.astype(np.float64))):
        if not index:
            mean[0] = row
            continue
        weight = 1 - np.exp(-float(steps[index] - steps[index - 1]) / AVERAGED)
        mean[index] = mean[index - 1] + weight * (row - mean[index - 1])
    return mean


def _logged_loads(data: RunData) -> Iterator[Finding]:
    """Judge the largest load of an expert, as a share of the tokens."""
    for series in data.series:
        words = frozenset(series.words)
        numbers = [word for word in series.words[-3:] if word.isdecimal()]
        if not (_is_load(words) and (words & {"max", "maximum", "largest"} or numbers)) or len(series) < LEAST_SAVES:
            continue
        if not 0 <= series.values.min() <= series.values.max() <= 1:
            continue  # a multiple of an equal share, whose limit is unknown
        at = _since(series.steps, series.values > LOGGED_LOAD, COLLAPSED_STEPS)
        if at is None or at > len(series) // 2:
            continue
        facts = {
            "tensor": series.name,
            "expert": f"expert {numbers[-1]}" if numbers else "one expert",
            "share": float(np.median(series.values[at:])),
            "equal": from_to(series),
        }
        yield beside("experts_collapsed", "warning", (series,), facts, int(series.steps[at]))
        return


def _logged_zeros(data: RunData) -> Iterator[Finding]:
    """Judge experts whose logged share of the tokens is 0 to the end.

    Others of the same router have some.
    """
    routers: dict[tuple[str, ...], list[Series]] = {}
    for series in data.series:
        words = series.words
        if _is_load(frozenset(words)) and words[-1].isdecimal() and len(series) >= LEAST_SAVES:
            routers.setdefault(words[:-1], []).append(series)
    for experts in routers.values():
        if len(experts) < FEWEST_EXPERTS or len({len(one) for one in experts}) > 1:
            continue
        since = [_since(one.steps, one.values <= 0, DEAD_STEPS) for one in experts]
        dead = [(at, one) for at, one in zip(since, experts, strict=True) if at is not None and at <= len(one) // 2]
        if not 0 < len(dead) < len(experts):
            continue
        at, series = dead[0]
        facts = {"tensor": series.name, "expert": series.words[-1], "load": 0.0, "others": _others(len(dead))}
        yield beside("dead_experts", "warning", (series,), facts, int(series.steps[at]))
        return


def _others(dead: int) -> str:
    """Return what follows about dead experts beside the first one."""
    return f"; so do {dead - 1} other experts" if dead > 1 else ""


def _is_load(words: frozenset[str]) -> bool:
    """Whether these are words of a share of the tokens that an expert gets."""
    return bool(words & {"expert", "experts"} and words & {"load", "fraction", "share", "usage", "utilization"})


def _since(steps: NDArray[np.int64], holds: NDArray[np.bool_], duration: int) -> int | None:
    """Return the index since which something holds up to the end.

    What has ended is no fault: routers are uneven at the start of every training.
    """
    misses = np.flatnonzero(~holds)
    begin = int(misses[-1]) + 1 if len(misses) else 0
    saves = len(holds) - begin
    return begin if saves >= LEAST_SAVES and steps[-1] - steps[begin] >= duration else None


def _router(signal: Signal) -> Iterator[Finding]:
    experts = signal.values.shape[1]
    if experts < 2 or len(signal) < LEAST_SAVES:
        return
    loads = averaged(signal.steps, signal.values)
    last, rank = int(signal.steps[-1]), _rank(signal.worker)
    if signal.most is not None and signal.most > 1:
        # The largest load varies between experts from step to step, so it is taken before it is averaged.
        largest = averaged(signal.steps, signal.values.max(axis=1, keepdims=True))[:, 0]
        violation = (largest - 1) / (signal.most - 1)
        at = _since(signal.steps, violation > COLLAPSED, COLLAPSED_STEPS)
        if at is not None:
            first, expert = int(signal.steps[at]), int(np.argmax(loads[-1]))
            facts = {
                "tensor": signal.layer,
                "expert": f"expert {expert}",
                "share": float(loads[-1, expert]) / signal.most,
                "equal": f"an equal share is {1 / signal.most:.1%}",
            }
            text = f"largest load {largest[at]:.3g} times an equal share; at most {signal.most:.3g}"
            shown = Evidence(
                text, signal.layer, first, float(largest[at]), 1 + COLLAPSED * (signal.most - 1), signal.worker,
                _curve(signal, largest, first),
            )  # fmt: skip
            names = [signal.layer, row_of(signal, expert)]
            yield Finding.of("experts_collapsed", "warning", "high", first, last, names, facts, [shown], rank=rank)
    alive = np.maximum.accumulate(loads, axis=0) > ALIVE
    dead = []
    for expert in range(experts):
        at = _since(signal.steps, (loads[:, expert] < DEAD) & alive[:, expert], DEAD_STEPS)
        if at is not None:
            dead.append((int(signal.steps[at]), expert))
    if dead:
        dead.sort()
        first, expert = dead[0]
        load = float(loads[-1, expert])
        facts = {"tensor": signal.layer, "expert": expert, "load": load, "others": _others(len(dead))}
        text = f"load of expert {expert} {load:.2g} of an equal share"
        shown = Evidence(
            text, signal.layer, first, load, DEAD, signal.worker, _curve(signal, signal.values[:, expert], first)
        )
        names = [signal.layer, *(row_of(signal, one) for _, one in dead)]
        yield Finding.of("dead_experts", "warning", "high", first, last, names, facts, [shown], rank=rank)
