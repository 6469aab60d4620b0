"""Events of a PyTorch training for which PyTorch has no hooks.

They are backward passes, losses of evaluations, gradient clipping, loss scaling, schedules and batches. The functions
are wrapped while a hook listens. A wrapper calls the original with the same arguments and returns its result.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.nn import functional
from torch.nn.utils import clip_grad
from torch.optim import lr_scheduler
from torch.utils.data import dataloader

from smdwidgets.checks.torch.worker_states import NUMBERS, StateDigests
from smdwidgets.hooks.torch.untraced import untraced
from smdwidgets.replay.torch import rows

__all__ = ["Listener", "listen"]

Listener = Mapping[str, Callable[..., object]]
"""Callbacks by event:

* ``backward_begins(tensors)`` and ``backward_ends()``;
* ``evaluated(function, value, args, kwargs)``: a loss function of PyTorch was called, and its result has no gradient;
* ``clips(parameters)`` and ``clipped(parameters, norm)``: with the norm before clipping;
* ``scaled(result, loss)``: a GradScaler has multiplied a loss;
* ``scaler_begins(optimizer)`` and ``scaler_ends(optimizer)``: a GradScaler steps an optimizer, or skips it;
* ``scales(scaler)``: a GradScaler is about to scale a loss;
* ``schedule_steps(schedule, metric)``: a learning rate schedule is about to step, by a metric if it follows one;
* ``batch(iterator, batch, states)``: a data loader has given a batch, with digests of the random states of its workers;
* ``delivered(iterator, batch, rows)``: a data loader has given a batch, which has these rows of the data set;
* ``exhausted(iterator)``: a data loader has no more batches;
* ``tensor_hooked()``: a hook is registered on a tensor;
* ``loads(module, state, strict)``: weights are about to be loaded into a module.
"""

#: Loss functions of `torch.nn.functional`, which the loss modules call, too.
_LOSS_FUNCTIONS = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
#: Makes the wrapper of a function.
_Make = Callable[[Callable[..., Any]], Callable[..., Any]]
#: The attribute of a loader's iterator with the digests of the random states of its workers.
_STATES = "_smdwidgets_states"

_listeners: tuple[Listener, ...] = ()
_lock = threading.Lock()


class Handle:
    """Ends listening."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def remove(self) -> None:
        """Stop listening. A wrapper that tells nobody anything is removed."""
        global _listeners
        with _lock:
            _listeners = tuple(one for one in _listeners if one is not self._listener)
            events = {event for listener in _listeners for event in listener}
            for wrapper in _WRAPPERS:
                if wrapper.events.isdisjoint(events):
                    wrapper.remove()


def listen(listener: Listener) -> Handle:
    """Call these callbacks from now on. They must not raise."""
    global _listeners
    with _lock:
        for wrapper in _WRAPPERS:
            if not wrapper.events.isdisjoint(listener):
                wrapper.install()
        _listeners = (*_listeners, listener)
    return Handle(listener)


@untraced
def _tell(event: str, *args: object) -> None:
    for listener in _listeners:
        callback = listener.get(event)
        if callback is not None:
            callback(*args)


class _Wrapper:
    """A function that is replaced while a hook listens to its events.

    Args:
        find: returns the module or class; None if it was not imported.
        name: name of the function.
        make: makes the wrapper.
        events: what the wrapper tells.
    """

    def __init__(self, find: Callable[[], Any], name: str, make: _Make, *events: str) -> None:
        self.events = frozenset(events)
        self._find = find
        self._owner: Any = None
        self._name = name
        self._make = make
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def install(self) -> None:
        self._owner = self._find()
        original = None if self._owner is None else vars(self._owner).get(self._name)
        if callable(original) and original is not self._wrapper:  # absent in another release of torch
            self._original = original
            self._wrapper = functools.wraps(original)(self._make(original))
            setattr(self._owner, self._name, self._wrapper)

    def remove(self) -> None:
        # Where another library has wrapped the wrapper, it stays and does nothing.
        if self._wrapper is not None and vars(self._owner).get(self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)
            self._wrapper = None


