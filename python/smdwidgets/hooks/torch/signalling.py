"""Pass events of the hook on to the signals, and write their file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch import graph as torch_graph
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.quiet_steps import Event, Happened
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.short_way import Receiver
from smdwidgets.hooks.torch.training import TorchOptions
from smdwidgets.signals.torch.session import TorchSignals

__all__ = ["Signalling"]


class Signalling(Receiver):
    """Listens to a training for its signals.

    Args:
        parts: the parts of the hook.
        models: the registered models.
        options: whether signals are recorded; default: with a capture plan.
    """

    def __init__(self, parts: Parts, models: RegisteredModels, options: TorchOptions) -> None:
        self._models = models
        self._is_first = True
        self._compiled = torch_graph.Compiled()
        records = options.capture_plan is not None if options.signals is None else options.signals
        #: The signals, or None if none are recorded.
        self.signals: TorchSignals | None = None
        if records and not options.dry_run and parts.recorder.is_saving_worker:
            self.signals = TorchSignals(
                parts.recorder.signals,
                lambda: parts.steps.step,
                lambda module: models.names.get(module) or type(module).__name__,
                models.parameters,
                self._ranks,
                self._is_compiled,
                is_passive,
            )

    def _is_compiled(self, model: nn.Module) -> bool:
        """Return whether torch.compile has made a graph, or makes one in the first call.

        Callbacks that are registered while it traces would have it compile the graph a second time.
        """
        first, self._is_first = self._is_first, False
        if torch_graph.inside_compiled([model]) or (first and torch_graph.is_wrapped(model)):
            return True
        # Functions that a model calls are often compiled, such as flex attention.
        return self._compiled.has_code_of(model)

    def _ranks(self) -> int:
        """Return the number of processes that average their gradients."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return 1
        for model in self._models.with_wrappers():
            if isinstance(model, DistributedDataParallel):
                return int(model.process_group.size())
        return int(torch.distributed.get_world_size())

    @property
    def is_on(self) -> bool:
        """Whether any signals are recorded."""
        return self.signals is not None

    def receivers(self) -> dict[str, Callable[..., None]]:
        """Return what receives the events of a training."""
        signals = self.signals
        if signals is None:
            return {}
        return {
            "backward_begins": lambda roots: signals.backward_begins(),
            "backward_ends": signals.backward_ends,
            "before_update": lambda optimizer, args, kwargs: signals.before_update(optimizer),
            "after_update": lambda optimizer, args, kwargs: signals.after_update(optimizer),
        }

    def rests(self, optimizer: Optimizer) -> int:
        """Return how many of the next updates give nothing to read."""
        return 0 if self.signals is None else self.signals.unread(optimizer)

    def missed(self, steps: int, begun: Sequence[Happened]) -> None:
        """Take events late."""
        signals = self.signals
        if signals is None:
            return
        signals.missed_updates(steps)
        for event, subject in begun:
            if event is Event.ENTERED:
                signals.missed_call(subject())
            elif event is Event.LEFT:
                signals.missed_return()
            elif event is Event.BACKWARD_BEGAN:
                signals.missed_backward()
            elif event is Event.UPDATE_BEGAN:
                signals.missed_begin_of_update()

    def enters(self, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        """A registered model is called."""
        if self.signals is not None:
            self.signals.enters(module, (*inputs, *(named_inputs or {}).values()))

    def leaves(self, module: nn.Module, outputs: Any) -> None:
        """A registered model has returned."""
        if self.signals is not None:
            self.signals.leaves(module, outputs)

    def close(self) -> None:
        """Write what is known at the end."""
        if self.signals is not None:
            self.signals.close()
