"""A callback for the Trainer of Hugging Face Transformers.

::

    from smdwidgets.transformers import Callback

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Callback("runs/mine")])

A training step is one update, ``state.global_step``. Evaluation batches have mode EVAL. What the Trainer logs is saved
as ``scalar/loss``, ``scalar/learning_rate``, ``scalar/grad_norm``, ``scalar/eval_loss``, … at the step that it is
logged for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from smdwidgets.hooks.torch.hook import Hook
from smdwidgets.hooks.torch.trainer_hook import TrainerHook, failsafe

__all__ = ["Callback"]

#: Both are in the log that sums up a training after its last step.
_SUMMARY = frozenset({"train_loss", "train_runtime"})


class Callback(TrainerCallback):  # type: ignore[misc, unused-ignore]  # the base is Any if transformers is not installed
    """Save the model and the logs of a ``transformers.Trainer``.

    With ``resume=True`` and a training that is resumed from a checkpoint, the run continues at the step of the
    checkpoint.

    Args:
        out_dir: directory of the run, or a hook of ``smdwidgets.pytorch`` that exists.
        **options: further arguments of ``smdwidgets.pytorch.Hook``, such as ``plan`` and ``overwrite``.
    """

    def __init__(self, out_dir: str | os.PathLike[str] | Hook, **options: Any) -> None:
        self._trainer_hook = TrainerHook(out_dir, options)
        self._trainer_hook.open()

    @property
    def hook(self) -> Hook:
        """The hook, to choose what is saved before the training."""
        return self._trainer_hook.open()

    @failsafe
    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Called by the Trainer before the first step."""
        self._trainer_hook.begin(model, state.global_step, [optimizer])
        # The Trainer divides the loss of each micro-batch by the number of micro-batches or of tokens of the step.
        self._trainer_hook.open().loop.losses_are_terms = True

    @failsafe
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer after each update."""
        if self._trainer_hook.stops():
            control.should_training_stop = True

    @failsafe
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Called by the Trainer with the numbers that it logs."""
        if logs and not logs.keys() >= _SUMMARY:
            self._trainer_hook.save(logs)

    @failsafe
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer after the last step."""
        self._trainer_hook.end()
