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


def test_a_plot_of_signals_has_a_row_for_each_head_and_marks_where_it_exceeds_a_limit(tmp_path):
    heads = np.full((6, 4), 5.0)
    heads[:, 2] = [5, 20, 60, 40, 150, 300]
    with Hook(tmp_path / "run") as hook:
        for row in heads:
            hook.save_signal("attention_max", "blocks.0", row[:2])
            hook.save_signal("attention_max", "blocks.1$", row)
            hook.step()
    ax = create_trial(tmp_path / "run").plot.signals("attention_max")
    [mesh] = [one for one in ax.collections if hasattr(one, "get_coordinates")]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()), np.concatenate([heads[:, :2], heads], axis=1).T)
    assert mesh.norm(300) > mesh.norm(30) > mesh.norm(5) == 0
    assert [one.get_text() for one in ax.get_yticklabels()] == ["blocks.0", r"blocks.1\$"]
    [mark] = [one for one in ax.lines if one.get_color() == "C3"]
    assert (mark.get_xdata().tolist(), mark.get_ydata().tolist()) == ([1.5, 1.5], [4, 5])
    lines = [one.get_ydata()[0] for one in mesh.colorbar.ax.lines if one.get_color() == "C3"]
    assert lines == [50, 100]
    ax.figure.canvas.draw()
    pyplot.close("all")


@pytest.mark.parametrize("kind", ["attention_max", "attention_entropy", "router_load", "log_z", "stale", "sigma_max"])
@pytest.mark.parametrize(
    "values", [[[np.nan, np.nan]], [[0.0, 0.0]] * 3, [[-np.inf, np.inf], [-1.0, 2.0]], [[1.0, 1.0]]]
)
@pytest.mark.slow
def test_odd_signals_are_plotted(tmp_path, kind, values):
    with Hook(tmp_path / "run") as hook:
        for row in values:
            hook.save_signal(kind, "x", row)
            hook.step()
    create_trial(tmp_path / "run").plot.signals(kind).figure.canvas.draw()
    pyplot.close("all")


def test_a_load_of_experts_has_a_scale_around_an_equal_share(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.save_signal("router_load", "moe", [0.0, 1.0, 3.0], most=3)
        hook.step()
    ax = create_trial(tmp_path / "run").plot.signals("router_load")
    [mesh] = [one for one in ax.collections if hasattr(one, "get_coordinates")]
    assert mesh.norm(1.0) == 0.5
    pyplot.close("all")


def test_a_plot_of_signals_that_were_not_recorded_says_why(trial):
    with pytest.raises(SMDebugValueError, match=r"cannot plot the signal 'router_load'.*not recorded"):
        trial.plot.signals("router_load")
    with pytest.raises(SMDebugValueError, match="Did you mean 'router_load'"):
        trial.plot.signals("router_lod")
