"""Checks of the transitions of which a network learns the values of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import REGRESSION, LossCall, is_chosen, places_of_maximum
from smdwidgets.checks.torch.values import is_plain, some_rows
from smdwidgets.checks.torch.variables import tensors_by_name

__all__ = ["TransitionChecks"]

#: Words that the names of all variables of a batch may have.
_OF_BATCH = frozenset({"batch", "b", "t", "tensor", "tensors", "mb", "sampled", "minibatch", "replay"})
#: Names of the flags of terminal states, of rewards, of actions, and of next states.
_FLAGS = frozenset({"d", "done", "dones", "term", "terms", "terminal", "terminals", "terminated", "terminations"})
_REWARDS = frozenset({"r", "rs", "rew", "rews", "reward", "rewards"})
_ACTIONS = frozenset({"a", "act", "acts", "action", "actions"})
_NEXT = frozenset({"s2", "obs2", "o2", "ns", "sp", "nxt", "s_", "state_", "states_", "obs_", "s_prime"})
#: Rows that are read, rows of a batch that are compared, pairs that are needed, and the share of them whose targets
#: contradict their rewards.
_ROWS, _GROUP, _PAIRS, _CONTRADICT = 512, 32, 24, 0.3
#: By how much two targets differ, relative to the largest one.
_DIFFER = 1e-4
#: By how much the target of a reward changes, relative to the larger one, how many different ones it has, and most
#: rewards that are followed.
_DRIFTS, _LEVELS, _REWARDS_AT_MOST = 0.05, 4, 64
#: Rows whose action is not the one of the largest value, and batches in which so many are.
_OTHERS, _OTHER_BATCHES = 0.2, 3
#: Rows and elements of states that are compared, the share that is equal, and batches in which it is so.
_STATES, _ELEMENTS, _EQUAL, _BATCHES = 64, 1024, 0.8, 4


class TransitionChecks:
    """Looks at batches of transitions, which the variables of the script name.

    Only a loss of one output of each row is looked at, that of the chosen action. Where it is the largest one, the
    actions of the batch are compared with it: the reward follows from the action that was taken.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._chooses = self._maximizes = False
        self._actions: torch.Tensor | None = None
        self._states: torch.Tensor | None = None
        self._next: list[torch.Tensor] = []
        self._flags: torch.Tensor | None = None
        self._rewards: torch.Tensor | None = None
        #: Of rows without and with a flag: pairs, and those whose targets contradict their rewards.
        self._pairs, self._contradicting = np.zeros(2), np.zeros(2)
        #: By rewards of terminal states: the different targets, of later and later batches. They are one in each batch.
        self._levels: dict[float, list[float]] = {}

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        if looks and self._maximizes and self._context.due and tensors:
            self._find_actions(len(tensors[0]) if tensors[0].ndim else 0)
        if not (looks and self._chooses and self._context.due and tensors) or tensors[0].ndim < 2:
            return
        log = self._context.log
        if log.has_fired("terminal_ignored") and log.has_fired("next_state_same"):
            return
        variables = {_plain(name): one for name, one in tensors_by_name(_is_meant).items() if is_plain(one)}
        self._states = tensors[0]
        self._flags = next((one for name, one in variables.items() if name in _FLAGS), None)
        self._rewards = next((one for name, one in variables.items() if name in _REWARDS), None)
        self._next = [one for name, one in variables.items() if _is_next(name) and one.shape == tensors[0].shape]

    def _find_actions(self, rows: int) -> None:
        """Find the actions of a batch, where the script names its rewards, too."""
        variables = {_plain(name): one for name, one in tensors_by_name(_is_of_action).items() if is_plain(one)}
        rewards = [one for name, one in variables.items() if name in _REWARDS and one.numel() == rows]
        actions = [one for name, one in variables.items() if name in _ACTIONS and one.numel() == rows]
        are_numbers = len(actions) == 1 and not actions[0].is_floating_point()
        self._actions = actions[0] if rewards and are_numbers else None

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        places = places_of_maximum(call.before) if call.kind in REGRESSION else None
        if places is not None:
            self._maximizes = True
            actions, self._actions = self._actions, None
            if actions is not None and actions.numel() == places.numel() and actions.device == places.device:
                self._context.values.read(
                    self._compare_actions, *(some_rows(one.reshape(-1), _ROWS) for one in (actions, places))
                )
            return
        if call.kind not in REGRESSION or not is_chosen(call.before) or not is_plain(call.target):
            return
        self._chooses = True
        states, flags, rewards, following = self._states, self._flags, self._rewards, self._next
        self._states = self._flags = self._rewards = None
        self._next = []
        rows = call.target.numel()
        if states is None or len(states) != rows or call.input.numel() != rows or not is_plain(states):
            return
        if flags is not None and rewards is not None and call.reduction != "none":
            read = [some_rows(one.detach().reshape(-1), _ROWS) for one in (flags, rewards, call.target)]
            if flags.numel() == rewards.numel() == rows and len({one.device for one in read}) == 1:
                self._context.values.read(self._judge, *read)
        others = [one for one in following if one.data_ptr() != states.data_ptr() and one.device == states.device]
        if len(others) == 1:
            self._context.values.read(self._compare, *(_places(one) for one in (states, others[0])))

    def _compare_actions(self, actions: Any, places: Any) -> None:
        """Look whether the outputs that a loss takes are those of the actions."""
        share = float((actions != places).mean())
        if share >= _OTHERS and len(np.unique(actions)) > 1:
            facts = {"share": f"{share:.0%}", "rows": len(actions)}
            self._context.log.say("action_ignored", self._context.step, facts, ["loss"], need=_OTHER_BATCHES)

    def _judge(self, flags: Any, rewards: Any, targets: Any) -> None:
        """Look whether the targets of terminal states follow from their rewards."""
        self._follow(rewards[flags == 1], targets[flags == 1])
        groups = [np.flatnonzero(flags == flag)[:_GROUP] for flag in (0, 1)]
        if not np.isin(flags, (0, 1)).all() or min(map(len, groups)) < 2:
            return
        for flag, rows in enumerate(groups):
            first, second = (rows[each] for each in np.triu_indices(len(rows), 1))
            apart = targets[first] - targets[second]
            differs = np.abs(apart) > _DIFFER * np.abs(targets[rows]).max()
            # Whatever the rewards are multiplied with or limited to, a larger one gives no smaller target.
            self._contradicting[flag] += (differs & (apart * (rewards[first] - rewards[second]) <= 0)).sum()
            self._pairs[flag] += len(first)
        # A flag may be 1 where an episode goes on.
        if self._pairs.min() >= _PAIRS and (self._contradicting > _CONTRADICT * self._pairs).all():
            share, pairs = f"{self._contradicting[1] / self._pairs[1]:.0%}", int(self._pairs[1])
            facts = {"what": f"In {share} of {pairs} pairs of terminal states, the targets contradict the rewards"}
            self._context.log.say("terminal_ignored", self._context.step, facts)

    def _follow(self, rewards: Any, targets: Any) -> None:
        """Look whether each reward of a terminal state has other targets in later batches.

        Where all episodes end in one state, its value is the same for all rows of a batch, and changes from batch to
        batch.
        """
        if len(self._levels) > _REWARDS_AT_MOST:  # rewards that are no few numbers
            return
        for reward in np.unique(rewards):
            values = targets[rewards == reward]
            levels = self._levels.setdefault(float(reward), [])
            if np.ptp(values) > _DIFFER * np.abs(values).max():
                continue
            if not levels or abs(values[0] - levels[-1]) > _DRIFTS * max(abs(values[0]), abs(levels[-1])):
                levels.append(float(values[0]))
        if self._levels and all(len(levels) >= _LEVELS for levels in self._levels.values()):
            reward, levels = next(iter(self._levels.items()))
            what = f"After terminal states with a reward of {reward:.3g}, targets go from {levels[0]:.3g} to {levels[-1]:.3g}"
            self._context.log.say("terminal_ignored", self._context.step, {"what": what})

    def _compare(self, states: Any, following: Any) -> None:
        """Look whether states equal the ones that follow."""
        equal = float((states == following).all(1).mean())
        if equal >= _EQUAL and len(np.unique(states, axis=0)) > len(states) / 2:
            facts = {"share": f"{equal:.0%}", "rows": len(states)}
            self._context.log.say("next_state_same", self._context.step, facts, need=_BATCHES)
        else:
            self._context.log.unseen("next_state_same")


def _plain(name: str) -> str:
    """Return a name without the words that all variables of a batch have.

    >>> _plain("batch_dones"), _plain("Reward_t"), _plain("s2"), _plain("s_"), _plain("bd")
    ('dones', 'reward', 's2', 's_', 'd')
    """
    plain = "_".join(word for word in name.lower().split("_") if word not in _OF_BATCH)
    return plain[1:] if plain[:1] == "b" and plain[1:] in _FLAGS | _REWARDS | _ACTIONS | _NEXT else plain


def _is_next(name: str) -> bool:
    return name in _NEXT or "next" in name or "new" in name


def _is_meant(name: str) -> bool:
    plain = _plain(name)
    return plain in _FLAGS or plain in _REWARDS or _is_next(plain)


def _is_of_action(name: str) -> bool:
    return _plain(name) in _ACTIONS | _REWARDS


def _places(states: torch.Tensor) -> torch.Tensor:
    """Return elements of the first rows, spread evenly."""
    rows = states.detach()[:_STATES].flatten(1)
    return rows[:, :: max(1, rows.shape[1] // _ELEMENTS)]
