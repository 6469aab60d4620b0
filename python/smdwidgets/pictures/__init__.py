"""Pictures of tensors: frames over steps, tiles, curves. Widgets, plots and exported pages all draw from these."""

from smdwidgets.pictures.frames import Frame, HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.packet import pack, unpack
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView

__all__ = ["Frame", "HistogramWanted", "ImageWanted", "TensorView", "Wanted", "make_frame", "pack", "unpack"]
