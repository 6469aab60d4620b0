"""Functions that torch.compile does not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.eval_frame as frames

__all__ = ["untraced"]

#: Returns what torch.compile does with the frames of this thread, None if nothing.
_tracer: Callable[[], object] | None = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
#: Has torch.compile execute the frames of a code object as they are.
_skip: Callable[[Any], object] | None = getattr(frames, "skip_code", None)


def untraced(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that torch.compile leaves out, and calls between two graphs.

    It is what ``torch.compiler.disable`` returns, and takes a fifth of the time where torch.compile is not at work:
    then there is nothing to disable.
    """
    disabled: Callable[..., None] = torch.compiler.disable(function)
    if _tracer is None or _skip is None:  # another release of torch
        return disabled
    tracer = _tracer

    def call(*args: Any) -> None:
        if tracer() is None:
            function(*args)
        else:
            disabled(*args)

    _skip(call.__code__)
    for name in ("_torchdynamo_disable", "_torchdynamo_disable_msg"):
        setattr(call, name, getattr(disabled, name, None))
    return call
