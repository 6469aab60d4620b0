"""Checkpoints of a run: which run and step a file belongs to, by its path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_WORDS: Final = "global[-_]?steps?|steps?|iterations?|iters?|checkpoint|ckpt"
_STEP: Final = re.compile(rf"(?i)(?:^|[-_.=])(?:{_WORDS})[-_=]?(\d{{1,18}})(?=$|[-_.=])")
_EPOCH: Final = re.compile(r"(?i)(?:^|[-_.=])(?:epochs?|ep)[-_=]?(\d{1,18})(?=$|[-_.=])")
_LAST: Final = re.compile(r"[-_](\d{1,18})$")
#: Part of a checkpoint that is split into several files.
_SHARD: Final = re.compile(r"[-_.](?:\d+-of-\d+|mp_rank_\d+|rank_?\d+)")
#: Directories of a run in which trainings save checkpoints.
_FOLDERS: Final = frozenset(
    ["checkpoints", "checkpoint", "ckpt", "ckpts", "weights", "models", "saved_models", "saved", "snapshots"]
)
#: Files of a checkpoint that hold no weights.
_OTHER: Final = re.compile(r"(?i)(optimizer|optim_states|scheduler|scaler|rng_state|random_states|training_args)")


def step_of_name(name: str) -> int | None:
    """Return the step in the name of a file or directory, or None.

    >>> names = "checkpoint-500", "epoch=3-step=96", "epoch_7", "model-20", "model-00001-of-00003", "best"
    >>> [step_of_name(name) for name in names]
    [500, 96, 7, 20, None, None]
    """
    name = _SHARD.sub("", name)
    for pattern in (_STEP, _EPOCH, _LAST):
        found = pattern.search(name)
        if found is not None:
            return int(found[1])
    return None


def place_of(key: str) -> tuple[str, int | None, str]:
    """Return a checkpoint's run, its step, and its directory below the step's.

    >>> place_of("out/checkpoint-500/model.safetensors"), place_of("v0/checkpoints/epoch=0-step=5.ckpt")
    (('out', 500, ''), ('v0', 5, ''))
    >>> place_of("out/checkpoint-500/unet/model.safetensors"), place_of("out/model.safetensors")
    (('out', 500, 'unet/'), ('out', None, ''))
    """
    *folders, name = key.split("/")
    for at in range(len(folders) - 1, -1, -1):
        step = step_of_name(folders[at])
        if step is not None and not _is_plain_number(folders[at]):
            below = "/".join(folders[at + 1 :])
            return _run(folders[:at]), step, f"{below}/" if below else ""
    return _run(folders), step_of_name(name.rpartition(".")[0] or name), ""


def _is_plain_number(folder: str) -> bool:
    """Return whether a name is that of a run with a number, such as ``version_0``."""
    return _STEP.search(folder) is None and _EPOCH.search(folder) is None


def _run(folders: list[str]) -> str:
    while folders and folders[-1].lower() in _FOLDERS:
        folders = folders[:-1]
    return "/".join(folders)


def is_of_weights(key: str) -> bool:
    """Return whether a file of a checkpoint may hold weights, by its name.

    >>> is_of_weights("checkpoint-5/model.safetensors"), is_of_weights("checkpoint-5/optimizer.pt")
    (True, False)
    """
    return _OTHER.search(key.rpartition("/")[2]) is None


def with_steps(keys: Iterable[str], root_name: str) -> tuple[dict[str, int], list[str]]:
    """Return the step of each file, and the files whose step is unknown.

    A run with one checkpoint has step 0, or the step in the name of the directory that was opened.

    >>> with_steps(["checkpoint-5/model.safetensors", "model.safetensors"], "out")
    ({'checkpoint-5/model.safetensors': 5}, ['model.safetensors'])
    >>> with_steps(["model.safetensors"], "checkpoint-7")
    ({'model.safetensors': 7}, [])
    """
    steps = {key: place_of(key)[1] for key in keys}
    known = {key: step for key, step in steps.items() if step is not None}
    unknown = [key for key, step in steps.items() if step is None]
    if known or not unknown:
        return known, unknown
    return dict.fromkeys(unknown, step_of_name(root_name) or 0), []
