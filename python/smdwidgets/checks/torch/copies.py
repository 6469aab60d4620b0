"""Checks of copies of a model that no optimizer has."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import REGRESSION, LossCall, is_chosen
from smdwidgets.checks.torch.layers import BATCH_NORMS
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["CopyChecks", "Watch", "living"]

#: The update after which copies are looked for, how many are followed, and elements of a tensor that are read.
_LOOK, _COPIES, _ELEMENTS = 2, 4, 97
#: Looks at which an average must have moved, the share of the way of the model that is too little, and the distance of
#: the model from its beginning, relative to its weights.
_MOVES, _SLOW, _FAR = 3, 0.2, 0.2
#: Updates between two looks at the copies, and in which a target network is updated at least once.
_EVERY, _UPDATES = 64, 500
#: Updates in succession by which an average is recognized, how exactly, and a decay that averages nothing.
_FOLLOWED, _EXACTLY, _REVERSED = 4, 1e-3, 0.25
#: Decay from which on a model is not moved to its copy.
_NO_PULL = 0.99999
#: Updates between two evaluations at least, and evaluations that repeat the one before.
_APART, _REPEATS = 10, 3


@dataclass
class _Copy:
    """A copy, the model that is trained, and what was read of both.

    Attributes:
        copy: the copy.
        model: the model.
        first: samples of a weight and of running statistics of the copy, then those of the model, at the first look.
        unmoved: number of updates until the last look at which the copy had its first weights and the model had not.
        last: the sample of the weight of the copy at the last look.
        norms: running statistics of the copy and of the model, which are read when a function has returned and given
            up both.
        is_average: whether the weights of both had moved at the last look.
        moves: number of looks at which the copy had moved since the look before, in succession.
        name: name of the class of both.
        slow: what is said of an average that has made too little way, at the last look.
        early: samples of the weight of the copy and of the model after the update before, at the first updates.
        decays: decays by which the copy has followed the model, of successive updates.
        pulls: decays by which the model has moved to the copy between successive updates.
        is_used: whether the copy was called.
        called: the number of updates at the last call of the copy without gradients; -1: it was not called.
        at_call: samples of the weight and of the input of the copy at that call.
        repeats: number of evaluations that repeat the one before.
        watch: the callback of its calls, while they may be such evaluations.
    """

    copy: weakref.ref[nn.Module]
    model: weakref.ref[nn.Module]
    first: tuple[Any, ...]
    norms: tuple[torch.Tensor, ...] = ()
    is_average: bool = False
    unmoved: int = 0
    last: Any = None
    moves: int = 0
    name: str = ""
    slow: dict[str, Any] | None = None
    early: tuple[Any, ...] = ()
    decays: list[float] = field(default_factory=list)
    pulls: list[float] = field(default_factory=list)
    is_used: bool = False
    called: int = -1
    at_call: tuple[Any, ...] = ()
    repeats: int = 0
    watch: Any = None


class Watch:
    """Called before or after a module computes.

    A copy of the callback is empty, and it does not keep the checks.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object] | None = None) -> None:
        self._call = None if call is None else weakref.WeakMethod(call)

    def __call__(self, module: nn.Module, *values: Any) -> None:
        """Call what was given, outside of compiled and traced code."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or self._call is None:
            return
        if (call := self._call()) is not None:
            call(module, *values)

    def __deepcopy__(self, memo: object) -> Watch:
        return Watch()

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return Watch, ()


class CopyChecks:
    """Follows copies of a trained model: modules with the same parameters.

    Args:
        context: what the mechanisms share.
        guarded: returns a function that calls another one and does not raise.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._guarded = guarded
        self._copies: list[_Copy] = []
        #: Whether the loss takes one output of each row, as of the action that was chosen.
        self._chooses = False

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        self._chooses = self._chooses or (call.kind in REGRESSION and is_chosen(call.before))

    def before_update(self) -> None:
        """An update begins.

        Find the decay by which a model was moved to its copy since the update before, which stays where it was.
        """
        if self._context.updates > _LOOK + _FOLLOWED + 1:
            return
        for pair in self._copies:
            name, samples, updates = *_weights(pair), self._context.updates

            def judge(*now: Any, pair: _Copy = pair, name: str = name, updates: int = updates) -> None:
                stays = bool(pair.early) and np.array_equal(pair.early[0], now[0])
                decay = _decay(pair.early[::-1], now[::-1]) if stays else None
                pair.pulls = [] if decay is None or decay > _NO_PULL else [*pair.pulls, decay]
                # Weights that are held near earlier ones on purpose are not those of a copy that is called.
                if len(pair.pulls) >= _FOLLOWED and pair.is_used:
                    what = f"after {updates} updates, each of which has moved the model to it"
                    facts = {"model": name, "what": f"{what}: the average is written into the model"}
                    self._context.log.say("average_never_moves", self._context.step, facts, [name])

            if samples:
                self._context.values.read(judge, *samples)

    def after_update(self) -> None:
        """An update has ended."""
        updates = self._context.updates
        if updates == _LOOK:
            self._find()
        elif self._copies and updates % _EVERY == 0:
            self._read(is_last=False)
        if updates <= _LOOK + _FOLLOWED + 1:
            self._follow()

    def _follow(self) -> None:
        """Find the decay by which copies follow their models from update to update."""
        for pair in self._copies:
            name, samples, step = *_weights(pair), self._context.step

            def judge(*now: Any, pair: _Copy = pair, name: str = name, step: int = step) -> None:
                before, pair.early = pair.early, now
                decay = _decay(before, now) if before else None
                pair.decays = [] if decay is None else [*pair.decays, decay]
                if len(pair.decays) >= _FOLLOWED and 0 < max(pair.decays) < _REVERSED:
                    facts = {"model": name, "share": f"{1 - pair.decays[-1]:.4g}"}
                    self._context.log.say("average_reversed", step, facts, [name])

            if samples:
                self._context.values.read(judge, *samples)

    def _find(self) -> None:
        """Find the copies, which only the garbage collector knows."""
        models = list(self._context.models())
        own = {id(part) for model in models for part in model.modules()}
        by_shapes: dict[Any, list[nn.Module]] = {}
        for model in models:
            by_shapes.setdefault(_shapes(model), []).append(model)
        if not by_shapes or not (self._context.log.runs("statistics_not_averaged") or self._chooses):
            return
        held = self._context.held()
        for one in living(nn.Module):
            if len(self._copies) >= _COPIES:
                break
            if id(one) in own or not getattr(one, "_modules", None):
                continue
            alike = [model for model in by_shapes.get(_shapes(one), ()) if type(one) is type(model)]
            if not alike or any(id(each) in held for each in one.parameters()):
                continue
            # One of several critics has its copy, which is still near it.
            model = alike[0] if len(alike) == 1 else min(alike, key=partial(_distance, one))
            pair = _Copy(weakref.ref(one), weakref.ref(model), ())
            samples = _samples(one, model)
            if samples:
                pair.norms = _norms(one, model)
                self._copies.append(pair)
                if self._context.log.runs("average_never_moves"):
                    pair.watch = one.register_forward_pre_hook(Watch(self._enters))
                self._context.values.read(lambda *values, pair=pair: setattr(pair, "first", values), *samples)

    def _enters(self, copy: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A copy is called."""
        is_evaluation = not torch.is_grad_enabled()
        self._guarded(self._called)(copy, inputs, is_evaluation)

    def _called(self, copy: nn.Module, inputs: tuple[Any, ...], is_evaluation: bool) -> None:
        """Look whether an evaluation of a copy repeats the one before."""
        pair = next((one for one in self._copies if one.copy() is copy), None)
        if pair is not None:
            pair.is_used = True
        updates, model = self._context.updates, pair.model() if pair is not None else None
        if pair is None or pair.called == updates:  # another batch of the same evaluation
            return
        tensors = [one for one in inputs if is_plain(one)]
        weights = _samples(copy, model)[:1] if model is not None else []
        if not is_evaluation or not tensors or not weights or (pair.called >= 0 and updates - pair.called < _APART):
            _unwatch(pair)  # it takes part in the training
            return
        pair.called = updates

        def judge(*now: Any, pair: _Copy = pair) -> None:
            before, pair.at_call = pair.at_call, now
            if before and all(np.array_equal(one, other) for one, other in zip(before, now, strict=True)):
                pair.repeats += 1
            elif before:
                _unwatch(pair)

        self._context.values.read(judge, weights[0], sampled(tensors[0], _ELEMENTS).clone())

    def _read(self, is_last: bool) -> None:
        for pair in self._copies:
            copy, model = pair.copy(), pair.model()
            samples = _samples(copy, model) if copy is not None and model is not None else []
            if is_last and not samples and pair.is_average and pair.norms:
                samples = [sampled(one, _ELEMENTS).clone() for one in pair.norms if is_plain(one)]
                self._context.values.read(lambda *now, pair=pair: self._judge_norms(pair, now), *samples)
            elif samples and copy is not None:
                name, updates = type(copy).__name__, self._context.updates

                def judge(*now: Any, pair: _Copy = pair, name: str = name, updates: int = updates) -> None:
                    self._judge(pair, now, name, updates, is_last)

                self._context.values.read(judge, *samples)

    def _judge(self, pair: _Copy, now: tuple[Any, ...], name: str, updates: int, is_last: bool) -> None:
        same = [bool((one == other).all()) for one, other in zip(pair.first, now, strict=False)]
        if not same:
            return
        pair.name, pair.is_average = name, not same[0] and not same[1]
        pair.unmoved = updates if same[0] and not same[1] else 0
        if not is_last:
            pair.moves = pair.moves + 1 if pair.last is not None and (pair.last != now[0]).any() else 0
            pair.last = now[0]
        # A function that has returned has given up its model before the training ends.
        share = _way(pair.first, now)
        is_slow = pair.moves >= _MOVES and share is not None and share < _SLOW
        pair.slow = {"model": name, "share": f"{share:.0%}", "count": updates} if is_slow else None
        if is_last and pair.is_average:
            self._judge_norms(pair, now[2:])

    def _judge_norms(self, pair: _Copy, now: tuple[Any, ...]) -> None:
        """Compare running statistics with those of the first look."""
        same = [bool((one == other).all()) for one, other in zip(pair.first[2:], now, strict=False)]
        if same == [True, False]:
            self._context.log.say("statistics_not_averaged", self._context.step, {"model": pair.name}, [pair.name])

    def close(self) -> None:
        """The training has ended. Statistics may be computed again until then."""
        if not self._context.updates:
            return
        self._read(is_last=True)
        self._context.values.poll(wait=True)
        for pair in self._copies:
            if pair.slow is not None:
                self._context.log.say("average_too_slow", self._context.step, pair.slow, [pair.slow["model"]])
            if pair.unmoved and pair.repeats >= _REPEATS:
                what = f"after {pair.unmoved} updates, and {pair.repeats + 1} evaluations of it are equal"
                facts = {"model": pair.name, "what": what}
                self._context.log.say("average_never_moves", self._context.step, facts, [pair.name])
            _unwatch(pair)
        # One of several may be another copy, such as the first or the best model.
        unmoved = min((one.unmoved for one in self._copies), default=0)
        if self._chooses and unmoved >= _UPDATES:
            self._context.log.say("target_never_updated", self._context.step, {"count": unmoved})


def _unwatch(pair: _Copy) -> None:
    """Look no longer at calls of a copy."""
    pair.repeats = 0
    if pair.watch is not None:
        pair.watch.remove()
        pair.watch = None


def _decay(before: tuple[Any, ...], now: tuple[Any, ...]) -> float | None:
    """Return the decay of an average from one update to the next, or None.

    The copy was averaged with the weights after the earlier update.

    >>> model = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.5, 2.0])
    >>> round(_decay((np.zeros(3), model[0]), (0.9 * model[0], model[1])), 3)
    0.1
    """
    apart, left = before[0] - before[1], now[0] - before[1]
    size = float((apart**2).sum())
    decay = float((left * apart).sum()) / size if size else 0.0
    is_average = size and float(np.abs(left - decay * apart).max()) <= _EXACTLY * float(np.abs(apart).max())
    return decay if is_average and decay > 0 else None


def _way(first: tuple[Any, ...], now: tuple[Any, ...]) -> float | None:
    """Return which share of the way of the model an average has made.

    None if the model has hardly moved.
    """
    way, of_copy = now[1] - first[0], now[0] - first[0]
    length = float((way**2).sum())
    if length < (_FAR * np.abs(first[0]).max()) ** 2:
        return None
    return float((way * of_copy).sum()) / length


def living(kind: type[Any]) -> Iterator[Any]:
    """Yield all objects of a class."""
    # `isinstance` would run code of lazy objects.
    return (each for each in gc.get_objects() if issubclass(type(each), kind))


def _shapes(module: nn.Module) -> tuple[tuple[str, torch.Size], ...]:
    """Return what a copy has in common with its model."""
    return tuple((name, one.shape) for name, one in module.named_parameters())


def _distance(copy: nn.Module, model: nn.Module) -> float:
    """Return how far the weights of a copy are from those of a model."""
    samples = _samples(copy, model)[:2]
    return float((samples[0].double() - samples[1].double()).norm()) if samples else np.inf


def _weights(pair: _Copy) -> tuple[str, list[torch.Tensor]]:
    """Return the name of a copy's class, and samples of a weight.

    They are those of the copy and of its model, if both are there.
    """
    copy, model = pair.copy(), pair.model()
    return type(copy).__name__, _samples(copy, model)[:2] if copy is not None and model is not None else []


def _samples(copy: nn.Module, model: nn.Module) -> list[torch.Tensor]:
    """Return samples of a weight of both, and of statistics if they have some."""
    samples = [next((one for one in each.parameters() if one.ndim > 1), None) for each in (copy, model)]
    samples += _norms(copy, model)
    usable = [one for one in samples if one is not None and is_plain(one)]
    if len(usable) < 2 or len(usable) < len(samples) or len({one.device for one in usable}) > 1:
        return []
    return [sampled(one, _ELEMENTS).clone() for one in usable]


def _norms(copy: nn.Module, model: nn.Module) -> tuple[torch.Tensor, ...]:
    """Return running statistics of both, or none."""
    of_copy, of_model = _statistics(copy), _statistics(model)
    return () if of_copy is None or of_model is None else (of_copy, of_model)


def _statistics(model: nn.Module) -> torch.Tensor | None:
    norms = (one for one in model.modules() if isinstance(one, BATCH_NORMS))
    return next((one.running_mean for one in norms if one.running_mean is not None), None)
