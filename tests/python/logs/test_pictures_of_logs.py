"""How widgets draw logged images and histograms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from python.logs.logs import writer
from smdwidgets import _core, create_trial
from smdwidgets.pictures import TensorView, Wanted, make_frame, unpack
from smdwidgets.pictures.details import plan, tile
from smdwidgets.pictures.edges import shared_edges
from smdwidgets.pictures.frames import REDUCTIONS, HistogramWanted, pack_frames
from smdwidgets.pictures.logged import pixels
from smdwidgets.pictures.plane import ImageWanted

RNG = np.random.default_rng(3)
PICTURES = [RNG.integers(0, 255, (20, 30, 4), dtype=np.uint8) for _ in range(3)]
VALUES = [RNG.normal(step, 1 + step / 4, 5000) for step in range(4)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with writer(tmp_path) as out:
        for step, picture in enumerate(PICTURES):
            out.add_image("picture", picture, step, dataformats="HWC")
            out.add_image("grey", picture[..., 0], step, dataformats="HW")
            out.add_images("several", np.stack([picture[..., :3]] * 4), step, dataformats="NHWC")
        for step, value in enumerate(VALUES):
            out.add_histogram("weights", value, step)
    return tmp_path


def test_image_is_shown_unchanged(run: Path) -> None:
    with create_trial(run) as trial:
        view = TensorView(trial, "picture")
        head, _ = unpack(plan(view, {}))
        assert head["form"] == "image"
        for step, picture in enumerate(PICTURES):
            frame = make_frame(view, step, Wanted())
            assert frame.image is not None
            assert frame.image.axes == [0, 1]
            np.testing.assert_array_equal(frame.image.codes, picture)
        frames = [make_frame(view, step, Wanted()) for step in range(3)]
        head, arrays = unpack(pack_frames({}, frames, Wanted(), None))
        assert arrays["image"].shape == (3, 20, 30, 4)
        grey = make_frame(TensorView(trial, "grey"), 1, Wanted()).image
        assert grey is not None
        np.testing.assert_array_equal(grey.codes[..., 1], PICTURES[1][..., 0])
        assert (grey.codes[..., 3] == 255).all()
        # A part of the image, a channel as a matrix, and a small version.
        head, arrays = unpack(tile(view, 0, {"rows": [5, 15], "cols": [0, 30], "size": [10, 30]}, {}))
        np.testing.assert_array_equal(arrays["image"], PICTURES[0][5:15])
        assert head["exact"]
        matrix = make_frame(view, 0, Wanted(image=ImageWanted(axes=(1, 2)))).image
        assert matrix is not None
        assert matrix.codes.ndim == 2
        small = make_frame(view, 0, Wanted(image=ImageWanted(cells=6))).image
        assert small is not None
        assert small.codes.shape == (2, 3, 4)
        np.testing.assert_allclose(small.codes[0, 0], PICTURES[0][:10, :10].mean((0, 1)), atol=0.51)


def test_pixels_of_16_bit_and_float_images() -> None:
    deep = np.array([[[0], [65535]], [[32768], [257]]], np.uint16)
    assert pixels(deep, (2, 2), (0, 2), (0, 2))[..., 0].tolist() == [[0, 255], [128, 1]]
    assert pixels(np.array([[[0.5, 1.0, 7.0]]], np.float32), (1, 1), (0, 1), (0, 1)).tolist() == [
        [[128, 255, 255, 255]]
    ]


@pytest.mark.parametrize("scale", ["linear", "symlog", "log"])
@pytest.mark.parametrize("shared", [True, False])
def test_histogram_shows_the_logged_counts(run: Path, scale: str, shared: bool) -> None:
    with create_trial(run) as trial:
        view = TensorView(trial, "weights")
        head, _ = unpack(plan(view, {}))
        assert head["form"] == "histogram"
        wanted = Wanted(histogram=HistogramWanted(scale, 40, "shared" if shared else "own"))
        edges = shared_edges([view], scale, 40) if shared else None
        for step, value in enumerate(VALUES):
            frame = make_frame(view, step, wanted, edges)
            assert frame.error is None
            assert frame.image is None
            assert frame.hist is not None
            assert frame.hist.sum() + sum(frame.hist_out) == len(value) == frame.counts[0]
            own = np.asarray(edges.edges if edges is not None else frame.edges)
            direct, _ = np.histogram(np.abs(value) if scale == "log" else value, own)
            # Buckets are as fine as TensorBoard's; the count of a bucket with an edge inside is divided.
            assert np.abs(np.cumsum(direct) - np.cumsum(frame.hist) - frame.hist_out[0]).max() < 0.06 * len(value)
            low, high, mean, _, std = frame.stats[:5]
            assert (low, high) == pytest.approx((value.min(), value.max()))
            assert frame.stats[REDUCTIONS.index(("max", True))] == pytest.approx(np.abs(value).max())
            assert (mean, std) == pytest.approx((value.mean(), value.std()), rel=0.1, abs=0.1)
            assert frame.percentiles is not None
            np.testing.assert_allclose(frame.percentiles[1:-1], np.percentile(value, [5, 25, 50, 75, 95]), atol=0.25)


def test_empty_histogram_is_not_an_error(tmp_path: Path) -> None:
    record = _core.histogram_record("h", 1, 1.0, [1.0], [0.0], min=0, max=0, num=0, sum=0, sum_squares=0)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(record)
    with create_trial(tmp_path) as trial:
        frame = make_frame(TensorView(trial, "h"), 1, Wanted())
        assert (frame.error, frame.hist) == (None, None)
