"""Record PyTorch trainings of scripts that create no hook.

A training is seen at the end of the first backward pass that gives gradients to an optimizer's parameters. Its models
are the outermost modules that hold these parameters. Nothing is registered on a model before, so that `torch.compile`
compiles what it would compile without a recording. The step in progress is then opened as if the hook had seen its
forward pass: weights, loss, gradients and learning rate of the first step are saved, its inputs and outputs are not.
A training whose gradients `torch.autograd.grad` or `torch.func` computes is seen at the end of its second update, one
whose weights the script updates itself after its third backward pass. Tensors that belong to no module get one.

The optimizers that exist at that time belong to the training (a GAN has two). An optimizer that is created later begins
another training, unless it updates the same model. Copies of a model that is still trained, each of which is trained
for a few steps, are those of an inner loop, as in meta learning: only the first ones are recorded. To begin and end a
recording takes time. Where that is much, a training is recorded once it has lasted long enough for that.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from smdwidgets.checks.torch.copies import living
from smdwidgets.checks.torch.graph import walk
from smdwidgets.hooks.torch.events import listen
from smdwidgets.hooks.torch.loss_origin import RootLosses, losses_of
from smdwidgets.hooks.torch.names import unwrapped_module
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.launch.recording import Recording
from smdwidgets.launch.torch_models import described, models_of, models_with, parameters_of
from smdwidgets.launch.torch_tensors import HandUpdates, Tensors

if TYPE_CHECKING:
    from smdwidgets.hooks.torch.hook import Hook

__all__ = ["arm"]


#: Loads of weights that are remembered.
_MOST_LOADED = 20
#: Updates of a training that another optimizer does not join any more.
_FORMER = 64
#: Updates of a training that may be one step of an inner loop, and such trainings that are recorded.
_SHORT, _INNER = 16, 4
#: Trainings that are recorded from their first step in any case, and the share of the time that beginnings and ends of
#: recordings may take: of the time since the first one when another one begins, else of that of the training.
_FREE, _SHARE = 10, 0.1


def arm(recording: Recording, framework: ModuleType) -> None:
    """Record the trainings of this process."""
    Trainings(recording)


def _ignore(*args: object) -> None:
    """Do nothing with an event."""


class _Training:
    """A training, its models and its optimizers."""

    def __init__(self, hook: Hook | None, models: Iterable[nn.Module]) -> None:
        self.hook = hook  # None: the training is not recorded
        self.models: list[weakref.ref[nn.Module]] = []
        #: The modules of tensors that have no other one: they are called before each backward pass.
        self.tensors: list[Tensors] = []
        self.add(models)
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.updates = 0
        self.kind = _kind_of(next((model for one in self.models if (model := one()) is not None), None))

    def add(self, models: Iterable[nn.Module]) -> None:
        """Add models."""
        for model in models:
            self.models.append(weakref.ref(model))
            if isinstance(model, Tensors):
                self.tensors.append(model)

    def others(self, models: Iterable[nn.Module]) -> list[nn.Module]:
        """Return those of these models that do not belong to the training."""
        mine = {id(model) for one in self.models if (model := one()) is not None}
        return [model for model in models if id(model) not in mine]

    def has(self, models: list[nn.Module]) -> bool:
        """Whether these are models of the training."""
        return bool(models) and not self.others(models)


class _Later:
    """Optimizers of a training that is recorded only if it is not short."""

    def __init__(self, optimizers: Iterable[Optimizer], is_inner: bool) -> None:
        self.optimizers = weakref.WeakSet(optimizers)
        self.is_inner = is_inner
        self.since = time.monotonic()
        self.updates = 0


class _Inner:
    """Short trainings that ended while another model of their kind was trained.

    Attributes:
        count: how many.
        outer: the number of updates of that model when the last one ended.
        alternates: whether that model was updated between two of them.
    """

    def __init__(self, outer: int) -> None:
        self.count = 0
        self.outer = outer
        self.alternates = False


def _kind_of(model: nn.Module | None) -> tuple[Any, ...]:
    """Return what a model and its copies have in common."""
    return () if model is None else (type(model), *(one.shape for one in model.parameters()))


class Trainings:
    """Sees the trainings of this process."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        #: Optimizers whose training has not begun.
        self._waiting: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: Optimizers that wait and whose models were compared with those of trainings before.
        self._compared: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._trainings: list[_Training] = []
        self._count = 0  # of trainings that were begun
        self._inner: dict[tuple[Any, ...], _Inner] = {}
        self._later: list[_Later] = []
        #: Optimizers of trainings that were not recorded at first, and have turned out not to be short.
        self._long: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: When the first training began, and the seconds that beginnings and ends of recordings have taken.
        self._since, self._taken = 0.0, 0.0
        self._depth = 0
        self._by_hand = HandUpdates()
        #: What `backward()` is called on, and its losses.
        self._roots: tuple[Any, RootLosses] | None = None
        #: What a GradScaler has returned, and the loss that it multiplied.
        self._scaled: tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]] | None = None
        #: Modules into which weights were loaded before a training was seen, and the names of these.
        self._loaded: list[tuple[weakref.ref[nn.Module], dict[str, None]]] = []
        self._watch_creation()
        register_optimizer_step_post_hook(self._after_update)
        listen(
            {
                "backward_begins": recording.guarded(self._backward_begins),
                "backward_ends": recording.guarded(self._backward_ends),
                "scaled": recording.guarded(self._loss_is_scaled),
                "evaluated": _ignore,  # wrapped now, for scripts that import a loss function by name
                "loads": recording.guarded(self._weights_are_loaded),
                # So that the random states of workers are known that start before the training is seen.
                "batch": _ignore,
            }
        )

    def _watch_creation(self) -> None:
        create = Optimizer.__init__
        created = self._recording.guarded(self._waiting.add)

        # Not a method of this class: a wrapper without `self._recording` keeps the name and signature of the original.
        def __init__(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            create(optimizer, *args, **kwargs)
            created(optimizer)

        __init__.__dict__.update(vars(create))
        __init__.__wrapped__ = create  # type: ignore[attr-defined]
        __init__.__doc__, __init__.__qualname__ = create.__doc__, create.__qualname__
        Optimizer.__init__ = __init__
        for each in living(Optimizer):
            self._waiting.add(each)

    # --------------------------------------------------------------------------------------------------------- events

    def _after_update(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        for training in self._trainings:
            training.updates += optimizer in training.optimizers
        if self._waiting and optimizer in self._waiting:
            is_second = optimizer in self._stepped
            self._stepped.add(optimizer)
            # No backward pass was seen: `torch.autograd.grad` or `torch.func` gave the gradients.
            if is_second and not self._depth and any(one.grad is not None for one in parameters_of(optimizer)):
                self._begin([optimizer], list(self._waiting), None, RootLosses())
        if self._later:
            self._count_later(optimizer)

    def _loss_is_scaled(self, result: torch.Tensor, loss: torch.Tensor) -> None:
        if self._waiting:
            self._scaled = weakref.ref(result), weakref.ref(loss)

    def _weights_are_loaded(self, module: nn.Module, state: Any, strict: bool) -> None:
        """Remember the names of weights that are loaded before a training is seen.

        The tensors are not kept.
        """
        if not strict and isinstance(state, Mapping) and len(self._loaded) < _MOST_LOADED:
            self._loaded.append((weakref.ref(module), dict.fromkeys(state)))

    def _backward_begins(self, roots: Any) -> None:
        if not is_passive():
            self._depth += 1
            if self._depth > 1:
                return
            if self._waiting and any(not one.optimizers for one in self._trainings):
                self._end_stage()
            for training in self._trainings:
                for tensors in training.tensors:
                    tensors()
            if self._waiting or self._may_be_by_hand:
                scaled, self._scaled = self._scaled, None
                self._roots = roots, losses_of(roots, *(one() for one in scaled or ()))

    def _backward_ends(self) -> None:
        if is_passive():
            return
        self._depth -= 1
        if self._depth:
            return
        (roots, losses), self._roots = self._roots or (None, RootLosses()), None
        if self._waiting and (used := [one for one in self._waiting if self._is_used(one)]):
            self._begin(used, list(self._waiting), roots, losses)
        elif self._may_be_by_hand and (updated := self._by_hand.after_backward(roots)):
            hook = self._open(models_with(updated) or [Tensors(updated)]).hook
            if hook is not None and hook.is_open:
                hook.catch_up(roots, losses)

    @property
    def _may_be_by_hand(self) -> bool:
        """Whether the script may update its tensors itself."""
        # Neither an optimizer nor a trainer has begun.
        return not (self._count or self._later or self._recording.hooks) and self._by_hand.is_looking

    def _is_used(self, optimizer: Optimizer) -> bool:
        return optimizer in self._stepped or any(one.grad is not None for one in parameters_of(optimizer))

    # ------------------------------------------------------------------------------------------------------ trainings

    def _begin(self, used: list[Optimizer], waiting: list[Optimizer], roots: Any, losses: RootLosses) -> None:
        self._waiting.clear()
        if not any(one in self._long for one in used) and ((is_inner := self._is_inner(used)) or self._is_crowded()):
            self._end_earlier()
            self._later = [one for one in self._later if one.optimizers] + [_Later(waiting, is_inner)]
            return
        begun = time.monotonic()
        self._since = self._since or begun
        try:
            self._record(used, waiting, roots, losses)
        finally:
            self._taken += time.monotonic() - begun

    def _record(self, used: list[Optimizer], waiting: list[Optimizer], roots: Any, losses: RootLosses) -> None:
        """Record a training from here on, or go on with that of these optimizers."""
        gc.collect()  # optimizers of earlier trainings, which reference cycles keep
        models = models_of(waiting)
        of_used = models_of(used)
        trained = self._without_optimizer(used, roots)
        models += [one for one in trained if one not in models]
        training = next((one for one in self._trainings if one.has(of_used)), None)
        if training is None:
            self._end_earlier()
            self._end_former(used, of_used)
            training = self._joined(of_used)
        is_new = training is None
        if training is None:
            if self._is_recorded(of_used):
                return
            training = self._open(models or [Tensors(one for each in waiting for one in parameters_of(each))])
        training.optimizers.update(waiting)
        hook = training.hook
        if hook is None or not hook.is_open:
            return
        if not trained:
            for optimizer in waiting:
                hook.register_optimizer(optimizer)
        # A hook that was there before has seen this pass.
        if is_new and not any(one in self._stepped for one in used):
            hook.catch_up(roots, losses)

    def _end_stage(self) -> None:
        """End trainings whose optimizers are gone.

        A backward pass begins that belongs to one with other models.
        """
        if all(one in self._compared for one in self._waiting):
            return
        self._compared.update(self._waiting)
        models = models_of(self._waiting)
        if models and not any(one.has(models) for one in self._trainings):
            self._end_earlier()

    def _end_former(self, used: list[Optimizer], models: list[nn.Module]) -> None:
        """End trainings of weights that now train in other models, by another optimizer."""
        ours = {id(one) for each in used for one in parameters_of(each)}
        for training in list(self._trainings):
            its = {id(one) for model in training.models if (held := model()) is not None for one in held.parameters()}
            if training.updates >= _FORMER and not ours.isdisjoint(its) and training.others(models):
                self._end(training)

    def _joined(self, models: list[nn.Module]) -> _Training | None:
        """Let models join a training that has some of them, and return it."""
        for training in self._trainings:
            if training.hook is not None and (others := training.others(models)) and len(others) < len(models):
                training.add(others)
                for model in others:
                    training.hook.register_module(model)
                return training
        return None

    def _is_crowded(self) -> bool:
        """Whether recordings of several trainings have taken too much of the time."""
        if self._recording.only_checks or self._count < _FREE:
            return False
        if self._taken <= _SHARE * (time.monotonic() - self._since):
            return False
        self._recording.say_once(
            "to begin and end the recordings of short trainings took much of the time: "
            "further ones are not recorded, longer ones once they have lasted for some seconds"
        )
        return True

    def _count_later(self, optimizer: Optimizer) -> None:
        """Count an update of a training that is not recorded yet."""
        for later in self._later:
            if optimizer in later.optimizers:
                later.updates += 1
                lasted = time.monotonic() - later.since
                if lasted * _SHARE * self._count > self._taken and later.updates > (_SHORT if later.is_inner else 0):
                    self._later.remove(later)
                    self._long.update(later.optimizers)
                    self._waiting.update(later.optimizers)
                return

    def _is_inner(self, used: list[Optimizer]) -> bool:
        """Whether optimizers train one more copy of a model that is still trained.

        Several copies have been trained before, each for a few updates.
        """
        kinds = [kind for kind, inner in self._inner.items() if inner.count >= _INNER and inner.alternates]
        if not kinds:
            return False
        ours = [one.shape for each in used for one in parameters_of(each)]
        kinds = [kind for kind in kinds if list(kind[1:]) == ours]
        if not any(one.kind in kinds and one.optimizers for one in self._trainings):
            return False
        self._recording.say_once("further copies of a model that are trained for a few steps are not recorded")
        return True

    def _has_ended(self, ended: _Training) -> None:
        """Count a training that has ended, if it may be one step of an inner loop.

        The model of the outer loop is updated between some of them. Trainings after one another, such as those of a
        cross-validation, have none.
        """
        outer = sum(one.updates for one in self._trainings if one.kind == ended.kind and one.optimizers)
        if not outer or ended.updates > _SHORT:
            self._inner.pop(ended.kind, None)
            return
        inner = self._inner.setdefault(ended.kind, _Inner(outer))
        inner.count += 1
        inner.alternates = inner.alternates or outer > inner.outer
        inner.outer = outer

    def _without_optimizer(self, used: list[Optimizer], roots: Any) -> list[nn.Module]:
        """Return the models of a loss, if the optimizers hold none of its parameters.

        Else the list is empty. The model was copied or replaced after the optimizer was created.
        """
        if not isinstance(roots, torch.Tensor) or roots.grad_fn is None:
            return []
        leaves = walk(roots, None).leaves
        held = {id(one) for each in used for one in parameters_of(each)}
        return [] if any(id(one) in held for one in leaves) else models_with(leaves)

    def _is_recorded(self, models: list[nn.Module]) -> bool:
        """Whether a hook that a trainer's callback uses has these models."""
        registered = [getattr(hook, "models", None) for hook in self._recording.hooks]
        names = [known.names for known in registered if isinstance(known, RegisteredModels)]
        return any(unwrapped_module(model) in known for model in models for known in names)

    def _end_earlier(self) -> None:
        """End the recordings of trainings whose optimizers are gone."""
        for earlier in list(self._trainings):
            if not earlier.optimizers:
                self._end(earlier)

    def _end(self, training: _Training) -> None:
        self._trainings.remove(training)
        self._has_ended(training)
        if training.hook is not None:
            self._recording.end(training.hook)

    def _open(self, models: list[nn.Module]) -> _Training:
        self._end_earlier()
        from smdwidgets.hooks.torch.hook import Hook  # it imports torch._dynamo, which takes a second

        hook = self._recording.begin(Hook, described(models))
        training = _Training(hook, models)
        self._trainings.append(training)
        self._count += 1
        if training.hook is not None:
            for model in models:
                training.hook.register_module(model)
            loaded, self._loaded = self._loaded, []
            for reference, names in loaded:
                if (module := reference()) is not None:
                    training.hook.weights_were_loaded(module, names)
        return training
