"""Matplotlib figures show what NumPy computes for the same arrays."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import pytest

from smdwidgets import create_trial
from smdwidgets.exceptions import SMDebugError, SMDebugRuntimeError, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook

mpl.use("agg")

from matplotlib import pyplot

VALUES = np.random.default_rng(0).normal(size=(6, 8, 10)).astype(np.float32)


@pytest.fixture
def trial(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step, value in enumerate(VALUES):
            hook.set_mode(ModeKeys.EVAL if step == 5 else ModeKeys.TRAIN)
            hook.save_tensor("w", value, "weights")
            hook.save_tensor("lo$s", np.float32(step), "losses")
            hook.step()
    yield create_trial(tmp_path / "run")
    pyplot.close("all")


def test_histogram_counts_every_element(trial):
    ax = trial.tensor("w").plot.histogram(2, bins=7)
    [stairs] = ax.patches
    counts, edges = np.histogram(VALUES[2], 7)
    assert stairs.get_data().values.tolist() == counts.tolist()
    assert stairs.get_data().edges == pytest.approx(edges, rel=1e-5)
    assert ax.get_title() == "w, step 2"


def test_symlog_scale_shows_decades_on_both_sides_of_zero(trial):
    ax = trial.tensor("w").plot.histogram(0, scale="symlog")
    ax.figure.canvas.draw()
    assert ax.get_xscale() == "asinh"
    assert ax.get_xticks().tolist() == [-1, -0.1, 0, 0.1, 1]
    [stairs] = ax.patches
    assert stairs.get_data().values.sum() == VALUES[0].size


def test_distribution_plot_shows_the_median_over_steps(trial):
    ax = trial.tensor("w").plot.distribution()
    [median] = ax.lines
    assert median.get_xdata().tolist() == list(range(6))
    assert median.get_ydata() == pytest.approx(np.median(VALUES, axis=(1, 2)), rel=1e-6)
    # Three nested bands; the legend shows their colours.
    assert len(ax.collections) == 6
    patches = [handle.get_facecolor() for handle in ax.get_legend().legend_handles[:3]]
    assert patches == [tuple(band.get_facecolor()[0]) for band in ax.collections[::2]]


def test_heatmap_shows_every_cell_of_the_given_axes(trial):
    _, given = pyplot.subplots()
    ax = trial.tensor("w").plot.heatmap(ax=given)
    assert ax is given
    [image] = ax.images
    step = (VALUES[5].max() - VALUES[5].min()) / 252
    assert np.abs(image.get_array() - VALUES[5]).max() <= step
    assert image.get_extent() == [-0.5, 9.5, 7.5, -0.5]


def test_scalars_are_plotted_by_mode_and_other_tensors_are_omitted(trial):
    ax = trial.plot.scalars()
    ax.figure.canvas.draw()  # a name with a dollar sign is not math text
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0, 1, 2, 3, 4], [5]]
    assert [line.get_label() for line in ax.lines] == [r"lo\$s (TRAIN)", r"lo\$s (EVAL)"]


def test_runs_are_compared_in_one_plot(trial):
    ax = trial.plot.compare([trial], r"lo\$s")
    assert len(ax.lines) == 4
    with pytest.raises(SMDebugValueError, match="nothing"):
        trial.plot.compare(trial, "nothing")


def test_missing_data_is_reported(trial, monkeypatch):
    with pytest.raises(SMDebugError, match="99"):
        trial.tensor("w").plot.heatmap(99)
    with pytest.raises(SMDebugValueError, match="no scalar tensor"):
        trial.plot.scalars("^w$")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SMDebugRuntimeError, match=r"pip install 'smdwidgets\[plots\]'"):
        trial.tensor("w").plot.histogram()
