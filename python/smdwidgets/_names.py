"""What the words of a scalar's name say about it."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+|[^\W\d_A-Za-z]+")

#: Words of losses and of error rates, which a training minimises.
_LOSS = (
    "loss losses nll nloglik deviance mse mae mape mphe rmse rmsle logloss mlogloss perplexity ppl cost error merror err "
    "wer cer fid bpd bpc xent crossentropy"
)
LOSS = frozenset(_LOSS.split())


@lru_cache(maxsize=65536)
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case.

    Names are split at punctuation and at changes of case.

    >>> words_of("Losses/valLoss_epoch")
    ('losses', 'val', 'loss', 'epoch')
    """
    return tuple(word.lower() for word in _WORD.findall(name))


def is_learning_rate(words: AbstractSet[str]) -> bool:
    """Whether these are the words of a learning rate's name."""
    return "lr" in words or {"learning", "rate"} <= words


def is_loss(words: AbstractSet[str]) -> bool:
    """Whether these are the words of a loss's name.

    Entropy alone is a property of a policy; cross entropy is a loss.
    """
    return not words.isdisjoint(LOSS) or {"cross", "entropy"} <= words


def names_loss(name: str) -> bool:
    """Whether a scalar of this name is a loss.

    >>> [names_loss(name) for name in ("val_loss", "train-rmse", "loss_1", "learning_rate", "auc")]
    [True, True, True, False, False]
    """
    words = frozenset(word.rstrip("0123456789") or word for word in words_of(name))
    return is_loss(words) and not is_learning_rate(words)
