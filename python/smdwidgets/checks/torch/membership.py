"""Checks of who holds which parameter: the loss, the models, the optimizers."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import walk
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["MembershipChecks"]

#: Updates of an optimizer after which its tensors are compared with those of the models.
_UPDATES = 3
#: Updates since the last step of an optimizer that is still in use.
_IN_USE = 16
#: Parameters without an optimizer that are looked at, and elements of each.
_PROBES, _ELEMENTS = 4, 64
#: Entries of a list or dictionary that are looked at.
_MOST_ITEMS = 1000


class MembershipChecks:
    """Compares the parameters of the loss, of the models and of the optimizers.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Parameters of the last loss that no model has, and their shapes.
        self._foreign: list[tuple[weakref.ref[torch.Tensor], tuple[int, ...]]] = []
        self._optimizers: dict[int, tuple[weakref.ref[Optimizer], int]] = {}
        #: Ids of the parameters that they hold, or held.
        self._held: frozenset[int] = frozenset()
        #: The number of the update at which an optimizer has stepped last.
        self._last_steps: dict[int, int] = {}
        #: Whether all parameters of each loss are known.
        self._whole = True
        #: Parameters without an optimizer at the last comparison, and sampled values of them.
        self._without: tuple[list[weakref.ref[torch.Tensor]], torch.Tensor] | None = None
        #: Leaves that a model has got as inputs. They may require gradients, and are not trained.
        self._inputs = WeakIdKeyDictionary()

    def enters(self, tensors: Iterable[torch.Tensor]) -> None:
        """A model is called with these tensors."""
        for one in tensors:
            if one.requires_grad and one.is_leaf:
                self._inputs[one] = True

    def add_leaves(self, leaves: Iterable[torch.Tensor], whole: bool) -> None:
        """A loss depends on these parameters.

        ``whole``: whether these are all.
        """
        leaves = list(leaves)
        self._whole = self._whole and whole
        for leaf in leaves:
            self._context.leaves[id(leaf)] = weakref.ref(leaf)
        self._created_again(leaves)

    def _created_again(self, leaves: list[torch.Tensor]) -> None:
        """Look whether parameters of no model are gone at the next loss."""
        earlier, self._foreign = self._foreign, []
        if earlier and all(reference() is None for reference, _ in earlier):
            shapes = [shape for _, shape in earlier]
            facts = {"count": len(shapes), "shape": shapes[0]}
            self._context.log.say("layer_made_in_forward", self._context.step, facts, need=2)
        registered = {id(parameter) for _, parameter in self._context.parameters()}
        if any(id(leaf) in registered for leaf in leaves):  # else it is the loss of another model, such as a copy
            self._foreign = [
                (weakref.ref(leaf), tuple(leaf.shape))
                for leaf in leaves
                if isinstance(leaf, nn.Parameter) and id(leaf) not in registered and leaf.requires_grad
            ]

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped: compare the sets when each has done so a few times."""
        earlier = self._optimizers.get(id(optimizer))
        count = 1 if earlier is None or earlier[0]() is not optimizer else earlier[1] + 1
        if count == 1:
            self._forget_dead()
            self._stage(optimizer)
        self._optimizers[id(optimizer)] = weakref.ref(optimizer), count
        self._last_steps[id(optimizer)] = self._context.updates
        context = self._context
        if count < _UPDATES - 1 or not context.due or not context.leaves:
            return
        living = [(each, number) for reference, number in self._optimizers.values() if (each := reference())]
        if min(number for _, number in living) >= 1:
            self._compare([each for each, _ in living], count >= _UPDATES)

    def _stage(self, optimizer: Optimizer) -> None:
        """Forget earlier losses if the training of other parameters begins.

        No optimizer is left from before. Parts of the model may be unused from now on. Their gradients stay.
        """
        earlier, self._held = self._held, _ids_of(optimizer)
        if self._optimizers:
            self._held |= earlier
        elif earlier and earlier != self._held:
            self._context.leaves.clear()

    def _forget_dead(self) -> None:
        """Forget optimizers and parameters that are gone.

        Copies of a model that are trained for a moment leave many.
        """
        self._optimizers = {key: one for key, one in self._optimizers.items() if one[0]() is not None}
        self._last_steps = {key: step for key, step in self._last_steps.items() if key in self._optimizers}
        for key in [key for key, leaf in self._context.leaves.items() if leaf() is None]:
            del self._context.leaves[key]

    def _compare(self, optimizers: list[Optimizer], concludes: bool) -> None:
        """Compare the sets. Weights are sampled once before anything is concluded."""
        leaves = {key: leaf for key, reference in self._context.leaves.items() if (leaf := reference()) is not None}
        models = {id(parameter): (name, parameter) for name, parameter in self._context.parameters()}
        held = {id(one): one for each in optimizers for group in each.param_groups for one in group["params"]}
        log, step = self._context.log, self._context.step
        stale = [one for key, one in held.items() if key not in models and key not in leaves]
        missing = {
            name: one for key, (name, one) in models.items() if one.requires_grad and key not in held and key in leaves
        }
        others = {key: one for key, one in leaves.items() if key not in models and key not in held}
        unregistered = self._in_containers(others) if others else {}
        alone = [
            one
            for one in others.values()
            if one.grad is not None and one not in self._inputs and not isinstance(one, nn.Parameter)
        ]
        loose = {f"tensor {place} of shape {tuple(one.shape)}": one for place, one in enumerate(alone, 1)}
        shapes = Counter(tuple(one.shape) for one in missing.values())
        for each in optimizers if missing and self._whole else ():
            own = [one for group in each.param_groups for one in group["params"]]
            # It may hold the parameters of a model that is not used, of which the loss has a copy.
            if own and all(id(one) not in leaves for one in own) and Counter(tuple(one.shape) for one in own) <= shapes:
                stale += [one for one in own if id(one) in models]
        if missing:
            self._unless_updated(missing, concludes, lambda: self._name_missing(stale, missing, models, held, step))
        elif unregistered and concludes:
            facts = {"count": len(unregistered), "tensor": next(iter(unregistered))}
            log.say("unregistered_layer", step, facts, unregistered)
        elif (idle := self._idle(others, optimizers)) and self._whole:
            self._unless_updated(idle, concludes, lambda: self._not_held(idle, [], step))
        elif loose and self._whole:
            self._unless_updated(loose, concludes, lambda: self._name_loose(loose))

    def _idle(self, others: dict[int, torch.Tensor], optimizers: list[Optimizer]) -> dict[str, nn.Parameter]:
        """Return parameters of other models that get gradients.

        It is empty unless two optimizers hold the same parameters. One of these was meant for the others. A fixed
        network in a loss gets gradients, too, but has no optimizer.
        """
        used = [one for one in optimizers if self._context.updates - self._last_steps[id(one)] <= _IN_USE]
        sets = [*map(_ids_of, used)]
        if len({*sets}) == len(sets):
            return {}
        return {
            f"tensor {place} of shape {tuple(one.shape)}": one
            for place, one in enumerate(others.values(), 1)
            if isinstance(one, nn.Parameter) and one.grad is not None and one not in self._inputs
        }

    def _name_loose(self, loose: dict[str, torch.Tensor]) -> None:
        """Name tensors of no model that get gradients, and that nothing updates."""
        facts = {"count": len(loose), "tensor": next(iter(loose))}
        self._context.log.say("not_in_optimizer", self._context.step, facts, loose, level="warning")

    def _unless_updated(
        self, missing: Mapping[str, torch.Tensor], concludes: bool, conclude: Callable[[], None]
    ) -> None:
        """Conclude something if nothing updates these parameters.

        A script may copy weights into them.
        """
        probes = [one for one in missing.values() if is_plain(one) and one.is_floating_point()][:_PROBES]
        if not probes or len({one.device for one in probes}) > 1:
            if concludes:
                conclude()
            return
        now = torch.cat([sampled(one, _ELEMENTS).float() for one in probes])
        earlier, self._without = self._without, ([weakref.ref(one) for one in probes], now)
        # A new tensor may have the address of one that is gone.
        if earlier is None or not concludes or len(earlier[0]) != len(probes):
            return
        if any(before() is not one for before, one in zip(earlier[0], probes, strict=True)):
            return

        def judge(before: Any, after: Any) -> None:
            if (before == after).all():
                conclude()

        self._context.values.read(judge, earlier[1], now)

    def _name_missing(
        self,
        stale: list[torch.Tensor],
        missing: dict[str, nn.Parameter],
        models: dict[int, tuple[str, nn.Parameter]],
        held: dict[int, torch.Tensor],
        step: int,
    ) -> None:
        """Name parameters without an optimizer, and tensors that it has instead."""
        if stale and {tuple(one.shape) for one in stale} & {tuple(one.shape) for one in missing.values()}:
            facts = {"count": len(stale), "shape": tuple(stale[0].shape)}
            self._context.log.say("stale_optimizer", step, facts, missing)
        else:
            self._not_held(missing, [name for key, (name, _) in models.items() if key in held], step)

    def _in_containers(self, parameters: dict[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors that Python containers of the models hold, by name.

        A parameter of another model, such as that of a loss, is in none of them.
        """
        contained: dict[str, torch.Tensor] = {}
        for model in self._context.models():
            for module in model.modules():
                for name, value in vars(module).items():
                    if isinstance(value, torch.Tensor) and not name.startswith("_"):
                        leaf = next((leaf for _, leaf in _leaves_of(value) if id(leaf) in parameters), None)
                        if leaf is not None:
                            contained[name] = leaf
                    if name.startswith("_") or not isinstance(value, list | tuple | dict):
                        continue
                    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value))[:_MOST_ITEMS]:
                        contained |= {
                            f"{name}[{key!r}]{rest}": leaf for rest, leaf in _leaves_of(one) if id(leaf) in parameters
                        }
        return contained

    def _not_held(self, missing: dict[str, nn.Parameter], held: list[str], step: int) -> None:
        """Trainable parameters of a model are in no optimizer."""
        tops = {name.split(".")[0] for name in missing}
        whole = bool(held) and tops.isdisjoint({name.split(".")[0] for name in held})
        names = [*missing]
        facts = {"count": len(names), "tensor": names[0]}
        self._context.log.say("not_in_optimizer", step, facts, names, level="warning" if whole else None)


def _ids_of(optimizer: Optimizer) -> frozenset[int]:
    """Return the ids of the parameters of an optimizer."""
    return frozenset(id(one) for group in optimizer.param_groups for one in group["params"])


def _leaves_of(value: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, nn.Module):
        yield from ((f".{name}", parameter) for name, parameter in value.named_parameters())
    elif isinstance(value, torch.Tensor):
        # A tensor that was computed from a parameter, as by `nn.Parameter(…) * 0.1`, is none.
        yield from (("", leaf) for leaf in ([value] if value.grad_fn is None else walk(value, None).leaves))
