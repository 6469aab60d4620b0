"""Who calls an operator of PyTorch: phase, module, backward node, and lines."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from smdwidgets.replay.places import Place, call_places
from smdwidgets.replay.protocol import StepObserver

__all__ = ["FRAMEWORK", "UNINITIALISED", "Caller", "Callers", "is_own_call"]

#: The directory of PyTorch, with a separator at its end.
FRAMEWORK: Final = str(Path(torch.__file__).parent) + os.sep
_OPTIMIZERS: Final = f"{FRAMEWORK}optim{os.sep}"
_AUTOGRAD: Final = f"{FRAMEWORK}autograd{os.sep}__init__.py"
#: Where PyTorch calls modules, backward passes and updates.
_WRAPPED: Final = (_OPTIMIZERS, f"{FRAMEWORK}autograd{os.sep}", f"{FRAMEWORK}nn{os.sep}modules{os.sep}")
_OWN: Final = str(Path(__file__).parent) + os.sep

#: Operators whose results have no values yet.
UNINITIALISED: Final = frozenset(
    ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "resize_", "empty_permuted")
)


class Caller(NamedTuple):
    """Who calls an operator."""

    phase: str
    module: str
    node: str
    place: Place | None
    user: Place | None


class Callers(StepObserver):
    """Sees every operator below autograd, and knows who calls it.

    A subclass implements `call`, which asks `_caller` before it runs the operator.
    """

    def __init__(self) -> None:
        #: Names of the parts of models, by identity.
        self._names: dict[int, str] = {}
        self._stack: list[torch.nn.Module] = []
        #: Where the operator was called whose backward node has this number.
        self._forward: dict[int, Caller] = {}

    def context(self) -> AbstractContextManager[object]:
        """Return a context in which operators are seen."""
        return self._tracing()

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        functions = torch.nn.modules.module
        with ExitStack() as stack:
            entered = functions.register_module_forward_pre_hook(self._enter)
            stack.callback(entered.remove)
            left = functions.register_module_forward_hook(self._leave, always_call=True)
            stack.callback(left.remove)
            stack.enter_context(_Mode(self))
            yield

    def _enter(self, module: torch.nn.Module, arguments: object) -> None:
        self._stack.append(module)

    def _leave(self, module: torch.nn.Module, arguments: object, result: object) -> None:
        while self._stack and self._stack.pop() is not module:
            pass

    @abstractmethod
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, and return its result."""

    def _name_parts(self, model: torch.nn.Module) -> None:
        self._names.update((id(part), name) for name, part in model.named_modules() if id(part) not in self._names)

    def _forget_callers(self) -> None:
        self._forward.clear()
        self._stack.clear()

    def _root(self, gradient: torch.Tensor) -> None:
        """A backward pass begins with this gradient."""

    def _caller(self, name: str, args: tuple[Any, ...]) -> Caller:
        node = _autograd_node()
        module = self._module()
        if node is not None and not self._stack:
            called = self._forward.get(node._sequence_nr())
            title = node.name()
            if called is not None:
                return called._replace(phase="backward", node=title)
            return Caller("backward", "", title, *call_places(FRAMEWORK))
        phase = self._phase(name, args)
        caller = Caller(phase, module, "", *call_places(FRAMEWORK))
        if phase == "forward":
            # Autograd has already made the node of this operator. The first operator below a node counts.
            self._forward.setdefault(_sequence_number() - 1, caller)
        return caller

    def _phase(self, name: str, args: tuple[Any, ...]) -> str:
        """Return the phase; the optimizer's if no line of the user lies between."""
        frame: FrameType | None = sys._getframe(3)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(_OPTIMIZERS):
                return "optimizer"
            if file == _AUTOGRAD:
                if name == "ones_like" and args and isinstance(args[0], torch.Tensor):
                    self._root(args[0].detach())
                return "backward"
            if frame.f_code.co_name == "step" and isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
                return "optimizer"
            if not file.startswith((FRAMEWORK, _OWN)):
                return "forward"
            frame = frame.f_back
        return "forward"

    def _module(self) -> str:
        if not self._stack:
            return ""
        module = self._stack[-1]
        name = self._names.get(id(module), "")
        kind = type(module).__name__
        return f"{name} ({kind})" if name else kind


class _Mode(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Sees every operator below autograd."""

    def __init__(self, trace: Callers) -> None:
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._trace.call(func, args, kwargs or {})


def is_own_call() -> bool:
    """Whether this package calls an operator, not the training.

    Calls of the training may pass through this package, which wraps modules, ``backward`` and updates.
    """
    if _autograd_node() is not None:
        return False
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_WRAPPED):
            return False
        if not file.startswith(FRAMEWORK):
            return file.startswith(_OWN)
        frame = frame.f_back
    return False


def _autograd_node() -> Any:
    """Return the node of the backward pass that runs, if PyTorch reports it."""
    try:
        return torch._C._current_autograd_node()
    except AttributeError:
        return None


def _sequence_number() -> int:
    try:
        number: int = torch.autograd._get_sequence_nr()
        return number
    except AttributeError:
        return 0
