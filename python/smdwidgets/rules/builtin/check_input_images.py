"""CheckInputImages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.parameters import Integer, Patterns, Real
from smdwidgets.rules.selector import Selector

#: Maximum number of channels of an image: red, green, blue and alpha.
MOST_CHANNELS = 4


class _ImageSums(NamedTuple):
    """Number of images so far, and sum and number of pixels per channel."""

    images: int
    sums: NDArray[np.float64]
    pixels: int


#: By number of channels, because images with different numbers of channels are counted separately.
_SumsByChannels = dict[int, _ImageSums]


def _add_counts(one: _SumsByChannels, more: _SumsByChannels) -> _SumsByChannels:
    both = dict(one)
    for channels, seen in more.items():
        images, sums, pixels = one.get(channels, _ImageSums(0, np.zeros(channels), 0))
        both[channels] = _ImageSums(images + seen.images, sums + seen.sums, pixels + seen.pixels)
    return both


class CheckInputImages(BuiltinRule):
    """Detect input images that are not normalised.

    After `threshold_samples` images, fires when the mean of any colour channel over all images so far differs from 0 by
    more than `threshold_mean`. Axis 0 is the batch and axis `channel` holds the channels. If `channel` is 1, axis 1 is
    larger than 4 and the last axis is at most 4, the last axis is used instead (Keras). Tensors with fewer than three
    axes, or without that axis, are not images. A NaN pixel makes the mean NaN, which also fires.

    SageMaker's pattern matches MXNet inputs. The default pattern also matches the input of a PyTorch model (named after
    its class, such as `Net_input_0`), Keras input layers, and names that contain "image" or "pixel".

    What to do: subtract the per-channel mean of the data set and divide by its standard deviation.
    """

    collections = {"input_image": {"include_regex": ".*hybridsequential0_input_0", "save_interval": "500"}}

    threshold_mean = Real(0.2, "Maximum distance of a channel's mean from 0.", minimum=0.0)
    threshold_samples = Integer(500, "Number of images needed before the rule judges.", minimum=1)
    regex = Patterns(
        (
            r".*hybridsequential\d+_input_0",
            r"^(?!.*(ReLU|Tanh|Sigmoid|GELU|Loss|Conv|Linear|Pool|Norm|Dropout|Softmax))[A-Z][A-Za-z0-9]*_input_0$",
            r"(?i)(^|/)input(_layer)?(_\d+)?(/|:|$)",
            r"^(sequential|functional|model)\w*/inputs",
            r"(?i)^(?!gradient).*(image|pixel)",
        ),
        "Patterns of input tensor names.",
        documented=".*hybridsequential0_input_0",
    )
    channel = Integer(1, "Axis of the channels.", minimum=1)

    @property
    def selector(self) -> Selector:
        return Selector((), self.regex)

    def judge(self, step: int) -> None:
        selector = self.selector
        self.rows(selector, step)
        here = _sums_at(self.measurements, selector, self.channel, step)
        if not here:
            raise NothingToJudge(f"no tensor at this step is an image with channels on axis {self.channel}")

        def add(seen: _SumsByChannels, each: int) -> _SumsByChannels:
            return _add_counts(seen, _sums_at(self.measurements, selector, self.channel, each))

        start: _SumsByChannels = {}
        every = self.measurements.fold(("images", selector, self.channel), step, start, add)
        enough = {
            channels: every[channels] for channels in sorted(here) if every[channels].images >= self.threshold_samples
        }
        if not enough:
            seen = max(every[channels].images for channels in here)
            raise NothingToJudge(f"{seen} of {self.threshold_samples} images seen so far")
        name = self.measurements.names(selector, step)[0]
        for images, sums, pixels in enough.values():
            for channel, mean in enumerate(sums / pixels):
                if not abs(mean) <= self.threshold_mean:
                    message = (
                        f"mean {number(mean)} of channel {channel} over {images} images differs from 0 by more than "
                        f"{number(self.threshold_mean)}"
                    )
                    self.blame(name, step, mean, self.threshold_mean, message)


def _sums_at(measurements: Measurements, selector: Selector, channel: int, step: int) -> _SumsByChannels:
    def count() -> _SumsByChannels:
        total: _SumsByChannels = {}
        for name in measurements.names(selector, step):
            for worker in measurements.workers(name, step):
                try:
                    value = measurements.value(name, step, worker)
                except SMDebugError:
                    continue
                if value.dtype.kind not in "fiub" or value.ndim < max(3, channel + 1) or not value.size:
                    continue
                axis_of_channels = _axis(value.shape, channel)
                others = tuple(axis for axis in range(value.ndim) if axis != axis_of_channels)
                sums = value.sum(axis=others, dtype=np.float64)
                total = _add_counts(total, {len(sums): _ImageSums(value.shape[0], sums, value.size // len(sums))})
        return total

    return measurements.cached(("image sums", selector, channel, step), count)


def _axis(shape: tuple[int, ...], channel: int) -> int:
    """Return the axis of the channels; the default axis 1 also accepts channels last.

    >>> _axis((8, 3, 32, 32), 1), _axis((8, 32, 32, 3), 1)
    (1, 3)
    """
    return len(shape) - 1 if channel == 1 and shape[1] > MOST_CHANNELS >= shape[-1] else channel
