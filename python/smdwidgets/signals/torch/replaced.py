"""Functions of PyTorch that are replaced during one forward pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, Final

import torch
from torch import nn

__all__ = ["Replaced", "See"]

#: Modules whose functions a model may call by their full name.
_OWNERS: Final = (
    "flash_attn",
    "torch.nn.attention.flex_attention",
    "torch.nn.attention.varlen",
    "transformers.integrations.flex_attention",
)

See = Callable[[tuple[Any, ...], dict[str, Any], Any], object]
"""Called with arguments and result of a function; must not raise."""


class Replaced:
    """Has functions observed while one model is called.

    A wrapper calls the original with the same arguments and returns its result. They are not replaced for longer,
    because torch.jit and torch.compile know them by identity.
    """

    def __init__(self) -> None:
        self._restore: list[tuple[Any, str, Any, Any]] = []

    def begin(
        self, attention: See, softmax: See, topk: See, fused: Mapping[str, See], modules: Iterable[nn.Module]
    ) -> None:
        """Observe attention, softmax and topk.

        Args:
            attention: sees ``torch.nn.functional.scaled_dot_product_attention``.
            softmax: sees the softmax functions.
            topk: sees the topk functions.
            fused: sees functions of other libraries by name, also those that torch.compile has made of them.
            modules: modules of the model. The files that define their classes may have imported a function by name.
        """
        self.end()
        functional = torch.nn.functional
        observers = {
            (functional, "scaled_dot_product_attention"): attention,
            (torch, "softmax"): softmax,
            (torch.Tensor, "softmax"): softmax,
            (torch, "topk"): topk,
            (torch.Tensor, "topk"): topk,
        }
        by_name = {}
        for (owner, name), see in observers.items():
            original = getattr(owner, name)
            wrapper = _observed(original, see)
            self._replace(owner, name, wrapper)
            if owner is not torch.Tensor:
                by_name[name] = original, wrapper
        namespaces = {type(one).__module__ for one in modules}
        for module in [sys.modules[name] for name in sorted(namespaces.union(_OWNERS)) if name in sys.modules]:
            for name, value in list(vars(module).items()):
                kernel = _name_of(value) if isinstance(value, FunctionType) else ""
                if kernel in fused:
                    self._replace(module, name, _observed(value, fused[kernel]))
        for module in [sys.modules[name] for name in namespaces if name in sys.modules]:
            for name, (original, wrapper) in by_name.items():
                if module not in (torch, functional) and vars(module).get(name) is original:
                    self._replace(module, name, wrapper)

    def _replace(self, owner: Any, name: str, wrapper: Any) -> None:
        self._restore.append((owner, name, vars(owner).get(name), wrapper))
        setattr(owner, name, wrapper)

    def end(self) -> None:
        """Put the functions back, unless another library has replaced them meanwhile."""
        for owner, name, original, wrapper in reversed(self._restore):
            if vars(owner).get(name) is wrapper:
                if original is None:
                    delattr(owner, name)  # inherited
                else:
                    setattr(owner, name, original)
        self._restore.clear()


def _name_of(function: FunctionType) -> str:
    """Return the name of a function, or of the one that torch.compile has made it of."""
    original = vars(function).get("_torchdynamo_orig_callable", function)
    return getattr(original, "__name__", "")


def _observed(original: Callable[..., Any], see: See) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            see(args, kwargs, result)
        return result

    return call
