"""Call back from a graph that torch.compile made, without splitting the graph.

torch.compile traces the callbacks of modules. Python code that it cannot trace splits the graph, which
``fullgraph=True`` turns into an exception in the training. So a callback that is being traced leaves an operator in the
graph, with the tensors that it was called with and its number; the operator calls the callback when the graph runs.
Operators with the effect ``ORDERED`` are neither removed nor reordered. Registering the effect is a private function of
PyTorch: without it callbacks split the graph.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.hooks.torch.names import part_of

__all__ = [
    "AVAILABLE",
    "Compiled",
    "around_compiled_calls",
    "call_in_graph",
    "flat_tensors",
    "forget_compiled_code",
    "has_compiled",
    "inside_compiled",
    "is_compiled_in_place",
    "is_wrapped",
    "number_of",
]

logger = logging.getLogger("smdwidgets.hooks")

#: The directory of PyTorch's code.
_PYTORCH = str(Path(torch.__file__).parent)
_numbers = itertools.count()
#: The callbacks by number. A graph may outlive them.
_callbacks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def number_of(callback: Any) -> int:
    """Return a number by which a graph can refer to a callback.

    A callback is an object with a method ``called_by_graph(tensors)``.
    """
    number = next(_numbers)
    _callbacks[number] = callback
    return number


def _run(tensors: list[torch.Tensor], number: int) -> None:
    callback = _callbacks.get(number)
    if callback is None or (any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing()):
        return
    with torch.no_grad():
        callback.called_by_graph(tuple(tensors))


def _define() -> Callable[[list[torch.Tensor], int], None] | None:
    """Define the operator; None if this version of PyTorch cannot keep it in a graph."""
    try:
        from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

        # CUDA graphs replay without running Python, so the operator has to stay outside of them.
        unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)
        library = torch.library.Library("smdwidgets", "DEF")
        library.define("call(Tensor[] tensors, int number) -> ()", tags=() if unsafe is None else (unsafe,))
        library.impl("call", _run, "CompositeExplicitAutograd")
        library.impl("call", lambda tensors, number: None, "Meta")
        operator = torch.ops.smdwidgets.call
        _register_effectful_op(operator.default, _EffectType.ORDERED)
    except Exception as error:
        logger.debug("callbacks split the graphs of torch.compile: %s", error)
        return None
    _define.library = library  # type: ignore[attr-defined]  # the operator lives as long as the library
    return operator  # type: ignore[no-any-return]


_operator = _define()
AVAILABLE = _operator is not None


def call_in_graph(value: object, number: int) -> None:
    """Leave the operator in the graph that is being traced."""
    tensors: list[torch.Tensor] = []
    flat_tensors(value, tensors)
    if tensors:
        torch.ops.smdwidgets.call(tensors, number)


def flat_tensors(value: Any, found: list[torch.Tensor]) -> None:
    """Add the tensors in nested containers and data classes to a list, in order.

    Written so that torch.compile can trace it.
    """
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            flat_tensors(item, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            flat_tensors(item, found)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            flat_tensors(getattr(value, name), found)


class _Restored:
    """A handle that removes a wrapper of a module's compiled call."""

    def __init__(self, module: nn.Module, wrapper: Any, original: Any) -> None:
        self._module = weakref.ref(module)
        self._wrapper = wrapper
        self._original = original

    def remove(self) -> None:
        """Restore the compiled call, unless the module was compiled again."""
        module = self._module()
        if module is not None and module.__dict__.get("_compiled_call_impl") is self._wrapper:
            module.__dict__["_compiled_call_impl"] = self._original


def is_compiled_in_place(module: nn.Module) -> bool:
    """Return whether ``module.compile()`` was called."""
    return module.__dict__.get("_compiled_call_impl") is not None


def inside_compiled(models: Iterable[nn.Module]) -> set[int]:
    """Return the ids of the modules whose callbacks a graph may contain."""
    found: set[int] = set()
    for model in models:
        for module in model.modules():
            compiled = module if is_compiled_in_place(module) else part_of(module, "_orig_mod")
            if compiled is not None:
                found.update(id(part) for part in compiled.modules())
    return found


def around_compiled_calls(module: nn.Module, before: Callable[..., None], after: Callable[..., None]) -> Any:
    """Call back before and after each call of a module that is compiled in place.

    ``before`` and ``after`` get the arguments that callbacks of the module get.

    Returns a handle that removes both.
    """
    original: Any = module.__dict__["_compiled_call_impl"]
    weak = weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        before(weak(), args, kwargs)
        result = None
        try:
            result = original(*args, **kwargs)
        finally:
            after(weak(), args, result)
        return result

    module.__dict__["_compiled_call_impl"] = call
    return _Restored(module, call, original)


