"""A callback for the Trainer of Lightning.

::

    from smdwidgets.lightning import Callback

    trainer = lightning.Trainer(callbacks=[Callback("runs/mine")])

A training step is one update. Batches of the sanity check, of validation and of test have mode EVAL. What the module
logs with ``self.log`` is saved as ``scalar/<name>``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from smdwidgets.hooks.torch.hook import Hook
from smdwidgets.hooks.torch.trainer_hook import TrainerHook, failsafe

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback as _Callback
else:
    from lightning.pytorch import Callback as _Callback

__all__ = ["Callback"]


class Callback(_Callback):  # type: ignore[misc, unused-ignore]  # the base is Any if lightning is not installed
    """Save the module and the logs of a ``lightning.Trainer``.

    The hook is created when the training begins, because the processes of a distributed training know each other then.
    With ``resume=True`` and a training that is resumed from a checkpoint, the run continues at the step of the
    checkpoint.

    Args:
        out_dir: directory of the run, or a hook of ``smdwidgets.pytorch`` that exists.
        **options: further arguments of ``smdwidgets.pytorch.Hook``, such as ``plan`` and ``overwrite``.
    """

    def __init__(self, out_dir: str | os.PathLike[str] | Hook, **options: Any) -> None:
        self._trainer_hook = TrainerHook(out_dir, options)
        #: The values that were logged last, by name. A value that is logged again is elsewhere in memory.
        self._logged: dict[str, torch.Tensor] = {}
        self._updates = 0

    @property
    def hook(self) -> Hook | None:
        """The hook, or None before the training."""
        return self._trainer_hook.hook

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Called by the Trainer before anything else, in every process; creates the hook."""
        self._trainer_hook.open()

    @failsafe
    def _begin(self, trainer: Any, module: Any) -> None:
        self._updates = trainer.global_step
        # The mean of an epoch is known after the validation that belongs to the epoch.
        optimizers = trainer.optimizers
        self._trainer_hook.begin(module, trainer.global_step // max(1, len(optimizers)), optimizers, awaits_values=True)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by the Trainer before the sanity check."""
        self._begin(trainer, pl_module)

    on_train_start = on_sanity_check_start
    on_validation_start = on_sanity_check_start
    on_test_start = on_sanity_check_start
    on_predict_start = on_sanity_check_start

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Called by the Trainer after each batch."""
        if trainer.global_step != self._updates:  # not between two micro-batches
            self._updates = trainer.global_step
            self._save_logged(trainer)
        self._stop_if_requested(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by the Trainer after the last batch of an epoch and its validation."""
        self._trainer_hook.return_to_training()
        self._save_logged(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by the Trainer after a validation and a sanity check."""
        self._save_logged(trainer)

    on_test_end = on_validation_end

    @failsafe
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by the Trainer after the last epoch."""
        self._trainer_hook.end()

    @failsafe
    def _stop_if_requested(self, trainer: Any) -> None:
        if self._trainer_hook.stops():
            trainer.should_stop = True

    @failsafe
    def _save_logged(self, trainer: Any) -> None:
        """Save what was logged since the last call."""
        # All workers read the metrics: computing the mean of an epoch may need all of them.
        self._trainer_hook.save(dict(self._new(trainer.callback_metrics)))

    def _new(self, metrics: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, value in metrics.items():
            if f"{name}_step" in metrics or f"{name}_epoch" in metrics:  # of these, it is the one that was logged last
                continue
            known = self._logged.get(name)
            if known is None or known.data_ptr() != value.data_ptr():
                self._logged[name] = value
                yield name, value
