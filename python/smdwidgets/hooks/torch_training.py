"""Events of a PyTorch step: passes, losses, gradients, updates.

The hook passes the events of PyTorch on; :class:`~smdwidgets.hooks.torch_steps.Steps` decides which step they belong to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.config import Collection, CollectionKeys
from smdwidgets.hooks.arrays import TensorCopy
from smdwidgets.hooks.base import Hook
from smdwidgets.hooks.lazy_norm import norm_of
from smdwidgets.hooks.losses import Losses
from smdwidgets.hooks.save_spec import SaveSpec
from smdwidgets.hooks.saving_hook import SCALAR_PREFIX
from smdwidgets.hooks.torch_optimizers import (
    PREFIX,
    Optimizers,
    exists_for,
    learning_rates,
    state_of,
    takes_closure,
)
from smdwidgets.hooks.torch_registered import RegisteredModels
from smdwidgets.hooks.torch_shards import LocalShard
from smdwidgets.hooks.torch_steps import Steps
from smdwidgets.modes import ModeKeys

__all__ = ["EVALUATIONS", "ModelHook", "TrainingLoop", "is_passive"]

EVALUATIONS = frozenset({ModeKeys.EVAL, ModeKeys.PREDICT})
#: Losses that may wait for the step that they belong to.
_MOST_PENDING = 64
_BFLOAT16_BITS = 16


def is_passive() -> bool:
    """Whether a module is called for another reason than a pass.

    Reasons are tracing, recomputation in a backward pass, and functorch.
    """
    return bool(
        torch.jit.is_tracing()
        or torch._C._current_graph_task_id() != -1
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


class ModelHook(Hook):
    """A hook with registered models, as the training loop needs it."""

    #: Whether the script has set the mode.
    _mode_is_set = False

    def __init__(self, *args: Any, step_on: str, clipped_gradients: bool, **options: Any) -> None:
        self._models = RegisteredModels()
        self._loop = TrainingLoop(self, step_on, bool(clipped_gradients))
        super().__init__(*args, **options)

    @abstractmethod
    def _begin_recording(self) -> None:
        """Begin a step: save the parameters, and listen to the tensors to save."""

    @abstractmethod
    def _is_mine(self, name: str, value: object) -> bool:
        """Whether this worker saves a tensor."""

    @abstractmethod
    def _shard(self, name: str, value: torch.Tensor) -> LocalShard | None:
        """This worker's part of a tensor, or None if it is not sharded."""

    @abstractmethod
    def _norm(self, gradients: Sequence[tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]]) -> object:
        """The l2 norm of gradients, or this worker's part of it; None if it is not known."""

    @abstractmethod
    def _wants_optimizer_state(self) -> bool:
        """Whether a collection of this step names the optimizer's state."""

    @abstractmethod
    def _follow_parts(self) -> None:
        """Listen to calls of submodules, because the script never calls the model itself."""

    @abstractmethod
    def _follow_less(self, outermost: WeakIdKeyDictionary) -> None:
        """Stop listening to submodules that other modules call."""

    def _collections_of_losses(self) -> tuple[Collection, ...]:
        return (self._configured(CollectionKeys.LOSSES),)


@dataclass(slots=True)
class _Step:
    """What is known of the step in progress."""

    #: How many tensors each name prefix has had.
    counts: dict[str, int] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    #: Losses whose ``backward()`` was called.
    observed: list[TensorCopy] = field(default_factory=list)
    #: Gradients as the backward pass left them, by name. An optimizer that uses them replaces them.
    gradients: dict[str, tuple[TensorCopy, SaveSpec]] = field(default_factory=dict)
    #: Names of the gradients that were saved before clipping.
    before_clipping: set[str] = field(default_factory=set)
    #: Ids of clipped parameters, and the norm of their gradients before.
    norms: list[tuple[frozenset[int], object]] = field(default_factory=list)


