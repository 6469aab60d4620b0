"""Functions of PyTorch that are replaced during one forward pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["Replaced", "See"]

See = Callable[[tuple[Any, ...], dict[str, Any], Any], object]
"""Called with arguments and result of a function; must not raise."""


class Replaced:
    """Has functions observed while one model is called.

    A wrapper calls the original with the same arguments and returns its result. They are not replaced for longer,
    because torch.jit and torch.compile know them by identity.
    """

    def __init__(self) -> None:
        self._restore: list[tuple[Any, str, Any, Any]] = []

    def begin(self, attention: See, softmax: See, topk: See, modules: Iterable[nn.Module]) -> None:
        """Observe attention, softmax and topk.

        Args:
            attention: sees ``torch.nn.functional.scaled_dot_product_attention``.
            softmax: sees the softmax functions.
            topk: sees the topk functions.
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
        for namespace in {type(one).__module__ for one in modules}:
            module = sys.modules.get(namespace)
            for name, (original, wrapper) in by_name.items() if module is not None else ():
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


def _observed(original: Callable[..., Any], see: See) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not torch.compiler.is_compiling():
            see(args, kwargs, result)
        return result

    return call
