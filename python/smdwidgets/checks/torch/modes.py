"""Checks of training and evaluation mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional
from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.layers import BATCH_NORMS, DROPOUTS, weight_of
from smdwidgets.finding import Level

__all__ = ["ModeChecks"]

#: Passes that are looked at: the first ones of a kind.
_MOST_EVALUATIONS = 64
_UPDATES_BEFORE_NORM = 3
#: Passes over batches of one iterator, without a backward pass, that are an evaluation.
_UNUSED = 3
_LOSSES = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)


class _Replaced:
    """Functions of `torch.nn.functional` that are replaced for a moment.

    They are not replaced for long, because torch.jit and torch.compile know them by identity.
    """

    def __init__(self) -> None:
        self._originals: dict[str, Callable[..., Any]] = {}

    def begin(self, seen: dict[str, Callable[..., object]]) -> None:
        """Call ``seen[name]`` with the arguments of each call of a function of this name."""
        if self._originals or torch.compiler.is_compiling():
            return
        functional = torch.nn.functional
        for name, see in seen.items():
            original = getattr(functional, name, None)
            if original is not None:
                self._originals[name] = original
                setattr(functional, name, _seen(original, see))

    def end(self) -> None:
        """Put the functions back."""
        for name, original in self._originals.items():
            setattr(torch.nn.functional, name, original)
        self._originals.clear()


def _seen(original: Callable[..., Any], see: Callable[..., object]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            see(args, kwargs)
        return original(*args, **kwargs)

    return call


class ModeChecks:
    """Checks the modes of passes and updates.

    Args:
        context: what the mechanisms share.
        guarded: wraps a function so that it never raises.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._guarded = guarded
        self._sensitive: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._replaced = _Replaced()
        self._evaluations = self._eval_passes = 0
        self._was_training = False
        self._trained_norms: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._updated: set[int] = set()
        #: Passes in training mode over the batches of one epoch, which no backward pass has followed.
        self._unused, self._epoch = 0, 0
        #: Passes without gradients in training mode of a model that classifies.
        self._judged = 0
        #: Whether the loss is that of a classifier.
        self.classifies = False

    def _parts(self, model: nn.Module) -> list[nn.Module]:
        """Return the parts of a model that differ between the modes.

        Dropout of 0 does not.
        """
        if model not in self._sensitive:
            self._sensitive[model] = [one for one in model.modules() if isinstance(one, (*BATCH_NORMS, *DROPOUTS))]
        return [one for one in self._sensitive[model] if not isinstance(one, DROPOUTS) or one.p]

    def enters(self, model: nn.Module, is_compiled: bool) -> None:
        """A model is called."""
        self._replaced.end()
        parts = self._parts(model)
        if self._context.updates < 16:
            self._frozen_norms(parts)
        if model.training or is_compiled or self._eval_passes >= _MOST_EVALUATIONS:
            return
        if not self._context.log.runs("dropout_in_eval") or self._context.log.has_fired("dropout_in_eval"):
            return
        self._eval_passes += 1
        self._replaced.begin(
            {
                "dropout": self._guarded(functools.partial(self._dropout, model)),
                "scaled_dot_product_attention": self._guarded(functools.partial(self._attention, model)),
            }
        )

    def leaves(self, model: nn.Module, batch: tuple[int, bool] | None = None) -> None:
        """A model has returned.

        ``batch``: the epoch of the data loader whose batch it got, and whether gradients were enabled then.
        """
        self._replaced.end()
        if not model.training or not any(_differs(one) for one in self._parts(model)):
            return
        self._evaluates(batch)
        if self._context.gradients:
            return
        if self._evaluations < _MOST_EVALUATIONS and not self._context.log.has_fired("eval_in_train_mode"):
            self._evaluations += 1
            see = self._guarded(self._loss_computed)

            def computed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                # Code that also backpropagates this loss would have enabled gradients. A guarded function has not.
                if not torch.is_grad_enabled():
                    see(args, kwargs)

            self._replaced.begin(dict.fromkeys(_LOSSES, computed))

    def _evaluates(self, batch: tuple[int, bool] | None) -> None:
        """A model has passed in training mode. Look whether it is evaluated."""
        context = self._context
        if not context.updates or context.log.has_fired("eval_in_train_mode"):
            return
        if context.gradients:
            if batch is not None:
                self._unused, self._epoch = self._unused + 1, batch[0]
            return
        if batch is not None and not batch[1]:  # a loader gave the batch while gradients were disabled
            context.log.say("eval_in_train_mode", context.step, need=3)
        elif self.classifies and len(list(context.models())) == 1:
            self._judged += 1
            # A teacher, or labels that a model guesses, take a pass at each update.
            if self._judged >= 2 and self._judged * 3 <= context.updates:
                context.log.say("eval_in_train_mode", context.step, level="warning")

    def epoch_begins(self, epoch: int) -> None:
        """A loader begins an epoch. Unused passes of another were an evaluation."""
        if self._unused >= _UNUSED and epoch != self._epoch:
            self._context.log.say("eval_in_train_mode", self._context.step)
        self._unused = 0

    def backward_begins(self) -> None:
        """A backward pass begins."""
        self._unused = 0

    def settle(self) -> None:
        """Another event follows: put replaced functions back."""
        self._replaced.end()

    def _loss_computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._context.updates:  # `cross_entropy` calls no other of these functions
            self._context.log.say("eval_in_train_mode", self._context.step, need=3)

    def _dropout(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        active = kwargs.get("training", args[2] if len(args) > 2 else True)
        if active and share and not model.training and not any(one.training for one in self._parts(model)):
            self._context.log.say("dropout_in_eval", self._context.step, {"what": "`F.dropout`"})

    def _attention(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        share = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        if share and not model.training and not any(one.training for one in self._parts(model)):
            self._context.log.say("dropout_in_eval", self._context.step, {"what": "The dropout of attention"})

    def _frozen_norms(self, parts: list[nn.Module]) -> None:
        """Look for frozen batch normalization whose statistics move."""
        context = self._context
        if not context.gradients:
            return
        for one in parts:
            weight = weight_of(one) if isinstance(one, BATCH_NORMS) else None
            if weight is None:
                continue
            if weight.requires_grad:
                self._trained_norms[one] = True
            elif (
                one.training
                and one.track_running_stats
                and one not in self._trained_norms
                and context.updates >= _UPDATES_BEFORE_NORM
                and self._updated
            ):
                name = context.name_of_module(one)
                context.log.say("frozen_norm_moves", context.step, {"tensor": name}, [name])

    def before_update(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""
        self._replaced.end()
        ids = {id(one) for group in optimizer.param_groups for one in group["params"]}
        models = [one for one in self._context.models() if not ids.isdisjoint(map(id, one.parameters()))]
        if not models:
            return
        self._updated |= {id(one) for one in models}
        if any(one.training for one in models):
            self._was_training = True
            self._context.log.unseen("train_in_eval_mode")
            return
        parts = [part for one in models for part in self._parts(one)]
        if parts and not any(one.training for one in parts):
            level: Level | None = None if self._was_training else "warning"
            self._context.log.say("train_in_eval_mode", self._context.step, need=3, level=level)

    def close(self) -> None:
        """Put replaced functions back."""
        self._replaced.end()
        self.epoch_begins(0)


def _differs(part: nn.Module) -> bool:
    """Whether a layer is in training mode, other than to compute its statistics again."""
    return part.training and not (isinstance(part, BATCH_NORMS) and part.momentum is None)
