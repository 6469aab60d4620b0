"""A hook for PyTorch modules and losses.

::

    import smdwidgets.pytorch as smd

    hook = smd.Hook("/tmp/run", save_all=True, save_config=smd.SaveConfig(save_interval=100))
    hook.register_module(model)
    hook.register_loss(criterion)

A step ends with an update of the model by its optimizers, or where the script calls :meth:`Hook.step`; in a training
without optimizers it is a forward pass. Tensor names are the same as in smdebug: ``Net_fc1.weight``,
``gradient/Net_fc1.weight``, ``fc1_input_0``, ``CrossEntropyLoss_output_0``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smdwidgets._text import shown
from smdwidgets.config import Collection as BaseCollection
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.core.for_smdebug import StepNumber
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import check_name, guarded
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.torch.callbacks import ModuleCallback, Receivers
from smdwidgets.hooks.torch.capture import TorchCapture
from smdwidgets.hooks.torch.checking import Checking
from smdwidgets.hooks.torch.collection import Collection
from smdwidgets.hooks.torch.events import listen
from smdwidgets.hooks.torch.loss_origin import RootLosses
from smdwidgets.hooks.torch.modules import BUFFERS, ModuleSelection, is_called_in_parts
from smdwidgets.hooks.torch.names import tensors_in
from smdwidgets.hooks.torch.optimizers import unwrapped
from smdwidgets.hooks.torch.overrides import Overrides
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.quiet_steps import Event
from smdwidgets.hooks.torch.recording import ModelRecording
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.replaying import Replaying
from smdwidgets.hooks.torch.signalling import Signalling
from smdwidgets.hooks.torch.training import AS_SMDEBUG, EVALUATIONS, TorchOptions, TrainingLoop
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd

__all__ = ["Collection", "Hook", "record"]

_T = TypeVar("_T")
#: The methods that a subclass may override to decide what is saved of a module.
_OVERRIDABLE = ("forward_pre_hook", "forward_hook", "backward_hook", "_write_inputs", "_write_outputs")


class Hook(BaseHook):
    """Save tensors of PyTorch modules."""

    __doc__ += (
        "\n\n    "
        + "".join((BaseHook.__doc__ or "").partition("Args:")[1:]).rstrip()
        + """
        step_on: what a training step is: ``"optimizer"``, an update of the model; ``"forward"``, a forward pass, as in smdebug;
            ``"manual"``, what lies between two calls of :meth:`step`; ``"auto"``: the first of these that the training shows,
            in the order manual, optimizer, forward; ``"smdebug"``: as smdebug numbers steps where a script calls no
            :meth:`set_mode`, every forward pass in one series of mode GLOBAL, else as ``"auto"``.
        clipped_gradients: whether the gradients that are saved are those after clipping.
        replay: whether batches and states are kept, so that the steps around an incident can be executed again: ``"auto"``,
            in half of ``recorder_bytes``, which is then 512 MiB by default; True: in all of it; ``"ids"`` (default): only
            which rows the batches had; False: nothing. Copying batches and states takes milliseconds a step.
        signals: whether signals of large models are recorded, such as attention logits and the load of experts; default: with
            a capture plan.
    """
    )

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient|optimizer/).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient|optimizer/).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: ("[Ll]oss_(?!input).*output",),
        BUFFERS: (),
        CollectionKeys.UPDATES: (r"^optimizer/[^/]+/(learning_rate_\d+|gradient_norm|skipped)",),
        CollectionKeys.OPTIMIZER_STATE: ("^optimizer/",),
    }
    always_saved: ClassVar[tuple[str, ...]] = (CollectionKeys.LOSSES, CollectionKeys.UPDATES)
    kinds: ClassVar[Mapping[str, str]] = {
        CollectionKeys.WEIGHTS: "weights",
        CollectionKeys.BIASES: "weights",
        BUFFERS: "weights",
        CollectionKeys.GRADIENTS: "gradients",
        CollectionKeys.ACTIVATIONS: "activations",
    }
    activations: ClassVar[Sequence[str]] = (r"^(?!gradient/|optimizer/).*_(input|output)_\d+$",)
    collection_class: ClassVar[type[BaseCollection]] = Collection

    capture_class: ClassVar[type[TensorCapture]] = TorchCapture
    options_class: ClassVar[type[HookOptions]] = TorchOptions

    def _attach(self) -> None:
        tensors, options = self.parts.tensors, self.options
        assert isinstance(tensors, TorchCapture)
        assert isinstance(options, TorchOptions)
        self._handles: list[Any] = []
        #: The registered models.
        self.models = RegisteredModels()
        #: Decides to which step an event of PyTorch belongs.
        self.loop = TrainingLoop(self.parts, tensors, self.models, options)
        self._recording = ModelRecording(self.parts, tensors, self.models, self.loop, options.include_workers == "all")
        self._modules = self._recording.modules
        self._checking = Checking(self.parts, self.models, options)
        self._replaying = Replaying(self.parts, self.models, self.loop, options.replay, options.memory.recorder)
        self._signalling = Signalling(self.parts, self.models, options)
        observers = (self._checking, self._replaying, self._signalling)
        self._modules.observers = tuple(one for one in observers if one.is_on)
        self.loop.short_way.receivers = tuple(one for one in observers if one.is_on)
        overridden = frozenset(name for name in _OVERRIDABLE if getattr(type(self), name) is not getattr(Hook, name))
        self._overrides = Overrides(overridden, self.parts, self.models, self._modules)

    @classmethod
    def current_worker(cls) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return f"worker_{torch.distributed.get_rank()}", torch.distributed.get_world_size()
        return super().current_worker()

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """Create a hook from a JSON file in smdebug's format.

        It numbers steps as smdebug does.

        Args:
            json_file_path: the file; default: the environment variable SMDEBUG_CONFIG_FILE_PATH, else SageMaker's path.
            **options: further arguments of the hook, such as ``overwrite=True``.
        """
        return super().create_from_json_file(json_file_path, **{"step_on": AS_SMDEBUG, **options})

    # -------------------------------------------------------------------------------------------------- registering

    def register_module(self, module: nn.Module) -> None:
        """Register a model, to save its parameters, gradients, inputs and outputs.

        For a model wrapped by DistributedDataParallel or torch.compile, the tensor names are those of the inner model.
        """
        if not isinstance(module, nn.Module):
            raise SMDebugTypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
        inner = self.models.add(module)
        self._recording.model_added()
        if len(self.models) == 1:
            self._listen()
        # Register on the outermost module: a callback on the inner one would split the graph that torch.compile made.
        self._handles += self._modules.follow_calls(module, ModuleCallback)
        self._handles += self._overrides.follow(self, module, inner)
        if is_called_in_parts(inner):
            self.loop.follow_parts()

    def _listen(self) -> None:
        """Listen to the events of the training."""
        receivers = self._receivers = Receivers(self.guard)
        receivers.add(self._checking.receivers())
        receivers.add(self._signalling.receivers())
        receivers.add(self.loop.receivers())
        receivers.add(self._replaying.receivers())  # after the loop, which decides when a step ends
        callbacks = receivers.callbacks(self.loop.short_way.shortcuts)
        self._handles += [
            register_optimizer_step_pre_hook(callbacks.pop("before_update")),
            register_optimizer_step_post_hook(callbacks.pop("after_update")),
            listen({event: callback.call for event, callback in callbacks.items()}),
        ]

    def register_loss(self, loss_module: nn.Module) -> None:
        """Save the outputs of a loss module, such as ``nn.CrossEntropyLoss()``.

        For a loss function that is not a module, use :meth:`loss`.
        """
        if not isinstance(loss_module, nn.Module):
            raise SMDebugTypeError(
                f"loss_module must be a torch.nn.Module, got {type(loss_module).__name__}; for a function, pass its result "
                "to loss(value)"
            )
        losses = self._modules.loss_modules
        if loss_module in losses:
            return
        name = self.models.names.get(loss_module) or type(loss_module).__name__
        losses[loss_module] = name
        self.loop.losses_are_named()
        if loss_module not in self.models.names:
            self.models.names[loss_module] = name
            self._modules.tap(loss_module, {"input": True})
        self._handles.append(loss_module.register_forward_hook(ModuleCallback(self, self.guard, Hook._after_loss)))

    @guarded
    def register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Register an optimizer, whose updates are the steps.

        With several registered optimizers, a step is complete when each has updated its parameters. The hook sees
        optimizers by itself when they step. A registered one counts from the first step on. The gradients that are
        saved are those that the optimizers use: accumulated, averaged over workers, unscaled and clipped.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SMDebugTypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
        self.loop.register(unwrapped(optimizer))
        self._checking.registers(unwrapped(optimizer))

    @guarded
    def catch_up(self, roots: Any, losses: RootLosses) -> None:
        """Begin the training step in progress, whose first backward pass has just ended.

        For a hook that is created there. Inputs and outputs of this forward pass are not saved.

        Args:
            roots: what ``backward()`` was called on.
            losses: what `losses_of` said before the backward pass.
        """
        if self.is_open:
            self._checking.catch_up(roots)
            self.loop.catch_up(roots, losses)

    @property
    def step(self) -> StepNumber:
        """The number of the current or last step.

        ``hook.step()`` ends the step. From the first call on, a step is what lies between two calls.
        """
        return StepNumber.of(self.global_step, self._end_step_of_script)

    @guarded
    def weights_were_loaded(self, module: nn.Module, names: Mapping[str, None]) -> None:
        """Tell the checks that weights of these names were loaded before.

        For a hook that is created later. ``load_state_dict`` was called with ``strict=False``.
        """
        if self.is_open:
            self._checking.weights_were_loaded(module, names)

    @guarded
    def _end_step_of_script(self) -> None:
        if not self.is_open:
            self.guard.warn_inactive()
            return
        self.loop.steps.step()

    @guarded
    def loss(self, value: _T, name: str = "loss") -> _T:
        """Save a loss as ``<name>_output_0``, and return it.

        >>> loss = hook.loss(F.cross_entropy(model(x), y))     # doctest: +SKIP
        """
        check_name(name)
        if not isinstance(value, torch.Tensor):
            raise SMDebugTypeError(f"value must be a torch.Tensor, got {type(value).__name__}")
        if self.is_open:
            self.loop.loss(name, value)
        else:
            self.guard.warn_inactive()
        return value

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """Set the mode of the next steps: ``modes.TRAIN``, ``EVAL`` or ``PREDICT``.

        A training step with a pending update resumes after the evaluation. Without a call, the mode is that of
        the model: ``module.training``.
        """
        mode = as_mode(mode)
        if mode is not self.mode and self.is_open:
            self.loop.steps.mode_changed(training=mode not in EVALUATIONS)
        self.mode = mode
        self.loop.mode_is_set = True

    def replayable(self, step: Callable[[Any], _T], state: Iterable[object] = ()) -> Callable[[Any], _T]:
        """Name the function that executes a training step with a batch, and return it.

        Steps of an incident are then executed again by calling it, where the loop of the script cannot be.

        Args:
            step: takes a batch as the data loader gives it; does the forward pass, the backward pass and the update.
            state: objects that the step changes and that no name of the loop refers to.

        >>> step = hook.replayable(step)     # doctest: +SKIP
        """
        if not callable(step):
            raise SMDebugTypeError(f"step must be a function, got {type(step).__name__}")
        self._replaying.step = step
        if self._replaying.recorder is not None:
            self._replaying.recorder.extra = {f"state_{index}": one for index, one in enumerate(state)}
        return step

    def collection(
        self,
        name: str,
        modules: type[nn.Module] | Iterable[type[nn.Module]] = (),
        *,
        trainable: bool = False,
        inputs: bool = True,
        outputs: bool = True,
        parameters: bool = True,
    ) -> Collection:
        """Return a collection that is saved, with the selected tensors added to it.

        The modules are those of the registered models when the first step begins.

        Args:
            name: name of the collection; created if it does not exist.
            modules: classes of modules.
            trainable: only parameters that require a gradient; without ``modules`` those of all modules.
            inputs: add the inputs of the modules.
            outputs: add the outputs of the modules.
            parameters: add the parameters of the modules and their gradients.

        >>> hook.collection("attention", modules=nn.MultiheadAttention)    # doctest: +SKIP
        >>> hook.collection("adapters", trainable=True)                    # doctest: +SKIP
        """
        classes = (modules,) if isinstance(modules, type) else tuple(modules)
        for module_class in classes:
            if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
                raise SMDebugTypeError(f"modules must be subclasses of torch.nn.Module, got {shown(module_class)}")
        collection = self.get_collection(name)
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"collection {shown(name)} is not a collection of the PyTorch hook")
        if classes or trainable:
            collection.select(ModuleSelection(classes, trainable, inputs, outputs, parameters))
        self.parts.plan.include(name, ())
        return collection

    # For scripts written for smdebug.
    register_hook = register_module

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Save a value as ``<name>_output_0``. A value of one element is a loss."""
        check_name(tensor_name)
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(f"tensor_value must be a torch.Tensor, got {type(tensor_value).__name__}")
        if not self.is_open:
            self.guard.warn_inactive()
            return
        if tensor_value.numel() == 1:
            self.loop.loss(tensor_name, tensor_value)
        else:
            self._modules.capture_all(tensor_name, "output", tensor_value)

    # ------------------------------------------------------------------------------- what subclasses may override

    @property
    def module_maps(self) -> Mapping[nn.Module, str]:
        """The name of each registered module."""
        names: Mapping[nn.Module, str] = self.models.names
        return names

    @property
    def module_set(self) -> set[nn.Module]:
        """The registered modules."""
        return set(self.models.names)

    def forward_pre_hook(self, module: nn.Module, inputs: Any) -> None:
        """A registered model is about to be called; its step has begun.

        Args:
            module: the model.
            inputs: its positional arguments.
        """

    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Save the inputs and outputs of a module that has been called.

        Collections select them.

        Args:
            module: a registered model, or a module in it.
            inputs: its positional arguments.
            outputs: what it has returned.
        """
        name = self.models.names[module]
        self._write_inputs(name, inputs)
        self._write_outputs(name, outputs)

    def backward_hook(self, tname: str) -> Callable[[torch.Tensor], None]:
        """Return a callback for ``tensor.register_hook``.

        It saves the gradient as ``gradient/<tname>``. That of a parameter is saved as the optimizer uses it, and not by
        this callback.
        """
        return self._overrides.gradient_callback(tname)

    def _write_inputs(self, name: str, inputs: Any) -> None:
        """Save the tensors in an object, if collections select them.

        Their names are ``<name>_input_0``, ``<name>_input_1``, …
        """
        if self.loop.recorded:
            self._modules.capture_all(name, "input", inputs)

    def _write_outputs(self, name: str, outputs: Any) -> None:
        """Save the tensors in an object, if collections select them.

        Their names are ``<name>_output_0``, ``<name>_output_1``, …
        """
        if self.loop.recorded:
            self._modules.capture_all(name, "output", outputs)

    # ------------------------------------------------------------------------------------------- losses and values

    def _after_loss(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        if is_passive() or not self.loop.takes_losses:
            return
        name = self._modules.loss_modules[module]
        alone = list(self._modules.loss_modules.values()).count(name) == 1
        for tensor in tensors_in(outputs):
            self.loop.loss(name, tensor, averages=alone)

    def _repeats(self, name: str, value: object, timestamp: float | None) -> bool:
        quiet = self.loop.quiet
        if timestamp is not None:
            quiet.interrupt()
        return quiet.saves(name, value)

    def _add_loss(self, name: str) -> None:
        self.loop.losses_are_named()
        super()._add_loss(name)

    def _save_script_tensor(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float,
        collections: tuple[BaseCollection, ...],
    ) -> None:
        if self._belongs_to_next_pass(name):
            self.loop.quiet.interrupt()
        else:
            self.loop.quiet.note(Event.SAVED, name)
            self.loop.steps.value_arrives(name)
        super()._save_script_tensor(name, copy, spec, timestamp, collections)

    def _belongs_to_next_pass(self, name: str) -> bool:
        return self.loop.steps.precedes(name)

    def why_no_step(self) -> str:
        """Return why no step may have been recorded."""
        if not self.models:
            return "no model was registered; call hook.register_module(model) before the training"
        if self.loop.ignored_passes:
            return (
                f"the model was called {self.loop.ignored_passes} times in training mode without gradients, and nothing updated "
                "it; call model.train(False) or hook.set_mode(modes.EVAL) before an evaluation"
            )
        return "the registered model was not called, and no optimizer of PyTorch updated it"

    def _why_missing(self, name: str) -> str:
        of_models = (
            CollectionKeys.WEIGHTS,
            CollectionKeys.BIASES,
            CollectionKeys.GRADIENTS,
            CollectionKeys.OPTIMIZER_STATE,
        )
        if name in of_models and not self.models:
            return "no model was registered; call hook.register_module(model)"
        if name == CollectionKeys.GRADIENTS:
            if not self.loop.steps.backwards:
                return "no backward pass was seen"
            if not any(parameter.requires_grad for _, parameter in self.models.parameters()) and any(
                True for _ in self.models.roots()
            ):
                return "no parameter of the registered models requires gradients"
            return "no backward pass reached a parameter of a registered model, or no registered optimizer used its gradients"
        if name == CollectionKeys.LOSSES:
            return (
                "no loss was registered with register_loss, hook.loss or record_tensor_value, and backward() was not called on a "
                "tensor of one element; evaluation passes alone have no loss that the hook can see"
            )
        if name == CollectionKeys.OPTIMIZER_STATE:
            return "no optimizer of PyTorch updated a registered model, or it keeps no state"
        return super()._why_missing(name)

    def _unseen(self) -> Sequence[tuple[str, str]]:
        steps = self.loop.steps
        if self.parts.plan.capture is None or not steps.backwards or steps.updates:
            return ()  # without a plan, the script chooses what the run has
        meaning = (
            "learning rates are missing, and gradients and their norm are those that backward passes leave; save a rate with "
            'hook.save_scalar("learning_rate", rate)'
        )
        return [("no optimizer of PyTorch updated a registered model", meaning)]

    # ------------------------------------------------------------------------------------------------------ closing

    def _detach(self) -> None:
        self._checking.close()
        self._signalling.close()
        self.loop.steps.close()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._recording.detach()

    def end(self, end: RunEnd) -> None:
        """Close the hook, and give the memory of a recording back."""
        super().end(end)
        if self.guard.finished:  # the writer has ended
            self._replaying.close()


def record(model: nn.Module, out_dir: str | os.PathLike[str], *optimizers: Any, **options: Any) -> Hook:
    """Return a new hook that records the training of a model.

    Without optimizers, the hook sees those that update the model. With several, such as those of a GAN, pass them: a
    step is then an update by each of them from the first step on.

    Args:
        model: the model, also wrapped by Accelerate, DistributedDataParallel or torch.compile.
        out_dir: directory of the run.
        *optimizers: optimizers of the model, also wrapped by Accelerate.
        **options: further arguments of :class:`Hook`.

    >>> hook = record(model, "runs/mine")     # doctest: +SKIP
    """
    hook = Hook(out_dir, **options)
    hook.register_module(model)
    for optimizer in optimizers:
        hook.register_optimizer(unwrapped(optimizer))
    return hook
