"""Signals of large models: attention logits, load of experts, optimizer health.

They are recorded while a model trains, and read with ``trial.signals()``.
"""

from smdwidgets.signals.kinds import SIGNAL_KINDS, SignalKind
from smdwidgets.signals.noise import NoiseScale
from smdwidgets.signals.record import Signal, Signals

__all__ = ["SIGNAL_KINDS", "NoiseScale", "Signal", "SignalKind", "Signals"]
