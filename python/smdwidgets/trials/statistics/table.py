"""Statistics of tensors over steps, for :meth:`smdwidgets.Trial.statistics`.

They are read from the run's statistics file. For tensors that are not in it, they are computed from the saved values in
one sweep, and cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import InvalidWorker, SMDebugError, SMDebugValueError, TensorUnavailable
from smdwidgets.modes import ModeKeys, as_names, as_steps
from smdwidgets.trials import sweeps
from smdwidgets.trials.bulk import EVERY_WORKER, MODE_NAMES
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.run import Index, Run, SweepOptions, is_text
from smdwidgets.trials.shards import ASSEMBLED, Sharded
from smdwidgets.trials.tables import COUNTS, KEYS, LIMITS, NUMBERS, Table, joined, selected

#: Columns of a result without a selection.
STATISTICS: Final = (*COUNTS, *NUMBERS)
#: Columns that follow from others.
_DERIVED: Final = ("update_ratio", "rms")
#: Columns about the row.
_ABOUT: Final = ("coverage", "flags")
#: Types of the columns of a result.
COLUMN_TYPES: Final[dict[str, type[Any]]] = {
    **dict.fromkeys(("name", "mode", "worker"), str),
    **dict.fromkeys(("step", "mode_step", *COUNTS, *LIMITS), np.int64),
    **dict.fromkeys((*NUMBERS, *_DERIVED, "coverage"), np.float64),
    "flags": np.uint16,
}


def statistics(
    reader: RunReader,
    names: Iterable[str] | str | None,
    steps: Iterable[int] | int | None,
    columns: Iterable[str] | str | None,
    mode: ModeKeys,
    worker: str | None,
    cache: bool,
    options: SweepOptions,
) -> Columns:
    """Implement :meth:`smdwidgets.Trial.statistics`."""
    if worker is not None and not is_text(worker):
        raise InvalidWorker(worker)
    chosen_columns = _checked(columns)
    reader.maybe_refresh()
    run = reader.run
    last_step = run.index.last_step()
    file = run.statistics_file()
    in_file = {} if file is None else dict.fromkeys(file.names())
    chosen = _chosen(reader, names, in_file)
    at = None if steps is None else set(as_steps(steps))
    tables = []
    stored = [name for name in chosen if name in in_file]
    if file is not None and stored:
        of_mode = None if mode == ModeKeys.GLOBAL else mode.value
        globally = sorted(at) if at is not None and of_mode is None else None
        workers = None if worker is None or worker == EVERY_WORKER else [worker]
        table = file.read(stored, globally, workers, of_mode)
        if at is not None and of_mode is not None:
            table = selected(table, np.isin(table["mode_step"], list(at)))
        table["error"] = [("", -1, None, error) for error in table["error"]]
        tables.append(_with_run_names(run, table))
    if others := [name for name in chosen if name not in in_file]:
        tables.append(_computed(reader, others, at, mode, worker, cache, options))
    for table in tables:
        table["coverage"] = np.ones(len(table["step"]))
    if worker is None:
        tables = [_one_per_step(run, table) for table in tables]
    return _columns(_sorted(tables or [_empty()], chosen), chosen_columns, last_step)


def names_with_statistics(reader: RunReader) -> list[str]:
    """Return the names that statistics are about if none are selected.

    These are the names in the statistics file, or of all tensors.
    """
    file = reader.run.statistics_file()
    return _chosen(reader, None, [] if file is None else file.names())


def result_columns(columns: Iterable[str] | str | None) -> list[str]:
    """Return the columns of a result, of which some are selected."""
    return [*KEYS, *_checked(columns)]


def _checked(columns: Iterable[str] | str | None) -> list[str]:
    if columns is None:
        return [*STATISTICS, *_ABOUT]
    chosen = [columns] if isinstance(columns, str) else list(columns)
    known = (*STATISTICS, *LIMITS, *_DERIVED, *_ABOUT)
    for column in chosen:
        if column not in known:
            hint = did_you_mean(column, known)
            raise SMDebugValueError(f"invalid column {shown(column)}; choose from {', '.join(known)}.{hint}")
    return chosen


def _chosen(reader: RunReader, names: Iterable[str] | str | None, in_file: Iterable[str]) -> list[str]:
    if names is None:
        return list(in_file) or reader.names()
    aliases = reader.collection_manager.aliases
    chosen = []
    for given in as_names(names):
        name = given if given in in_file or reader.has(given) else aliases.get(given, given)
        if name not in in_file and not reader.has(name):
            raise TensorUnavailable(given, [*in_file, *reader.names(), *reader.aliases()])
        chosen.append(name)
    return list(dict.fromkeys(chosen))


def _with_run_names(run: Run, table: Table) -> Table:
    """Replace the names of workers in files by those of the run."""
    names = {_core.worker_file_name(worker): worker for worker in run.index.workers()}
    if any(name != worker for name, worker in names.items()):
        table["worker"] = np.array([names.get(worker, worker) for worker in table["worker"]], dtype=object)
    return table


def _computed(
    reader: RunReader,
    names: list[str],
    at: set[int] | None,
    mode: ModeKeys,
    worker: str | None,
    cache: bool,
    options: SweepOptions,
) -> Table:
    """Return the statistics of saved values, computed where they are not cached."""
    run = reader.run
    run.load()
    steps = {name: _steps(reader, name, at, mode) for name in names}
    sharded = worker is None and getattr(run.index, "has_shards", False)
    workers: list[str] | None = [worker] if worker and worker != EVERY_WORKER else [] if sharded or worker else None
    kept = run.statistics_cache("first" if workers is None else "every" if not workers else f"only {worker}")
    if not cache or kept is None:
        return _swept(reader, steps, workers, options)
    table = kept.read(names)
    missing = steps if table is None else _missing(table, steps)
    tables = [] if table is None else [_only(table, steps)]
    if missing or not tables:
        fresh = _swept(reader, missing, workers, options)
        kept.add(fresh, reader.complete_until)
        tables.append(fresh)
    return joined(tables)


def _steps(reader: RunReader, name: str, at: set[int] | None, mode: ModeKeys) -> list[int]:
    """Return the global steps at which a tensor was saved, of those that are selected."""
    steps = reader.index.steps_of(name, mode.value)
    if at is None:
        return steps
    chosen = {reader.global_step(mode, step) for step in at}
    return [step for step in steps if step in chosen]


def _rows_by_name(table: Table) -> dict[str, NDArray[Any]]:
    order = np.argsort(table["name"].astype(str), kind="stable")
    names = table["name"][order]
    starts = [at for at in range(len(names)) if at == 0 or names[at] != names[at - 1]]
    return {str(names[start]): order[start:end] for start, end in pairwise([*starts, len(names)])}


def _missing(table: Table, wanted: dict[str, list[int]]) -> dict[str, list[int]]:
    rows = _rows_by_name(table)
    missing = {}
    for name, steps in wanted.items():
        there = set(table["step"][rows[name]].tolist()) if name in rows else set()
        if left := [step for step in steps if step not in there]:
            missing[name] = left
    return missing


def _only(table: Table, wanted: dict[str, list[int]]) -> Table:
    """Return the wanted rows."""
    keep = np.zeros(len(table["step"]), bool)
    for name, rows in _rows_by_name(table).items():
        keep[rows] = np.isin(table["step"][rows], wanted.get(name, []))
    return selected(table, keep)


def _swept(
    reader: RunReader,
    wanted: dict[str, list[int]],
    workers: Sequence[str] | None,
    options: SweepOptions,
) -> Table:
    """Compute statistics of some steps.

    The saved step before each of them is read, too, for the change.
    """
    run = reader.run
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, steps in wanted.items():
        groups.setdefault(tuple(steps), []).append(name)
    tables = []
    for chosen, names in groups.items():
        steps = list(chosen)
        read = sorted({*steps, *steps_before(run.index, names, steps)})
        table = sweeps.statistics(reader, names, read, workers, options)
        tables.append(selected(table, np.isin(table["step"], steps)))
        tables[-1]["error"] = [error for error in table["error"] if error[1] in set(steps)]
    return joined(tables) if tables else _empty()


def steps_before(index: Index, names: Iterable[str], steps: Sequence[int]) -> set[int]:
    """Return the steps before some global steps at which each tensor was saved."""
    # Most tensors are saved at the same steps.
    saved = {tuple(index.steps_of(name)) for name in names}
    return {before for every in saved for before in _before(every, steps)}


def _before(every: Sequence[int], steps: Sequence[int]) -> set[int]:
    """Return the steps before some steps.

    >>> sorted(_before([0, 10, 20, 30], [20, 0]))
    [10]
    """
    places = np.searchsorted(every, steps)
    return {every[place - 1] for place in places.tolist() if place > 0}


def _empty() -> Table:
    table: Table = {name: np.empty(0, object if name in ("name", "worker") else np.int64) for name in KEYS}
    table |= {"flags": np.empty(0, np.uint16), "coverage": np.empty(0)}
    table |= {name: np.empty(0, np.int64) for name in (*COUNTS, *LIMITS)} | {name: np.empty(0) for name in NUMBERS}
    return table | {"error": []}


def _one_per_step(run: Run, table: Table) -> Table:
    """Keep the first worker of each tensor and step, and combine shards."""
    names = list(dict.fromkeys(table["name"].tolist()))
    sharded = {name: _sharded(run, name) for name in names}
    if not any(sharded.values()) and _blocks(table, strictly=True) is not None:
        return table
    numbers = _places(table["name"], names)
    is_sharded = np.array([sharded[name] is not None for name in names], bool)[numbers]
    whole = selected(selected(table, ~is_sharded), _is_first(numbers[~is_sharded], table["step"][~is_sharded]))
    if not is_sharded.any():
        return whole
    shards: dict[tuple[str, int], list[int]] = {}
    for row in np.flatnonzero(is_sharded).tolist():
        shards.setdefault((table["name"][row], int(table["step"][row])), []).append(row)
    return joined([whole, _combined(table, shards, sharded)])


def _places(texts: NDArray[Any], known: Iterable[str]) -> NDArray[np.int64]:
    """Return the place of each text in a list.

    >>> _places(np.array(["b", "a", "b"], object), ["a", "b"]).tolist()
    [1, 0, 1]
    """
    places = {text: place for place, text in enumerate(known)}
    return np.fromiter(map(places.__getitem__, texts.tolist()), np.int64, len(texts))


def _is_first(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each row whether no earlier one has the same keys.

    >>> _is_first(np.array([0, 0, 1, 0]), np.array([5, 5, 5, 6])).tolist()
    [True, False, True, True]
    """
    order = np.lexsort(keys)
    differs = np.ones(len(order), bool)
    differs[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    first = np.empty(len(order), bool)
    first[order] = differs
    return first


def _sharded(run: Run, name: str) -> Sharded | None:
    if not getattr(run.index, "has_shards", False):
        return None
    steps = run.index.steps_of(name)
    try:
        return run.sharded(name, steps[0]) if steps else None
    except SMDebugError:
        return None


def _combined(table: Table, shards: dict[tuple[str, int], list[int]], sharded: dict[str, Sharded | None]) -> Table:
    """Combine the rows of each sharded tensor and step.

    Parts that have to be added up first are left out.
    """
    parts: list[int] = []
    wholes: list[int] = []
    firsts: list[int] = []
    coverage: list[float] = []
    for (name, _), rows in shards.items():
        tensor = sharded[name]
        if tensor is None or any(shard.partial for shard in tensor.shards.values()):
            continue
        chosen: dict[object, int] = {}
        by_replica = sorted(
            (tensor.shards[worker].replica, row)
            for row in rows
            if (worker := table["worker"][row]) in tensor.shards and tensor.shards[worker].size
        )
        for _, row in by_replica:
            chosen.setdefault(tensor.shards[table["worker"][row]].box, row)
        if not chosen:
            continue
        wholes += [len(firsts)] * len(chosen)
        parts += chosen.values()
        firsts.append(next(iter(chosen.values())))
        held = sum(tensor.shards[table["worker"][row]].size for row in chosen.values())
        coverage.append(held / max(1, int(np.prod(tensor.shape, dtype=float))))
    combined = selected(table, firsts)
    combined["worker"] = np.array([ASSEMBLED] * len(firsts), dtype=object)
    combined["coverage"] = np.array(coverage)
    flags = np.zeros(len(firsts), np.uint16)
    np.bitwise_or.at(flags, wholes, table["flags"][parts])
    combined["flags"] = flags
    if firsts:
        combined |= _core.combine_statistics({name: table[name][parts] for name in (*STATISTICS, *LIMITS)}, wholes)
    return combined


def _blocks(table: Table, strictly: bool = False) -> list[tuple[str, int, int]] | None:
    """Return the name, first row and end of each tensor's rows.

    Return None if a tensor has rows in several places, or rows that are not sorted by step and worker; with
    ``strictly``, also if it has several rows of a step.
    """
    names, steps, workers = table["name"], table["step"], table["worker"]
    if not len(names):
        return []
    begins = np.append(True, names[1:] != names[:-1]).astype(bool)
    later = steps[1:] - steps[:-1]
    is_sorted = begins[1:] | (later > 0)
    again = np.flatnonzero(~is_sorted)
    if len(again) and (strictly or (later[again] < 0).any() or not (workers[again + 1] > workers[again]).all()):
        return None
    starts = np.flatnonzero(begins)
    blocks = list(zip(names[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(names)], strict=True))
    return blocks if len({name for name, *_ in blocks}) == len(blocks) else None


def _sorted(tables: list[Table], names: list[str]) -> Table:
    """Return the rows of tables in the order of the names, step and worker."""
    place = {name: number for number, name in enumerate(names)}
    by_table = [_blocks(table) for table in tables]
    blocks = [
        (place[name], table, start, end)
        for table, rows in zip(tables, by_table, strict=True)
        for name, start, end in rows or ()
    ]
    if not blocks or None in by_table or len({number for number, *_ in blocks}) < len(blocks):
        table = joined(tables)
        by_worker = _places(table["worker"], sorted(set(table["worker"].tolist())))
        return selected(table, np.lexsort((by_worker, table["step"], _places(table["name"], names))))
    # Whole blocks are copied, as few as possible: sorting millions of rows takes longer than reading them.
    pieces: list[tuple[Table, int, int]] = []
    for _, table, start, end in sorted(blocks, key=lambda block: block[0]):
        if pieces and pieces[-1][0] is table and pieces[-1][2] == start:
            start = pieces.pop()[1]
        pieces.append((table, start, end))
    ordered = joined(
        table if end - start == len(table["step"]) else selected(table, slice(start, end))
        for table, start, end in pieces
    )
    return ordered | {"error": [error for table in tables for error in table["error"]]}


def _columns(table: Table, chosen: list[str], last_step: int | None) -> Columns:
    if "update_ratio" in chosen:
        with np.errstate(divide="ignore", invalid="ignore"):
            table["update_ratio"] = table["update"] / table["l2"]
    if "rms" in chosen:
        finite = table["count"] - table["nan"] - table["neg_inf"] - table["pos_inf"]
        with np.errstate(divide="ignore", invalid="ignore"):
            table["rms"] = table["l2"] / np.sqrt(finite)
    keys: Table = {**{name: table[name] for name in KEYS}, "mode": MODE_NAMES[table["mode"]]}
    errors = [Failure(*error) for error in table["error"]]
    return Columns({**keys, **{name: table[name] for name in chosen}}, errors, last_step)
