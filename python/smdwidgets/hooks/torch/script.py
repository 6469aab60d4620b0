"""Lets ``torch.jit.script`` compile a model that is hooked.

TorchScript compiles the forward hooks of a module with it, and fails on those that are not plain functions. The hook's
callbacks are left out: the scripted copy of a model is not recorded, the model itself still is.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch.jit._recursive as recursive

__all__ = ["hide_from_script"]

logger = logging.getLogger("smdwidgets.hooks")


def hide_from_script(kind: type) -> None:
    """Have TorchScript compile modules as if they had no forward hooks of this class."""
    original = getattr(recursive, "get_hook_stubs", None)
    if original is None:  # a release of torch that does it otherwise
        return
    warned = False

    @functools.wraps(original)
    def get_hook_stubs(module: Any) -> Any:
        nonlocal warned
        hooks = (module._forward_hooks, module._forward_pre_hooks)
        before = [dict(each) for each in hooks]
        if not any(isinstance(callback, kind) for each in before for callback in each.values()):
            return original(module)
        if not warned:
            warned = True
            logger.warning(
                "torch.jit.script: the scripted %s is not recorded; the model itself is.", type(module).__name__
            )
        try:
            for each in hooks:
                for key in [key for key, callback in each.items() if isinstance(callback, kind)]:
                    del each[key]
            return original(module)
        finally:
            for each, content in zip(hooks, before, strict=True):
                each.clear()
                each.update(content)

    recursive.get_hook_stubs = get_hook_stubs
