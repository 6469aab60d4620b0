"""Calls of the registered models, and inputs and outputs of their modules."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch import graph as torch_graph
from smdwidgets.hooks.torch.callbacks import GraphCallback, ModuleCallback, PartCallback
from smdwidgets.hooks.torch.modules import class_names
from smdwidgets.hooks.torch.names import keyed_tensors_in, wrapped_by
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.taps import Taps
from smdwidgets.hooks.torch.training import TrainingLoop

__all__ = ["ModuleCalls", "PassObserver"]

#: The entry of a module outside of registered models: no model, and nothing to save.
_NOT_TAPPED: tuple[Any, frozenset[str]] = (None, frozenset())


class PassObserver(Protocol):
    """What sees the calls of the models."""

    @property
    def is_on(self) -> bool:
        """Whether it needs them."""

    def enters(self, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        """A registered model is called."""

    def leaves(self, module: nn.Module, outputs: Any) -> None:
        """A registered model has returned."""


class ModuleCalls:
    """Follows calls of models, and captures inputs and outputs of their modules.

    Args:
        parts: the parts of the hook.
        models: the registered models.
        loop: the training loop, which receives the passes.
    """

    def __init__(self, parts: Parts, models: RegisteredModels, loop: TrainingLoop) -> None:
        self.plan = parts.plan
        self._guard = parts.guard
        self._tensors = parts.tensors
        self._models = models
        self._loop = loop
        #: What else sees the calls of the models.
        self.observers: tuple[PassObserver, ...] = ()
        self._input_taps: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Names of registered losses, which save their outputs themselves.
        self.loss_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Whether a subclass of the hook decides what is saved of a call.
        self.by_script = False
        #: Whether the modules of all models have the callbacks that they need.
        self.is_complete = False
        self._tapped_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: By registered module: the model inside, and which of its inputs and outputs may be saved. The callbacks that
        #: follow its calls take them, because graphs of torch.compile do not contain these.
        self._tapped_roots: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: By prefix: the numbers of tensors with a key, by alias.
        self._numbers: dict[str, dict[str, int]] = {}
        self._taps = Taps()
        #: How many of these callbacks graphs of torch.compile contain.
        self._graph_taps = 0
        #: Whether a registered model was called with all callbacks of its submodules.
        self._passed = False
        #: Callbacks on submodules, where the script calls them without calling the model.
        self._parts: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def follow_calls(self, module: nn.Module, kind: type[ModuleCallback]) -> list[Any]:
        """Register callbacks for the beginning and the end of a module's forward pass.

        They run before other callbacks, because that of FSDP gathers the parameters.
        """
        shortcuts = self._loop.short_way.shortcuts
        before, after = (
            kind(self, self._guard, ModuleCalls._before_forward, shortcuts["enters"]),
            kind(self, self._guard, ModuleCalls._after_forward, shortcuts["leaves"]),
        )
        if torch_graph.is_compiled_in_place(module):  # a graph contains the callbacks of such a module
            return [torch_graph.around_compiled_calls(module, before, after)]
        return [
            module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            module.register_forward_hook(after, always_call=True),
        ]

    def _before_forward(self, module: nn.Module, inputs: object, named_inputs: object) -> None:
        is_tapped = self._taps.active and module in self._input_taps
        if not is_passive():
            self._loop.enter(module)
            for observer in self.observers:
                observer.enters(module, inputs, named_inputs)
        becomes_tapped = not is_tapped and self._taps.active and module in self._input_taps
        if becomes_tapped and not torch_graph.is_compiled_in_place(module):  # its callback comes too late for this call
            self._before_call(module, inputs, named_inputs)
        if self.plan.saves_activations:  # looking up a weak key takes longer than all else at most steps
            root, wanted = self._tapped_roots.get(module, _NOT_TAPPED)
            if "input" in wanted:
                self._before_call(root(), inputs, named_inputs)

    def _after_forward(self, module: nn.Module, inputs: object, outputs: object) -> None:
        if self.plan.saves_activations:
            root, wanted = self._tapped_roots.get(module, _NOT_TAPPED)
            if "output" in wanted:
                self._after_call(root(), inputs, outputs)
        if not is_passive():
            for observer in self.observers:
                observer.leaves(module, outputs)
            self._loop.leave(module, outputs)
        self._passed = self._passed or self._taps.active

    def follow_parts(self) -> None:
        """Listen to calls of submodules, because the script never calls the model.

        An example is a ``training_step`` of Lightning. A compiled module is followed, its submodules are not: a
        callback would split its graph.
        """
        pending = [root for _, root in self._models.roots()]
        while pending:
            module = pending.pop()
            for part in module.children():
                if part not in self._parts and not isinstance(part, torch.jit.ScriptModule):
                    self._parts[part] = self.follow_calls(part, PartCallback)
                if not (hasattr(part, "_orig_mod") or part.__dict__.get("_compiled_call_impl")):
                    pending.append(part)

    def follow_less(self, outermost: WeakIdKeyDictionary) -> None:
        """Stop listening to submodules that other modules call."""
        for part, handles in list(self._parts.items()):
            if part not in outermost:
                for handle in self._parts.pop(part, handles):
                    handle.remove()

    def follow_modules(self) -> None:
        """Have the callbacks of submodules called at steps that are saved.

        Graphs of torch.compile contain them, so they stay where anything is compiled.
        """
        if self.plan.saves_activations:
            if self._taps.activate() and self._graph_taps:
                self._compile_again()
        elif self._passed and not torch_graph.has_compiled():
            self._taps.deactivate()

    def _compile_again(self) -> None:
        """Have graphs of the models contain callbacks that were registered later."""
        if torch_graph.forget_compiled_code(self._models.with_wrappers()):
            self._guard.warn_once(
                "compiled",
                "the model had been compiled before the hook saw it: torch.compile compiles it once more, with the hook's callbacks",
            )

    def tap_modules(self) -> None:
        """Register callbacks on the modules whose inputs or outputs may be saved.

        Other modules get no callback, because each one costs time.
        """
        self.is_complete = True
        taps, graph_taps = len(self._taps), self._graph_taps
        in_compiled = torch_graph.inside_compiled(self._models.with_wrappers())
        outer = self._models.called()
        for _, root in self._models.roots():
            # A wrapper has the name of the module inside and is called once, also if the module is called again to
            # recompute.
            inside = {id(wrapped_by(module)) for module in root.modules()}
            for module in root.modules():
                name = self._models.names.get(module)
                if name is not None and id(module) not in inside and module not in self._tapped_modules:
                    self._tapped_modules[module] = True
                    wanted = self._wanted_of(name, id(module) in in_compiled and module is not root)
                    if self.by_script:
                        pass
                    elif wanted and isinstance(module, torch.jit.ScriptModule):
                        self._guard.warn_once(
                            "scripted",
                            "inputs and outputs of %s are not saved: scripted modules have no callbacks",
                            name,
                        )
                    elif module is not root:
                        self.tap(module, wanted)
                    elif (called := outer[id(root)]) is not None:
                        self._tapped_roots[called] = weakref.ref(root), frozenset(wanted)
                    if wanted:
                        self.plan.collections.add_modules({name: class_names(module)})

        if len(self._taps) > taps:
            self._passed = False
        if self._graph_taps > graph_taps:
            self._compile_again()

    def _wanted_of(self, name: str, in_compiled: bool) -> dict[str, bool]:
        """Return which of a module's inputs and outputs may be saved.

        The values are whether graphs of torch.compile are to contain them: that costs part of what compiling gains, so
        only if the script has chosen them.
        """
        wanted = {}
        for kind in ("input", "output"):
            prefix = f"{name}_{kind}_"
            chosen = self.plan.wants_numbered(prefix, chosen=True)
            if chosen or (not in_compiled and self.plan.wants_numbered(prefix)):
                wanted[kind] = chosen
        return wanted

    def tap(self, module: nn.Module, wanted: Mapping[str, bool]) -> None:
        """Register callbacks on a module for what is wanted of it.

        Inputs are copied before the call, which may change them in place.
        """
        if "input" in wanted:
            self._input_taps[module] = True
            self._taps.before(
                module, GraphCallback(self, self._guard, ModuleCalls._before_call, module, False, wanted["input"])
            )
        if "output" in wanted:
            self._taps.after(
                module, GraphCallback(self, self._guard, ModuleCalls._after_call, module, True, wanted["output"])
            )
        self._graph_taps += sum(wanted.values())

    def _before_call(self, module: nn.Module, inputs: object, named_inputs: object) -> None:
        if self.plan.saves_activations and self._loop.recorded and not is_passive():
            self.capture_all(self._models.names[module], "input", inputs, named_inputs)

    def _after_call(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        if self.plan.saves_activations and self._loop.recorded and module not in self.loss_modules and not is_passive():
            self.capture_all(self._models.names[module], "output", outputs)

    def capture_all(self, module: str, kind: str, *values: object) -> None:
        """Capture the tensors in a module's inputs or outputs.

        Numbering continues if the module is called again in the same step.
        """
        prefix = f"{module}_{kind}_"
        for value in values:
            for key, tensor in keyed_tensors_in(value):
                self._tensors.capture(f"{prefix}{self._number(prefix, key)}", tensor)

    def _number(self, prefix: str, key: str) -> int:
        """Return the number of a tensor of a call.

        It is the tensor's position, unless its key had another one before. A dictionary without one of its keys, as an
        output without a loss in evaluation, thus moves no other tensor.
        """
        position = self._loop.next_index(prefix)
        if not key:
            return position
        alias = f"{prefix[:-1]}.{key}"
        if call := self._loop.next_index(alias):
            alias = f"{alias}_{call}"
        numbers = self._numbers.setdefault(prefix, {})
        if (number := numbers.get(alias)) is None:
            taken = numbers.values()
            number = numbers[alias] = position if position not in taken else max(taken) + 1
            self.plan.collections.add_aliases({alias: f"{prefix}{number}"})
        return number

    def detach(self) -> None:
        """Remove all callbacks."""
        for handle in [handle for handles in self._parts.values() for handle in handles]:
            handle.remove()
        self._taps.clear()
        self._parts = WeakIdKeyDictionary()
