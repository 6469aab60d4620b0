"""The one function of `smdebug.profiler.utils` that training scripts need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.profiler import missing

__all__ = ["str2bool"]

_TRUE: Final = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE: Final = frozenset({"n", "no", "f", "false", "off", "0"})


def str2bool(v: bool | str) -> bool:
    """Return the truth value of a command-line flag.

    Raises:
        SMDebugValueError: the text is neither true nor false. It is a `ValueError`, as argparse expects of a `type=`.

    >>> str2bool("yes"), str2bool("False"), str2bool(True)
    (True, False, True)
    """
    if isinstance(v, bool):
        return v
    word = v.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise SMDebugValueError(f"invalid truth value {shown(v)}; choose from true, false, yes, no, on, off, 1, 0")


if not TYPE_CHECKING:
    __getattr__ = missing(
        """TimeUnits convert_utc_datetime_to_nanoseconds convert_utc_timestamp_to_microseconds
        convert_utc_timestamp_to_nanoseconds convert_utc_timestamp_to_seconds get_node_id_from_system_profiler_filename
        get_node_id_from_tracefilename get_timestamp_from_tracefilename
        get_utctimestamp_us_since_epoch_from_system_profiler_file is_valid_tfprof_tracefilename is_valid_tracefilename
        ns_since_epoch_to_human_readable_time read_tf_profiler_metadata_file start_smdataparallel_profiler
        stop_smdataparallel_profiler stop_tf_profiler us_since_epoch_to_human_readable_time validate_system_profiler_file
        write_tf_profiler_metadata_file""",
        "utils.",
    )
