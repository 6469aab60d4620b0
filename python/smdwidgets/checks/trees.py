"""Checks of the trees of arrays that a training loop passes to a hook.

The functions are arithmetic on names, shapes and NumPy arrays. The reader of a framework makes each :class:`Tree`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.finding import Level

__all__ = ["MECHANISMS", "Role", "Tree", "TreeChecks"]

MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "trees": ("tree_mismatch",),
    "updates": ("weights_unchanged", "no_gradient"),
    "inputs": ("equal_rows", "zero_batch"),
}
"""The checks of each mechanism."""

Role = Literal["weights", "gradient", "update"]
#: Successive steps in which weights do not change, or a gradient is 0.
_STEPS = 8
#: Batches that are read, the fewest rows of one, and batches of equal rows or of zeros.
_BATCHES, _ROWS, _EQUAL, _ZERO = 64, 8, 3, 2


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of arrays at a step.

    Attributes:
        role: what it is.
        name: name of the model that it belongs to; empty if the script gave none.
        shapes: shape of each array, by its path.
        sample: some of the arrays, by path.
    """

    role: Role
    name: str
    shapes: Mapping[str, tuple[int, ...]]
    sample: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(slots=True)
class _Step:
    """What a step of the training has shown."""

    trees: dict[tuple[Role, str], Tree] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    has_optimizer: bool = False


