"""Curves of trainings, healthy and faulty, as steps and values."""

from __future__ import annotations

import numpy as np


def steps(count=400, every=10):
    return np.arange(count) * every


def falling(count=400, noise=0.02, start=2.3, end=0.3, seed=0):
    """A loss that falls to a level."""
    t = np.arange(count) / count
    smooth = end + (start - end) * np.exp(-6 * t)
    return smooth * (1 + noise * np.random.default_rng(seed).normal(size=count))


def rising_after(share, count=400, height=1.0, noise=0.02, seed=1):
    """A loss that falls, and rises linearly after a share of the run."""
    t = np.arange(count) / count
    smooth = falling(count, 0) + height * np.maximum(t - share, 0) / (1 - share)
    return smooth * (1 + noise * np.random.default_rng(seed).normal(size=count))


def reward(count=400, noise=5.0, seed=2):
    """A reward that rises from 20 to 200."""
    t = np.arange(count) / count
    return 200 - 180 * np.exp(-8 * t) + noise * np.random.default_rng(seed).normal(size=count)