def _left_out_of_graphs(make: _Make) -> _Make:
    """Have torch.compile leave a wrapper out.

    The graph is then the one without a hook.
    """

    def make_both(original: Callable[..., Any]) -> Callable[..., Any]:
        wrapper = make(original)

        def call(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if torch.compiler.is_compiling() else wrapper(*args, **kwargs)

        return call

    return make_both


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    # No graph contains a backward pass. torch.compile would trace a frame that is called between two graphs.
    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator, unused-ignore]
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("backward_begins", tensors)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            _tell("backward_ends")

    return cast(Callable[..., Any], backward)


@_left_out_of_graphs
def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of a loss function.

    The loss of a training is known from its backward pass.
    """
    name = original.__name__

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        # The outputs may be computed without gradients, and their loss after that.
        if isinstance(result, torch.Tensor) and not (torch.is_grad_enabled() and result.requires_grad):
            _tell("evaluated", name, result, args, kwargs)
        return result

    return evaluate


def _scripted_as_original(make: _Make) -> _Make:
    """Have TorchScript compile the original function in place of its wrapper."""

    def make_hidden(original: Callable[..., Any]) -> Callable[..., Any]:
        wrapper = make(original)
        wrapper.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
        return wrapper

    return make_hidden


@_left_out_of_graphs
def _clip_with_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `_clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)`.

    All gradient clipping by norm calls this function.
    """
    names = [*inspect.signature(original).parameters]
    places = {name: names.index(name) if name in names else len(names) for name in ("parameters", "total_norm")}

    def clip(*args: Any, **kwargs: Any) -> Any:
        # To bind the arguments by the signature would take longer than all else that is done here.
        try:
            parameters, norm = (args[place] if place < len(args) else kwargs[name] for name, place in places.items())
        except KeyError:
            return original(*args, **kwargs)
        _tell("clips", parameters)
        result = original(*args, **kwargs)
        _tell("clipped", parameters, norm)
        return result

    return clip


