"""Pass events of the hook on to the checks, and write their file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from smdwidgets.checks.torch.copies import Watch
from smdwidgets.checks.torch.session import TorchChecks
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch import graph as torch_graph
from smdwidgets.hooks.torch.optimizers import takes_closure
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.script import hide_from_script
from smdwidgets.hooks.torch.short_way import Receiver

__all__ = ["Checking"]


class Checking(Receiver):
    """Listens to a training for its checks.

    Args:
        parts: the parts of the hook.
        models: the registered models.
        options: which checks run, and whether the training stops after a number of updates.
    """

    def __init__(self, parts: Parts, models: RegisteredModels, options: HookOptions) -> None:
        log = check_log(parts.recorder, options)
        #: The checks, or None if none was chosen.
        self.checks: TorchChecks | None = None
        if log is not None:
            self.checks = TorchChecks(
                log,
                models.roots,
                models.with_wrappers,
                lambda: parts.steps.step,
                torch_graph.Compiled().may_have_code_of,
                is_passive,
                stop_after(options),
            )

    @property
    def is_on(self) -> bool:
        """Whether any checks run."""
        return self.checks is not None

    def receivers(self) -> dict[str, Callable[..., None]]:
        """Return what receives the events of a training."""
        checks = self.checks
        if checks is None:
            return {}
        return {
            "backward_begins": checks.backward_begins,
            "backward_ends": checks.backward_ends,
            "clips": checks.clips,
            "scales": checks.scales,
            "scaler_begins": checks.scaler_begins,
            "scaler_ends": checks.scaler_ends,
            "schedule_steps": checks.schedule_steps,
            "batch": checks.batch,
            "loads": checks.loads,
            "tensor_hooked": checks.tensor_hooked,
            "before_update": self._before_update,
            "after_update": self._after_update,
        }

    def _before_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.checks is not None:
            self.checks.before_update(optimizer, takes_closure(args, kwargs))

    def _after_update(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.checks is not None:
            self.checks.after_update(optimizer, takes_closure(args, kwargs))

    def registers(self, optimizer: Optimizer) -> None:
        """The script names an optimizer."""
        if self.checks is not None:
            self.checks.registers(optimizer)

    def catch_up(self, roots: Any) -> None:
        """The first backward pass ended before the hook was created."""
        if self.checks is not None:
            self.checks.catch_up(roots)

    def weights_were_loaded(self, module: nn.Module, names: Mapping[str, None]) -> None:
        """Weights were loaded before the hook was created.

        Not all of them had to match.
        """
        if self.checks is not None:
            self.checks.loads(module, names, False)

    # ---------------------------------------------------------------------------------------------------------- passes

    def enters(self, module: nn.Module, inputs: Any, named_inputs: Any) -> None:
        """A registered model is called."""
        if self.checks is not None:
            self.checks.enters(module, inputs, named_inputs)

    def leaves(self, module: nn.Module, outputs: Any) -> None:
        """A registered model has returned."""
        if self.checks is not None:
            self.checks.leaves(module, outputs)

    def close(self) -> None:
        """Write what is known at the end."""
        if self.checks is not None:
            self.checks.close()


hide_from_script(Watch)
