"""What subclasses written for smdebug may override.

And what is not offered. A subclass that overrides a method which no hook calls is refused when its class is defined: it
would record nothing, and nobody would notice before the training has ended.

>>> class Counting:
...     __module__ = "train"
...     def _increment_step(self): ...
>>> refuse_overrides(Counting)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
smdwidgets.exceptions.SMDebugTypeError: Counting overrides _increment_step, which no hook calls; override ...
>>> why_missing("profiler_config_parser")
': a training is not profiled; use the profiler of the framework'
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from smdwidgets._text import listed
from smdwidgets.exceptions import SMDebugTypeError

__all__ = ["StepNumber", "refuse_overrides", "script_imports_smdebug", "why_missing"]

#: Methods of smdebug's hooks by which a subclass would change how tensors are written. No hook calls them.
_NEVER_CALLED = frozenset(
    [
        "_backward_apply",
        "_close_writers",
        "_closure_for_registering_backward_hook",
        "_closure_for_registering_forward_hook",
        "_export_model",
        "_get_all_collections_to_save",
        "_get_collections_to_save_for_step",
        "_get_collections_with_tensor",
        "_get_default_collections",
        "_get_main_writer",
        "_get_num_workers",
        "_get_reduction_of_data",
        "_get_worker_name",
        "_get_writers",
        "_increment_step",
        "_initialize_writers",
        "_is_collection_being_saved_for_step",
        "_is_tensor_saved_for_step",
        "_log_params",
        "_make_numpy_array",
        "_prepare_collections",
        "_process_step",
        "_save_custom_tensors_post_step",
        "_save_for_tensor",
        "_should_collection_be_saved",
        "_write",
        "_write_for_tensor",
        "_write_histogram_summary",
        "_write_raw_tensor",
        "_write_raw_tensor_simple",
        "_write_reduction",
        "_write_reductions",
        "_write_scalar_summary",
        "_write_scalars",
        "_write_shape",
        "_write_state",
        "bhook",
        "fhook",
        "log_params",
    ]
)
_PROFILES = frozenset(
    [
        "has_default_configuration",
        "_has_default_profiler_configuration",
        "log_outstanding_timeline_metrics",
        "log_trace_event",
        "profiler_config_parser",
        "record_trace_events",
        "should_save_dataloader_metrics",
    ]
)


def refuse_overrides(kind: type) -> None:
    """Raise an error if a subclass of a hook overrides what no hook calls."""
    never_called = sorted(_NEVER_CALLED.intersection(vars(kind)))
    if never_called and not kind.__module__.startswith("smdwidgets."):
        raise SMDebugTypeError(
            f"{kind.__name__} overrides {listed(never_called)}, which no hook calls; override forward_hook, "
            "forward_pre_hook or backward_hook, or call save_tensor in the training loop"
        )


def why_missing(name: str) -> str:
    """Return why a name of smdebug's hooks is not offered.

    The text is added to an error, and is empty for other names.
    """
    if name in _PROFILES:
        return ": a training is not profiled; use the profiler of the framework"
    return ", an internal of smdebug that is not offered; call save_tensor instead" if name in _NEVER_CALLED else ""


def script_imports_smdebug() -> bool:
    """Return whether the script imports this package as ``smdebug``."""
    imported = sys.modules.get("smdebug")
    return imported is not None and imported is sys.modules.get("smdwidgets")


class StepNumber(int):
    """The number of a step. To call it ends the step.

    >>> number = StepNumber.of(7, lambda: print("the step has ended"))
    >>> number % 2, number < 10
    (1, True)
    >>> number()
    the step has ended
    """

    _end: Callable[[], None]

    @classmethod
    def of(cls, number: int, end: Callable[[], None]) -> StepNumber:
        """Return a number that calls ``end`` when it is called."""
        step = cls(number)
        step._end = end
        return step

    def __call__(self) -> None:
        """End the step."""
        self._end()

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)