@_left_out_of_graphs
def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `clip_grad_norm_` and `clip_grad_value_`.

    For releases and calls that do not go through `_clip_grads_with_norm_`.
    """

    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)  # it may be a generator
        _tell("clips", parameters)
        result = original(parameters, *args, **kwargs)
        _tell("clipped", parameters, result)
        return result

    return clip


@_left_out_of_graphs
def _clip_flat(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `FullyShardedDataParallel.clip_grad_norm_`."""

    def clip(self: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(self.parameters())
        _tell("clips", parameters)
        result = original(self, *args, **kwargs)
        _tell("clipped", parameters, result)
        return result

    return clip


@_left_out_of_graphs
def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("scales", self)
        result = original(self, outputs, *args, **kwargs)
        if isinstance(outputs, torch.Tensor) and result is not outputs:
            _tell("scaled", result, outputs)
        return result

    return scale


@_left_out_of_graphs
def _scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("scaler_begins", optimizer)
        result = original(self, optimizer, *args, **kwargs)
        _tell("scaler_ends", optimizer)
        return result

    return step


def _schedule(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("schedule_steps", self, args[0] if args else kwargs.get("metrics"))
        return original(self, *args, **kwargs)

    return step


def _next_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def next_batch(self: Any) -> Any:
        try:
            batch = original(self)
        except StopIteration:
            _tell("exhausted", self)
            raise
        _tell("batch", self, batch, self.__dict__.get(_STATES))
        if any("delivered" in listener for listener in _listeners):
            try:
                of_batch = rows.rows_of(self, batch)  # once: the indices are taken from the iterator
            except Exception:
                of_batch = None
            _tell("delivered", self, batch, of_batch)
        return batch

    return next_batch


def _begin_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of the constructor of a loader's iterator, which starts its workers."""

    def begin(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        states, init_function = None, getattr(loader, "worker_init_fn", None)
        try:
            # Other start methods pickle the function, and import its module in the workers.
            if loader.num_workers > 1 and _start_method(loader) == "fork":
                states = multiprocessing.RawArray("q", NUMBERS * loader.num_workers)
                loader.worker_init_fn = StateDigests(init_function, states)
        except Exception:
            states = None
        try:
            original(self, loader, *args, **kwargs)
        finally:
            if states is not None:
                loader.worker_init_fn = init_function
        if states is not None:
            self.__dict__[_STATES] = states

    return begin


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    method = (multiprocessing if context is None else context).get_start_method(allow_none=True)
    return str(method or multiprocessing.get_all_start_methods()[0])


def _register_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    def register_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            _tell("tensor_hooked")
        return original(self, *args, **kwargs)

    return register_hook


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load_state_dict(self: Any, state_dict: Any, strict: bool = True, *args: Any, **kwargs: Any) -> Any:
        _tell("loads", self, state_dict, strict)
        return original(self, state_dict, strict, *args, **kwargs)

    return load_state_dict


def _wrappers() -> list[_Wrapper]:
    def scaler() -> Any:
        return torch.amp.GradScaler

    def flat() -> Any:
        return getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)

    def iterator() -> Any:
        return getattr(dataloader, "_BaseDataLoaderIter", None)

    def iterator_of_workers() -> Any:
        return getattr(dataloader, "_MultiProcessingDataLoaderIter", None)

    clips = ("clips", "clipped")
    found = [
        _Wrapper(lambda: torch.autograd, "backward", _backward, "backward_begins", "backward_ends"),
        _Wrapper(scaler, "scale", _scale, "scales", "scaled"),
        _Wrapper(scaler, "step", _scaler_step, "scaler_begins", "scaler_ends"),
        _Wrapper(lambda: clip_grad, "clip_grad_value_", _clip, *clips),
        _Wrapper(lambda: torch.nn.utils, "clip_grad_value_", _clip, *clips),
        _Wrapper(flat, "clip_grad_norm_", _clip_flat, *clips),
        _Wrapper(iterator, "__next__", _next_batch, "batch", "delivered", "exhausted"),
        _Wrapper(iterator, "_next_index", rows.next_index, "delivered"),
        _Wrapper(iterator_of_workers, "__init__", _begin_workers, "batch"),
        _Wrapper(iterator_of_workers, "_get_data", rows.get_data, "delivered"),
        _Wrapper(iterator_of_workers, "_process_data", rows.process_data, "delivered"),
        _Wrapper(lambda: lr_scheduler.LRScheduler, "step", _schedule, "schedule_steps"),
        _Wrapper(lambda: lr_scheduler.ReduceLROnPlateau, "step", _schedule, "schedule_steps"),
        _Wrapper(lambda: torch.nn.Module, "load_state_dict", _load, "loads"),
        _Wrapper(lambda: torch.Tensor, "register_hook", _register_hook, "tensor_hooked"),
    ]
    found += [
        _Wrapper(lambda: functional, name, _scripted_as_original(_evaluate), "evaluated") for name in _LOSS_FUNCTIONS
    ]
    if hasattr(clip_grad, "_clip_grads_with_norm_"):
        # `clip_grad_norm_` looks this function up at each call, so that scripts which imported `clip_grad_norm_` by
        # name are seen.
        found.append(_Wrapper(lambda: clip_grad, "_clip_grads_with_norm_", _clip_with_norm, *clips))
    else:
        found += [
            _Wrapper(lambda: clip_grad, "clip_grad_norm_", _clip, *clips),
            _Wrapper(lambda: torch.nn.utils, "clip_grad_norm_", _clip, *clips),
        ]
    return found


_WRAPPERS = _wrappers()
