"""Verify tables, trainer states, stores and checkpoints, and name other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from smdwidgets.sources import Tree
from smdwidgets.sources.recognition import refused_files
from smdwidgets.trials.discovery import RunFiles
from smdwidgets.trials.sources.run import LocalSourceRun, SourceRun
from smdwidgets.trials.tensorboard.layout import foreign_format

#: Names of files that a training writes.
_OF_TRAININGS = (".safetensors", ".csv", ".tsv", ".jsonl", ".pt", ".pth", ".ckpt", ".db", ".sqlite", ".sqlite3")


def check_sources(
    tree: Tree, runs: Mapping[str, RunFiles], opened: Callable[[str, RunFiles], SourceRun] | None = None
) -> dict[str, Any]:
    """Verify all runs with files of other formats than TensorBoard's.

    ``opened`` opens a run; without it, runs are in a directory.
    """
    found: dict[str, Any] = {"sources": [], "others": {}, "faults": [], "steps": 0, "ended": True}
    path = tree.path(tree.keys[0]) if tree.is_file else tree.root
    for name, files in runs.items():
        if not files.sources:
            continue
        run = LocalSourceRun(path, name, keep_orphans=True) if opened is None else opened(name, files)
        try:
            run.refresh()
            found["ended"] &= run.end_age() is not None
            found["steps"] += run.log.num_steps()
            for format, source in run.sources().items():
                for key, message in source.unsupported():
                    own = _below(name, key, files)
                    found["others"][own] = _reason(tree.path(own), message)[1]
                scalars = source.scalars()
                verified = source.verify()
                for key, message in () if verified is None else verified.faults:
                    at, reason = _reason(tree.path(key), message)
                    found["faults"].append({"file": key, "offset": at, "message": reason, "run": name})
                found["sources"].append(
                    {
                        "run": name,
                        "name": source.name,
                        "format": format,
                        "files": len(files.sources[format]),
                        "scalars": len(scalars),
                        "values": sum(len(one.steps) for one in scalars.values()),
                        "tensors": len(source.tensors()),
                        "checksums": None if verified is None else verified.checksums,
                    }
                )
            for key, message in run.source_faults():
                own = _below(name, key, files)
                at, reason = _reason(tree.path(own), message)
                found["faults"].append({"file": own, "offset": at, "message": reason, "run": name})
        finally:
            run.close()
    return found


def other_files(tree: Tree, runs: Mapping[str, RunFiles]) -> dict[str, str]:
    """Return what files are that only have the name of a training's file."""
    known = {key for files in runs.values() for keys in files.sources.values() for key in keys}
    heads = {key: tree.head(key, 256) for key in tree.named(*_OF_TRAININGS) if key not in known}
    # A checkpoint of PyTorch is a ZIP archive.
    return {key: what for key, head in heads.items() if head[:2] != b"PK" and (what := foreign_format(head))}


def damaged_files(tree: Tree, runs: Mapping[str, RunFiles]) -> list[dict[str, Any]]:
    """Return files that are so damaged that no format recognizes them, as faults."""
    known = {key for files in runs.values() for keys in files.sources.values() for key in keys}
    return [
        {"file": one.key, "offset": None, "message": one.refusal.reason}
        for one in refused_files(tree, known)
        if one.refusal.is_damaged
    ]


def source_lines(sources: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each verified source."""
    for one in sources:
        files = "" if one["files"] == 1 else f", {one['files']:,} files"
        content = [
            f"{count:,} {what if count > 1 else what[:-1]}"
            for what in ("scalars", "values", "tensors")
            if (count := one[what])
        ]
        place = one["name"] if one["name"].startswith(one["run"]) else f"{one['run']}/{one['name']}"
        checked = one["checksums"]
        sums = "no checksums in this format" if checked is None else f"{checked:,} checksums verified"
        yield f"{place} ({one['format']}{files}): {', '.join(content) or 'nothing'} read, {sums}"


def _below(run: str, key: str, files: RunFiles) -> str:
    """Return the path of a run's file below the directory that is verified."""
    own = f"{run}/{key}" if run else key
    return own if any(own in keys for keys in files.sources.values()) else key


def _reason(path: str, message: str) -> tuple[int | None, str]:
    """Split a message on a file into the offset and the reason.

    >>> _reason("a.csv", "a.csv, from byte 9: 3 rows are not JSON objects"), _reason("a.pt", "a.pt: refused")
    ((9, '3 rows are not JSON objects'), (None, 'refused'))
    """
    at = re.match(r"(?:, (?:from )?byte (\d+))?: ", rest := message.removeprefix(path))
    return (int(at[1]) if at[1] else None, rest[at.end() :]) if at else (None, message)
