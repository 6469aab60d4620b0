"""Calls of modules that are no passes of a training."""

from __future__ import annotations

import torch

__all__ = ["is_passive"]

#: What PyTorch knows of this thread, called at each pass.
_is_tracing = getattr(torch._C, "_is_tracing", torch.jit.is_tracing)
_graph_task = torch._C._current_graph_task_id
_transform = torch._C._functorch.peek_interpreter_stack


def is_passive() -> bool:
    """Whether a module is called for another reason than a pass.

    Reasons are tracing, recomputation in a backward pass, and functorch.
    """
    return bool(_is_tracing() or _graph_task() != -1 or _transform() is not None)
