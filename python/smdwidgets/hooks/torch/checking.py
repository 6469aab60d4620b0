"""Pass events of the hook on to the checks, and write their file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smdwidgets.checks.torch.session import TorchChecks
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch import graph as torch_graph
from smdwidgets.hooks.torch.callbacks import Callback
from smdwidgets.hooks.torch.events import listen
from smdwidgets.hooks.torch.optimizers import takes_closure
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.training import is_passive

__all__ = ["Checking"]


class Checking:
    """Listens to a training for its checks.

    Args:
        parts: the parts of the hook.
        models: the registered models.
        options: which checks run, and whether the training stops after a number of updates.
    """

    def __init__(self, parts: Parts, models: RegisteredModels, options: HookOptions) -> None:
        self._guard = parts.guard
        log = check_log(parts.recorder, options)
        #: The checks, or None if none was chosen.
        self.checks: TorchChecks | None = None
        if log is not None:
            self.checks = TorchChecks(
                log,
                models.roots,
                models.with_wrappers,
                lambda: parts.steps.step,
                torch_graph.is_compiled,
                is_passive,
                stop_after(options),
            )

    def listen(self) -> list[Any]:
        """Listen to the events of the training; return handles that end it."""
        checks = self.checks
        if checks is None:
            return []

        def on(method: Callable[..., None]) -> Callback:
            return Callback(checks, self._guard, method)

        return [
            register_optimizer_step_pre_hook(Callback(self, self._guard, Checking._before_update)),
            register_optimizer_step_post_hook(Callback(self, self._guard, Checking._after_update)),
            listen(
                {
                    "backward_begins": on(TorchChecks.backward_begins),
                    "backward_ends": on(TorchChecks.backward_ends),
                    "clips": on(TorchChecks.clips),
                    "scales": on(TorchChecks.scales),
                    "scaler_begins": on(TorchChecks.scaler_begins),
                    "scaler_ends": on(TorchChecks.scaler_ends),
                    "schedule_steps": on(TorchChecks.schedule_steps),
                    "batch": on(TorchChecks.batch),
                    "loads": on(TorchChecks.loads),
                    "tensor_hooked": on(TorchChecks.tensor_hooked),
                }
            ),
        ]

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