def forget_compiled_code(models: Iterable[nn.Module]) -> bool:
    """Have torch.compile trace these models again.

    It then sees callbacks that were registered after a call.

    Only the code of their forward passes is discarded: other models and functions that this process has compiled stay
    compiled. Models compiled in place, and those whose class is PyTorch's, share code, which is discarded for all of
    them. Returns whether any of the models had been compiled.
    """
    if not has_compiled():
        return False
    try:
        from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, reset_code
        from torch._dynamo.convert_frame import compile_lock

        codes = _codes_of(_compiled_parts(models))
        compiled = [code for code in codes if _debug_get_cache_entry_list(code)]
        with compile_lock:
            for code in compiled:
                reset_code(code)
    except Exception as error:  # private functions
        logger.debug("compiled code was not discarded: %s", error)
        return False
    return bool(compiled)


def _compiled_parts(models: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the modules of these models that torch.compile was called with."""
    parts = {id(part): part for model in models for part in model.modules()}
    collected = [part for part in parts.values() if is_compiled_in_place(part)]
    wrapped = {id(inner) for part in parts.values() if (inner := part_of(part, "_orig_mod")) is not None}
    if not (collected or wrapped):
        # The script may have registered the model, and call what torch.compile has returned. `isinstance` would run
        # code of lazy objects.
        wrappers = [one for one in gc.get_objects() if issubclass(type(one), torch._dynamo.OptimizedModule)]
        wrapped = {id(one.__dict__.get("_orig_mod", part_of(one, "_orig_mod"))) for one in wrappers}
    return collected + [part for part in parts.values() if id(part) in wrapped]


def _codes_of(parts: Iterable[nn.Module]) -> list[CodeType]:
    """Return the code of the forward passes of modules.

    It includes the code that follows a break in a graph.
    """
    from torch._dynamo import convert_frame, external_utils, resume_execution

    modules = {id(module): module for part in parts for module in part.modules()}
    forwards = [getattr(getattr(type(module), "forward", None), "__code__", None) for module in modules.values()]
    shared = (external_utils.__file__, torch.nn.modules.module.__file__)
    seen = [code for each in convert_frame.input_codes.seen if (code := each()) is not None]
    pending = [
        *(code for code in forwards if code is not None),
        *(code for code in seen if modules and code.co_filename in shared),
    ]
    collected: dict[int, CodeType] = {}  # different code may be equal
    while pending:
        code = pending.pop()
        if id(code) not in collected:
            collected[id(code)] = code
            pending += resume_execution.ContinueExecutionCache.cache.get(code, {}).values()
    return list(collected.values())


def is_wrapped(model: nn.Module) -> bool:
    """Return whether torch.compile wraps a model, or a part of it.

    Nothing needs to be compiled yet. The wrapper is looked for among all
    objects, which takes some time.
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return False
    try:
        return bool(_compiled_parts([model]))
    except AttributeError:  # the class of the wrappers is private, so it may be missing
        return False


def compiled_count() -> int:
    """Return how often torch.compile has compiled something in this process."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    try:
        return 0 if compiler is None else len(compiler.output_codes.seen)
    except (AttributeError, TypeError):  # private, so it may be missing
        return -1


def has_compiled_code(model: nn.Module) -> bool:
    """Return whether torch.compile has compiled a model or a part of it.

    Functions that the model calls do not count, and neither does code of PyTorch: other models share it. If it is
    unknown, the result is True.
    """
    if not has_compiled():
        return False
    try:
        from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

        own = [code for code in _codes_of([model]) if not code.co_filename.startswith(_PYTORCH)]
        return (
            bool(_compiled_parts([model]))
            or any(_debug_get_cache_entry_list(code) for code in own)
            or any(hasattr(vars(part).get("forward"), "_torchdynamo_orig_callable") for part in model.modules())
        )
    except Exception as error:  # private functions
        logger.debug("compiled code was not found: %s", error)
        return True


class Compiled:
    """What torch.compile has compiled of a training, which begins now."""

    def __init__(self) -> None:
        self._begun = compiled_count()
        #: By model, how often something had been compiled at the last look, and whether a part of it was.
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def has_code_of(self, model: nn.Module) -> bool:
        """Return whether a model or a part of it was compiled."""
        count = compiled_count()
        before, is_compiled = self._known.get(model, (-1, True))
        if before != count or count < 0:
            is_compiled = has_compiled_code(model)
            self._known[model] = count, is_compiled
        return bool(is_compiled)

    def may_have_code_of(self, model: nn.Module) -> bool:
        """Return whether a model is compiled, or anything was since, such as a step.

        What the process compiled before, such as the model of another training, does not count.
        """
        count = compiled_count()
        self._begun = min(self._begun, count)  # what was compiled may be deleted
        return count > self._begun or bool(inside_compiled([model])) or self.has_code_of(model)


def has_compiled() -> bool:
    """Return whether torch.compile has compiled anything in this process."""
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    if compiler is None:
        return False
    try:
        return bool(compiler.output_codes.seen)
    except AttributeError:  # private, so it may be missing: then assume that something was
        return True
