"""Render tensors for display: frames over steps, tiles and curves.

Widgets, plots and exported pages use this package.
"""

from smdwidgets.pictures.frames import Frame, HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.packet import pack, unpack
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView

__all__ = ["Frame", "HistogramWanted", "ImageWanted", "TensorView", "Wanted", "make_frame", "pack", "unpack"]
