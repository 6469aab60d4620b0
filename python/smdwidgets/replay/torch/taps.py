"""What a replay replaces while recorded steps are executed.

Data loaders, and what leaves traces outside.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, dataloader

from smdwidgets._suspend import suspended

__all__ = ["Events", "muted", "replaced", "tapped"]


class Events(Protocol):
    """What happens in an executed step."""

    def deliver(self) -> Any:
        """Return the next batch of a data loader.

        Raises StopIteration where the loader had no more.
        """

    def backward_begins(self, roots: Any) -> None:
        """``backward()`` is called."""

    def updated(self, optimizer: Any) -> None:
        """An optimizer has updated the model, or a GradScaler has skipped it."""

    @property
    def updates(self) -> int:
        """Number of updates so far."""

    @property
    def gives(self) -> bool:
        """Whether data loaders give recorded batches now."""


class _Deliveries:
    """The iterator of every data loader during a replay.

    A generator of the script may still have it afterwards: then it is an iterator of the loader.
    """

    def __init__(self, events: Events, loader: Any) -> None:
        self._events, self._loader = events, loader
        self._live: Iterator[Any] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if suspended():
            return self._events.deliver()
        if self._live is None:
            self._live = iter(self._loader)
        return next(self._live)

    def __len__(self) -> int:
        return len(self._loader)


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of a class or module for a time."""
    original = vars(owner).get(name)
    if original is None:
        yield
        return
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def tapped(events: Events) -> Iterator[None]:
    """Have data loaders give recorded batches, and report passes and updates."""

    def iterator(original: Any) -> Any:
        return lambda loader: _Deliveries(events, loader) if events.gives else original(loader)

    def next_batch(original: Any) -> Any:
        return lambda iterator: events.deliver() if events.gives else original(iterator)

    def backward(original: Any) -> Any:
        def call(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            events.backward_begins(tensors)
            return original(tensors, *args, **kwargs)

        return call

    def scaler_step(original: Any) -> Any:
        def call(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = events.updates
            result = original(self, optimizer, *args, **kwargs)
            if events.updates == before:
                events.updated(optimizer)
            return result

        return call

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(DataLoader, "__iter__", iterator))
        stack.enter_context(replaced(getattr(dataloader, "_BaseDataLoaderIter", DataLoader), "__next__", next_batch))
        stack.enter_context(replaced(torch.autograd, "backward", backward))
        stack.enter_context(replaced(torch.amp.GradScaler, "step", scaler_step))
        handle = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: events.updated(optimizer))
        stack.callback(handle.remove)
        yield


def _nothing(original: Any) -> Any:
    return lambda *args, **kwargs: None


#: Calls that leave traces outside of the process: module, class (or nothing), functions.
_TRACES = (
    ("torch", "", ("save",)),
    ("torch.utils.tensorboard.writer", "SummaryWriter", ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_text")),
    ("tensorboardX.writer", "SummaryWriter", ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_text")),
    ("wandb", "", ("log", "save")),
    ("mlflow", "", ("log_metric", "log_metrics", "log_param", "log_params", "log_artifact")),
)  # fmt: skip


@contextmanager
def muted() -> Iterator[None]:
    """Print, log and save nothing.

    Only calls of known libraries are held back. A file that the loop itself opens is written again.
    """
    disabled = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        for module, kind, names in _TRACES:
            owner = sys.modules.get(module)
            owner = getattr(owner, kind, None) if kind else owner
            for name in names if owner is not None else ():
                stack.enter_context(replaced(owner, name, _nothing))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, disabled)
        yield
