"""What detectors read: the scalar series and tensor statistics of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import quoted
from smdwidgets.anomalies import Rises
from smdwidgets.checks.record import CheckRecord
from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.trends import Trend
from smdwidgets.finding import labelled
from smdwidgets.incident import Incident
from smdwidgets.naming.scalars import Role, words_of
from smdwidgets.signals import Signals

#: Words of the name of a whole loss.
WHOLE_WORDS = frozenset({"loss", "total"})
#: A whole loss of fewer points, relative to its part, is a summary.
SHARE_OF_WHOLE = 0.5


class Kind(Enum):
    """What a scalar series measures, which decides how it is judged."""

    LEARNING_RATE = "learning rate"
    GRADIENT_NORM = "gradient norm"
    HOUSEKEEPING = "housekeeping"
    REWARD = "reward"
    RL = "RL quantity"
    #: A loss that need not fall: of an adversary, or a part such as a divergence.
    UNDIRECTED = "loss without direction"
    LOSS = "loss"
    METRIC = "metric up"
    UNKNOWN = "unknown"


@dataclass(eq=False, slots=True)
class Series:
    """One scalar series: ascending unique steps and finite values.

    Attributes:
        name: the tag, or the name of the tensor.
        mode: mode in which it was written, such as ``"TRAIN"``.
        worker: worker that wrote it.
        kind: what it measures.
        role: the data that it was measured on.
        stem: the words of the name without those of the role; two series with equal stems and different roles are a
            pair.
        steps: global steps, ascending and unique; those of the log for a TensorBoard log.
        values: finite values, one per step.
        lost_steps: steps at which the value is NaN or infinite, ascending.
        lost_values: the values at ``lost_steps``.
        superseded: number of values that a restart made void or that were written again.
        trend: trend of the values, for kinds that are judged by it.
        rises: points far above those before them, for losses.
        shares_name: whether series of other modes have the same name.
    """

    name: str
    mode: str
    worker: str
    kind: Kind
    role: Role
    stem: tuple[str, ...]
    steps: Steps
    values: Floats
    lost_steps: Steps = field(default_factory=lambda: np.empty(0, np.int64))
    lost_values: Floats = field(default_factory=lambda: np.empty(0))
    superseded: int = 0
    trend: Trend | None = None
    rises: Rises | None = None
    shares_name: bool = False
    _words: tuple[str, ...] = field(default=(), init=False, repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the name, which many detectors ask for.

        >>> none = np.empty(0)
        >>> Series("train/valLoss", "EVAL", "", Kind.LOSS, Role.VALIDATION, (), none, none).words
        ('train', 'val', 'loss')
        """
        if not self._words:
            self._words = words_of(self.name)
        return self._words

    @property
    def shown_mode(self) -> str:
        """The mode if the name alone is ambiguous, otherwise empty."""
        return self.mode if self.shares_name else ""

    @property
    def label(self) -> str:
        """The name in texts, with the mode if the name alone is ambiguous.

        >>> none = np.empty(0)
        >>> Series("loss", "EVAL", "", Kind.LOSS, Role.VALIDATION, (), none, none, shares_name=True).label
        'loss (EVAL)'
        """
        return labelled(self.name, self.shown_mode)

    @property
    def quoted(self) -> str:
        """The label with the name between backquotes."""
        return labelled(quoted(self.name), self.shown_mode)

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, eq=False, slots=True)
class TensorColumn:
    """Statistics of one tensor of one mode and worker over its steps.

    Attributes:
        name: name of the tensor.
        role: ``"weight"``, ``"bias"``, ``"gradient"``, ``"activation"``, ``"input"``, ``"output"``, ``"label"`` or
            ``""``.
        layer: name that the weight, gradient and activation of one layer share.
        module: kind of the layer, such as ``"Linear"`` or ``"ReLU"``; empty if unknown.
        order: place in the forward order, as the run first saved the tensors.
        mode: mode in which it was saved.
        worker: worker that saved it.
        steps: global steps, ascending and unique; those of the log for a TensorBoard log.
        mode_steps: steps of the mode, aligned with ``steps``; updates of the weights are counted by those of TRAIN.
        columns: one array per statistic, aligned with ``steps``: ``count``, ``nan``, ``l2``, ``mean``, ``std``,
            ``update``, …
    """

    name: str
    role: str
    layer: str
    module: str
    order: int
    mode: str
    worker: str
    steps: Steps
    mode_steps: Steps
    columns: Mapping[str, NDArray[Any]]

    @property
    def quoted(self) -> str:
        """The name between backquotes, for texts."""
        return quoted(self.name)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    def __contains__(self, column: object) -> bool:
        return column in self.columns


