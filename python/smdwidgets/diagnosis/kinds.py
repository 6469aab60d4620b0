"""How each series is judged: by its kind, which its name or the user tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from smdwidgets._text import listed, shown
from smdwidgets.diagnosis.inputs import Kind
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.naming import scalars

#: Kinds by what a name says; those of which neither direction is better are replaced below.
_JUDGED_AS: Final = {
    scalars.Kind.LOSS: Kind.LOSS,
    scalars.Kind.METRIC: Kind.METRIC,
    scalars.Kind.REWARD: Kind.REWARD,
    scalars.Kind.LEARNING_RATE: Kind.LEARNING_RATE,
    scalars.Kind.GRADIENT_NORM: Kind.GRADIENT_NORM,
    scalars.Kind.ENTROPY: Kind.RL,
    scalars.Kind.POLICY: Kind.RL,
    scalars.Kind.KL: Kind.UNKNOWN,
    scalars.Kind.UNKNOWN: Kind.UNKNOWN,
}
#: Why series of a kind are not judged.
NOT_JUDGED: Final = {
    Kind.UNKNOWN: "unknown kind",
    Kind.HOUSEKEEPING: "setting, time or resource",
    Kind.RL: "quantity of reinforcement learning without a direction",
    Kind.UNDIRECTED: "loss that need not fall",
}
#: Other names of kinds that users may write.
_ALIASES: Final = {
    "metric": Kind.METRIC,
    "metric down": Kind.LOSS,
    "lr": Kind.LEARNING_RATE,
    "rl": Kind.RL,
    "gan": Kind.UNDIRECTED,
    "not judged": Kind.UNKNOWN,
}


def judged_as(series: scalars.Series) -> Kind:
    """Return how a series is judged, from what its name says.

    >>> [judged_as(scalars.describe(name)).value for name in ("loss", "value_loss", "loss_scale", "rewards/rejected")]
    ['loss', 'loss without direction', 'housekeeping', 'unknown']
    """
    if series.kind is scalars.Kind.LOSS and not series.better:
        return Kind.UNDIRECTED
    if series.kind is scalars.Kind.METRIC and series.better != "higher":
        return Kind.UNKNOWN
    return _JUDGED_AS.get(series.kind, Kind.HOUSEKEEPING)


def checked_kinds(kinds: Mapping[str, str | Kind] | None) -> dict[str, Kind]:
    """Return the kinds that a user gave by name of the series; raise for invalid ones.

    >>> checked_kinds({"train/acc": "metric up"})
    {'train/acc': <Kind.METRIC: 'metric up'>}
    """
    by_name = {kind.value.lower(): kind for kind in Kind} | _ALIASES
    checked = {}
    for name, value in (kinds or {}).items():
        kind = value if isinstance(value, Kind) else by_name.get(str(value).strip().lower())
        if kind is None:
            choices = listed([*(kind.value for kind in Kind), "metric down"], 20)
            raise SMDebugValueError(f"invalid kind {shown(value)} of series {shown(name)}; choose from {choices}")
        checked[name] = kind
    return checked
