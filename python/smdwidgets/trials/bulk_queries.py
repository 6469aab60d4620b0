"""Public methods that read, verify or export many tensors at many steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smdwidgets.executors import using
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials import bulk, extensions
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.extensions import Exported
from smdwidgets.trials.name_queries import NameQueries
from smdwidgets.trials.run import Progress
from smdwidgets.trials.statistics import statistics as compute_statistics
from smdwidgets.trials.sweeps import Verified
from smdwidgets.trials.sweeps import verify as verify_records

if TYPE_CHECKING:
    import dask.dataframe
    import xarray


class BulkQueries(NameQueries):
    """Tables of many tensors, verification and exports of a run."""

    def values(
        self,
        wanted: Mapping[str, Iterable[int] | None] | Iterable[str] | str | None = None,
        *,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Columns:
        """Return values of many tensors at many steps, read in parallel.

        The result has one row per value. Unreadable records are in its ``errors``.

        Args:
            wanted: a dictionary from names to steps (None: all steps of the tensor), or names; None: all tensors.
            mode: mode of the steps.
            worker: name of a worker, or ``"*"`` for all; None: the first that has a value.
            progress: called with the number of finished records and their total.
            threads: number of threads.

        >>> trial.values({"loss": None, "fc1.weight": [0, 100]}).to_pandas()    # doctest: +SKIP
        """
        return bulk.values(self, wanted, as_mode(mode), worker, progress, threads)

    def reductions(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        reductions: Iterable[str] | str | None = None,
        *,
        counts: bool = False,
        coverage: bool = False,
        progress: Progress | None = None,
        threads: int | None = None,
        client: Any = None,
    ) -> Columns:
        """Return reductions of many tensors at many steps, read in parallel.

        Saved reductions are read; the others are computed from the values.

        Args:
            names: names of tensors; None: all.
            steps: steps of ``mode``; None: all.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: the first that has a value.
            reductions: names such as ``"mean"``, ``"abs_max"``, ``"l2"``; None: all 18.
            counts: add the numbers of elements, zeros, NaNs and infinities.
            coverage: add the share of the tensor's elements that were saved. It is less than 1 if shards of a sharded tensor
                are missing; the reductions are then those of the elements that were saved. Without it, such tensors are
                in ``errors``.
            progress: called with the number of finished records and their total.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> trial.reductions(["fc1.weight"], reductions=["mean", "l2"])["l2"]    # doctest: +SKIP
        """
        with using(client):
            return bulk.reductions(
                self, names, steps, as_mode(mode), worker, reductions, counts, coverage, progress, threads
            )

    def statistics(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        cache: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
        client: Any = None,
    ) -> Columns:
        """Return the statistics of tensors over steps, one row per tensor and step.

        They come from the statistics that the training wrote. For tensors without them they are computed from the saved
        values, and cached in the user's cache directory; a later call reads only new steps. The statistics are ``count``,
        ``nan``, ``neg_inf``, ``pos_inf``, ``zeros``; ``min``, ``max``, ``mean``, ``std``, ``l1``, ``l2`` and ``abs_max`` of
        the finite elements; and ``update``, the L2 norm of the change since the step before (for computed statistics, the
        saved step before). ``update_ratio`` is ``update`` divided by ``l2``, and ``rms`` is the root mean square.

        Numbers have 24 significant bits. ``flags`` is not 0 where a row is special: 1 no value, 2 skipped step, 4 sample of
        the elements, 8 failed, 16 approximate (from a histogram), 32 saved
        reductions only, without counts (-1). ``coverage`` is below 1 if shards are missing.

        Args:
            names: names of tensors; None: all with written statistics, or all tensors if the training wrote none.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: all but ``update_ratio`` and ``rms``, with ``coverage`` and ``flags``.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
            cache: whether computed statistics are cached. Runs on S3 and TensorBoard logs have no cache.
            progress: called with the number of finished bytes and their total while values are read.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> trial.statistics("fc1.weight", columns=["mean", "update_ratio"]).to_pandas()    # doctest: +SKIP
        """
        with using(client):
            return compute_statistics(self, names, steps, columns, as_mode(mode), worker, cache, progress, threads)

    def verify(self, *, progress: Progress | None = None, threads: int | None = None, client: Any = None) -> Verified:
        """Verify every record of the run: framing, names, checksums and shapes.

        The command ``smdwidgets verify`` also checks index files, collections and statistics files. Only runs that hooks saved
        are verified.

        Args:
            progress: called with the number of finished bytes and their total.
            threads: number of threads.
            client: a ``distributed.Client`` whose workers read the run; None: that of :func:`smdwidgets.use`, else this
                process.

        >>> import smdwidgets, tempfile
        >>> from smdwidgets.numpy import Hook
        >>> with Hook(folder := tempfile.mkdtemp()) as hook:
        ...     hook.save_scalar("loss", 0.5)
        >>> found = smdwidgets.create_trial(folder).verify()
        >>> found.records, found.errors
        (1, [])
        """
        self.maybe_refresh()
        last_step = self._run.index.last_step()
        with using(client):
            counts = verify_records(self, threads=threads, progress=progress)
        errors = [Failure(*error) for error in counts["errors"]]
        return Verified(counts["records"], counts["bytes"], counts["unverifiable"], errors, last_step)

    def export(
        self,
        to: str,
        out: str | os.PathLike[str] | None = None,
        *,
        tensors: str | Sequence[str] | None = None,
        steps: range | Iterable[int] | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        workers: str | Sequence[str] | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Export the run, or a part of it, to another format.

        The output is written record by record and renamed to ``out`` when it is complete. Unreadable records are skipped and
        listed in the result's ``errors``.

        Args:
            to: the format: ``"npz"``, ``"parquet"``, ``"csv"``, ``"csv-wide"`` or ``"tensorboard"``. A Parquet file has one row per
                record with the columns step, mode, mode_step, worker, tensor, dtype, shape, values and wall_time. CSV contains
                numbers and texts: one row per value, or one row per step and one column per tensor. An ``npz`` file contains one array per
                record, ``<tensor>/<step>.<worker>``, and ``index.jsonl``. For TensorBoard, numbers become scalars and tensors
                become histograms.
            out: the output file, for TensorBoard a directory. By default it is named after the run.
            tensors: patterns of tensor names; None: all.
            steps: steps of ``mode``; None: all.
            mode: mode of ``steps``.
            workers: names of workers; None: all.
            force: overwrite an existing output.
            progress: called with the number of finished records and their total.

        >>> trial.export("parquet", "mlp.parquet", tensors="weight$", steps=range(100, 200))    # doctest: +SKIP
        mlp.parquet: 200 records of 2 tensors at 100 steps, 12.0 MB
        """
        export = extensions.exporter.load()
        return export(
            self, to, out, tensors=tensors, steps=steps, mode=mode, workers=workers, force=force, progress=progress
        )

    def to_xarray(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = 64 << 20,
        verify: str = "record",
    ) -> xarray.Dataset:
        """Return tensors as a dataset of xarray.

        Values are read when they are computed. Requires ``pip install 'smdwidgets[dask]'``. Each tensor is a variable with the dimensions ``step``, ``<name>_0``,
        ``<name>_1`` and so on. Coordinates are ``step`` (global steps), ``mode``, ``mode_step``, ``wall_time`` (read lazily)
        and ``worker``. Where a tensor of floating-point numbers has no value, it is NaN; the dataset has only steps at which
        all other tensors have one. ``wall_time`` is that of the record of the first tensor. The dataset is a snapshot of a growing run: ``attrs["last_step"]`` is its last step.

        Args:
            names: names of tensors; None: all but texts.
            steps: steps of ``mode``; None: all complete ones.
            mode: mode of the steps.
            worker: name of a worker; None: the first that has a value, and sharded tensors as a whole.
            chunk_bytes: limit on the size of a chunk.
            verify: see :meth:`Tensor.to_dask`.

        >>> trial.to_xarray(["fc1.weight", "fc1.bias"]).sel(step=slice(0, 100)).std("step").compute()    # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_xarray
        return read(self, names, steps, mode, worker, chunk_bytes=chunk_bytes, verify=verify)

    def to_dask_dataframe(
        self,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        by: str = "names",
        partition_rows: int = 4096,
        errors: str = "raise",
    ) -> dask.dataframe.DataFrame:
        """Return the table of :meth:`statistics` as a data frame of Dask.

        Requires ``pip install 'smdwidgets[dask]'``. Nothing is read before a result is computed. Statistics that are computed
        from values are not cached.

        Args:
            names: names of tensors; None: as in :meth:`statistics`.
            steps: steps of ``mode``; None: all.
            columns: names of statistics; None: as in :meth:`statistics`.
            mode: mode of ``steps``.
            worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
            by: ``"names"``: a partition has all steps of some tensors, in the order of :meth:`statistics`. ``"steps"``: it has
                all tensors at some of the steps at which values were saved.
            partition_rows: approximate number of rows of a partition.
            errors: ``"raise"`` the error of an unreadable record, or ``"skip"`` its row.

        >>> trial.to_dask_dataframe(columns=["l2"]).groupby("name")["l2"].max().compute()    # doctest: +SKIP
        """
        read = extensions.lazy_reader.load().to_dask_dataframe
        return read(self, names, steps, columns, mode, worker, by=by, partition_rows=partition_rows, errors=errors)
