"""Trial and Tensor, the public classes of a run.

They refer to each other, so one module defines both. Their other methods are in the classes from which they derive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugNotImplementedError, SMDebugTypeError, TensorUnavailable
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd
from smdwidgets.trials import extensions, show
from smdwidgets.trials.bulk_queries import BulkQueries
from smdwidgets.trials.difference import Difference, Saved
from smdwidgets.trials.extensions import TensorPlotter, TrialPlotter
from smdwidgets.trials.incidents import Incidents
from smdwidgets.trials.tensor_reductions import TensorReductions

if TYPE_CHECKING:
    import dask.array

_GLOBAL = ModeKeys.GLOBAL


class Trial(BulkQueries):
    """A finished or running training run.

    Until the run has ended, every call first checks for new steps; ``smdwidgets.analysis.utils.no_refresh`` turns this off.
    The cost depends on the number of new steps, not on the run's length. A trial is thread-safe and a context manager.

    >>> trial = create_trial("runs/mlp")                       # doctest: +SKIP
    >>> trial.tensor("fc1.weight").value(trial.steps()[-1])    # doctest: +SKIP
    """

    def _empty_caches(self) -> None:
        super()._empty_caches()
        self._tensors: dict[str, Tensor] = {}

    def close(self) -> None:
        """Close files and connections.

        Arrays returned earlier stay valid. Later calls raise :class:`TrialClosed`.
        """
        for tensor in list(self._tensors.values()):
            tensor._close()
        super().close()

    def _start_over(self) -> None:
        super()._start_over()
        for tensor in list(self._tensors.values()):
            tensor._bind()

    def run_end(self) -> RunEnd | None:
        """Return how the training ended, or None while there is no end marker.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).run_end()
        RunEnd(how='completed', detail='', workers={})
        """
        self.maybe_refresh()
        return self._run.end()

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that were logged for the run.

        Runs in smdebug's format have none.
        """
        return {}

    def incidents(self) -> Incidents:
        """Return when and why the flight recorder wrote its steps, by step.

        The result is a list of :class:`~smdwidgets.incident.Incident`, with a method ``to_pandas``. Records of several workers
        about the same steps are joined.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> smdwidgets.create_trial(folder).incidents()
        no incidents
        """
        self.maybe_refresh()
        with self._refreshing:
            return self._run.incidents().combined()

    # ---------------------------------------------------------------------------------------------------- tensors

    def has_tensor(self, tname: str) -> bool:
        """Return whether a tensor was saved at any step so far."""
        if self._closed:
            self._refuse()
        return tname in self._tensors or self._has(tname)

    def tensor(self, tname: str) -> Tensor:
        """Return the tensor of this name.

        Raises :class:`TensorUnavailable`, with the most similar names, if no step so far contains it.
        """
        tensor = self._tensors.get(tname)
        if tensor is None:
            if not self.has_tensor(tname):
                raise TensorUnavailable(tname, self._names(None, ModeKeys.GLOBAL))
            tensor = self._tensors.setdefault(tname, Tensor(tname, self))
        return tensor

    def inputs(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of collection ``inputs`` at a step, by name suffix number."""
        return self._values_of(self.tensor_names(step, mode, collection="inputs"), step, mode)

    def labels(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "label", at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="labels*"), step, mode)

    def predictions(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        """Return the values of tensors whose names contain "prediction", at a step."""
        return self._values_of(self.tensor_names(step, mode, regex="predictions*"), step, mode)

    def _values_of(self, names: list[str], step: int, mode: ModeKeys | str) -> list[NDArray[Any]]:
        def number(name: str) -> int:
            tail = name.rpartition("_")[2]
            return int(tail) if tail.isdecimal() else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    def difference(
        self,
        a: tuple[str | Tensor, int] | tuple[str | Tensor, int, str],
        b: tuple[str | Tensor, int] | tuple[str | Tensor, int, str] | int,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
    ) -> Difference:
        """Return ``a - b``, element by element.

        The result has statistics and the elements that changed most.

        Args:
            a: the tensor (its name, or a :class:`Tensor` of any run) and the step; a worker if it is not the first.
            b: the same of the other value, or only another step of ``a``.
            mode: mode of the steps.

        >>> trial.difference(("fc1.weight", 200), 100).changed(3)              # doctest: +SKIP
        >>> trial.difference(("fc1.weight", 200), (other.tensor("fc1.weight"), 200)).statistics["l2"]   # doctest: +SKIP
        """
        first, *at = _place(a, "a")
        second, *other = _place((first, b, *at[1:]) if isinstance(b, (int, np.integer)) else b, "b")
        tensors = [self.tensor(each) if isinstance(each, str) else each for each in (first, second)]
        return Difference(tensors[0]._saved(at[0], mode, *at[1:]), tensors[1]._saved(other[0], mode, *other[1:]))

    # ----------------------------------------------------------------------------------------------------- display

    @property
    def plot(self) -> TrialPlotter[Trial]:
        """Matplotlib plots of the run: :class:`~smdwidgets.plots.TrialPlots`."""
        return extensions.trial_plotter.load()(self)

    def __eq__(self, other: object) -> bool:
        return (self.name, self.path) == (other.name, other.path) if isinstance(other, Trial) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        return show.trial_text(self)

    def _repr_html_(self) -> str:
        return show.trial_html(self)


def _place(given: Any, name: str) -> tuple[Any, ...]:
    """Check a tensor, a step and perhaps a worker."""
    if (
        isinstance(given, tuple)
        and len(given) in {2, 3}
        and isinstance(given[0], (str, Tensor))
        and isinstance(given[1], (int, np.integer))
    ):
        return given
    raise SMDebugTypeError(f"{name} must be (tensor, step) or (tensor, step, worker), got {shown(given)}")


class Tensor(TensorReductions):
    """One tensor of a run, returned by ``trial.tensor(name)``.

    Every call returns new writable arrays that share no memory.

    >>> weight = trial.tensor("fc1.weight")                      # doctest: +SKIP
    >>> weight.value(weight.steps()[-1]).shape                   # doctest: +SKIP
    (64, 32)
    """

    __slots__ = ()

    trial: Trial

    def __init__(self, name: str, trial: Trial) -> None:
        super().__init__(name, trial)

    def passing(self) -> Tensor:
        """Return a tensor that does not cache, for values that are read once."""
        tensor = Tensor(self.name, self.trial)
        tensor._fetch = self.trial._run.passing()
        return tensor

    def difference(
        self,
        step_a: int,
        step_b: int,
        other: Tensor | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        other_worker: str | None = None,
    ) -> Difference:
        """Return the value at ``step_a`` minus that at ``step_b``, element by element.

        The result has statistics and the elements that changed most.

        Args:
            step_a: step of ``mode``.
            step_b: step of ``mode`` of the subtracted value.
            other: the tensor that is subtracted, of this or another run; None: this one.
            mode: mode of both steps.
            worker: name of a worker; None: the first that has a value.
            other_worker: the worker of the subtracted value; None: ``worker`` for the same tensor, else the first that has one.

        >>> trial.tensor("fc1.weight").difference(200, 100).changed(3)         # doctest: +SKIP
        """
        if other is None:
            other, other_worker = self, other_worker if other_worker is not None else worker
        if not isinstance(other, Tensor):
            raise SMDebugTypeError(f"other must be a Tensor, got {type(other).__name__}; see trial.tensor(name)")
        return Difference(self._saved(step_a, mode, worker), other._saved(step_b, mode, other_worker))

    def _saved(self, step_num: int, mode: ModeKeys | str, worker: str | None = None) -> Saved:
        value = self.value(step_num, mode, worker)
        return Saved(self.name, int(step_num), value, as_mode(mode), worker, self.trial.path)

    def to_dask(
        self,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = 64 << 20,
        verify: str = "record",
    ) -> dask.array.Array:
        """Return the values as an array (step, shape…) of Dask.

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. A chunk has some steps, or rows of one step along the first axis, of at
        most ``chunk_bytes``. The array can be computed by other processes and machines that reach the run; they need the same
        version of smdwidgets, and find credentials by themselves. The array is a snapshot of a growing run; its repr says the
        last step.

        Args:
            steps: steps of ``mode``; None: all complete ones with a value.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and a sharded tensor as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: ``"record"``: check each record, of which one that is cut into chunks is read whole for each of them.
                ``"none"``: read only the rows of a chunk, or of a slice, without their checksum.

        Raises :class:`~smdwidgets.exceptions.SMDebugValueError` if dtype or shape differ between steps.

        >>> trial.tensor("fc1.weight").to_dask().std(axis=0).compute()             # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_dask
        return read(self, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def step(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: use :meth:`value`, :meth:`reduction_value` or :meth:`shape`."""
        raise SMDebugNotImplementedError(
            "tensor.step(…) is not supported; use tensor.value(step) or tensor.reduction_value(step, name)"
        )

    @property
    def plot(self) -> TensorPlotter:
        """Matplotlib plots of the tensor: :class:`~smdwidgets.plots.TensorPlots`."""
        return extensions.tensor_plotter.load()(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_trial, (self.trial, self.name)

    def __repr__(self) -> str:
        return show.tensor_text(self.trial, self.name)

    def _repr_html_(self) -> str:
        return show.tensor_html(self.trial, self.name)


def _of_trial(trial: Trial, name: str) -> Tensor:
    """Restore a pickled tensor from its reopened trial."""
    return trial.tensor(name)