class TreeChecks:
    """The checks of a training.

    Args:
        log: the checks that fired.
        updated: called after each step, with the number of steps.

    >>> log = CheckLog(frozenset({"tree_mismatch"}), lambda line: None)
    >>> checks = TreeChecks(log)
    >>> for role, shape in (("weights", (3, 1)), ("gradient", (3,))):
    ...     checks.tree(lambda: Tree(role, "model", {"kernel": shape}))
    >>> checks.step_ends(0)
    >>> print(log.fired[0].says)
    The gradient of `model/kernel` has the shape (3,), and the tensor (3, 1)
    """

    def __init__(self, log: CheckLog, updated: Callable[[int], object] = lambda steps: None) -> None:
        self.log = log
        self.steps = 0
        self._updated = updated
        self._mechanisms = Mechanisms(log, MECHANISMS)
        self._now = _Step()
        self._shapes: dict[str, Mapping[str, tuple[int, ...]]] = {}
        self._weights: dict[str, bytes] = {}
        self._unchanged = self._unchanged_since = 0
        #: Steps with gradients, and the tensors whose gradient was always 0.
        self._with_gradient = 0
        self._zero: dict[str, None] = {}
        self._sampled: set[str] = set()
        self._moved = self._judged_gradient = False
        self._batches: dict[str, int] = {}
        self._has_seen_values: set[str] = set()

    @property
    def looks(self) -> bool:
        """Whether trees of this step are to be given to `tree`."""
        return not (self._moved and self._judged_gradient) and self.steps < 4 * _STEPS

    def tree(self, read: Callable[[], Tree]) -> None:
        """The script has passed a tree."""

        def take() -> None:
            tree = read()
            if tree.shapes:
                self._now.trees[tree.role, tree.name] = tree

        self._mechanisms.run("trees", take)

    def optimizer(self, read: Callable[[], Mapping[str, Any]]) -> None:
        """The script has passed the state of an optimizer.

        ``read`` returns its numbers by path.
        """

        def take() -> None:
            self._now.has_optimizer = True
            for path, value in read().items():
                last = path.rpartition("/")[2]
                if last == "learning_rate":
                    self._now.rates.append(float(value))
                elif last == "mini_step":
                    self.log.off(("weights_unchanged",), "the optimizer accumulates the gradients of several steps")

        self._mechanisms.run("updates", take)

    def inputs(self, name: str, read: Callable[[], NDArray[Any] | None]) -> None:
        """The script has passed inputs of a model."""
        if self._batches.get(name, 0) < _BATCHES:
            self._batches[name] = self._batches.get(name, 0) + 1
            self._mechanisms.run("inputs", self._judge_inputs, name, read)

    def _judge_inputs(self, name: str, read: Callable[[], NDArray[Any] | None]) -> None:
        batch = read()
        if batch is None or batch.ndim < 2 or len(batch) < _ROWS or batch[0].size < 2:
            return
        if batch.any():
            self._has_seen_values.add(name)
            if (batch == batch[0]).all():
                self.log.say("equal_rows", self.steps, {"rows": len(batch)}, [name], need=_EQUAL)
            else:
                self.log.unseen("equal_rows")
        elif name in self._has_seen_values:
            self.log.say("zero_batch", self.steps, {"what": "All values of the batch are 0"}, [name], need=_ZERO)

    def step_ends(self, step: int) -> None:
        """A step of the training has ended."""
        now, self._now = self._now, _Step()
        if now.trees:
            self._mechanisms.run("trees", self._judge_shapes, step, now)
            self._mechanisms.run("updates", self._judge_updates, step, now)
        self.steps += 1
        self._updated(self.steps)

    def close(self) -> None:
        """The training has ended: write the counts."""
        self.log.close(self.steps)

    # ------------------------------------------------------------------------------------------------------- shapes

    def _judge_shapes(self, step: int, now: _Step) -> None:
        models = {name: tree for (role, name), tree in now.trees.items() if role == "weights"}
        owners = {key: _owner(tree, models) for key, tree in now.trees.items() if key[0] != "weights"}
        trained = {owner.name for owner in owners.values() if owner is not None}
        for key, owner in owners.items():
            if owner is not None:
                self._compare(step, now.trees[key], owner, is_named=key[1] in models)
        for name in sorted(trained):
            shapes, earlier = models[name].shapes, self._shapes.get(name, {})
            for path in [one for one in shapes if earlier.get(one, shapes[one]) != shapes[one]][:1]:
                what = f"`{name}/{path}` had the shape {earlier[path]}, and an update gave it {shapes[path]}"
                self.log.say("tree_mismatch", step, {"what": what}, [f"{name}/{path}"])
            self._shapes[name] = shapes

    def _compare(self, step: int, tree: Tree, owner: Tree, is_named: bool) -> None:
        begin = _within(tree, owner)
        common = [path for path in tree.shapes if begin + path in owner.shapes]
        for path in [one for one in common if tree.shapes[one] != owner.shapes[begin + one]][:1]:
            tensor = f"{owner.name}/{begin}{path}"
            shapes = f"{tree.shapes[path]}, and the tensor {owner.shapes[begin + path]}"
            what = f"The {tree.role} of `{tensor}` has the shape {shapes}"
            self.log.say("tree_mismatch", step, {"what": what}, [tensor])
        if not common and is_named:
            what = f"The {tree.role} of `{owner.name}` has no tensor of `{owner.name}`"
            self.log.say("tree_mismatch", step, {"what": what}, [owner.name], level="warning")

    # ------------------------------------------------------------------------------------------------------ updates

    def _judge_updates(self, step: int, now: _Step) -> None:
        models = {name: tree for (role, name), tree in now.trees.items() if role == "weights"}
        moving = [tree for (role, _), tree in now.trees.items() if role == "gradient"]
        updates = [tree for (role, _), tree in now.trees.items() if role == "update"]
        if not self._judged_gradient:
            self._judge_gradient(step, moving)
        if not self._moved:
            owned = [owner for one in moving or updates if (owner := _owner(one, models)) is not None]
            self._judge_weights(step, now, moving or updates, updates, owned)

    def _judge_gradient(self, step: int, gradients: list[Tree]) -> None:
        """Look for tensors whose gradient is 0 at each step."""
        if not gradients:
            return
        for tree in gradients:
            for path, one in tree.sample.items():
                name = f"{tree.name}/{path}" if tree.name else path
                if name not in self._sampled:
                    self._sampled.add(name)
                    self._zero[name] = None
                if name in self._zero and one.any():
                    del self._zero[name]
        self._with_gradient += 1
        if self._with_gradient >= _STEPS:
            self._judged_gradient = True
            zero = [*self._zero]
            if zero:
                level: Level = "problem" if len(zero) == len(self._sampled) else "note"
                total = len(self._sampled)
                facts = {
                    "count": len(zero),
                    "total": total,
                    "optimizer": "the tree",
                    "why": " other than 0",
                    "tensor": zero[0],
                }
                advice = "look for `stop_gradient`, and at which argument `jax.grad` differentiates by."
                self.log.say("no_gradient", step, facts, zero, level=level, advice=advice)

    def _judge_weights(
        self, step: int, now: _Step, moving: list[Tree], updates: list[Tree], models: list[Tree]
    ) -> None:
        """Look for weights that stay the same although their gradients are not 0."""
        weights = {
            f"{tree.name}/{path}": hashlib.blake2b(np.ascontiguousarray(one).tobytes(), digest_size=16).digest()
            for tree in models
            for path, one in tree.sample.items()
        }
        gradients = [one for tree in moving for one in tree.sample.values()]
        # After a NaN, weights stay NaN: that is another fault.
        has_gradient = any(one.any() for one in gradients) and all(np.isfinite(one).all() for one in gradients)
        if not weights or not has_gradient or any(not rate > 0 for rate in now.rates):
            self._weights = {}
            return
        if self._weights.keys() != weights.keys():
            self._weights, self._unchanged, self._unchanged_since = weights, 0, step
            return
        if self._weights != weights:
            self._moved = True
            return
        self._unchanged += 1
        if self._unchanged < _STEPS:
            return
        self._moved = True
        advice = "use the weights that `optax.apply_updates` returns in the next step."
        if updates and not any(one.any() for tree in updates for one in tree.sample.values()):
            advice = "all updates are 0: check the learning rate, its schedule, and masks of the optimizer."
        facts = {"count": _STEPS, "tensors": len(weights)}
        # Without its state, the optimizer may be one that waits for further gradients.
        level: Level = "problem" if now.has_optimizer or updates else "warning"
        self.log.say("weights_unchanged", self._unchanged_since, facts, [*weights][:3], level=level, advice=advice)


def _owner(tree: Tree, models: Mapping[str, Tree]) -> Tree | None:
    """Return the weights that a gradient or update belongs to, if they are known.

    >>> weights = Tree("weights", "model", {"params/w": (3,)})
    >>> _owner(Tree("gradient", "", {"w": (3,)}), {"model": weights}) is weights
    True
    """
    if tree.name in models:
        return models[tree.name]
    if tree.name or len(models) != 1:
        return None
    [only] = models.values()
    begin = _within(tree, only)
    return only if any(begin + path in only.shapes for path in tree.shapes) else None


def _within(tree: Tree, owner: Tree) -> str:
    """Return what the paths of a gradient lack, such as ``params/``."""
    begins = ["", *sorted({path.partition("/")[0] + "/" for path in owner.shapes if "/" in path})]
    return max(begins, key=lambda begin: sum(begin + path in owner.shapes for path in tree.shapes))