class TensorColumns(Sequence[TensorColumn]):
    """Statistics of all tensors of a run, in forward order."""

    def __init__(self, columns: Sequence[TensorColumn] = ()) -> None:
        self._columns = sorted(columns, key=lambda column: (column.order, column.name, column.mode, column.worker))

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, at: Any) -> Any:
        return self._columns[at]

    def select(
        self,
        role: str | None = None,
        *,
        layer: str | None = None,
        mode: str | None = None,
        worker: str | None = None,
        having: str | None = None,
    ) -> list[TensorColumn]:
        """Return the columns of a role, layer, mode or worker, in forward order.

        ``having`` selects those with this statistic.

        >>> TensorColumns().select("weight")
        []
        """
        return [
            column
            for column in self._columns
            if (role is None or column.role == role)
            and (layer is None or column.layer == layer)
            and (mode is None or column.mode == mode)
            and (worker is None or column.worker == worker)
            and (having is None or having in column)
        ]

    @property
    def workers(self) -> list[str]:
        """Names of the workers, sorted."""
        return sorted({column.worker for column in self._columns})


def is_whole(series: Series) -> bool:
    """Whether a loss has no other words in its name than those of a whole."""
    return WHOLE_WORDS.issuperset(series.stem)


@dataclass(frozen=True, eq=False)
class RunData:
    """Everything that was read of a run.

    Attributes:
        series: the scalars.
        tensors: statistics of tensors.
        incidents: what the flight recorder of a hook recorded.
        has_ended: whether nothing follows; False for a run that is still written, and for the beginning of a run.
        checks: what the checks of the training have found.
        checks_off: why checks could not run, by identifier.
        checked: number of updates that were checked.
        signals: signals of large models.
        settings: hyperparameters of the run, and settings of the training that its checks recorded.
        sampled: number of steps whose tensors were read, and of all, if they are a sample.
    """

    series: Sequence[Series]
    tensors: TensorColumns = field(default_factory=TensorColumns)
    incidents: Sequence[Incident] = ()
    has_ended: bool = True
    checks: Sequence[CheckRecord] = ()
    checks_off: Mapping[str, str] = field(default_factory=dict)
    checked: int = 0
    signals: Signals = field(default_factory=Signals)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sampled: tuple[int, int] | None = None

    @property
    def first_step(self) -> int:
        """First step of any series or tensor; 0 if there is none."""
        return min((int(one.steps[0]) for one in self._all()), default=0)

    @property
    def last_step(self) -> int:
        """Last step of any series or tensor; 0 if there is none."""
        return max((int(one.steps[-1]) for one in self._all()), default=0)

    @property
    def extent(self) -> tuple[int, int]:
        """First and last step that was read, also where the value is not finite.

        >>> RunData([]).extent
        (0, 0)
        """
        lost = [int(one.lost_steps[end]) for one in self.series if len(one.lost_steps) for end in (0, -1)]
        steps = [*lost, self.first_step, self.last_step] if any(True for _ in self._all()) else lost
        return min(steps, default=0), max(steps, default=0)

    def of(self, *kinds: Kind) -> list[Series]:
        """Return the series of these kinds.

        >>> RunData([]).of(Kind.LOSS)
        []
        """
        if len(kinds) == 1:
            return [*self._by_kind.get(kinds[0], ())]
        return [series for series in self.series if series.kind in kinds]

    @cached_property
    def _by_kind(self) -> dict[Kind, list[Series]]:
        by_kind: dict[Kind, list[Series]] = {}
        for series in self.series:
            by_kind.setdefault(series.kind, []).append(series)
        return by_kind

    def held_out(self, kind: Kind) -> list[Series]:
        """Return the series of a kind that were measured on validation or test data."""
        return [series for series in self.of(kind) if series.role.is_held_out]

    def training_losses(self) -> list[Series]:
        """Return the losses that were measured while training.

        Next to a whole loss, its parts are left out: a part may rise while the whole falls. So are those of other data.
        """
        others = self.other_data
        losses = [one for one in self.of(Kind.LOSS) if one.role in (Role.TRAINING, Role.NONE) and one not in others]
        points: dict[tuple[str, str], int] = {}
        for series in losses:
            if is_whole(series):
                of = series.mode, series.worker
                points[of] = max(points.get(of, 0), len(series))
        return [
            series
            for series in losses
            if is_whole(series) or points.get((series.mode, series.worker), 0) < SHARE_OF_WHOLE * len(series)
        ]

    @cached_property
    def epochs(self) -> Series | None:
        """The number of the epoch at each step, or None."""
        return next((one for one in self.of(Kind.HOUSEKEEPING) if one.words[-1:] == ("epoch",) and len(one)), None)

    @property
    def is_of_transformers(self) -> bool:
        """Whether Transformers wrote the log: its losses are of classes and tokens."""
        return "num_train_epochs" in self.settings or any(one.name == "total_flos" for one in self.series)

    @cached_property
    def stages(self) -> list[int]:
        """The steps at which another optimizer follows the one before.

        A later stage of a training has one, and each client in a federated training.
        """
        rates = sorted((one for one in self.of(Kind.LEARNING_RATE) if len(one)), key=lambda one: one.steps[0])
        return [int(after.steps[0]) for before, after in pairwise(rates) if after.steps[0] > before.steps[-1]]

    @cached_property
    def longest_loss(self) -> Series | None:
        """The training loss with the most values, or None."""
        return max(self.training_losses(), key=len, default=None)

    @cached_property
    def other_data(self) -> list[Series]:
        """Losses of other data than those of training and evaluation.

        ``live_month-logloss`` beside ``train-logloss`` and ``valid-logloss`` is one. ``aux_loss`` may be a part.
        """
        roles: dict[tuple[str, ...], set[Role]] = {}
        for series in self.of(Kind.LOSS):
            if series.stem and not is_whole(series):
                roles.setdefault(series.stem, set()).add(series.role)
        known = {stem for stem, of in roles.items() if Role.TRAINING in of and any(one.is_held_out for one in of)}
        return [
            series
            for series in self.of(Kind.LOSS)
            if series.role is Role.NONE and any(series.stem[at:] in known for at in range(1, len(series.stem)))
        ]

    @cached_property
    def training_by_words(self) -> dict[tuple[Kind, tuple[str, ...]], list[Series]]:
        """The series that were measured while training, by kind and words."""
        by_words: dict[tuple[Kind, tuple[str, ...]], list[Series]] = {}
        for series in self.series:
            if series.role in (Role.TRAINING, Role.NONE):
                by_words.setdefault((series.kind, series.stem), []).append(series)
        return by_words

    def partner(self, held_out: Series) -> Series | None:
        """Return the training series that belongs to a series of held-out data.

        It has the same kind and words, and enough values for a trend. Series that name the training data are preferred
        to those without a role.
        """
        same = self.training_by_words.get((held_out.kind, held_out.stem), [])
        return min(
            (training for training in same if training.trend is not None),
            key=lambda training: (
                training.role is not Role.TRAINING,
                training.worker != held_out.worker,
                -len(training),
                training.name,
            ),
            default=None,
        )

    @cached_property
    def varies(self) -> bool:
        """Whether any number varies: all that is constant may be no training."""
        return any(float(np.ptp(one.values)) > 0 for one in self.series if len(one))

    def _all(self) -> Iterator[Series | TensorColumn]:
        yield from (one for one in self.series if len(one))
        yield from (one for one in self.tensors if len(one))
