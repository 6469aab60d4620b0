"""Checks of the order of events between two updates."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from smdwidgets.checks.torch.by_hand import HandUpdateChecks
from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.decay import DecayChecks
from smdwidgets.checks.torch.schedules import Schedules
from smdwidgets.checks.torch.values import is_plain, sampled
from smdwidgets.finding import Level

__all__ = ["OrderChecks", "share_groups"]

#: Backward passes whose gradients are reset without an update; and passes without an update, if nothing is reset.
_DISCARDED, _WITHOUT_UPDATE, _LONGER = 32, 256, 4
#: Backward passes between two updates at which gradients are looked at, and elements that are read.
_MOST_LOOKS, _ELEMENTS = 16, 64
#: Share of the elements that differ in another batch, or their mean distance by their deviation.
_OTHER = 0.5
#: Optimizers that each stepped once, before another was created for the same parameters.
_RECREATED = 4
#: Parts of a batch from which on a loss is certainly divided by their number, and updates with fewer.
_FEWEST_PARTS, _PARTED = 3, 6
#: Events of a step that its word has at most.
_LONGEST_WORD = 24


@dataclass
class _Known:
    """What is known of an optimizer."""

    optimizer: weakref.ref[Optimizer]
    ids: frozenset[int]
    groups: int
    references: list[weakref.ref[torch.Tensor]]
    updates: int = 0
    #: Numbers of nonzero gradients at the backward passes since the last update; None: they were not looked at.
    nonzero_counts: list[torch.Tensor] | None = None
    was_reset: bool = False
    #: Backward passes since the last update that gave gradients, and how many of them began with reset ones.
    backwards: int = 0
    discarded: int = 0
    longest: int = 1
    last_step: int = 0
    #: The numbers of the first and the last update, of all optimizers. A step may have several updates.
    first_update: int = 0
    last_update: int = 0
    had_gradients: bool = False
    #: Backward passes since the last update whose gradients were reset when the next batch of the loader had come.
    lost_batches: int = 0
    #: Backward passes since the last update whose gradients were reset, the parameters that had them, and those that
    #: have one after the last pass.
    lost_passes: int = 0
    lost: frozenset[int] = frozenset()
    graded: frozenset[int] = frozenset()
    #: Nonzero gradients after the last backward pass, at updates that are looked at.
    nonzero: torch.Tensor | None = None
    #: Whether a backward pass has ever given gradients to it.
    ever: bool = False
    #: The gradients when the last backward pass began.
    before: list[tuple[weakref.ref[torch.Tensor], int]] | None = None
    #: The gradients when the last backward pass ended.
    after: list[weakref.ref[torch.Tensor]] | None = None
    #: The gradients of the last update.
    used: list[tuple[weakref.ref[torch.Tensor], int]] | None = None

    @property
    def probes(self) -> list[torch.Tensor]:
        """The parameters whose gradients are looked at. An open hook does not keep them."""
        return [one for reference in self.references if (one := reference()) is not None]


#: Updates of an optimizer whose tensors never had a gradient.
_NEVER = 4
#: Updates before which it is noted which parameters have a gradient.
_LOSES = 40


@dataclass
class _Scale:
    scaled: bool = False
    by_scaler: bool = False
    scaler: weakref.ref[Any] | None = None


@dataclass
class _Micro:
    """The backward passes since the last update."""

    count: int = 0
    means: int = 0
    looked: int = 0
    #: What each loss that was looked at was divided by.
    divisors: list[float | None] = field(default_factory=list)


@dataclass
class _Made:
    """The optimizer that has stepped last, and how many stepped only once."""

    optimizer: weakref.ref[Optimizer] | None = None
    kind: type[Optimizer] | None = None
    ids: frozenset[int] = frozenset()
    probe: weakref.ref[torch.Tensor] | None = None
    count: int = 0


class OrderChecks:
    """Checks the order of events.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._decays = DecayChecks(context)
        self._by_hand = HandUpdateChecks(context)
        self._known: dict[int, _Known] = {}
        self._scale = _Scale()
        self._micro = _Micro()
        self._word: list[str] = []
        self._in_update = False
        #: Whether a backward pass has begun within the update in progress.
        self._in_closure = False
        self._backward_seen = False
        #: Whether an update has happened since the last backward pass.
        self._updated = False
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._made = _Made()
        #: Batches of the loader at the last backward pass, and its iterator.
        self._batch: tuple[int, int] = (0, 0)
        #: A sample of the last batch where there is no loader, and whether the one before was another.
        self._sample: torch.Tensor | None = None
        self._is_other_batch = False
        #: Whether a model has got an input whose gradient is wanted since the last backward pass, and before that one.
        self._wants_input = self._was_for_input = False
        #: Whether gradients were clipped since the last backward pass.
        self._clipped = False
        self._schedules = Schedules(context)
        #: The step of the last update of an optimizer through whose parameters another stage trains, or None.
        self.stage_end: int | None = None
        #: How often updates have added up so many backward passes, each fewer than its loss was divided by.
        self._counts: Counter[int] = Counter()
        #: How often each schedule has stepped between the first backward pass and the first update.
        self._too_early: Counter[str] = Counter()

    def known(self, optimizer: Optimizer) -> _Known:
        """Return what is known of an optimizer.

        Begin with it if it is new or has new parameters.
        """
        one, groups = self._known.get(id(optimizer)), len(optimizer.param_groups)
        if one is None or one.groups != groups or one.optimizer() is not optimizer:
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            trained = sorted((each for each in parameters if each.requires_grad), key=lambda each: -each.numel())
            probes = [*trained[:1], *trained[len(trained) // 2 : len(trained) // 2 + 1]]
            one = self._known[id(optimizer)] = _Known(
                weakref.ref(optimizer),
                frozenset(map(id, parameters)),
                groups,
                [weakref.ref(each) for each in probes if is_plain(each)],
                last_step=self._context.step,
                last_update=self._context.updates,
            )
            self._context.steps(optimizer)
            self._context.look_closer()
        return one

    def event(self, letter: str) -> None:
        """Add an event to the word of the step."""
        if len(self._word) < _LONGEST_WORD and not (self._word and self._word[-1] == letter):
            self._word.append(letter)

    # -------------------------------------------------------------------------------------------------- backward pass

    def catch_up(self) -> None:
        """The first backward pass has ended."""
        self._backward_seen = True
        self._micro.count += 1
        self.event("F")
        self.event("B")

    def takes(self, batch: torch.Tensor) -> None:
        """A model is called with a batch, which may come without a loader."""
        self._wants_input = self._wants_input or (batch.is_leaf and batch.requires_grad)
        if self._context.loader_batches or not self._context.due or not is_plain(batch) or not batch.is_cpu:
            self._sample = None
            return
        earlier, self._sample = self._sample, sampled(batch, _ELEMENTS).clone()
        self._is_other_batch = earlier is not None and _are_other(earlier, self._sample)

    def backward_begins(self, is_mean: bool | None, divisor: float | None = None) -> None:
        """A backward pass begins.

        ``is_mean``: whether its root is the mean of a loss function; None: the graph was not read. ``divisor``: what
        the loss was divided by.
        """
        self._backward_seen = True
        if self._in_update:
            self._in_closure = True
            return
        self.event("B")
        if not self._known:
            self._by_hand.backward_begins()
        if any(one.probes and all(each.grad is None for each in one.probes) for one in self._known.values()):
            self._micro = _Micro()  # the gradients of earlier passes are not used
        self._micro.count += 1
        self._micro.means += bool(is_mean)
        if is_mean is not None:
            self._micro.looked += 1
            self._micro.divisors.append(divisor)
        self._updated = False
        earlier, self._batch = self._batch, (self._context.loader_batches, self._context.loader)
        is_next_batch = earlier[1] == self._batch[1] and self._batch[0] > earlier[0] > 0
        is_next_batch, self._is_other_batch = is_next_batch or self._is_other_batch, False
        for key, one in list(self._known.items()):
            optimizer = one.optimizer()
            if optimizer is None:
                del self._known[key]
                continue
            one.before = _versions(one.probes)
            is_none = any(each.grad is None for each in one.probes)
            # A sampler or an attack has computed the gradient of its input.
            if is_none and one.had_gradients and not self._was_for_input:
                one.discarded += 1
                one.lost_batches += is_next_batch and one.backwards > 0
                if one.backwards:
                    one.lost_passes, one.lost = one.lost_passes + 1, one.lost | one.graded
            one.had_gradients = False
            if one.nonzero_counts is None or one.was_reset:
                continue
            if is_none or not one.probes or not all(is_plain(each.grad) for each in one.probes):
                one.was_reset = True
            elif len(one.nonzero_counts) < _MOST_LOOKS:
                counts = [sampled(each.grad, _ELEMENTS).count_nonzero() for each in one.probes if each.grad is not None]
                one.nonzero_counts.append(torch.stack(counts).sum())

    def backward_ends(self) -> None:
        """A backward pass has ended."""
        if self._in_update:
            return
        self._clipped = False
        self._was_for_input, self._wants_input = self._wants_input, False
        if not self._known:
            self._by_hand.backward_ends()
        unused: list[_Known] = []
        for one in self._known.values():
            optimizer = one.optimizer()
            if optimizer is None or not any(each.grad is not None for each in one.probes):
                continue
            if _are_same(one.before, one.probes):  # those of an earlier stage, which this pass has not changed
                continue
            one.had_gradients = one.ever = True
            one.after = [weakref.ref(each.grad) for each in one.probes if each.grad is not None]
            one.backwards += 1
            one.nonzero = _count(one.probes) if self._context.due else None
            one.graded = _graded(optimizer) if one.updates < _LOSES else frozenset()
            if one.updates and self._evaluates:
                one.had_gradients = False
            else:
                unused.append(one)
        for one in unused:
            if (optimizer := one.optimizer()) is not None:
                self._without_update(one, type(optimizer).__name__, unused)

    @property
    def _evaluates(self) -> bool:
        """Whether all models are in evaluation mode, where gradients are only read."""
        models = list(self._context.models())
        return bool(models) and not any(one.training for one in models)

    def _is_replaced(self, one: _Known) -> bool:
        """Whether another optimizer has updated the parameters since."""
        ids = {id(each) for each in one.probes}
        return any(
            other is not one and other.updates and ids & other.ids and other.last_update > one.last_update
            for other in self._known.values()
        )

    def _without_update(self, one: _Known, name: str, graded: Iterable[_Known]) -> None:
        """Look how long an optimizer has not used its gradients.

        Args:
            one: what is known of it.
            name: its name.
            graded: the optimizers to which the last backward pass gave gradients.
        """
        if self._is_replaced(one):
            return
        if _is_followed(one, graded):
            self.stage_end = one.last_step
            return
        facts = {"count": one.backwards, "step": one.last_step, "optimizer": name}
        say, step = self._context.log.say, self._context.step
        if one.discarded >= _DISCARDED:
            discarded = "; the gradients are reset and not used"
            say("no_step", step, {**facts, "discarded": discarded}, [name])
        elif one.backwards >= max(_WITHOUT_UPDATE, _LONGER * one.longest):
            say("no_step", step, {**facts, "discarded": ""}, [name], level="warning")

    # --------------------------------------------------------------------------------------------------------- updates

    def before_update(self, optimizer: Optimizer, closure: bool) -> None:
        """An optimizer is about to step."""
        one = self.known(optimizer)
        name, context = type(optimizer).__name__, self._context
        self._in_update, self._in_closure = True, False
        self.event("S")
        scale = self._scale
        scaler = None if scale.scaler is None else scale.scaler()
        if (
            scale.scaled
            and not scale.by_scaler
            and scaler is not None
            and not closure
            and not self._is_unscaled(optimizer)
        ):
            context.log.say("scaled_step", context.step, {"optimizer": name}, [name])
        if self._updated and one.updates and not one.backwards and not closure and _are_same(one.used, one.probes):
            context.log.say("step_without_backward", context.step, {"optimizer": name}, [name], need=4)
        # The gradients of copies of the weights are replaced, not added up.
        if one.nonzero_counts and not one.was_reset and context.is_in_loss(one.probes):
            step = context.step

            def judge(counts: Any) -> None:
                if (counts > 0).all():
                    context.log.say("not_reset", step, {"optimizer": name}, [name])

            context.values.read(judge, torch.stack(one.nonzero_counts))
        if one.updates >= 1 and not closure:
            self._undivided(optimizer)
        if not closure:
            self._gradients(optimizer, one, name)
        self._settings(optimizer, name)

    def _gradients(self, optimizer: Optimizer, one: _Known, name: str) -> None:
        """Compare the gradients of backward passes with those that are used."""
        context, step = self._context, self._context.step
        # Gradients of single samples are put in place of those of the last pass.
        is_last = self._context.loader_batches > 0 or (bool(one.after) and _are_those(one.after, one.probes))
        # The generator's pass gives the discriminator gradients, too.
        if one.lost_batches and is_last and len(self._known) == 1:
            facts = {"count": one.lost_batches, "total": one.backwards, "optimizer": name}
            context.log.say("gradients_discarded", step, facts, [name], need=3)
        elif one.lost and one.lost - _graded(optimizer) and len(self._known) == 1:
            # What the last pass computes again is no loss, as where gradients are only looked at.
            facts = {"count": one.lost_passes, "total": one.backwards, "optimizer": name}
            context.log.say("gradients_discarded", step, facts, [name], need=3)
        # That says why.
        explained = any(context.log.has_fired(id) for id in ("loss_is_leaf", "stale_optimizer"))
        if not (one.ever or explained) and self._backward_seen and one.probes and not self._has_gradients(one):
            context.log.say("optimizer_without_gradients", step, {"optimizer": name}, [name], need=_NEVER)
        if not one.backwards or not one.probes:
            return
        if all(each.grad is None for each in one.probes):
            context.log.say("step_without_gradient", step, {"optimizer": name}, [name], need=2)
        # Clipping by a norm that is infinite makes all gradients 0.
        elif not self._clipped and one.nonzero is not None and (now := _count(one.probes)) is not None:

            def judge(before: Any, now: Any) -> None:
                if before[0] > 0 and now[0] == 0:
                    context.log.say("step_without_gradient", step, {"optimizer": name}, [name], need=2)

            context.values.read(judge, one.nonzero.reshape(1), now.reshape(1))

    def _has_gradients(self, one: _Known) -> bool:
        """Whether any tensor of an optimizer has a gradient."""
        optimizer = one.optimizer()
        groups = optimizer.param_groups if optimizer is not None else []
        return any(each.grad is not None for group in groups for each in group["params"])

    def _settings(self, optimizer: Optimizer, name: str) -> None:
        """Learning rates that a script has set where the optimizer does not read them."""
        if not type(optimizer).__module__.startswith("torch.optim."):
            return  # another optimizer may read such an attribute
        rates = [group.get("lr") for group in optimizer.param_groups]
        self._decays.before_update(optimizer, name)
        places = [("attribute", vars(optimizer)), *(("key", group) for group in optimizer.param_groups)]
        for what, values in places:
            for key in ("lr", "learning_rate"):
                value = values.get(key)
                is_ignored = what == "attribute" or key == "learning_rate"
                if is_ignored and isinstance(value, int | float) and value not in rates:
                    facts = {"what": f"The {what} `{key}` of {name}", "value": value, "rate": rates[0]}
                    self._context.log.say("rate_ignored", self._context.step, facts, [name])

    def _is_unscaled(self, optimizer: Optimizer) -> bool:
        """Whether the script has unscaled the gradients itself."""
        stage = self._stage(optimizer)
        return stage is None or stage != 0

    def _stage(self, optimizer: Optimizer) -> int | None:
        """Return the stage of a GradScaler for an optimizer.

        0: its gradients are scaled. None: not known.
        """
        scaler = None if self._scale.scaler is None else self._scale.scaler()
        states = getattr(scaler, "_per_optimizer_states", None)
        if scaler is None or states is None:
            self._context.log.off(
                ("clip_before_unscale",), "this release of torch does not show what a GradScaler does"
            )
            return None
        if id(optimizer) not in states:  # looking it up would create it
            return 0
        stage = getattr(states[id(optimizer)].get("stage"), "value", None)
        return stage if isinstance(stage, int) else None

    def _undivided(self, optimizer: Optimizer) -> None:
        micro = self._micro
        if micro.count >= 2 and micro.looked == micro.count == micro.means and len(self._known) == 1:
            level: Level | None = None if isinstance(optimizer, SGD) else "note"
            self._context.log.say("undivided", self._context.step, {"count": micro.count}, need=3, level=level)
        numbers = set(micro.divisors)
        if micro.looked != micro.count or len(numbers) != 1 or len(self._known) != 1:
            return
        number = numbers.pop()
        if number is None or number < _FEWEST_PARTS or number != int(number) or micro.count >= number:
            self._counts.clear()
            self._context.log.unseen("divided_too_often")
            return
        self._counts[micro.count] += 1
        if sum(self._counts.values()) >= _PARTED and max(self._counts) > 1:
            counts = " or ".join(map(str, sorted(self._counts)))
            self._context.log.say("divided_too_often", self._context.step, {"number": int(number), "counts": counts})

    def after_update(self, optimizer: Optimizer, closure: bool) -> None:
        """An optimizer has stepped, or a GradScaler has skipped its update."""
        one = self.known(optimizer)
        closure = closure and self._in_closure  # a trainer may give one that does nothing
        self._in_update = False
        self._stepped.add(optimizer)
        for name, count in self._too_early.items():
            if count == 1:  # one that steps more often does so at each part of a batch
                self._context.log.say("schedule_first", self._context.step, {"schedule": name}, [name])
        self._too_early.clear()
        one.updates += 1
        one.longest = max(one.longest, one.backwards)
        one.backwards = one.discarded = one.lost_batches = one.lost_passes = 0
        one.lost = frozenset()
        one.nonzero = None
        self._recreated(one, optimizer)
        one.last_step, one.last_update = self._context.step, self._context.updates + 1
        one.first_update = one.first_update or one.last_update
        # The gradients stay until they are reset.
        one.had_gradients = False if closure else any(each.grad is not None for each in one.probes)
        one.used = _versions(one.probes)
        one.was_reset = False
        one.nonzero_counts = [] if self._context.due and not closure else None
        self._updated = True
        self._micro = _Micro()
        self._scale.scaled = False
        word, self._word = "".join(self._word), []
        if self._context.due:
            self._context.log.word(self._context.step, word)

    def _recreated(self, one: _Known, optimizer: Optimizer) -> None:
        """Look whether each update is the first one of a new optimizer."""
        last = self._made
        if last.optimizer is not None and last.optimizer() is optimizer:
            last.count = 0
            return
        probe = next(iter(one.probes), None)
        is_same = (
            last.probe is not None and last.probe() is probe and last.ids == one.ids and last.kind is type(optimizer)
        )
        last.count = last.count + 1 if is_same and one.updates == 1 else 1
        last.optimizer, last.kind, last.ids = weakref.ref(optimizer), type(optimizer), one.ids
        last.probe = None if probe is None else weakref.ref(probe)
        has_state = not isinstance(optimizer, SGD) or any(group.get("momentum") for group in optimizer.param_groups)
        if last.count >= _RECREATED and has_state:
            name = type(optimizer).__name__
            facts = {"optimizer": name, "period": "update"}
            self._context.log.say("optimizer_recreated", self._context.step, facts, [name])

    # -------------------------------------------------------------------------------------------- scaling and clipping

    def scaled(self, scaler: Any) -> None:
        """A GradScaler has scaled a loss."""
        self._scale.scaled = bool(scaler.is_enabled())
        self._scale.scaler = weakref.ref(scaler)

    def scaler_begins(self) -> None:
        """A GradScaler steps an optimizer, or skips it."""
        self._scale.by_scaler = True

    def scaler_ends(self) -> None:
        """A GradScaler has stepped an optimizer, or skipped it."""
        self._scale.by_scaler = False

    def clips(self, parameters: Iterable[Any]) -> None:
        """Gradients are about to be clipped."""
        self.event("C")
        self._clipped = True
        clipped = {id(one): one for one in parameters}
        context = self._context
        if not clipped:
            context.log.say("clips_nothing", context.step, need=2)
            return
        for one in self._known.values():
            optimizer = one.optimizer()
            if optimizer is None or one.ids.isdisjoint(clipped):
                continue
            if all(each.grad is None for each in clipped.values()) and not self._in_update:
                context.log.say("clip_too_early", context.step, need=2)
            if self._scale.scaled and one.updates and self._stage(optimizer) == 0:
                context.log.say("clip_before_unscale", context.step)
            is_late = self._updated and one.updates and not one.backwards and not self._in_update
            if is_late and any(each.grad is not None for each in clipped.values()):
                context.log.say("clip_after_step", context.step, need=2)
            return

    # -------------------------------------------------------------------------------------------------------- schedule

    def schedule_steps(self, schedule: Any, metric: Any = None) -> None:
        """A learning rate schedule is about to step, by a metric or without one."""
        optimizer = getattr(schedule, "optimizer", None)
        name, context = type(schedule).__name__, self._context
        if not isinstance(optimizer, Optimizer) or getattr(schedule, "_step_count", 1) < 1:
            return  # its first step, in its own constructor
        self.event("L")
        old = self._known.get(id(optimizer))
        self._schedules.steps(schedule, 0 if old is None else old.updates, metric)
        is_new = not self._stepped and not context.updates and not optimizer.state
        has_gradients = any(each.grad is not None for group in optimizer.param_groups for each in group["params"])
        if is_new and self._backward_seen and has_gradients:
            self._too_early[name] += 1
        is_replaced = old is not None and old.optimizer() is optimizer and self._is_replaced(old)
        never = self._stepped and not any(share_groups(optimizer, one) for one in self._stepped)
        if context.updates >= 8 and (never or is_replaced):
            context.log.say("other_schedule", context.step, {"schedule": name}, [name])
        length, last = getattr(schedule, "T_max", None), getattr(schedule, "last_epoch", 0)
        if isinstance(length, int) and length > 0 and last > 1.05 * length + 1 and context.updates > 3:
            context.log.say("schedule_over", context.step, {"length": length, "count": last}, [name])

    def close(self) -> None:
        """The training has ended."""
        self._schedules.close()


def share_groups(optimizer: Optimizer, stepped: Optimizer) -> bool:
    """Whether two optimizers are the same, or share their groups."""
    groups, others = optimizer.param_groups, stepped.param_groups
    return optimizer is stepped or bool(groups and others and groups[0] is others[0])


def _is_followed(one: _Known, graded: Iterable[_Known]) -> bool:
    """Whether a later stage trains through the parameters of an optimizer.

    Its own optimizer began after the last update of this one, as where a model is trained on top of another. Those of
    adversaries take turns.
    """
    return one.updates > 0 and any(other.updates and other.first_update > one.last_update for other in graded)


def _count(probes: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the number of sampled gradients that are not 0, or None."""
    gradients = [one.grad for one in probes if one.grad is not None]
    if not gradients or not all(is_plain(one) for one in gradients):
        return None
    return torch.stack([sampled(one, _ELEMENTS).count_nonzero() for one in gradients]).sum()


def _graded(optimizer: Optimizer) -> frozenset[int]:
    """Return the ids of the parameters that have a gradient."""
    return frozenset(id(one) for group in optimizer.param_groups for one in group["params"] if one.grad is not None)


def _are_same(used: list[tuple[weakref.ref[torch.Tensor], int]] | None, probes: Iterable[torch.Tensor]) -> bool:
    """Whether gradients are those that were noted, unchanged."""
    now = _versions(probes)
    if not used or not now or len(used) != len(now):
        return False
    return all(one() is other() and version == later for (one, version), (other, later) in zip(used, now, strict=True))


def _are_those(gradients: list[weakref.ref[torch.Tensor]] | None, probes: Iterable[torch.Tensor]) -> bool:
    """Whether parameters have these gradients, which clipping may have changed."""
    now = [each.grad for each in probes if each.grad is not None]
    return gradients is not None and [id(one()) for one in gradients] == list(map(id, now))


def _are_other(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether samples are of two batches, and not of one that was changed a little."""
    if before.shape != now.shape or before.dtype != now.dtype:
        return True
    if not now.is_floating_point():
        return bool((before != now).float().mean() > _OTHER)
    return bool((before - now).abs().mean() > _OTHER * before.std())


def _versions(probes: Iterable[torch.Tensor]) -> list[tuple[weakref.ref[torch.Tensor], int]] | None:
    """Identify gradients: the tensor, and how often it was changed.

    The result is None if there are none.
    """
    versions = [(weakref.ref(one.grad), getattr(one.grad, "_version", -1)) for one in probes if one.grad is not None]
    return versions or None