class TrainingLoop:
    """The steps of a hook's training.

    Args:
        hook: saves the tensors.
        step_on: what ends a step; see :class:`~smdwidgets.hooks.torch_steps.Steps`.
        clipped_gradients: whether gradients are saved after clipping.
    """

    def __init__(self, hook: ModelHook, step_on: str, clipped_gradients: bool) -> None:
        self._hook = hook
        self.steps = Steps(self, step_on)
        self._clipped_gradients = clipped_gradients
        self._optimizers = Optimizers()
        self._now = _Step()
        self._aside = _Step()
        #: The modules that are being called, outermost first.
        self._calls: list[nn.Module] = []
        #: Whether tensors of the pass in progress, or of the last one, are recorded.
        self.recorded = True
        self._trains_in_eval = False
        self._backward_in_eval = False
        #: Whether the script names its losses, so that `backward()` need not be observed.
        self._names_losses = False
        self._observes = False
        self._pending: list[tuple[str | None, Any]] = []
        self._unscaled: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Whether the gradients that are being clipped are sharded, and this worker's part of their norm.
        self._part_of_norm: tuple[bool, object] = (False, None)
        self._pre_hooks = 0
        #: Number of passes in training mode that belong to no step.
        self.ignored_passes = 0
        self._by_update = False
        self._begun_by_update = False
        #: Modules that were outermost in a pass, and the number of updates when submodules were followed.
        self._outermost: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._passes = 0
        self._followed_at: int | None = None
        self._can_follow = True

    # ------------------------------------------------------------------------------------------------------ recording

    def begin(self, training: bool) -> None:
        """Begin a step of the hook."""
        hook = self._hook
        if not hook._mode_is_set:
            hook.mode = ModeKeys.TRAIN if training else ModeKeys.EVAL
        self._now.losses.clear()
        self._now = _Step(losses=self._now.losses)
        self._begun_by_update, self._passes = self._by_update, 0
        hook._begin_recording()
        pending, self._pending = self._pending, []
        for name, value in pending:
            if name is not None:
                self._save_loss(name, value)
            elif training and self._by_update:
                self._observe(value)

    def end(self) -> None:
        """End the step of the hook."""
        self._flush()
        self._hook._end_step()

    def settle(self) -> None:
        """The update is done: the step is probably complete."""
        if self._hook._saving:
            self._flush()
            self._hook._write_queue.settle()

    def suspend(self) -> None:
        """Set the training step aside."""
        self._aside, self._now = self._now, _Step()
        if self.steps.complete:  # few values are still to come, after a long evaluation
            self._hook._write_queue.publish()
        self._hook._suspend_step()

    def resume(self) -> None:
        """Continue the training step."""
        self._now = self._aside
        self._hook._resume_step()

    def updates_expected(self) -> bool:
        """Whether an optimizer of the registered models exists.

        Called only if none was registered and none has stepped.
        """
        return exists_for(self._hook._models.parameters())

    def say(self, message: str) -> None:
        """Log a message once."""
        self._hook._warn_once(message, "%s", message)

    def _flush(self) -> None:
        """Queue what waited for the end of the step."""
        hook, now = self._hook, self._now
        for name, (copy, spec) in now.gradients.items():
            hook._write_queue.tensor(name, copy, spec)
        now.gradients.clear()
        observed, now.observed = now.observed, []
        if self._observes or (observed and not self._has_losses()):
            for copy in observed:
                self._observes = True
                self._queue_loss("loss", copy)
        if self.steps.has_micro_batches or now.losses.had_several:
            for name, mean in now.losses.means():
                hook._capture(name, mean)

    # --------------------------------------------------------------------------------------------------------- passes

    def enter(self, module: nn.Module) -> None:
        """A registered model is called."""
        if is_passive():
            return
        self._calls.append(module)
        if len(self._calls) > 1:
            return
        hook = self._hook
        self._outermost[module] = True
        gradients = torch.is_grad_enabled()
        if hook._mode_is_set:
            training = hook.mode not in EVALUATIONS
        else:
            training = any(root.training for _, root in hook._models.roots()) or (self._trains_in_eval and gradients)
        self._backward_in_eval = False
        self.recorded = self.steps.forward(training, gradients, hook._mode_is_set)
        self._passes += 1
        self.ignored_passes += training and not self.recorded

    def leave(self, module: nn.Module) -> None:
        """A registered model has returned, or raised."""
        if is_passive() or not self._calls:
            return
        self._calls.pop()
        if not self._calls:
            self.steps.forward_ended()

    def catch_up(self, roots: Any, unscaled: torch.Tensor | None) -> None:
        """Begin a step after its first backward pass."""
        if (
            self.steps.training is None
            and (root := next((model for _, model in self._hook._models.roots()), None)) is not None
        ):
            self.enter(root)
            self.leave(root)
        if unscaled is not None and isinstance(roots, torch.Tensor):
            self.scaled(roots, unscaled)
        self.backward_begins(roots)
        self.backward_ends()

    @property
    def takes_losses(self) -> bool:
        """Whether a loss that is computed now belongs to a step.

        That of a pass that is not recorded does not.
        """
        return self.recorded or self.steps.deferred or self.steps.training is False

    def next_index(self, prefix: str) -> int:
        """Return the index of the next tensor with this prefix in the step."""
        index = self._now.counts.get(prefix, 0)
        self._now.counts[prefix] = index + 1
        return index

    # --------------------------------------------------------------------------------------------------------- losses

    def loss(self, name: str, value: Any, averages: bool = True) -> None:
        """Save a loss that the script names.

        ``averages``: whether values of this name are of one kind.
        """
        self._names_losses = True
        self.steps.value_arrives(name)
        if self._hook._is_open:
            self._save_loss(name, value, averages)
        elif len(self._pending) < _MOST_PENDING:
            self._pending.append((name, value.detach()))

    @property
    def _saves_losses(self) -> bool:
        hook = self._hook
        saves = hook._write_queue.writes and not hook._only_shards
        return saves and bool(hook._plan.due(hook._collections_of_losses()))

    def losses_are_named(self) -> None:
        """The script saves its losses itself.

        A loss of an evaluation is none of the training.
        """
        self._names_losses = self._names_losses or self.steps.training is not False

    def _save_loss(self, name: str, value: Any, averages: bool = True) -> None:
        hook = self._hook
        if not self._saves_losses:
            return
        try:
            copy = hook._copy(name, value)
        except Exception as error:
            hook._warn_once(f"loss {name}", "loss not saved: %s: %s", name, error)
            return
        self._queue_loss(name, copy, averages)

    def _queue_loss(self, name: str, copy: TensorCopy, averages: bool = True) -> None:
        hook = self._hook
        full = f"{name}_output_{self.next_index(f'{name}_output_')}"
        collections = hook._collections_of_losses()
        if copy.array.size == 1:
            for collection in collections:
                collection.add_tensor_name(full)
                if averages:
                    collection.add_tensor_name(f"{name}_output_mean")
            copy.complete()
            array = copy.array
            if copy.dtype == "bfloat16":
                array = (array.astype(np.uint32) << _BFLOAT16_BITS).view(np.float32)
            if averages:
                self._now.losses.add(name, array)
        hook._queue_script_tensor(full, copy, None, None, collections)

    def _has_losses(self) -> bool:
        """Whether the script names losses of the training, or a module's output is one."""
        known = self._hook.get_collection(CollectionKeys.LOSSES).tensor_names
        return self._names_losses or any(not name.startswith(SCALAR_PREFIX) for name in known)

    def _observe(self, value: torch.Tensor) -> None:
        hook = self._hook
        if self._saves_losses:
            self._now.observed.append(hook._copy("loss", value))

    def scaled(self, result: torch.Tensor, loss: torch.Tensor) -> None:
        """A GradScaler has multiplied a loss."""
        if self._observes or not self._names_losses:
            self._unscaled[result] = loss.detach()

    # ------------------------------------------------------------------------------------------------------- gradients

    def backward_begins(self, tensors: Any) -> None:
        """``backward()`` is called."""
        steps = self.steps
        steps.backward_begins()
        if steps.training is False and not self._hook._mode_is_set and torch.is_grad_enabled():
            self._backward_in_eval = True
        if self._names_losses and not self._observes:  # a loss that was observed remains a whole curve
            return
        roots = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        if not isinstance(roots, Iterable) or isinstance(roots, Mapping):
            return
        for root in roots:
            if not isinstance(root, torch.Tensor) or root.numel() != 1:
                continue
            loss = self._unscaled.get(root, root)
            if steps.is_open:
                self._observe(loss)
            elif len(self._pending) < _MOST_PENDING:
                self._pending.append((None, loss.detach()))

    def backward_ends(self) -> None:
        """``backward()`` has returned."""
        self.steps.backward_ends()

    @property
    def watches_gradients(self) -> bool:
        """Whether gradients are taken from backward passes.

        This is so if no optimizer is known to use them.
        """
        return self.steps.takes_gradients_from_backward

    def gradient(self, name: str, gradient: torch.Tensor) -> None:
        """A backward pass has added to a gradient."""
        hook = self._hook
        spec = hook._plan.spec(name)
        if spec is None or not hook._write_queue.writes or not hook._is_mine(name, gradient):
            return
        if not spec.needs_value:
            hook._capture(name, gradient)
            return
        self._drop_gradient(name)
        self._now.gradients[name] = hook._copy_for(spec, name, gradient), spec
        hook._plan.mark_captured(name)

    def _drop_gradient(self, name: str) -> None:
        copy, _ = self._now.gradients.pop(name, (None, None))
        if copy is not None and copy.slab is not None:
            self._hook._write_queue.staging.release(copy.slab)

    def clips(self, parameters: Any) -> None:
        """Gradients are about to be clipped."""
        self._part_of_norm = (False, None)
        hook = self._hook
        if not (hook._saving and self.steps.is_open):
            return
        ids = {id(one) for one in _tensors(parameters)}
        clipped = [(name, one, one.grad) for name, one in hook._models.parameters() if id(one) in ids]
        if any(hook._shard(name, one) is not None for name, one, _ in clipped):
            with torch.no_grad():
                self._part_of_norm = (True, hook._norm(clipped) if hook._write_queue.writes else None)
        if self._clipped_gradients:
            return
        for name, _, gradient in clipped:
            if gradient is not None:
                self._now.before_clipping.add(name)
                self._drop_gradient(f"gradient/{name}")
                hook._capture(f"gradient/{name}", gradient)

    def clipped(self, parameters: Any, norm: Any) -> None:
        """Gradients have been clipped by their norm."""
        if self._hook._saving and self.steps.is_open and isinstance(norm, torch.Tensor):
            # Of sharded gradients, `norm` is a DTensor, which only a collective makes whole.
            is_sharded, part = self._part_of_norm
            known = part if is_sharded else norm.detach()
            if known is not None:
                self._now.norms.append((frozenset(id(one) for one in _tensors(parameters)), known))

    # --------------------------------------------------------------------------------------------------------- updates

    def follow_parts(self) -> None:
        """Take calls of the model's submodules for passes.

        After two updates, only those remain that the script calls itself.
        """
        if self._followed_at is None:
            self._followed_at = self.steps.updates
            self._hook._follow_parts()

    def register(self, optimizer: Optimizer) -> None:
        """The script names an optimizer."""
        self._optimizers.updates(optimizer, self._hook._models.parameters(), len(self._hook._models))
        self._optimizers.label(optimizer)
        self.steps.register(id(optimizer))

    def _counts(self, optimizer: Optimizer) -> bool:
        for key in self._optimizers.deleted():
            self.steps.forget(key)
        hook = self._hook
        return self._optimizers.updates(optimizer, hook._models.parameters(), len(hook._models))

    def before_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """``optimizer.step()`` is called."""
        if not self._counts(optimizer):
            return
        self._pre_hooks += 1
        self._begin_update(optimizer)
        if self._hook._saving and self.steps.training and not takes_closure(args, kwargs):
            self._save_gradients(optimizer)

    def _begin_update(self, optimizer: Optimizer) -> None:
        if self._backward_in_eval and not self._trains_in_eval:
            self._trains_in_eval = True
            self.say(
                "the model is trained in evaluation mode (module.training is False); passes with gradients are recorded as "
                "training from now on"
            )
        self._by_update = True
        try:
            self.steps.update_begins(id(optimizer))
        finally:
            self._by_update = False

    def after_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """``optimizer.step()`` has returned."""
        if not self._counts(optimizer):
            return
        if self._hook._saving and self.steps.training:
            if takes_closure(args, kwargs):
                self._save_gradients(optimizer)
            self._save_state(optimizer)
        self._end_update(optimizer)

    def _end_update(self, optimizer: Optimizer) -> None:
        self.steps.update_ends(id(optimizer))
        if self._begun_by_update and not self._passes and self._can_follow and self._followed_at is None:
            self.follow_parts()
        elif self._followed_at is not None and self._can_follow:
            self._can_follow = self.steps.updates - self._followed_at <= 2 * self.steps.number_of_optimizers
            if not self._can_follow:
                self._hook._follow_less(self._outermost)

    def scaler_begins(self, optimizer: Any) -> None:
        """A GradScaler is about to step an optimizer."""
        self._pre_hooks = 0

    def scaler_ends(self, optimizer: Any) -> None:
        """A GradScaler has stepped the optimizer, unless gradients were infinite."""
        if self._pre_hooks or not isinstance(optimizer, Optimizer) or not self._counts(optimizer):
            return
        self._begin_update(optimizer)
        if self._hook._saving and self.steps.training:
            self._mark_skipped(optimizer)
        self._end_update(optimizer)

    def _mark_skipped(self, optimizer: Optimizer) -> None:
        """A GradScaler skips the update: the gradients, which are infinite, are not saved."""
        for name in self._names_of(optimizer).values():
            self._drop_gradient(f"gradient/{name}")
        self._hook._capture(f"{PREFIX}{self._optimizers.label(optimizer)}/skipped", 1.0)

    def _names_of(self, optimizer: Optimizer) -> dict[int, str]:
        ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {id(parameter): name for name, parameter in self._hook._models.parameters() if id(parameter) in ids}

    def _save_gradients(self, optimizer: Optimizer) -> None:
        """Save the gradients that the optimizer uses, and their norms."""
        hook = self._hook
        # A fused optimizer divides by the scale of a GradScaler itself, and skips the update itself.
        found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        if isinstance(found_inf, torch.Tensor) and bool(found_inf.item()):
            self._mark_skipped(optimizer)
            return
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        label = f"{PREFIX}{self._optimizers.label(optimizer)}/"
        norm_name = f"{label}gradient_norm"
        wants_norm = hook._plan.spec(norm_name) is not None and hook._write_queue.writes
        gradients: list[tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]] = []
        copies: list[TensorCopy | None] = []
        with torch.no_grad():
            for name, parameter in hook._models.parameters():
                if id(parameter) not in updated:
                    continue
                gradient: torch.Tensor | LocalShard | None = parameter.grad
                if gradient is not None:
                    full = f"gradient/{name}"
                    self._drop_gradient(full)
                    if scale is not None:
                        if not wants_norm and hook._plan.spec(full) is None:
                            continue
                        gradient = self._divided(full, gradient, scale)
                    # Of a shard, the position says what its part of the norm is.
                    is_whole = not isinstance(gradient, LocalShard) and hook._shard(full, gradient) is None
                    unclipped = name in self._now.before_clipping
                    copy = None if unclipped else hook._capture(full, gradient, keep=wants_norm and is_whole)
                    copies.append(copy if is_whole else None)
                gradients.append((name, parameter, gradient))
            if wants_norm:
                norm = norm_of(copies, hook._write_queue.staging) or hook._norm(gradients)
                if norm is not None:
                    hook._capture(norm_name, norm)
                for ids, before in self._now.norms:
                    if not ids.isdisjoint(updated):
                        hook._capture(f"{norm_name}_before_clipping", before)

    def _divided(self, name: str, gradient: Any, scale: torch.Tensor) -> torch.Tensor | LocalShard:
        """Return a gradient divided by the scale of a GradScaler."""
        shard = self._hook._shard(name, gradient)
        if shard is None:
            return gradient / scale.to(gradient.device)
        return replace(shard, local=shard.local / scale.to(shard.local.device))

    def _save_state(self, optimizer: Optimizer) -> None:
        """Save the learning rates, and the optimizer's state if it is wanted."""
        hook = self._hook
        label = self._optimizers.label(optimizer)
        for name, value in learning_rates(optimizer, label):
            hook._capture(name, value)
        if hook._wants_optimizer_state():
            for name, value in state_of(optimizer, label, self._names_of(optimizer)):
                hook._capture(name, value)


def _tensors(parameters: Any) -> Iterable[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else parameters
