"""CheckInputImages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.parameters import Integer, Patterns, Real
from smdwidgets.rules.selector import Selector


@dataclass(frozen=True, eq=False)
class _Seen:
    """Images so far, and for each channel the sum and number of pixels."""

    images: int
    sums: NDArray[np.float64]
    pixels: int

    def plus(self, other: _Seen) -> _Seen:
        if len(self.sums) != len(other.sums):  # another number of channels: other images
            return other if other.images else self
        return _Seen(self.images + other.images, self.sums + other.sums, self.pixels + other.pixels)


_NONE = _Seen(0, np.empty(0), 0)


class CheckInputImages(BuiltinRule):
    """The input images are not normalised.

    Once `threshold_samples` images were seen, fires when the mean of any colour channel over all images so far is further than
    `threshold_mean` from 0. Axis 0 is the batch, axis `channel` the channels. Tensors of fewer than three axes, or without that axis, are
    no images. NaN pixels make a mean that fires as well.

    The documented pattern finds MXNet's inputs; ours also finds the input of a PyTorch model (named by its class, such as
    `Net_input_0`), Keras's input layers, and names that speak of images.

    What to do: subtract the mean of the data set, by channel, and divide by its standard deviation.
    """

    collections = {"input_image": {"include_regex": ".*hybridsequential0_input_0", "save_interval": "500"}}

    threshold_mean = Real(0.2, "Tolerated distance of a channel's mean from 0.", minimum=0.0)
    threshold_samples = Integer(500, "Images to see before judging.", minimum=1)
    regex = Patterns(
        (
            r".*hybridsequential\d+_input_0",
            r"^(?!.*(ReLU|Tanh|Sigmoid|GELU|Loss|Conv|Linear|Pool|Norm|Dropout|Softmax))[A-Z][A-Za-z0-9]*_input_0$",
            r"(?i)(^|/)input(_layer)?(_\d+)?(/|:|$)",
            r"(?i)^(?!gradient).*(image|pixel)",
        ),
        "Names of input tensors.",
        documented=".*hybridsequential0_input_0",
    )
    channel = Integer(1, "The axis of the channels.", minimum=1)

    def judge(self, step: int) -> None:
        selector = Selector((), self.regex)
        self.rows(selector, step)
        if not _seen_at(self.measurements, selector, self.channel, step).images:
            raise NothingToJudge(f"no tensor of this step has an axis {self.channel} and is an image")

        def add(seen: _Seen, each: int) -> _Seen:
            return seen.plus(_seen_at(self.measurements, selector, self.channel, each))

        seen = self.measurements.fold(("images", selector, self.channel), step, _NONE, add)
        if seen.images < self.threshold_samples:
            raise NothingToJudge(f"{seen.images} of {self.threshold_samples} images seen so far")
        name = self.measurements.names(selector, step)[0]
        for channel, mean in enumerate(seen.sums / seen.pixels):
            if not abs(mean) <= self.threshold_mean:
                message = (
                    f"mean {number(mean)} of channel {channel} over {seen.images} images is further from 0 than "
                    f"{number(self.threshold_mean)}"
                )
                self.blame(name, step, mean, self.threshold_mean, message)


def _seen_at(measurements: Measurements, selector: Selector, channel: int, step: int) -> _Seen:
    def count() -> _Seen:
        total = _NONE
        for name in measurements.names(selector, step):
            for worker in measurements.workers(name, step):
                try:
                    value = measurements.value(name, step, worker)
                except SMDebugError:
                    continue
                if value.dtype.kind not in "fiub" or value.ndim < max(3, channel + 1) or not value.size:
                    continue
                others = tuple(axis for axis in range(value.ndim) if axis != channel)
                sums = value.sum(axis=others, dtype=np.float64)
                total = total.plus(_Seen(value.shape[0], sums, value.size // len(sums)))
        return total

    return measurements.kept(("image sums", selector, channel, step), count)
