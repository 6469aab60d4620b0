"""Find the runs below a directory, in every format.

A directory is a run of a hook, or a run of all other formats with files in it. Event files of TensorBoard may be in
directories below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from smdwidgets._text import natural
from smdwidgets.exceptions import SeveralRuns
from smdwidgets.sources import Tree, files_in
from smdwidgets.trials.tensorboard.layout import Directory, FirstTags, runs_of


@dataclass(frozen=True)
class RunFiles:
    """The files of one run, by what wrote them."""

    #: Whether a hook wrote the run. Other files are no part of it then.
    of_hook: bool = False
    #: Files by the name of their format, besides event files.
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Directories of event files.
    layout: Sequence[Directory] = ()
    #: Whether the one file that was opened has the run.
    in_file: bool = False

    @property
    def kind(self) -> str:
        """The names of the formats.

        >>> RunFiles(sources={"table": ["metrics.csv"]}, layout=[...]).kind
        'table, TensorBoard'
        """
        names = [*(["smdebug"] if self.of_hook else []), *self.sources, *(["TensorBoard"] if self.layout else [])]
        return ", ".join(names)


def find_runs(path: str) -> dict[str, RunFiles]:
    """Return the runs below a directory, or in a file, by directory, in natural order.

    The empty name is the directory itself.
    """
    # Unlike `Path.exists`, this does not raise for a directory whose parent is unreadable.
    return runs_in(Tree(path)) if os.path.exists(path) else {}


def runs_in(tree: Tree) -> dict[str, RunFiles]:
    """Return the runs in a tree."""
    found = {run: RunFiles(of_hook=True) for run in tree.hooks}
    logs = {} if tree.is_file else runs_of(tree.keys, FirstTags(tree.storage))
    sources = files_in(tree)
    joined = logs_of_sources(logs, sources)
    for run, files in sources.items():
        found[run] = RunFiles(
            sources=files, layout=logs.pop(joined[run]) if run in joined else (), in_file=tree.is_file
        )
    return in_natural_order(found | {run: RunFiles(layout=layout) for run, layout in logs.items()})


def in_natural_order(found: Mapping[str, RunFiles]) -> dict[str, RunFiles]:
    """Return runs in the natural order of their directories.

    >>> list(in_natural_order({"run10": RunFiles(), "run9": RunFiles()}))
    ['run9', 'run10']
    """
    return {
        run: found[run] for run in sorted(found, key=lambda run: [(natural(part), part) for part in run.split("/")])
    }


def chosen_run(path: str, runs: Mapping[str, RunFiles]) -> str:
    """Return the run in the directory itself, else the only one below it."""
    if "" in runs:
        return ""
    if len(runs) > 1:
        raise SeveralRuns(path, runs)
    return next(iter(runs))


def logs_of_sources(logs: Iterable[str], sources: Iterable[str]) -> dict[str, str]:
    """Return the event files that belong to each run with sources, by run.

    They are in the same directory, or are the only ones below it that are not below another run.

    >>> logs_of_sources(["runs/Nov22_host"], [""]), logs_of_sources(["out/a", "out/b"], ["out"])
    ({'': 'runs/Nov22_host'}, {})
    """
    runs = set(sources)
    below: dict[str, list[str]] = {}
    for log in logs:
        at = log
        while at and at not in runs:
            at = at.rpartition("/")[0]
        if at in runs:
            below.setdefault(at, []).append(log)
    return {run: run if run in own else own[0] for run, own in below.items() if run in own or len(own) == 1}
