"""Events of a PyTorch step: passes, losses, gradients, updates.

The hook passes the events of PyTorch on; :class:`~smdwidgets.hooks.torch.steps.Steps` decides which step they belong
to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets._text import shown
from smdwidgets.config import Collection, CollectionKeys
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks.capture.arrays import TensorCopy, numbers_of
from smdwidgets.hooks.capture.lazy_norm import norm_of
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.core.for_smdebug import script_imports_smdebug
from smdwidgets.hooks.core.memory import LARGEST_RECORDER
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.core.tensors import SCALAR, SCALAR_PREFIX
from smdwidgets.hooks.losses import Losses
from smdwidgets.hooks.torch.capture import GRADIENTS, NamedGradient, TorchCapture
from smdwidgets.hooks.torch.evaluation import Evaluation
from smdwidgets.hooks.torch.loss_origin import NamedNumber, RootLosses, origin_of, parts_of
from smdwidgets.hooks.torch.lost_gradients import LOST, LostGradients
from smdwidgets.hooks.torch.names import keyed_tensors_in
from smdwidgets.hooks.torch.optimizers import (
    PREFIX,
    Optimizers,
    exists_for,
    learning_rates,
    state_of,
    takes_closure,
)
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.quiet_steps import Clipped, Event, Happened, InStep, QuietSteps, Repeated, rates_of
from smdwidgets.hooks.torch.registered import RegisteredModels, Updated
from smdwidgets.hooks.torch.shards import LocalShard
from smdwidgets.hooks.torch.short_way import ShortWay
from smdwidgets.hooks.torch.steps import Steps
from smdwidgets.hooks.torch.whole_norm import NormParts, WholeNorm
from smdwidgets.modes import ModeKeys

__all__ = ["AS_SMDEBUG", "EVALUATIONS", "Listeners", "TorchOptions", "TrainingLoop"]

#: The value of ``step_on`` with which steps are numbered as smdebug does.
AS_SMDEBUG = "smdebug"
EVALUATIONS = frozenset({ModeKeys.EVAL, ModeKeys.PREDICT})
#: Losses that may wait for the step that they belong to.
_MOST_PENDING = 64


@dataclass(frozen=True, kw_only=True)
class TorchOptions(HookOptions):
    """The options of the PyTorch hook, which documents them."""

    step_on: str = "auto"
    clipped_gradients: bool = True
    replay: Any = "ids"
    signals: bool | None = None

    def __post_init__(self) -> None:
        if self.recorder_bytes is None and self.replay not in (False, "ids"):
            self._set("recorder_bytes", LARGEST_RECORDER)  # states take much more than gradients
        super().__post_init__()
        if not isinstance(self.replay, bool) and self.replay not in ("auto", "ids"):
            raise SMDebugValueError(f'invalid replay {shown(self.replay)}; choose "auto", True, False or "ids"')


class Listeners(Protocol):
    """What the training loop asks of the hook."""

    def begin_recording(self) -> None:
        """Begin a step: save the parameters, and listen to the tensors to save."""

    def resume_recording(self) -> None:
        """Listen again, because a suspended step continues."""

    def follow_parts(self) -> None:
        """Listen to calls of submodules, because the script never calls the model itself."""

    def follow_less(self, outermost: WeakIdKeyDictionary) -> None:
        """Stop listening to submodules that other modules call."""


@dataclass(slots=True)
class _Step:
    """What is known of the step in progress."""

    #: How many tensors each name prefix has had.
    counts: dict[str, int] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    #: What computed each loss whose ``backward()`` was called, its divisor and its type.
    roots: list[tuple[str, float, torch.dtype]] = field(default_factory=list)
    #: Losses whose ``backward()`` was called, what computed them, and the constants that they were divided by.
    observed: list[tuple[TensorCopy, str, float]] = field(default_factory=list)
    #: What computed the losses that were observed.
    origins: set[str] = field(default_factory=set)
    #: Losses that the script computes while it evaluates.
    evaluation: Evaluation = field(default_factory=Evaluation)
    #: Number of passes of the step, while it is suspended.
    passes: int = 0
    #: Gradients as the backward pass left them, by name. An optimizer that uses them replaces them.
    gradients: dict[str, tuple[TensorCopy, SaveSpec]] = field(default_factory=dict)
    #: Names of the gradients that were saved before clipping.
    before_clipping: set[str] = field(default_factory=set)
    #: Ids of clipped parameters, and the norm of their gradients before.
    norms: list[tuple[frozenset[int], object]] = field(default_factory=list)
    #: What the norm of the gradients of all parameters is computed from.
    whole_norm: NormParts = field(default_factory=NormParts)


class TrainingLoop:
    """The steps of a training.

    Args:
        parts: the parts of the hook.
        tensors: copies tensors of PyTorch.
        models: the registered models.
        options: what a step is, and which gradients are saved.
    """

    def __init__(
        self,
        parts: Parts,
        tensors: TorchCapture,
        models: RegisteredModels,
        options: TorchOptions,
    ) -> None:
        self._guard = parts.guard
        self._plan = parts.plan
        self._tensors = tensors
        self._recorder = parts.recorder
        self._queue = parts.recorder.queue
        self._run_steps = parts.steps
        self._models = models
        #: Called when a step begins; set before the first event.
        self.listeners: Listeners
        #: Whether the script has set the mode.
        self.mode_is_set = False
        #: Whether passes are numbered in one series until the script sets a mode, as smdebug does.
        self._as_smdebug = options.step_on == AS_SMDEBUG or (
            options.step_on == "auto" and options.capture_plan is None and script_imports_smdebug()
        )
        self.steps = Steps(self, "auto" if options.step_on == AS_SMDEBUG else options.step_on)
        self._clipped_gradients = bool(options.clipped_gradients)
        self._optimizers = Optimizers()
        self._whole_norm = WholeNorm(parts, tensors, models)
        self._lost = LostGradients()
        self._now = _Step()
        self._suspended = _Step()
        #: The modules that are being called, outermost first.
        self.calls: list[nn.Module] = []
        #: Whether tensors of the pass in progress, or of the last one, are recorded.
        self.recorded = True
        self._trains_in_eval = False
        self._backward_in_eval = False
        #: Whether the script names its losses, so that `backward()` need not be observed.
        self._names_losses = False
        self._observes = False
        #: What computed losses that were observed so far.
        self._origins: set[str] = set()
        #: Whether the losses of a step's micro-batches are terms of its loss, as those of a trainer that divides them.
        self.losses_are_terms = False
        #: Losses before the step that they belong to: name or None, value, what computed it, its divisor.
        self._pending: list[tuple[str | None, Any, str, float]] = []
        self._unscaled: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Numbers that the model has returned by key, which may be parts of the loss.
        self.named: list[NamedNumber] = []
        #: The names of such parts. They are not losses that the script names.
        self._parts: set[str] = set()
        #: Whether the gradients that are being clipped are sharded, and this worker's part of their norm.
        self._part_of_norm: tuple[bool, object] = (False, None)
        self._pre_hooks = 0
        #: Takes steps that go like the one before and capture no tensor of the model.
        self.quiet = QuietSteps(parts, tensors, models, self._restore, self._mean_of)
        #: Passes events of most of these steps to nothing else.
        self.short_way = ShortWay(parts.guard, self.quiet, self)
        #: Whether a quiet step in progress is being restored, which has begun before.
        self._is_restoring = False
        #: Number of passes in training mode that belong to no step.
        self.ignored_passes = 0
        self._by_update = False
        self._begun_by_update = False
        #: Modules that were outermost in a pass, and the number of updates when submodules were followed.
        self._outermost: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._last_outermost: weakref.ref[nn.Module] | None = None
        self._passes = 0
        self._followed_at: int | None = None
        self._can_follow = True
        #: The collections of the last step that were asked for the optimizer's state, and the answer.
        self._judged: tuple[Collection, ...] | None = None
        self._saves_state = False

    def receivers(self) -> dict[str, Callable[..., None]]:
        """Return what receives the events of a training."""
        return {
            "backward_begins": self.backward_begins,
            "backward_ends": self.backward_ends,
            "evaluated": self.evaluated,
            "clips": self.clips,
            "clipped": self.clipped,
            "scaled": self.scaled,
            "scaler_begins": self.scaler_begins,
            "scaler_ends": self.scaler_ends,
            "before_update": self.before_update,
            "after_update": self.after_update,
        }

    # ------------------------------------------------------------------------------------------------------ recording

    def begin(self, training: bool) -> None:
        """Begin a step of the hook."""
        if not self.mode_is_set and not self._as_smdebug:
            self._run_steps.mode = ModeKeys.TRAIN if training else ModeKeys.EVAL
        self._now.losses.clear()
        self._now = _Step(losses=self._now.losses)
        self._begun_by_update, self._passes = self._by_update, 0
        self.quiet.step_begins(training and not self._is_restoring)
        if self._is_restoring:
            self._queue.begin((self._run_steps.step, self._run_steps.mode, self._run_steps.mode_step))
            return
        self.listeners.begin_recording()
        pending, self._pending = self._pending, []
        for name, value, origin, divisor in pending:
            if name is not None:
                self._save_loss(name, value, divisor)
            elif training and self._by_update:
                self._observe(value, origin, divisor)

    def end(self) -> None:
        """End the step of the hook."""
        if self._is_restoring:
            self._queue.end()
            return
        self._save_evaluation()
        self._flush()
        self._run_steps.end()

    def settle(self) -> None:
        """The update is done: the step is probably complete."""
        if self._plan.saving:
            self._flush()
            self._queue.settle()

    def suspend(self) -> None:
        """Suspend the training step."""
        self._now.passes = self._passes
        self._suspended, self._now = self._now, _Step()
        if self.steps.complete:  # few values are still to come, after a long evaluation
            self._queue.publish()
        self._run_steps.suspend()

    def resume(self) -> None:
        """Continue the training step."""
        self._now = self._suspended
        self._passes = self._now.passes
        self._run_steps.resume()
        self.listeners.resume_recording()

    def forget_next_pass(self) -> None:
        """Forget the values that the script saved before a pass that belongs to no step."""
        self._run_steps.forget_next_pass()

    def updates_expected(self) -> bool:
        """Whether an optimizer of the registered models exists.

        Called only if none was registered and none has stepped.
        """
        return exists_for(self._models.parameters())

    def say(self, message: str) -> None:
        """Log a message once."""
        self._guard.warn_once(message, "%s", message)

    def _flush(self) -> None:
        """Queue what waited for the end of the step."""
        now = self._now
        for name, (copy, spec) in now.gradients.items():
            self._queue.tensor(name, copy, spec)
        now.gradients.clear()
        self._whole_norm.save(now.whole_norm)
        observed, now.observed = now.observed, []
        if self._observes or (observed and not self._has_losses()):
            now.origins.update(origin for _, origin, _ in observed)
            self._origins |= now.origins
            # Losses of several kinds, or of one pass, are not micro-batches of one loss: there is no mean of them.
            count = now.counts.get("loss_output_", 0) + len(observed)
            averages = len(now.origins) == 1 and (not self._passes or count <= self._passes)
            for copy, _, divisor in observed:
                self._observes = True
                self._queue_loss("loss", copy, divisor, averages)
        if self.steps.has_micro_batches or now.losses.had_several:
            for name, mean in now.losses.means(self.losses_are_terms):
                self._plan.configured(CollectionKeys.LOSSES).add_tensor_name(name)
                self._tensors.capture(name, mean)

    # --------------------------------------------------------------------------------------------------------- passes

    def enter(self, module: nn.Module) -> None:
        """A registered model is called, for a pass."""
        self.calls.append(module)
        if len(self.calls) > 1:
            return
        if not self.quiet.is_active and (noted := self.quiet.noted) is not None:
            repeated = self._repeated_by_next(noted)
            if repeated is not None:
                self.quiet.begin(repeated)
        if self.quiet.enters(module):
            return
        if self._last_outermost is None or self._last_outermost() is not module:
            self._outermost[module] = True
            self._last_outermost = weakref.ref(module)
        gradients = torch.is_grad_enabled()
        if self.mode_is_set:
            training = self._run_steps.mode not in EVALUATIONS
        else:
            training = any(root.training for _, root in self._models.roots()) or (self._trains_in_eval and gradients)
        self._backward_in_eval = False
        in_one_series = self._as_smdebug and not self.mode_is_set
        if in_one_series:
            self.steps.count_passes()
        self.recorded = self.steps.forward(training, gradients, self.mode_is_set or in_one_series)
        if self.recorded and gradients and module.training:
            self.quiet.note(Event.ENTERED, self._last_outermost)
        else:
            self.quiet.interrupt()
        self._passes += 1
        self.ignored_passes += training and not self.recorded

    def leave(self, module: nn.Module, outputs: object = None) -> None:
        """A registered model has returned, or raised."""
        if not self.calls:
            return
        self.calls.pop()
        if not self.calls:
            if not self.quiet.leaves():
                self.quiet.note(Event.LEFT)
                self.steps.forward_ended()
            self.passed(outputs)

    def passed(self, outputs: object) -> None:
        """A pass has ended."""
        self.named = [] if type(outputs) is torch.Tensor else self._numbers_of(outputs)

    def _numbers_of(self, outputs: object) -> list[NamedNumber]:
        """Return the numbers in a model's outputs that may be parts of its loss."""
        if isinstance(outputs, torch.Tensor) or not (self.recorded and torch.is_grad_enabled() and self._saves_losses):
            return []
        return [
            NamedNumber.of(key, tensor)
            for key, tensor in keyed_tensors_in(outputs)
            if key and tensor.grad_fn is not None and tensor.numel() == 1
        ]

    def catch_up(self, roots: Any, losses: RootLosses) -> None:
        """Begin a step after its first backward pass."""
        if (
            self.steps.training is None
            and (root := next((model for _, model in self._models.roots()), None)) is not None
        ):
            self.enter(root)
            self.leave(root)
        self._unscaled.update(losses)
        self.backward_begins(roots)
        self.backward_ends()

    @property
    def is_in_step(self) -> bool:
        """Whether a training step is in progress."""
        return self.quiet.is_in_step or self.steps.is_open

    @property
    def depth(self) -> int:
        """How many modules that are followed are being called, one in the other."""
        return len(self.calls)

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
        self.quiet.interrupt()
        self._names_losses = True
        is_early = self.steps.precedes(name)  # the model is called in a transform, so that no pass begins the step
        if not is_early:
            self.steps.value_arrives(name)
        if self._run_steps.is_open and not is_early:
            self._save_loss(name, value, origin_of(value)[1], averages)
        elif len(self._pending) < _MOST_PENDING:
            self._pending.append((name, value.detach(), *origin_of(value)))

    @property
    def _saves_losses(self) -> bool:
        return self._queue.writes and bool(self._plan.due((self._plan.configured(CollectionKeys.LOSSES),)))

    def losses_are_named(self) -> None:
        """The script saves its losses itself.

        A loss of an evaluation is none of the training.
        """
        self.quiet.leave()
        self._names_losses = self._names_losses or self.steps.training is not False

    def _save_loss(self, name: str, value: Any, divisor: float, averages: bool = True) -> None:
        if not self._saves_losses:
            return
        try:
            copy = self._tensors.copy_number(name, value)
        except Exception as error:
            self._guard.warn_once(f"loss {name}", "loss not saved: %s: %s", name, error)
            return
        self._queue_loss(name, copy, divisor, averages)

    def _queue_loss(self, name: str, copy: TensorCopy, divisor: float, averages: bool) -> None:
        full = f"{name}_output_{self.next_index(f'{name}_output_')}"
        collections = (self._plan.configured(CollectionKeys.LOSSES),)
        if copy.array.size == 1:
            for collection in collections:
                collection.add_tensor_name(full)
            copy.complete()
            array = numbers_of(copy)
            self._queue.attend(float(array.reshape(())))
            if averages:
                self._now.losses.add(name, array, divisor)
        self._tensors.queue_script_tensor(full, copy, None, None, collections)

    def evaluated(self, function: str, value: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """The script has computed a loss without gradients.

        While it evaluates, this is a part of the loss of the evaluation.
        """
        # A script that names its losses names those of evaluations, too.
        if self.steps.training is False and self._observes and not is_passive():
            self._now.evaluation.add(function, value, args, kwargs)

    def _save_evaluation(self) -> None:
        """Save the mean loss of an evaluation that ends.

        Its name is that of the training loss.
        """
        if self._observes and (loss := self._now.evaluation.mean(self._origins)) is not None:
            self._save_loss("loss", loss, 1.0, averages=False)

    def _has_losses(self) -> bool:
        """Whether the script names losses of the training, or a module's output is one."""
        known = self._plan.collections.get(CollectionKeys.LOSSES).tensor_names
        named = (name for name in known if name.rpartition("_output_")[0] not in self._parts)
        return self._names_losses or any(not name.startswith(SCALAR_PREFIX) for name in named)

    def _observe(self, value: torch.Tensor, origin: str, divisor: float) -> None:
        if self._saves_losses:
            self._now.observed.append((self._tensors.copy_number("loss", value), origin, divisor))

    def scaled(self, result: torch.Tensor, loss: torch.Tensor) -> None:
        """A GradScaler has multiplied a loss."""
        self.quiet.interrupt()
        if self._observes or not self._names_losses:
            self._unscaled[result] = loss.detach(), *origin_of(loss)

    # ------------------------------------------------------------------------------------------------------- gradients

    def backward_begins(self, tensors: Any) -> None:
        """``backward()`` is called."""
        steps = self.steps
        named, self.named = self.named, []
        if self.quiet.backward_begins(tensors, named):
            return
        self.quiet.note(Event.BACKWARD_BEGAN)
        steps.backward_begins()
        if steps.training is False and not self.mode_is_set and torch.is_grad_enabled():
            self._backward_in_eval = True
        if self._names_losses and not self._observes:  # a loss that was observed remains a whole curve
            return
        roots = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        if not isinstance(roots, Iterable) or isinstance(roots, Mapping):
            return
        for root in roots:
            if not isinstance(root, torch.Tensor) or root.numel() != 1:
                continue
            loss, origin, divisor = self._unscaled.get(root) or (root, *origin_of(root))
            for part in parts_of(root, named):
                self._save_part(part.name, part.value)
            if steps.is_open:
                self._now.roots.append((origin, divisor, loss.dtype))
                self._observe(loss, origin, divisor)
            elif len(self._pending) < _MOST_PENDING:
                self._pending.append((None, loss.detach(), origin, divisor))

    def _save_part(self, name: str, value: torch.Tensor) -> None:
        """Save a part of the loss as a separate series."""
        if name not in self._parts:
            if name in self._models.names.values():  # whose output has this name
                return
            self._parts.add(name)
        if self.steps.is_open:
            self._save_loss(name, value, 1.0)
        elif len(self._pending) < _MOST_PENDING:
            self._pending.append((name, value.detach(), "", 1.0))

    def backward_ends(self) -> None:
        """``backward()`` has returned."""
        if not self.quiet.backward_ends():
            self.quiet.note(Event.BACKWARD_ENDED)
            self.steps.backward_ends()
            if self.watches_gradients and self.steps.is_open:
                self._whole_norm.backward_ended(self._now.whole_norm)

    @property
    def watches_gradients(self) -> bool:
        """Whether gradients are taken from backward passes.

        This is so if no optimizer is known to use them.
        """
        return self.steps.takes_gradients_from_backward

    def gradient(self, name: str, gradient: torch.Tensor) -> None:
        """A backward pass has added to a gradient."""
        spec = self._plan.spec(name)
        if spec is None or not self._queue.writes or not self._tensors.saves(name, gradient):
            return
        if not spec.needs_value:
            self._tensors.capture(name, gradient)
            return
        self._drop_gradient(name)
        self._now.gradients[name] = self._tensors.copy_for(spec, name, gradient), spec
        self._plan.mark_captured(name)

    def _drop_gradient(self, name: str) -> None:
        copy, _ = self._now.gradients.pop(name, (None, None))
        if copy is not None and copy.slab is not None:
            self._queue.staging.release(copy.slab)

    def clips(self, parameters: Any) -> None:
        """Gradients are about to be clipped."""
        if self.quiet.clips():
            return
        self.quiet.note(Event.CLIPS)
        self._part_of_norm = (False, None)
        if not (self._plan.saving and self.steps.is_open):
            return
        ids = {id(one) for one in _tensors(parameters)}
        clipped = [(name, one, one.grad) for name, one in self._models.parameters(ids) if id(one) in ids]
        if any(self._tensors.shards.find(name, one) is not None for name, one, _ in clipped):
            with torch.no_grad():
                self._part_of_norm = (True, self._tensors.norm(clipped) if self._queue.writes else None)
        if self._clipped_gradients:
            return
        for name, _, gradient in clipped:
            if gradient is not None:
                self._now.before_clipping.add(name)
                self._drop_gradient(f"gradient/{name}")
                self._tensors.capture(f"gradient/{name}", gradient)

    def clipped(self, parameters: Any, norm: Any) -> None:
        """Gradients have been clipped; by their norm, if it is a tensor."""
        if self.quiet.clipped(parameters, norm):
            return
        clipped = Clipped.of(parameters) if isinstance(norm, torch.Tensor) else None
        self.quiet.note(Event.CLIPPED, clipped)
        if self._plan.saving and self.steps.is_open and clipped is not None:
            # Of sharded gradients, `norm` is a DTensor, which only a collective makes whole.
            is_sharded, part = self._part_of_norm
            known = part if is_sharded else norm.detach()
            if known is not None:
                self._now.norms.append((clipped.every, known))

    # --------------------------------------------------------------------------------------------------------- updates

    def follow_parts(self) -> None:
        """Take calls of the model's submodules for passes.

        After two updates, only those remain that the script calls itself.
        """
        if self._followed_at is None:
            self._followed_at = self.steps.updates
            self.listeners.follow_parts()

    def register(self, optimizer: Optimizer) -> None:
        """The script names an optimizer."""
        self._optimizers.updates(optimizer, self._models.parameters(), len(self._models))
        self._optimizers.label(optimizer)
        for key in self._optimizers.replaced_by(optimizer):
            self.steps.forget(key)  # it counts again once it steps
        self.steps.register(id(optimizer))

    def _counts(self, optimizer: Optimizer) -> bool:
        if self._optimizers.has_deleted:
            for key in self._optimizers.deleted():
                self.steps.forget(key)
                self._models.forget_optimizer(key)
        return self._optimizers.updates(optimizer, self._models.parameters(), len(self._models))

    def before_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """``optimizer.step()`` is called."""
        if self.quiet.update_begins(optimizer, args, kwargs):
            return
        if not self._counts(optimizer):
            self.steps.forget(id(optimizer))  # it was named, and may be that of a temperature
            return
        self._pre_hooks += 1
        self._begin_update(optimizer)
        if takes_closure(args, kwargs):
            self.quiet.interrupt()
        else:
            self.quiet.note(Event.UPDATE_BEGAN, weakref.ref(optimizer))
        if self._plan.saving and self.steps.training and not takes_closure(args, kwargs):
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
        self._now.whole_norm.of_backward = None

    def after_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """``optimizer.step()`` has returned."""
        if self.quiet.update_ends(optimizer):
            self.short_way.begin(optimizer)
            return
        if not self._counts(optimizer):
            return
        if self._plan.saving and self.steps.training:
            if takes_closure(args, kwargs):
                self._save_gradients(optimizer)
            self._save_state(optimizer)
        if (rates := rates_of(optimizer)) is None:
            self.quiet.interrupt()
        else:
            self.quiet.note(Event.UPDATED, len(rates))
        self._end_update(optimizer)

    def _repeated_by_next(self, noted: Sequence[Happened]) -> Repeated | None:
        """Return what the next steps have in common with the complete one.

        None: they are not expected to go like it.

        Args:
            noted: the events of the complete step.
        """
        now, capture = self._now, self._plan.capture
        kinds = [one.event for one in noted]
        if (
            capture is None
            or not (capture.plan.statistics and self._plan.is_adaptive and self._plan.saving)
            or not self.steps.is_repeatable
            or self._saves_optimizer_state()
            or (self._followed_at is not None and self._can_follow)
            or self._pending
            or not (self._observes or self._names_losses)
            or len(now.roots) != (kinds.count(Event.BACKWARD_BEGAN) if self._observes else 0)
            or len(set(now.roots)) > 1
            or (Event.CLIPS in kinds and (not self._clipped_gradients or self._part_of_norm[0]))
        ):
            return None
        optimizer: Optimizer | None = noted[kinds.index(Event.UPDATE_BEGAN)].subject()
        if optimizer is None:
            return None
        label = f"{PREFIX}{self._optimizers.label(optimizer)}/"
        updated, _ = self._models.updated_by(optimizer)
        names: list[str] = []
        for event, subject in noted:
            if event is Event.SAVED:
                names.append(subject)
            elif event is Event.UPDATE_BEGAN:
                names.append(f"{label}gradient_norm")
                clipped = [ids for ids, _ in now.norms if not ids.isdisjoint(updated.ids)]
                names += [f"{label}gradient_norm_before_clipping"] * len(clipped)
            elif event is Event.UPDATED:
                names += [f"{label}learning_rate_{index}" for index in range(subject)]
                names += [f"loss_output_{index}" for index in range(len(now.roots))]
                names += ["loss_output_mean"] * now.losses.has_mean
        root = now.roots[0] if now.roots else ("", 1.0, None)
        return Repeated(noted, names, root[:2], root[2], now.losses.has_mean)

    def _mean_of(self, losses: Sequence[TensorCopy]) -> TensorCopy | None:
        """Return the mean of the losses of a quiet step, which are the current ones then."""
        current = self._now.losses
        current.clear()
        for loss in losses:
            current.add("loss", numbers_of(loss), self.quiet.repeated.origin[1])
        if not self.quiet.repeated.has_mean:
            return None
        mean = next((mean for _, mean in current.means(self.losses_are_terms)), None)
        return None if mean is None else TensorCopy(mean, mean.dtype.name, ())

    def _restore(self, count: int, losses: Sequence[TensorCopy], is_open: bool, begun: InStep | None) -> None:
        """Bring the state of the training up to the last event of quiet steps.

        Args:
            count: number of quiet steps that are complete.
            losses: those of the last one of them.
            is_open: whether the last complete step has not ended.
            begun: what has come of the next step, if anything.
        """
        quiet, steps = self.quiet, self.steps
        steps.repeated(count, quiet.saved())
        if losses:
            self._mean_of(losses)
        if begun is None:
            if not is_open:
                steps.ended()
                self._run_steps.end()
            return
        self._is_restoring = True
        try:
            if not is_open:
                steps.ended()
            steps.forward(training=True, mode_is_set=self.mode_is_set)
        finally:
            self._is_restoring = False
        names = quiet.repeated.names
        numbers = [(names[place], quiet.copy(place, one)) for place, one in enumerate(begun.numbers)]
        for event, subject in quiet.repeated.events[: begun.count]:
            self._repeat(event, subject, begun, numbers)

    def _repeat(self, event: Event, subject: Any, begun: InStep, numbers: list[tuple[str, TensorCopy]]) -> None:
        """Bring the state up to an event of a step that was a quiet one until now.

        Args:
            event: the event.
            subject: what it is about.
            begun: what has come of the step. What belongs to the event is taken from it.
            numbers: the numbers of later events, and of this one, which are added to the step.
        """
        steps, repeated = self.steps, self.quiet.repeated
        if event is Event.ENTERED:
            if self._passes:  # the step has begun
                steps.forward(training=True, mode_is_set=self.mode_is_set)
            self._passes += 1
        elif event is Event.LEFT:
            steps.forward_ended()
        elif event is Event.BACKWARD_BEGAN:
            steps.backward_begins()
            if repeated.loss_type is not None:
                self._now.roots.append((*repeated.origin, repeated.loss_type))
                self._now.observed.append((self.quiet.loss(begun.losses.pop(0)), *repeated.origin))
        elif event is Event.BACKWARD_ENDED:
            steps.backward_ends()
        elif event is Event.CLIPS:
            self._part_of_norm = (False, None)
        elif event is Event.CLIPPED and subject is not None:
            self._now.norms.append((subject.every, begun.norms.pop(0)[1]))
        elif event is Event.SAVED:
            steps.value_arrives(subject)
            self._run_steps.save(*numbers.pop(0), SCALAR, None, ())
        elif event is Event.UPDATE_BEGAN and (optimizer := subject()) is not None:
            self._pre_hooks += 1
            self._begin_update(optimizer)
            while numbers and not numbers[0][0].startswith(SCALAR_PREFIX):
                self._tensors.number(*numbers.pop(0))

    def _end_update(self, optimizer: Optimizer) -> None:
        self.steps.update_ends(id(optimizer))
        if self._begun_by_update and not self._passes and self._can_follow and self._followed_at is None:
            self.follow_parts()
        elif self._followed_at is not None and self._can_follow:
            self._can_follow = self.steps.updates - self._followed_at <= 2 * self.steps.number_of_optimizers
            if not self._can_follow:
                self.listeners.follow_less(self._outermost)

    def scaler_begins(self, optimizer: Any) -> None:
        """A GradScaler is about to step an optimizer."""
        self.quiet.interrupt()
        self._pre_hooks = 0

    def scaler_ends(self, optimizer: Any) -> None:
        """A GradScaler has stepped the optimizer, unless gradients were infinite."""
        self.quiet.interrupt()
        if self._pre_hooks or not isinstance(optimizer, Optimizer) or not self._counts(optimizer):
            return
        self._begin_update(optimizer)
        if self._plan.saving and self.steps.training:
            self._mark_skipped(optimizer)
        self._end_update(optimizer)

    def _mark_skipped(self, optimizer: Optimizer) -> None:
        """A GradScaler skips the update: the gradients, which are infinite, are not saved."""
        for name in self._names_of(optimizer).values():
            self._drop_gradient(f"gradient/{name}")
        self._tensors.capture(f"{PREFIX}{self._optimizers.label(optimizer)}/skipped", 1.0)

    def _names_of(self, optimizer: Optimizer) -> dict[int, str]:
        record, parameters = self._models.updated_by(optimizer)
        return {id(parameter): name for name, parameter in zip(record.names, parameters, strict=True)}

    def _save_gradients(self, optimizer: Optimizer) -> None:
        """Save the gradients that the optimizer uses, and their norms."""
        # A fused optimizer divides by the scale of a GradScaler itself, and skips the update itself.
        found_inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        if isinstance(found_inf, torch.Tensor) and bool(found_inf.item()):
            self._mark_skipped(optimizer)
            return
        label = f"{PREFIX}{self._optimizers.label(optimizer)}/"
        norm_name = f"{label}gradient_norm"
        wants_norm = self._plan.spec(norm_name) is not None and self._queue.writes
        saves = GRADIENTS in self._plan.kinds
        if not (saves or wants_norm or scale is not None):
            return
        record, parameters = self._models.updated_by(optimizer)
        if not saves and scale is None:
            norm = self._tensors.norm_of_parameters(record, parameters)
            # Clipping by a norm that is not finite spreads it to all gradients, so that no order is left.
            if self._lost.begin(self._tensors.norm_of_few(record, parameters) or norm) and not self._now.norms:
                self._save_lost(record.names, parameters)
            self._save_norm(norm_name, norm)
            self._save_norms_before_clipping(norm_name, record)
            return
        gradients: list[NamedGradient] = []
        copies: list[TensorCopy | None] = []
        with torch.no_grad():
            for name, parameter in zip(record.names, parameters, strict=True):
                gradient: torch.Tensor | LocalShard | None = parameter.grad
                if gradient is not None and (saves or scale is not None):
                    full = f"gradient/{name}"
                    self._drop_gradient(full)
                    if scale is not None:
                        if not wants_norm and self._plan.spec(full) is None:
                            continue
                        gradient = self._divided(full, gradient, scale)
                    # The position of a shard says what its part of the norm is.
                    is_whole = (
                        not isinstance(gradient, LocalShard) and self._tensors.shards.find(full, gradient) is None
                    )
                    unclipped = name in self._now.before_clipping
                    copy = (
                        None if unclipped else self._tensors.capture(full, gradient, wants_norm=wants_norm and is_whole)
                    )
                    copies.append(copy if is_whole else None)
                gradients.append((name, parameter, gradient))
            if wants_norm:
                self._save_norm(norm_name, norm_of(copies) or self._tensors.norm(gradients))
                self._save_norms_before_clipping(norm_name, record)

    def _save_lost(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        """Save the gradients that are not finite, though none is due."""
        for name, parameter in zip(names, parameters, strict=True):
            gradient, full = parameter.grad, f"gradient/{name}"
            if type(gradient) is torch.Tensor and gradient.layout is torch.strided and not gradient.isfinite().all():
                self._drop_gradient(full)
                self._now.gradients[full] = self._tensors.copy_for(LOST, full, gradient), LOST

    def _save_norm(self, name: str, norm: object) -> None:
        """Save the norm of an optimizer's gradients, unless it is unknown."""
        if norm is None:
            return
        if self.steps.number_of_optimizers > 1 and self._plan.capture is not None:
            norm = self._whole_norm.update_begins(self._now.whole_norm, name, norm, self.steps.backwards)
        self._tensors.number(name, norm)

    def _save_norms_before_clipping(self, norm_name: str, updated: Updated) -> None:
        for ids, before in self._now.norms:
            if not ids.isdisjoint(updated.ids):
                self._tensors.capture(f"{norm_name}_before_clipping", before)

    def _divided(self, name: str, gradient: Any, scale: torch.Tensor) -> torch.Tensor | LocalShard:
        """Return a gradient divided by the scale of a GradScaler."""
        shard = self._tensors.shards.find(name, gradient)
        if shard is None:
            return gradient / scale.to(gradient.device)
        return replace(shard, local=shard.local / scale.to(shard.local.device))

    def _save_state(self, optimizer: Optimizer) -> None:
        """Save the learning rates, and the optimizer's state if it is wanted."""
        label = self._optimizers.label(optimizer)
        for name, value in learning_rates(optimizer, label):
            self._tensors.number(name, value)
        if self._saves_optimizer_state():
            for name, value in state_of(optimizer, label, self._names_of(optimizer)):
                self._tensors.capture(name, value)

    def _saves_optimizer_state(self) -> bool:
        """Whether a collection of this step names the optimizer's state.

        A pattern such as ``fc1`` does not.
        """
        saving = self._plan.saving
        if saving is not self._judged:
            self._judged = saving
            self._saves_state = any(
                collection.name in (CollectionKeys.ALL, CollectionKeys.OPTIMIZER_STATE)
                or any("optim" in pattern for pattern in collection.include_regex)
                for collection in saving
                if collection.name != CollectionKeys.UPDATES
            )
        return self._saves_state


def _tensors(parameters: Any) -> Iterable[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else parameters
