"""The module layer of the PyTorch hook: calls, inputs and outputs of modules."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.hooks import torch_graph
from smdwidgets.hooks.torch_callbacks import GraphCallback, ModuleCallback, PartCallback
from smdwidgets.hooks.torch_gradient_hook import GradientHook
from smdwidgets.hooks.torch_modules import class_names
from smdwidgets.hooks.torch_names import tensors_in, wrapped_by
from smdwidgets.hooks.torch_taps import Taps
from smdwidgets.hooks.torch_training import is_passive

__all__ = ["ModuleHook"]

#: Of a module that is not a registered model: no model, and nothing is wanted.
_NOT_TAPPED: tuple[Any, frozenset[str]] = (None, frozenset())


class ModuleHook(GradientHook):
    """Follows calls of models, and captures inputs and outputs of their modules."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._input_taps: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Names of registered losses, which save their outputs themselves.
        self._loss_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Whether the modules of all models have the callbacks that they need.
        self._tapped = False
        self._tapped_modules: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: By registered module: the model inside, and which of its inputs and outputs may be saved. The callbacks that follow its
        #: calls take them, because graphs of torch.compile do not contain these.
        self._tapped_roots: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._taps = Taps()
        #: How many of these callbacks graphs of torch.compile contain.
        self._graph_taps = 0
        #: Whether a registered model was called with all callbacks of its submodules.
        self._passed = False
        #: Callbacks on submodules, where the script calls them without calling the model.
        self._parts: WeakIdKeyDictionary = WeakIdKeyDictionary()
        super().__init__(*args, **options)

    def _follow_calls(self, module: nn.Module, kind: type[ModuleCallback]) -> list[Any]:
        """Register callbacks for the beginning and the end of a module's forward pass.

        They run before other callbacks, because that of FSDP gathers the parameters.
        """
        before, after = kind(self, ModuleHook._before_forward), kind(self, ModuleHook._after_forward)
        if torch_graph.is_compiled_in_place(module):  # a graph contains the callbacks of such a module
            return [torch_graph.around_compiled_calls(module, before, after)]
        return [
            module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            module.register_forward_hook(after, always_call=True),
        ]

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
        pending = [root for _, root in self._models.roots()]
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

    def _tap_modules(self) -> None:
        """Register callbacks on the modules whose inputs or outputs may be saved.

        Other modules get no callback, because each one costs time.
        """
        self._tapped = True
        taps, graph_taps = len(self._taps), self._graph_taps
        in_compiled = torch_graph.inside_compiled(self._models.with_wrappers())
        outer = self._models.called()
        for _, root in self._models.roots():
            # A wrapper has the name of the module inside and is called once, also if the module is called again to recompute.
            inside = {id(wrapped_by(module)) for module in root.modules()}
            for module in root.modules():
                name = self._models.names.get(module)
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
        if self._graph_taps > graph_taps and any(
            torch_graph.forget_compiled_code(one) for one in self._models.with_wrappers()
        ):
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
            self._taps.before(module, GraphCallback(self, ModuleHook._before_call, module, False, wanted["input"]))
        if "output" in wanted:
            self._taps.after(module, GraphCallback(self, ModuleHook._after_call, module, True, wanted["output"]))
        self._graph_taps += sum(wanted.values())

    def _before_call(self, module: nn.Module, inputs: object, named_inputs: object) -> None:
        if self._plan.saves_activations and self._loop.recorded and not is_passive():
            self._capture_all(self._models.names[module], "input", (inputs, named_inputs))

    def _after_call(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        if (
            self._plan.saves_activations
            and self._loop.recorded
            and module not in self._loss_modules
            and not is_passive()
        ):
            self._capture_all(self._models.names[module], "output", outputs)

    def _capture_all(self, module: str, kind: str, value: object) -> None:
        """Capture the tensors in a module's input or output.

        Numbering continues if the module is called again in the same step.
        """
        prefix = f"{module}_{kind}_"
        for tensor in tensors_in(value):
            self._capture(f"{prefix}{self._loop.next_index(prefix)}", tensor)
