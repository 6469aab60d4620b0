"""Detectors of scalar series; each reads `RunData` and yields candidates."""

from collections.abc import Callable, Iterable

from smdwidgets.diagnosis.detectors.adversaries import adversaries
from smdwidgets.diagnosis.detectors.baseline import baseline
from smdwidgets.diagnosis.detectors.beside_accuracy import beside_accuracy
from smdwidgets.diagnosis.detectors.checks import checks
from smdwidgets.diagnosis.detectors.clipping import clipping
from smdwidgets.diagnosis.detectors.collapsed import collapsed
from smdwidgets.diagnosis.detectors.constant_accuracy import constant_accuracy
from smdwidgets.diagnosis.detectors.diverged import diverged
from smdwidgets.diagnosis.detectors.efficiency import efficiency
from smdwidgets.diagnosis.detectors.evaluation_differs import evaluation_differs
from smdwidgets.diagnosis.detectors.evaluation_too_good import evaluation_too_good
from smdwidgets.diagnosis.detectors.forgetting import forgetting
from smdwidgets.diagnosis.detectors.gradient_huge import gradient_huge
from smdwidgets.diagnosis.detectors.gradient_zero import gradient_zero
from smdwidgets.diagnosis.detectors.held_out_losses import held_out_losses
from smdwidgets.diagnosis.detectors.held_out_metrics import held_out_metrics
from smdwidgets.diagnosis.detectors.incidents import incidents
from smdwidgets.diagnosis.detectors.latent import latent
from smdwidgets.diagnosis.detectors.learning_rate import learning_rate
from smdwidgets.diagnosis.detectors.loss_floor import loss_floor
from smdwidgets.diagnosis.detectors.loss_parts import loss_parts
from smdwidgets.diagnosis.detectors.loss_scale import loss_scale
from smdwidgets.diagnosis.detectors.no_targets import no_targets
from smdwidgets.diagnosis.detectors.norms_add_up import norms_add_up
from smdwidgets.diagnosis.detectors.norms_of_parts import norms_of_parts
from smdwidgets.diagnosis.detectors.not_finite import not_finite
from smdwidgets.diagnosis.detectors.not_learning import not_learning
from smdwidgets.diagnosis.detectors.order import order
from smdwidgets.diagnosis.detectors.overfit import overfit
from smdwidgets.diagnosis.detectors.policy import policy
from smdwidgets.diagnosis.detectors.preferences import preferences
from smdwidgets.diagnosis.detectors.rewards import rewards
from smdwidgets.diagnosis.detectors.sawtooth import sawtooth
from smdwidgets.diagnosis.detectors.schedules import schedules
from smdwidgets.diagnosis.detectors.signals import signals
from smdwidgets.diagnosis.detectors.slow import slow
from smdwidgets.diagnosis.detectors.spike import spike
from smdwidgets.diagnosis.detectors.stays_at_start import stays_at_start
from smdwidgets.diagnosis.detectors.unbounded import unbounded
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.finding import Finding

__all__ = ["SCALAR_DETECTORS", "Detector"]

Detector = Callable[[RunData], Iterable[Finding]]

SCALAR_DETECTORS: tuple[Detector, ...] = (
    checks,
    clipping,
    gradient_zero,
    gradient_huge,
    norms_add_up,
    norms_of_parts,
    unbounded,
    learning_rate,
    schedules,
    not_finite,
    loss_scale,
    loss_floor,
    not_learning,
    loss_parts,
    rewards,
    stays_at_start,
    diverged,
    order,
    spike,
    overfit,
    forgetting,
    collapsed,
    constant_accuracy,
    beside_accuracy,
    evaluation_differs,
    held_out_metrics,
    evaluation_too_good,
    held_out_losses,
    no_targets,
    baseline,
    slow,
    sawtooth,
    latent,
    adversaries,
    incidents,
    policy,
    preferences,
    signals,
    efficiency,
)
