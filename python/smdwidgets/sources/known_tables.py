"""Recognize tables whose columns a program does not name, or only by a letter."""

from __future__ import annotations

import re
from typing import Final

from smdwidgets.sources.layout import Layout, distinct, split

#: Stable-Baselines' and Gym's monitor: a row for each episode, below the time of the start.
_MONITOR: Final = re.compile(rb'(?:\xef\xbb\xbf)?#[ ]?\{[^\n]*"t_start"[^\n]*\n(?P<header>[^\n]+)\n')
_OF_MONITOR: Final = {"r": "episode reward", "l": "episode length", "t": "time"}
_LENGTH: Final = _OF_MONITOR["l"]
#: A row of YOLO: epoch, memory, and thirteen numbers.
_NUMBER: Final = rb"(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)"
_YOLO: Final = re.compile(rb"\s*\d+/\d+[ ]+[\d.]+G(?:[ ]+" + _NUMBER + rb"){13}[ ]*\r?\n")
#: The names that newer versions give to them. The memory is a text.
_OF_YOLO: Final = (
    *("epoch", "", "train/box_loss", "train/obj_loss", "train/cls_loss", "train/total_loss", "targets", "img_size"),
    *("metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95"),
    *("val/box_loss", "val/obj_loss", "val/cls_loss"),
)


def _of_flair(beginning: bytes) -> Layout | None:
    """Return the layout of Flair's table, whose rows have one cell more than names.

    It is before the numbers of the development data.
    """
    header, _, rest = beginning.partition(b"\n")
    names = split(header.decode("utf-8", "replace").rstrip("\r"), "\t")
    cells = rest.partition(b"\n")[0].decode("utf-8", "replace").split("\t")
    at = next((at for at, name in enumerate(names) if name.startswith(("DEV_", "TEST_"))), 0)
    if names[:2] != ["EPOCH", "TIMESTAMP"] or not at or len(cells) != len(names) + 1:
        return None
    own = (*names[:at], "", *names[at:])
    return Layout(False, "\t", "\t".join(names), len(header) + 1, names=own)


def known_table(beginning: bytes) -> Layout | None:
    """Return the layout of a table of a known program, or None for any other file.

    >>> known_table(b'#{"t_start": 1.5}\\nr,l,t\\n0.5,9,2\\n').names
    ('episode reward', 'episode length', 'time')
    >>> known_table(b"  0/9  1.5G" + b"  0.5" * 13 + b"\\n").names[:4]
    ('epoch', '', 'train/box_loss', 'train/obj_loss')
    """
    if match := _MONITOR.match(beginning):
        header = match["header"].decode("utf-8", "replace").rstrip("\r")
        names = split(header, ",")
        if {"r", "l"} <= set(names):
            own = tuple(distinct(_OF_MONITOR.get(name, name) for name in names))
            return Layout(False, ",", header, match.end(), names=own, summed=_LENGTH)
    if beginning.startswith(b"EPOCH\tTIMESTAMP\t"):
        return _of_flair(beginning)
    return Layout(False, None, names=_OF_YOLO) if _YOLO.match(beginning) else None
