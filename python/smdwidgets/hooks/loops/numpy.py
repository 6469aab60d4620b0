"""A hook for custom training loops, which pass the tensors to save explicitly.

>>> import tempfile
>>> import numpy as np
>>> weights = np.zeros(3)
>>> with Hook(tempfile.mkdtemp()) as hook:
...     for _ in range(2):
...         weights += 1
...         hook.save_tensor("weights", weights, "weights")
...         hook.step()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from smdwidgets.config import CollectionKeys
from smdwidgets.hooks.core.for_smdebug import StepNumber
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.core.hook import guarded
from smdwidgets.hooks.core.tensors import SCALAR_PREFIX

__all__ = ["Hook"]


class Hook(BaseHook):
    """Save tensors that the training loop passes to the hook.

    :meth:`save_tensor` saves a tensor, and :meth:`step` ends a step.

    By default, every step is saved. Use :meth:`should_save_step` to skip computing tensors that are not saved::

        hook = Hook(out_dir, save_config=SaveConfig(save_interval=10))
        for batch in batches:
            loss, gradient = train(batch)
            if hook.should_save_step():
                hook.save_tensor("gradient/w", gradient, "gradients")
                hook.save_tensor("loss", loss, "losses")
            hook.step()
        hook.close()
    """

    __doc__ += "\n" + (BaseHook.__doc__ or "").partition("Args:")[1] + (BaseHook.__doc__ or "").partition("Args:")[2]

    built_in: ClassVar[Mapping[str, Sequence[str]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: (),
        CollectionKeys.BIASES: (),
        CollectionKeys.GRADIENTS: (),
        CollectionKeys.LOSSES: (),
        CollectionKeys.METRICS: (),
        CollectionKeys.INPUTS: (),
        CollectionKeys.OUTPUTS: (),
    }
    save_interval: ClassVar[int] = 1
    meets_tensors: ClassVar[bool] = False

    def _attach(self) -> None:
        #: Names that were saved at the current step.
        self._names: set[str] = set()
        self._step_of_names = -1

    @guarded
    def save_scalar(self, name: str, value: object, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Save a number as ``scalar/<name>``, regardless of the save interval."""
        self._ensure_step()
        super().save_scalar(name, value, sm_metric, timestamp)
        self._check_repeated(f"{SCALAR_PREFIX}{name}")

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: object, collections_to_write: str | Iterable[str] = CollectionKeys.DEFAULT
    ) -> None:
        """Save a tensor at the current step.

        It is saved to those of the collections that are saved at this step.
        """
        self._ensure_step()
        super().save_tensor(tensor_name, tensor_value, collections_to_write)
        self._check_repeated(tensor_name)

    @property
    def step(self) -> StepNumber:
        """The number of the current or last step.

        ``hook.step()`` ends the step, even if it has no tensors.
        """
        return StepNumber.of(self.global_step, self._end_step_of_script)

    @guarded
    def _end_step_of_script(self) -> None:
        if not self.is_open:
            self.guard.warn_inactive()
            return
        self._ensure_step()
        self._end_step()

    def _ensure_step(self) -> None:
        if self.is_open and not self.parts.steps.is_open:
            self._begin_step()

    def _check_repeated(self, name: str) -> None:
        """Report a name that is saved twice in one step; :meth:`step` is not called."""
        step = self.global_step
        if step != self._step_of_names:
            self._step_of_names = step
            self._names.clear()
        if name in self._names and self.is_open:
            advice = "call hook.step() at the end of each iteration of the training loop"
            self.guard.report_repeated(name, f"in step {step}", advice)
        self._names.add(name)
