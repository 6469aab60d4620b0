"""A hook for PyTorch modules and losses.

::

    import smdwidgets.pytorch as smd

    hook = smd.Hook("/tmp/run", save_all=True, save_config=smd.SaveConfig(save_interval=100))
    hook.register_module(model)
    hook.register_loss(criterion)

A step ends with an update of the model by its optimizers, or where the script calls :meth:`Hook.step`; in a training without
optimizers it is a forward pass. Tensor names are the same as in smdebug: ``Net_fc1.weight``, ``gradient/Net_fc1.weight``,
``fc1_input_0``, ``CrossEntropyLoss_output_0``.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets._text import shown
from smdwidgets.config import Collection as BaseCollection
from smdwidgets.config import CollectionKeys
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks import torch_graph
from smdwidgets.hooks.arrays import TensorCopy
from smdwidgets.hooks.base import Hook as BaseHook
from smdwidgets.hooks.base import guarded
from smdwidgets.hooks.save_spec import SaveSpec
from smdwidgets.hooks.torch_callbacks import Callback, GraphCallback, ModuleCallback, PartCallback
from smdwidgets.hooks.torch_collection import Collection
from smdwidgets.hooks.torch_copy import copy_from_torch
from smdwidgets.hooks.torch_device import DeviceCopies
from smdwidgets.hooks.torch_events import listen
from smdwidgets.hooks.torch_modules import (
    BUFFERS,
    ModuleSelection,
    NamedModule,
    class_names,
    is_called_in_parts,
    persistent_buffers,
)
from smdwidgets.hooks.torch_names import class_name, plain_name, tensors_in, unwrapped_module, wrapped_by
from smdwidgets.hooks.torch_optimizers import gradient_norm, unwrapped
from smdwidgets.hooks.torch_reduce import can_reduce, reduce
from smdwidgets.hooks.torch_shards import LocalShard, ShardFinder
from smdwidgets.hooks.torch_taps import Taps
from smdwidgets.hooks.torch_training import EVALUATIONS, ModelHook, TrainingLoop, is_passive
from smdwidgets.modes import ModeKeys, as_mode

__all__ = ["Collection", "Hook", "record"]

_T = TypeVar("_T")
#: Of a module that is not a registered model: no model, and nothing is wanted.
_NOT_TAPPED: tuple[Any, frozenset[str]] = (None, frozenset())


class Hook(ModelHook):
    """Save tensors of PyTorch modules."""

    __doc__ += (
        "\n\n    "
        + "".join((BaseHook.__doc__ or "").partition("Args:")[1:]).rstrip()
        + """
        step_on: what a training step is: ``"optimizer"``, an update of the model; ``"forward"``, a forward pass, as in smdebug;
            ``"manual"``, what lies between two calls of :meth:`step`; ``"auto"``: the first of these that the training shows,
            in the order manual, optimizer, forward.
        clipped_gradients: whether the gradients that are saved are those after clipping.
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

    def __init__(self, *args: Any, step_on: str = "auto", clipped_gradients: bool = True, **options: Any) -> None:
        # An open hook lives until the process ends. Weak references let models be freed before that.
        self._names: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._input_taps: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._models: list[tuple[str, weakref.ref[nn.Module]]] = []
        self._handles: list[Any] = []
        # By id of the parameter: the parameter, its gradient's name, the handle of its callback.
        self._watched: dict[int, tuple[weakref.ref[nn.Parameter], str, Any]] = {}
        self._loss_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._loop = TrainingLoop(self, step_on, bool(clipped_gradients))
        self._tapped = False
        self._shards = ShardFinder()
        self._devices = DeviceCopies()
        self._shards_sought = False
        #: The registered modules with their wrappers.
        self._outer: list[weakref.ref[nn.Module]] = []
        self._tapped_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: By registered module: the model inside, and which of its inputs and outputs may be saved. The callbacks that follow its
        #: calls take them, because graphs of torch.compile do not contain these.
        self._tapped_roots: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._taps = Taps()
        #: How many of these callbacks graphs of torch.compile contain.
        self._graph_taps = 0
        #: Whether a registered model was called with all callbacks of its submodules.
        self._passed = False
        #: Ids of the modules that had callbacks when a step began last.
        self._seen_modules: tuple[int, ...] = ()
        #: Callbacks on submodules, where the script calls them without calling the model.
        self._parts: WeakIdKeyDictionary = WeakIdKeyDictionary()
        super().__init__(*args, **options)

    @classmethod
    def _worker(cls) -> tuple[str, int]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return f"worker_{torch.distributed.get_rank()}", torch.distributed.get_world_size()
        return super()._worker()

    # -------------------------------------------------------------------------------------------------- registering

    def register_module(self, module: nn.Module) -> None:
        """Register a model, to save its parameters, gradients, inputs and outputs.

        For a model wrapped by DistributedDataParallel or torch.compile, the tensor names are those of the inner model.
        """
        if not isinstance(module, nn.Module):
            raise SMDebugTypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
        inner = unwrapped_module(module)
        if inner in self._names:
            raise SMDebugValueError(
                f"this {type(inner).__name__}, or a module that contains it, is already registered; register a module once"
            )
        root = class_name(inner)
        for name, part in inner.named_modules():
            self._set_name(part, plain_name(name) or root)
        self._models.append((root, weakref.ref(inner)))
        self._outer.append(weakref.ref(module))
        self._shards_sought = False
        self._tapped = False
        if len(self._models) == 1:
            self._listen()
        # Register on the outermost module: a callback on the inner one would split the graph that torch.compile made.
        self._handles += self._follow_calls(module, ModuleCallback)
        if is_called_in_parts(inner):
            self._loop.follow_parts()

    def _listen(self) -> None:
        """Listen to the events of the training."""

        def on(method: Callable[..., None]) -> Callback:
            return Callback(self, lambda hook, *args: method(hook._loop, *args))

        self._handles += [
            register_optimizer_step_pre_hook(on(TrainingLoop.before_update)),
            register_optimizer_step_post_hook(on(TrainingLoop.after_update)),
            listen(
                {
                    "backward_begins": on(TrainingLoop.backward_begins),
                    "backward_ends": on(TrainingLoop.backward_ends),
                    "clips": on(TrainingLoop.clips),
                    "clipped": on(TrainingLoop.clipped),
                    "scaled": on(TrainingLoop.scaled),
                    "scaler_begins": on(TrainingLoop.scaler_begins),
                    "scaler_ends": on(TrainingLoop.scaler_ends),
                }
            ),
        ]

    def _follow_calls(self, module: nn.Module, kind: type[ModuleCallback]) -> list[Any]:
        """Register callbacks for the beginning and the end of a module's forward pass.

        They run before other callbacks, because that of FSDP gathers the parameters.
        """
        before, after = kind(self, Hook._before_forward), kind(self, Hook._after_forward)
        if torch_graph.is_compiled_in_place(module):  # a graph contains the callbacks of such a module
            return [torch_graph.around_compiled_calls(module, before, after)]
        return [
            module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            module.register_forward_hook(after, always_call=True),
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
        if loss_module in self._loss_modules:
            return
        name = self._names.get(loss_module) or type(loss_module).__name__
        self._loss_modules[loss_module] = name
        self._loop.losses_are_named()
        if loss_module not in self._names:
            self._set_name(loss_module, name)
            self._tap(loss_module, {"input": True})
        self._handles.append(loss_module.register_forward_hook(ModuleCallback(self, Hook._after_loss)))

    @guarded
    def register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Register an optimizer, whose updates are the steps.

        With several registered optimizers, a step is complete when each has updated its parameters. The hook sees optimizers by itself when they step. A registered one counts from the first step on. The gradients that are
        saved are those that the optimizers use: accumulated, averaged over workers, unscaled and clipped.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SMDebugTypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
        self._loop.register(unwrapped(optimizer))

    @guarded
    def catch_up(self, roots: Any, unscaled: torch.Tensor | None = None) -> None:
        """Begin the training step in progress, whose first backward pass has just ended.

        For a hook that is created there. Inputs and outputs of this forward pass are not saved.

        Args:
            roots: what ``backward()`` was called on.
            unscaled: the loss, if a GradScaler has scaled it.
        """
        if self._alive():
            self._loop.catch_up(roots, unscaled)

    @guarded
    def step(self) -> None:
        """End the step. From the first call on, a step is what lies between two calls."""
        if not self._alive():
            self._warn_inactive()
            return
        self._loop.steps.step()

    @guarded
    def loss(self, value: _T, name: str = "loss") -> _T:
        """Save a loss as ``<name>_output_0``, and return it.

        >>> loss = hook.loss(F.cross_entropy(model(x), y))     # doctest: +SKIP
        """
        self._check_name(name)
        if not isinstance(value, torch.Tensor):
            raise SMDebugTypeError(f"value must be a torch.Tensor, got {type(value).__name__}")
        if self._alive():
            self._loop.loss(name, value)
        else:
            self._warn_inactive()
        return value

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """Set the mode of the next steps: ``modes.TRAIN``, ``EVAL`` or ``PREDICT``.

        A training step whose update has not come yet is continued after the evaluation. Without a call, the mode is that of
        the model: ``module.training``.
        """
        mode = as_mode(mode)
        if mode is not self.mode and self._alive():
            self._loop.steps.mode_changed(training=mode not in EVALUATIONS)
        self.mode = mode
        self._mode_is_set = True

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
        for one in classes:
            if not (isinstance(one, type) and issubclass(one, nn.Module)):
                raise SMDebugTypeError(f"modules must be subclasses of torch.nn.Module, got {shown(one)}")
        found = self.get_collection(name)
        if not isinstance(found, Collection):
            raise SMDebugTypeError(f"collection {shown(name)} is not a collection of the PyTorch hook")
        if classes or trainable:
            found.select(ModuleSelection(classes, trainable, inputs, outputs, parameters))
        self._plan.include(name, ())
        return found

    # For scripts written for smdebug.
    register_hook = register_module

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Save a value as ``<name>_output_0``. A value of one element is a loss."""
        self._check_name(tensor_name)
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(f"tensor_value must be a torch.Tensor, got {type(tensor_value).__name__}")
        if not self._alive():
            self._warn_inactive()
            return
        if tensor_value.numel() == 1:
            self._loop.loss(tensor_name, tensor_value)
        else:
            self._capture_all(tensor_name, "output", tensor_value)

    def _set_name(self, module: nn.Module, name: str) -> None:
        self._names[module] = name

    @property
    def _roots(self) -> Iterator[tuple[str, nn.Module]]:
        """The registered models that still exist, with their names."""
        return ((name, module) for name, model in self._models if (module := model()) is not None)

    @property
    def _number_of_models(self) -> int:
        return len(self._models)

    # -------------------------------------------------------------------------------------------------------- steps

    def _prepare(self) -> None:
        self._select_tensors()
        super()._prepare()

    def _select_tensors(self) -> None:
        """Resolve the collections' modules to names."""
        modules = list(self._named_modules())
        parameters = [(part, one) for name, one in self._parameters() for part in self._shards.names(name)]
        for collection in self.get_collections().values():
            if isinstance(collection, Collection):
                collection.take_module_names(self._names.get)
                collection.add_selected(modules, parameters)
        buffers = self.get_collection(BUFFERS)
        for name, _ in self._buffers():
            buffers.add_tensor_name(name)

    def _named_modules(self) -> Iterator[NamedModule]:
        """Yield the modules of the registered models.

        Each has its name in tensor names and the prefix of its parameters' names.
        """
        for root, model in self._roots:
            for path, module in model.named_modules():
                name = plain_name(path)
                yield name or root, f"{root}_{name}." if name else f"{root}_", module

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for root, model in self._roots:
            for name, buffer in persistent_buffers(model):
                yield f"{root}_{plain_name(name)}", buffer

    def _before_forward(self, module: nn.Module, inputs: object, named_inputs: object) -> None:
        is_tapped = self._taps.active and module in self._input_taps
        self._loop.enter(module)
        becomes_tapped = not is_tapped and self._taps.active and module in self._input_taps
        if becomes_tapped and not torch_graph.is_compiled_in_place(module):  # its callback comes too late for this call
            self._before_call(module, inputs, named_inputs)
        root, wanted = self._tapped_roots.get(module, _NOT_TAPPED)
        if "input" in wanted:
            self._before_call(root(), inputs, named_inputs)

    def _after_forward(self, module: nn.Module, inputs: object, outputs: object) -> None:
        root, wanted = self._tapped_roots.get(module, _NOT_TAPPED)
        if "output" in wanted:
            self._after_call(root(), inputs, outputs)
        self._loop.leave(module)
        self._passed = self._passed or self._taps.active

    def _follow_parts(self) -> None:
        """Listen to calls of submodules, because the script never calls the model.

        An example is a ``training_step`` of Lightning. A compiled module is followed, its submodules are not: a callback would split its graph.
        """
        pending = [root for _, root in self._roots]
        while pending:
            module = pending.pop()
            for part in module.children():
                if part not in self._parts:
                    self._parts[part] = self._follow_calls(part, PartCallback)
                if not (hasattr(part, "_orig_mod") or part.__dict__.get("_compiled_call_impl")):
                    pending.append(part)

    def _follow_less(self, outermost: WeakIdKeyDictionary) -> None:
        """Stop listening to submodules that other modules call."""
        for part, handles in list(self._parts.items()):
            if part not in outermost:
                for handle in self._parts.pop(part, handles):
                    handle.remove()

    def _begin_recording(self) -> None:
        """Begin a step: save the parameters, and register the callbacks that it needs."""
        if not self._shards_sought:
            self._seek_shards()
        saves = self._begin_step()
        if saves:
            self._name_new_modules()
        if not self._tapped:
            self._tap_modules()
        self._follow_modules()
        if saves:
            watches = self._loop.watches_gradients
            with torch.no_grad():
                for name, parameter in self._parameters():
                    if not is_lazy(parameter):
                        self._capture(name, parameter)
                    if watches and parameter.requires_grad:
                        self._watch(name, parameter)
                for name, buffer in self._buffers():
                    if not is_lazy(buffer):
                        self._capture(name, buffer)
            if not watches:
                self._watch_none()
        elif self._watched:
            self._watch_none()

    def _resume_step(self) -> None:
        super()._resume_step()
        self._follow_modules()

    def _follow_modules(self) -> None:
        """Have the callbacks of submodules called at steps that are saved.

        Graphs of torch.compile contain them, so they stay where anything is compiled.
        """
        if self._saving:
            if self._taps.activate() and self._graph_taps and torch_graph.has_compiled():
                torch_graph.forget()
                self._say_compiled_again()
        elif self._passed and not torch_graph.has_compiled():
            self._taps.deactivate()

    def _say_compiled_again(self) -> None:
        self._warn_once(
            "compiled",
            "the model had been compiled before the hook saw it: torch.compile compiles it once more, with the hook's callbacks",
        )

    def _name_new_modules(self) -> None:
        """Name modules that were added to a model since the last saved step."""
        roots = list(self._roots)
        seen = tuple(id(part) for _, root in roots for part in root.modules())
        if seen == self._seen_modules:
            return
        self._seen_modules = seen
        for root, module in roots:
            for name, part in module.named_modules():
                if part not in self._names:
                    self._set_name(part, plain_name(name) or root)
                    self._tapped = False

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield every parameter once, with its first name."""
        seen: set[int] = set()
        for root, module in self._roots:
            for name, parameter in module.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{root}_{plain_name(name)}", parameter

    def _tap_modules(self) -> None:
        """Register callbacks on the modules whose inputs or outputs may be saved.

        Other modules get no callback, because each one costs time.
        """
        self._tapped = True
        taps, graph_taps = len(self._taps), self._graph_taps
        in_compiled = torch_graph.inside_compiled(self._outer_models())
        outer = {id(root()): outer() for (_, root), outer in zip(self._models, self._outer, strict=True)}
        for _, root in self._roots:
            # A wrapper has the name of the module inside and is called once, also if the module is called again to recompute.
            inside = {id(wrapped_by(module)) for module in root.modules()}
            for module in root.modules():
                name = self._names.get(module)
                if name is not None and id(module) not in inside and module not in self._tapped_modules:
                    self._tapped_modules[module] = True
                    wanted = self._wanted_of(name, id(module) in in_compiled and module is not root)
                    if module is not root:
                        self._tap(module, wanted)
                    elif (called := outer[id(root)]) is not None:
                        self._tapped_roots[called] = weakref.ref(root), frozenset(wanted)
                    if wanted:
                        self.collection_manager.add_modules({name: class_names(module)})

        if len(self._taps) > taps:
            self._passed = False
        if self._graph_taps > graph_taps and any(torch_graph.forget_compiled_code(one) for one in self._outer_models()):
            self._say_compiled_again()

    def _wanted_of(self, name: str, in_compiled: bool) -> dict[str, bool]:
        """Return which of a module's inputs and outputs may be saved.

        The values are whether graphs of torch.compile are to contain them: that costs part of what compiling gains, so only if the script
        has chosen them.
        """
        wanted = {}
        for kind in ("input", "output"):
            prefix = f"{name}_{kind}_"
            chosen = self._plan.wants_numbered(prefix, chosen=True)
            if chosen or (not in_compiled and self._plan.wants_numbered(prefix)):
                wanted[kind] = chosen
        return wanted

    def _tap(self, module: nn.Module, wanted: Mapping[str, bool]) -> None:
        """Register callbacks on a module for what is wanted of it.

        Inputs are copied before the call, which may change them in place.
        """
        if "input" in wanted:
            self._input_taps[module] = True
            self._taps.before(module, GraphCallback(self, Hook._before_call, module, False, wanted["input"]))
        if "output" in wanted:
            self._taps.after(module, GraphCallback(self, Hook._after_call, module, True, wanted["output"]))
        self._graph_taps += sum(wanted.values())

    def _before_call(self, module: nn.Module, inputs: object, named_inputs: object) -> None:
        if self._plan.saves_activations and self._loop.recorded and not is_passive():
            self._capture_all(self._names[module], "input", (inputs, named_inputs))

    def _after_call(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        if (
            self._plan.saves_activations
            and self._loop.recorded
            and module not in self._loss_modules
            and not is_passive()
        ):
            self._capture_all(self._names[module], "output", outputs)

    def _after_loss(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        if is_passive() or not self._loop.takes_losses:
            return
        name = self._loss_modules[module]
        alone = list(self._loss_modules.values()).count(name) == 1
        for tensor in tensors_in(outputs):
            self._loop.loss(name, tensor, averages=alone)

    def _capture_all(self, module: str, kind: str, value: object) -> None:
        """Capture the tensors in a module's input or output.

        Numbering continues if the module is called again in the same step.
        """
        prefix = f"{module}_{kind}_"
        for tensor in tensors_in(value):
            self._capture(f"{prefix}{self._loop.next_index(prefix)}", tensor)

    # ---------------------------------------------------------------------------------------------------- gradients

    def _watch(self, name: str, parameter: nn.Parameter) -> None:
        """Register a callback for a parameter's gradient.

        It is removed at the first step that is not saved.
        """
        known = self._watched.get(id(parameter))
        if known is not None and known[0]() is parameter:
            return
        gradient = f"gradient/{name}"
        if is_lazy(parameter):  # a lazy parameter has no shape before the first forward pass
            return
        if parameter.is_leaf and self._save_spec(gradient) is not None:
            handle = parameter.register_post_accumulate_grad_hook(Callback(self, Hook._after_gradient))
            self._watched[id(parameter)] = weakref.ref(parameter), gradient, handle

    def _watch_none(self) -> None:
        for _, _, handle in self._watched.values():
            handle.remove()
        self._watched.clear()

    def _after_gradient(self, parameter: torch.Tensor) -> None:
        if self._saving and parameter.grad is not None and self._loop.watches_gradients:
            self._loop.gradient(self._watched[id(parameter)][1], parameter.grad)

    # ---------------------------------------------------------------------------------------------------------- values

    def _wants_optimizer_state(self) -> bool:
        """Whether a collection of this step names the optimizer's state.

        A pattern such as ``fc1`` does not.
        """
        return any(
            one.name in (CollectionKeys.ALL, CollectionKeys.OPTIMIZER_STATE)
            or any("optim" in pattern for pattern in one.include_regex)
            for one in self._saving
            if one.name != CollectionKeys.UPDATES
        )

    def _add_loss(self, name: str) -> None:
        self._loop.losses_are_named()
        super()._add_loss(name)

    def _save_script_tensor(self, name: str, *rest: Any) -> None:
        self._loop.steps.value_arrives(name)
        super()._save_script_tensor(name, *rest)

    def _why_no_step(self) -> str:
        if not self._models:
            return "no model was registered; call hook.register_module(model) before the training"
        if self._loop.ignored_passes:
            return (
                f"the model was called {self._loop.ignored_passes} times in training mode without gradients, and nothing updated "
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
        if name in of_models and not self._models:
            return "no model was registered; call hook.register_module(model)"
        if name == CollectionKeys.GRADIENTS:
            if not self._loop.steps.backwards:
                return "no backward pass was seen"
            if not any(parameter.requires_grad for _, parameter in self._parameters()) and any(
                True for _ in self._roots
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

    # ------------------------------------------------------------------------------------------------------ copying

    def _copy(self, name: str, value: object) -> TensorCopy:
        """Copy a tensor from its device directly into the write buffer."""
        if isinstance(value, TensorCopy):
            return value
        if isinstance(value, LocalShard):
            shard: LocalShard | None = value
        elif isinstance(value, torch.Tensor):
            shard = self._shards.find(name, value)
        else:
            return super()._copy(name, value)
        if shard is None:
            return copy_from_torch(name, value, self._write_queue.staging, self._devices)
        copy = copy_from_torch(name, shard.local, self._write_queue.staging, self._devices)
        copy.shard = shard.place.position
        if shard.place.position is None:
            self._report_failure(
                "shard without position",
                f"tensor {shown(name)} is sharded, and its position in the whole tensor is unknown: the shard of each worker "
                'that saves is saved (include_workers="all": of every worker); read it with value(step, worker=...)',
            )
        return copy

    def _copy_for(self, spec: SaveSpec, name: str, value: object) -> TensorCopy:
        """Copy a tensor, or its reductions.

        Of a tensor on an accelerator, reductions are enough if nothing else of it is needed.
        """
        more = spec.raw or spec.scalar or spec.statistics or spec.planned or spec.histogram is not None
        if more or not isinstance(value, torch.Tensor) or self._write_queue.is_observed:
            return self._copy(name, value)
        on_device = self._devices.has(value) and not self._shards.find(name, value)
        if not (on_device and spec.reductions and can_reduce(value, spec.reductions)):
            return self._copy(name, value)
        reduced = reduce(value, spec.reductions)
        copy = copy_from_torch(name, reduced, self._write_queue.staging, self._devices)
        copy.reductions, copy.dtype = spec.reductions, str(value.dtype).removeprefix("torch.")
        return copy

    def _capture(self, name: str, value: Any, keep: bool = False) -> TensorCopy | None:
        contents = list(self._shards.contents(name, value))
        copies = [
            super(Hook, self)._capture(one, content, keep and len(contents) == 1)
            for one, content in contents
            if self._is_mine(one, content)
        ]
        return copies[0] if len(copies) == len(contents) == 1 else None

    def _shard(self, name: str, value: torch.Tensor) -> LocalShard | None:
        return self._shards.find(name, value)

    def _norm(self, gradients: Sequence[tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]]) -> object:
        if any(self._shards.has(name, parameter) for name, parameter, _ in gradients):
            return self._shards.norm(gradients)
        return gradient_norm([one for _, _, one in gradients if isinstance(one, torch.Tensor)])

    def _is_mine(self, name: str, value: object) -> bool:
        """Whether this worker saves a tensor.

        A worker that saves only shards leaves other tensors to the first worker.
        """
        if not self._only_shards:
            return True
        shard = self._shards.find(name, value) if isinstance(value, torch.Tensor) else value
        return isinstance(shard, LocalShard) and not (shard.place.replica or shard.place.position is None)

    def _seek_shards(self) -> None:
        """Find sharded parameters before the first step.

        With ``include_workers="one"``, every worker saves its shards.
        """
        self._shards_sought = True
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return
        parameters = list(self._parameters())
        self._shards.scan(self._all_modules(), parameters)
        wanted = [
            f"{prefix}{part}"
            for name, one in parameters
            if self._shards.has(name, one)
            for part in self._shards.names(name)
            for prefix in ("", "gradient/")
        ]
        if self.include_workers == "one" and wanted:
            if not self._plan.prepared:
                self._prepare()
            if self._plan.wants_any(wanted):
                ranks = self._shards.writers(parameters)
                if torch.distributed.get_rank() in ranks | {0}:
                    self._save_shards(len(ranks | {0}))

    def _outer_models(self) -> Iterator[nn.Module]:
        """The registered models with their wrappers, and the models inside."""
        yield from (model for outer in self._outer if (model := outer()) is not None)
        yield from (model for _, model in self._roots)

    def _all_modules(self) -> Iterator[nn.Module]:
        for model in self._outer_models():
            yield from model.modules()

    def _plain(self, value: object) -> object:
        return np.empty(0) if isinstance(value, torch.Tensor) else value

    # ------------------------------------------------------------------------------------------------------ closing

    def _detach(self) -> None:
        self._loop.steps.close()
        for handle in [*self._handles, *(each for handles in self._parts.values() for each in handles)]:
            handle.remove()
        self._handles.clear()
        self._taps.clear()
        self._parts = WeakIdKeyDictionary()
        self._watch_none()
        self._outer.clear()
        self._shards.clear()
        self._names = WeakIdKeyDictionary()


def record(model: nn.Module, out_dir: str | os.PathLike[str], *optimizers: Any, **options: Any) -> Hook:
    """Return a new hook that records the training of a model.

    Without optimizers, the hook sees those that update the model. With several, such as those of a GAN, pass them: a step is then
    an update by each of them from the first step on.

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
