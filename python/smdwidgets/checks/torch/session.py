"""The checks of one training of PyTorch: passes its events on to the mechanisms.

A mechanism that fails is switched off, and the run says why. Nothing is raised into the training.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.checks.torch import graph
from smdwidgets.checks.torch.ages import AgeChecks
from smdwidgets.checks.torch.aliases import AliasChecks
from smdwidgets.checks.torch.background import BackgroundChecks
from smdwidgets.checks.torch.balance import BalanceChecks
from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.coordinates import CoordinateChecks
from smdwidgets.checks.torch.copies import CopyChecks
from smdwidgets.checks.torch.deviations import DeviationChecks
from smdwidgets.checks.torch.distillation import DistillationChecks
from smdwidgets.checks.torch.drifts import DriftChecks
from smdwidgets.checks.torch.exchanged import ExchangedChecks
from smdwidgets.checks.torch.focal import FocalChecks
from smdwidgets.checks.torch.functions import FunctionChecks
from smdwidgets.checks.torch.generators import GeneratorChecks
from smdwidgets.checks.torch.hook_counts import HookCounts
from smdwidgets.checks.torch.ignored import IgnoredChecks
from smdwidgets.checks.torch.inputs import InputChecks
from smdwidgets.checks.torch.layouts import LayoutChecks
from smdwidgets.checks.torch.loaders import LoaderChecks, tensors_of
from smdwidgets.checks.torch.losses import LossChecks
from smdwidgets.checks.torch.masks import MaskChecks
from smdwidgets.checks.torch.membership import MembershipChecks
from smdwidgets.checks.torch.missing import MissingChecks
from smdwidgets.checks.torch.models import ModelChecks
from smdwidgets.checks.torch.modes import ModeChecks
from smdwidgets.checks.torch.noise import NoiseChecks
from smdwidgets.checks.torch.noise_levels import NoiseLevelChecks
from smdwidgets.checks.torch.optimizers import OptimizerChecks
from smdwidgets.checks.torch.order import OrderChecks
from smdwidgets.checks.torch.overlaps import OverlapChecks
from smdwidgets.checks.torch.own_optimizers import OwnOptimizerChecks
from smdwidgets.checks.torch.packed import PackedChecks
from smdwidgets.checks.torch.padding import PaddingChecks
from smdwidgets.checks.torch.pairs import PairChecks
from smdwidgets.checks.torch.placeholders import PlaceholderChecks
from smdwidgets.checks.torch.policies import PolicyChecks
from smdwidgets.checks.torch.pooling import PoolingChecks
from smdwidgets.checks.torch.positions import PositionChecks
from smdwidgets.checks.torch.preferences import PreferenceChecks
from smdwidgets.checks.torch.reconstructions import ReconstructionChecks
from smdwidgets.checks.torch.recurrence import RecurrenceChecks
from smdwidgets.checks.torch.replicas import ReplicaDigests
from smdwidgets.checks.torch.returns import ReturnChecks
from smdwidgets.checks.torch.rows import RowChecks
from smdwidgets.checks.torch.series import SeriesChecks
from smdwidgets.checks.torch.settings import SettingsChecks
from smdwidgets.checks.torch.similarities import SimilarityChecks
from smdwidgets.checks.torch.stored import StoredChecks
from smdwidgets.checks.torch.temperatures import TemperatureChecks
from smdwidgets.checks.torch.terms import TermChecks
from smdwidgets.checks.torch.tokens import TokenChecks
from smdwidgets.checks.torch.train_masks import TrainMaskChecks
from smdwidgets.checks.torch.transitions import TransitionChecks
from smdwidgets.checks.torch.updates import UpdateChecks
from smdwidgets.checks.torch.values import is_plain
from smdwidgets.checks.torch.volumes import VolumeChecks
from smdwidgets.checks.torch.zeros import ZeroRowChecks

__all__ = ["MECHANISMS", "TorchChecks"]

#: The checks of each mechanism.
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "graph": (
        "loss_is_leaf",
        "softmax_before_loss",
        "double_softmax",
        "softmax_over_queries",
        "heads_mixed",
        "teacher_unrelated",
        "rows_out_of_reach",
        "messages_to_itself",
        "broadcast_loss",
        "unused_batches",
        "repeated_index",
    ),
    "losses": (
        "double_sigmoid",
        "nll_not_log",
        "blank_in_targets",
        "frames_unused",
        "one_class_ce",
        "softmax_one_unit",
        "unreachable_targets",
        "constant_output",
        "off_by_one",
        "mse_on_classes",
        "mse_on_onehot",
        "labels_equal",
        "sum_reduction",
        "limited_logits",
        "no_activation",
        "softmax_over_rows",
        "reshaped_classes",
        "loss_negated",
        "kl_not_log",
        "several_labels",
        "targets_not_scaled",
        "no_better_than_mean",
        "policy_negated",
        "entropy_penalized",
        "policy_loss",
        "large_initial_weights",
        "ratio_of_itself",
        "no_stop_gradient",
        "targets_grow",
    ),
    "inputs": ("target_in_input", "eval_inputs_differ", "inputs_changed", "channels_mixed", "targets_mirrored"),
    "rows": ("rows_mixed", "first_position_only", "last_is_padding", "state_detached"),
    "masks": ("mask_inverted",),
    "positions": ("positions_over_rows", "order_invisible"),
    "reconstructions": ("reconstruction_detached",),
    "tokens": ("labels_unshifted", "labels_shifted_twice", "targets_masked", "sees_future", "padding_in_loss"),
    "ages": ("old_graph",),
    "deviations": ("noise_scale",),
    "temperatures": ("temperature_rises",),
    "terms": ("penalty_detached", "term_detached", "anchor_moves"),
    "noise": ("noise_not_centred", "noise_repeated", "noise_unrelated"),
    "noise_levels": ("noise_too_weak",),
    "policies": ("ratio_inverted", "advantage_not_detached"),
    "similarities": ("own_similarity", "normalized_over_rows"),
    "exchanged": ("arguments_exchanged",),
    "focal": ("focal_reversed",),
    "volumes": ("log_det_negated",),
    "overlaps": ("overlap_of_logits",),
    "pooling": ("padding_averaged",),
    "returns": ("returns_reversed",),
    "train_masks": ("train_mask_unused",),
    "transitions": ("terminal_ignored", "next_state_same", "action_ignored"),
    "missing": ("missing_trained",),
    "placeholders": ("placeholder_values",),
    "background": ("background_in_loss",),
    "generators": ("generator_reversed",),
    "distillation": ("temperature_one_side",),
    "own_optimizers": ("update_reversed",),
    "preferences": ("answers_equal",),
    "pairs": ("pairs_reversed",),
    "coordinates": ("coordinates_mirrored",),
    "packed": ("frames_cut",),
    "ignored": ("class_ignored",),
    "padding": ("padding_index_other",),
    "series": (),
    "balance": ("weights_inverted",),
    "copies": (
        "statistics_not_averaged",
        "average_too_slow",
        "average_reversed",
        "average_never_moves",
        "target_never_updated",
    ),
    "aliases": ("average_is_model",),
    "functions": ("wrong_gradient",),
    "optimizers": ("betas_exchanged", "memory_shared", "held_twice"),
    "hook_counts": ("hooks_pile_up",),
    "updates": (
        "no_update",
        "weights_restored",
        "some_not_updated",
        "stays_zero",
        "update_lost",
        "no_gradient",
        "half_state",
        "weights_clamped",
    ),
    "order": (
        "no_step",
        "not_reset",
        "step_without_backward",
        "scaled_step",
        "clip_before_unscale",
        "clip_after_step",
        "undivided",
        "divided_too_often",
        "other_schedule",
        "schedule_first",
        "schedule_over",
        "rate_squared",
        "schedule_per_batch",
        "schedule_per_epoch",
        "gradients_discarded",
        "step_without_gradient",
        "optimizer_without_gradients",
        "strong_decay",
        "decay_in_gradient",
        "metric_direction",
        "rate_ignored",
        "optimizer_recreated",
        "clips_nothing",
        "clip_too_early",
    ),
    "membership": ("stale_optimizer", "unregistered_layer", "not_in_optimizer", "layer_made_in_forward"),
    "modes": ("train_in_eval_mode", "eval_in_train_mode", "dropout_in_eval", "frozen_norm_moves"),
    "models": (
        "mostly_frozen",
        "untied",
        "layer_repeated",
        "symmetric_units",
        "spectral_norm_stale",
        "batch_sizes",
        "zero_batch",
        "float64",
        "autocast_lost",
        "freeze_ignored",
        "nothing_loaded",
        "alias_loaded",
        "norm_momentum",
        "strong_dropout",
    ),
    "loaders": (
        "few_weights",
        "classes_not_trained",
        "same_batch",
        "equal_rows",
        "twin_batches",
        "labels_sorted",
        "worker_twins",
    ),
    "replicas": ("replicas_differ",),
    "settings": (),
}
#: Updates at which the whole graph is walked, besides the first ones, and backward passes of an update.
_FIRST_WALKS, _LATER_WALKS, _WALKS_AN_UPDATE = 4, (16, 256), 4
#: Updates after which all mechanisms look only at passes of updates at which samples are read, and at the first passes
#: of an evaluation: how many, and the updates since the last evaluation.
_SETTLED, _EVALUATED, _APART = 256, 16, 16
#: Seconds of an update below which nothing is called at an update between those: mechanisms would take longer than it.
#: After so many of them, samples are read at fewer.
_SHORT, _MANY = 1e-3, 2048
#: Passes over batches of a loader before one backward pass, from which on it is asked whether all are used.
_UNUSED = 4
#: Values of an output that is kept from the pass to the backward pass.
_MOST_KEPT = 65_536


def _small(output: Any) -> list[torch.Tensor]:
    """Return the small tensors that a model has returned."""
    several = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else (output,)
    return [one for one in several if is_plain(one) and one.numel() <= _MOST_KEPT]


def _event(call: Callable[..., None]) -> Callable[..., None]:
    """Return a method for an event, during which gradients are disabled."""

    @functools.wraps(call)
    def event(self: TorchChecks, *args: Any, **kwargs: Any) -> None:
        self._context.gradients = torch.is_grad_enabled()
        with torch.no_grad():
            call(self, *args, **kwargs)

    return event


class TorchChecks:
    """The checks of a training.

    Args:
        log: the checks that fired.
        models: yields the models of the training with their names.
        wrappers: yields the models with their wrappers.
        step: returns the global step.
        is_compiled: whether torch.compile may have made a graph of a model.
        is_passive: whether a module is called for another reason than a pass.
        updated: called after each update, with the number of updates.
    """

    def __init__(
        self,
        log: CheckLog,
        models: Callable[[], Iterator[tuple[str, nn.Module]]],
        wrappers: Callable[[], Iterator[nn.Module]],
        step: Callable[[], int],
        is_compiled: Callable[[nn.Module], bool],
        is_passive: Callable[[], bool],
        updated: Callable[[int], object] = lambda updates: None,
    ) -> None:
        self.log = log
        self._context = context = Context(log, models, wrappers, step)
        self._is_compiled, self._is_passive, self._updated = is_compiled, is_passive, updated
        #: Calls a mechanism. The first failure switches it off. Gradients are disabled by then.
        self._run = Mechanisms(log, MECHANISMS).run
        self._losses = LossChecks(context)
        self._tokens = TokenChecks(context)
        self._inputs = InputChecks(context)
        self._drifts = DriftChecks(context)
        self._layouts = LayoutChecks(context, lambda call: functools.partial(self._called_back, "inputs", call))
        self._rows_of = RowChecks(context)
        self._masks = MaskChecks(context)
        self._positions = PositionChecks(context)
        self._reconstructions = ReconstructionChecks(context)
        self._ages = AgeChecks(context)
        self._deviations = DeviationChecks(context)
        self._temperatures = TemperatureChecks(context)
        self._terms = TermChecks(context)
        self._noise = NoiseChecks(context)
        self._noise_levels = NoiseLevelChecks(context)
        self._policies = PolicyChecks(context)
        self._exchanged = ExchangedChecks(context)
        self._focal = FocalChecks(context)
        self._overlaps = OverlapChecks(context)
        self._pooling = PoolingChecks(context)
        self._returns = ReturnChecks(context)
        self._similarities = SimilarityChecks(context)
        self._train_masks = TrainMaskChecks(context)
        self._transitions = TransitionChecks(context)
        self._missing = MissingChecks(context)
        self._placeholders = PlaceholderChecks(
            context, lambda call: functools.partial(self._called_back, "placeholders", call)
        )
        self._background = BackgroundChecks(context)
        self._generators = GeneratorChecks(context)
        self._distillation = DistillationChecks(
            context, lambda call: functools.partial(self._called_back, "distillation", call)
        )
        self._own_optimizers = OwnOptimizerChecks(context)
        self._preferences = PreferenceChecks(context)
        self._pairs = PairChecks(context)
        self._coordinates = CoordinateChecks(context)
        self._packed = PackedChecks(context)
        self._ignored = IgnoredChecks(context)
        self._padding = PaddingChecks(context, lambda call: functools.partial(self._called_back, "padding", call))
        self._updates = UpdateChecks(context)
        self._order = OrderChecks(context)
        self._optimizers = OptimizerChecks(context)
        self._hook_counts = HookCounts(context)
        self._membership = MembershipChecks(context)
        self._modes = ModeChecks(context, lambda call: functools.partial(self._called_back, "modes", call))
        self._models = ModelChecks(context)
        self._zeros = ZeroRowChecks(context)
        self._loaders = LoaderChecks(context)
        self._stored = StoredChecks(context)
        self._replicas = ReplicaDigests(context)
        self._recurrence = RecurrenceChecks(context)
        self._series = SeriesChecks(context)
        self._copies = CopyChecks(context, lambda call: functools.partial(self._called_back, "copies", call))
        self._aliases = AliasChecks(context)
        self._volumes = VolumeChecks(
            context,
            lambda call: functools.partial(self._called_back, "volumes", call),
            lambda: any(map(self._is_hooked, context.models())),
        )
        self._balance = BalanceChecks(context)
        self._functions = FunctionChecks(context, lambda call: functools.partial(self._called_back, "functions", call))
        self._settings = SettingsChecks(context)
        #: Loss functions that the last backward pass began with, and whether any since the update depended on a model.
        self._roots: list[graph.LossCall] = []
        self._depends: bool | None = None
        #: Passes with a batch of a loader, in training mode, since the last backward pass.
        self._passes = 0
        self._pass_epoch = 0
        #: Whether only some passes are looked at by all mechanisms, and whether the last one was.
        self._is_settled, self._looks = False, True
        #: Whether mechanisms get nothing at this update, so that they keep no tensors until they look again.
        self._releases = False
        #: Whether no mechanism is called at this update, whether updates are short, and when the last ones began.
        self._rests, self._is_short, self._since = False, False, time.perf_counter()
        #: Passes without gradients since the last update, and the number of updates then.
        self._evaluated, self._last_evaluation = 0, 0
        #: The epoch of a data loader that gave a batch last, and that of a batch that no model has got yet.
        self._epoch = 0
        self._batch: tuple[int, bool] | None = None
        self._calls: list[nn.Module] = []
        self._thread = threading.get_ident()
        self._depth = 0
        self._walks = 0
        self._rows: int | None = None
        #: What the model has returned, until the backward pass begins, if it is small.
        self._outputs: list[torch.Tensor] = []
        self._tensor_hooks = 0
        self._hooks_before = 0
        self._updates_before = 0
        #: Ids of the optimizers whose `step` is running, the outermost first.
        self._stepping: list[int] = []

    def _called_back(self, mechanism: str, call: Callable[..., object], *args: Any) -> None:
        """PyTorch calls a mechanism back, during a pass."""
        with torch.no_grad():
            self._run(mechanism, call, *args)

    @property
    def _elsewhere(self) -> bool:
        """Whether this is another thread, such as one of DataParallel."""
        return threading.get_ident() != self._thread

    # ---------------------------------------------------------------------------------------------------------- passes

    @_event
    def enters(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A registered model is called, for a pass."""
        if self._elsewhere or (self._rests and self._context.gradients):
            return
        self._calls.append(model)
        if len(self._calls) > 1:
            return
        gradients = self._context.gradients
        self._order.event("F" if gradients else "f")
        tensors = [one for one in (*inputs, *named.values()) if isinstance(one, torch.Tensor)]
        self._rows = tensors[0].shape[0] if tensors and tensors[0].ndim else None
        self._hooks_before = self._tensor_hooks
        compiled = self._is_compiled(model)
        self._run("settings", self._settings.enters, model, gradients)
        self._run("modes", self._modes.enters, model, compiled)
        self._run("models", self._models.enters, model, inputs, named, compiled)
        self._looks = not self._is_settled or self._is_evaluation()
        if not self._looks:
            return
        if self._releases:
            inputs, named, tensors, gradients = (), {}, [], False
        if compiled:
            self.log.off(("sees_future", "rows_mixed"), "torch.compile has made the graph")
        self._run("tokens", self._tokens.enters, model, inputs, named, not compiled)
        self._run("rows", self._recurrence.enters, model, inputs, self._rows, gradients and not compiled)
        self._run("inputs", self._inputs.enters, model, tensors)
        self._run("inputs", self._layouts.enters, model, gradients and not compiled)
        self._run("inputs", self._drifts.enters, model, tensors, gradients)
        self._run("rows", self._rows_of.enters, model, tensors, gradients and not compiled)
        self._run("masks", self._masks.enters, model, tensors, gradients and not compiled)
        self._run("positions", self._positions.enters, model, tensors, not compiled)
        self._run("reconstructions", self._reconstructions.enters, model, tensors, gradients and not compiled)
        self._run("terms", self._terms.enters, tensors, gradients and not compiled)
        self._run("noise", self._noise.enters, tensors, gradients)
        self._run("noise_levels", self._noise_levels.enters, tensors, gradients)
        self._run("transitions", self._transitions.enters, tensors, gradients)
        self._run("preferences", self._preferences.enters, model, tensors, gradients)
        self._run("pairs", self._pairs.enters, tensors, gradients and not compiled)
        self._run("coordinates", self._coordinates.enters, tensors, gradients)
        self._run("packed", self._packed.enters, tensors, gradients)
        self._run("ignored", self._ignored.enters, tensors, gradients)
        self._run("padding", self._padding.enters, model, gradients and not compiled)
        self._run("placeholders", self._placeholders.enters, model, gradients and not compiled)
        self._run("generators", self._generators.enters, model, tensors, gradients)
        self._run("pooling", self._pooling.enters, tensors, gradients)
        self._run("models", self._zeros.enters, tensors, gradients)
        if gradients and tensors:
            self._run("order", self._order.takes, tensors[0])
            self._run("membership", self._membership.enters, tensors)
        self._run("series", self._series.enters, model, tensors, gradients and not compiled)

    @_event
    def leaves(self, model: nn.Module, output: Any) -> None:
        """A registered model has returned, or raised."""
        if self._elsewhere or not self._calls or self._calls[-1] is not model:
            return
        self._calls.pop()
        if self._calls:
            return
        gradients = self._context.gradients
        self._outputs = _small(output) if gradients and self._context.due else []
        if self._looks:
            self._returned(model, output)
        batch, self._batch = self._batch, None
        if gradients and model.training and batch is not None:
            self._passes = self._passes + 1 if batch[0] == self._pass_epoch else 1
            self._pass_epoch = batch[0]
        self._run("modes", self._modes.leaves, model, batch)

    def _returned(self, model: nn.Module, output: Any) -> None:
        """A pass that all mechanisms look at has ended."""
        self._run("models", self._models.leaves)
        self._run("inputs", self._layouts.leaves)
        self._run("padding", self._padding.leaves)
        self._run("placeholders", self._placeholders.leaves)
        self._run("generators", self._generators.leaves, model, output)
        self._run("distillation", self._distillation.leaves, output)
        hooked = functools.partial(self._is_hooked, model)
        self._run("tokens", self._tokens.leaves, model, output, hooked)
        self._run("rows", self._recurrence.leaves)
        self._run("rows", self._rows_of.leaves, output, hooked)
        self._run("masks", self._masks.leaves, output)
        self._run("pairs", self._pairs.leaves, output, hooked)
        self._run("positions", self._positions.leaves, model, output)
        self._run("reconstructions", self._reconstructions.leaves, output)
        self._run("series", self._series.leaves, output, hooked)

    def _is_evaluation(self) -> bool:
        """Whether this is one of the first passes of an evaluation between two updates."""
        updates = self._context.updates
        if self._context.gradients:
            return False
        if updates != self._last_evaluation:
            self._evaluated = 0 if updates - self._last_evaluation >= _APART else _EVALUATED
            self._last_evaluation = updates
        self._evaluated += 1
        return self._evaluated <= _EVALUATED

    def _is_hooked(self, model: nn.Module) -> bool:
        """Whether code of the script or of a wrapper would see a backward pass."""
        if self._tensor_hooks > self._hooks_before:
            return True
        return any(
            getattr(part, "_backward_hooks", None)
            or getattr(part, "_backward_pre_hooks", None)
            or type(part).__module__.startswith("torch.distributed.")
            or type(part).__module__.startswith("torch.nn.parallel.")
            for part in model.modules()
        )

    def tensor_hooked(self) -> None:
        """The script has registered a hook on a tensor."""
        self._tensor_hooks += bool(self._calls)

    # -------------------------------------------------------------------------------------------------- backward pass

    @_event
    def backward_begins(self, roots: Any) -> None:
        """`backward()` is called."""
        self._depth += 1
        if self._depth > 1 or self._rests or self._elsewhere or self._is_passive():
            return
        self._run("modes", self._modes.settle)
        self._run("modes", self._modes.backward_begins)
        self._run("functions", self._functions.look)
        if not self._is_settled:
            self._run("volumes", self._volumes.backward_begins)
        root = roots if isinstance(roots, torch.Tensor) else next(iter(roots), None) if roots is not None else None
        is_mean, divisor = None, None
        if isinstance(root, torch.Tensor):
            if root.grad_fn is None:
                self._run("graph", self._no_graph, root)
            elif self._context.due:
                is_mean, divisor = self._read(root), graph.divisor_of(root)
        self._passes = 0
        self._run("order", self._order.backward_begins, is_mean, divisor)
        self._run("optimizers", self._optimizers.backward_begins)

    def _no_graph(self, root: torch.Tensor) -> None:
        is_parameter = any(root is one for _, one in self._context.parameters())
        if not is_parameter and root.numel() == 1:
            self.log.say("loss_is_leaf", self._context.step, need=2)

    def _read(self, root: torch.Tensor) -> bool:
        """Read the graph of a loss; return whether it is the mean of a loss function."""
        calls: list[graph.LossCall] = []
        outputs, self._outputs = self._outputs, []
        self._run("graph", lambda: calls.extend(graph.loss_calls(root, outputs)))
        if root.numel() == 1 and is_plain(root):
            self._run("order", self._context.values.read, self._context.gets_loss, root.detach())
        self._run("preferences", self._preferences.backward_begins, root)
        self._run("pairs", self._pairs.backward_begins, root)
        self._run("temperatures", self._temperatures.backward_begins, root)
        self._run("terms", self._terms.backward_begins, root)
        self._run("background", self._background.look, calls)
        self._run("pooling", self._pooling.backward_begins, root)
        self._run("returns", self._returns.backward_begins)
        for call in calls:
            self._run("losses", self._losses.look, call)
            self._run("settings", self._settings.look, call)
            self._run("tokens", self._tokens.look, call)
            self._run("rows", self._recurrence.look, call)
            self._run("rows", self._rows_of.look, call)
            self._run("inputs", self._inputs.look, call)
            self._run("positions", self._positions.look, call)
            self._run("series", self._series.look, call)
            self._run("copies", self._copies.look, call)
            self._run("balance", self._balance.look, call)
            self._run("noise", self._noise.look, call)
            self._run("noise_levels", self._noise_levels.look, call)
            self._run("similarities", self._similarities.look, call)
            self._run("train_masks", self._train_masks.look, call)
            self._run("transitions", self._transitions.look, call)
            self._run("missing", self._missing.look, call, root)
            self._run("generators", self._generators.look, call)
            self._run("distillation", self._distillation.look, call)
            self._run("coordinates", self._coordinates.look, call)
            self._run("ignored", self._ignored.look, call)
            self._run("models", self._zeros.look, call)
        self._roots = [call for call in calls if call.is_root and len(calls) == 1]
        self._modes.classifies = any(
            call.kind in ("cross_entropy", "nll_loss") and not call.target.is_floating_point() for call in calls
        )
        updates = self._context.updates
        if self._walks >= _WALKS_AN_UPDATE:
            self._depends = True  # not known
        elif updates < _FIRST_WALKS or updates in _LATER_WALKS or self._context.begins_again or self._ages.asks:
            self._walks += 1
            self._run("graph", self._walk, root)
            self._run("losses", self._losses.signs, root.grad_fn)
            self._run("rows", self._recurrence.backward_begins, root)
            self._run("deviations", self._deviations.backward_begins, root)
            self._run("policies", self._policies.backward_begins, root)
            self._run("exchanged", self._exchanged.backward_begins, root)
            self._run("focal", self._focal.backward_begins, root)
            self._run("overlaps", self._overlaps.backward_begins, root)
        return any(call.is_root and call.reduction == "mean" for call in calls)

    def _walk(self, root: torch.Tensor) -> None:
        walked = graph.walk(root, self._rows)
        self._membership.add_leaves(walked.leaves, walked.whole)
        self._context.hides_leaves |= walked.own_functions or not walked.whole
        step = self._context.step
        self._updates.steps_of = walked.steps_of
        self._functions.walked(walked.functions)
        self._reconstructions.walked(walked.leaves)
        self._run("packed", self._packed.walked, walked.packed)
        self._run("inputs", self._layouts.walked, walked.of_maps)
        self._run("ages", self._ages.walked, walked.operations)
        if walked.pairs:
            self._losses.pair(walked.pairs)
        if walked.softmax:
            self.log.say("softmax_before_loss", step, {"what": f"A {walked.softmax}"})
        if walked.double_softmax:
            self.log.say("double_softmax", step)
        if walked.softmax_of_one:
            self.log.say("softmax_one_unit", step, need=3)
        if walked.heads:
            before, after = walked.heads
            self.log.say("heads_mixed", step, {"before": before, "after": after}, need=2)
        for shares in walked.teachers:
            self._losses.teaches(shares)
        for index, rows in walked.indexed:
            self._losses.indexes(index, rows)
        for index, picked in walked.returned:
            self._losses.returns(index, picked)
        if walked.over_queries:
            self.log.say("softmax_over_queries", step, {"shape": walked.over_queries}, need=2)
        if walked.divergence is not None:
            self._losses.diverges(walked.divergence)
        for ratios in walked.ratios:
            self._losses.ratio(ratios)
        for indices in walked.added:
            self._losses.adds_to(indices)
        if self._passes >= _UNUSED and walked.whole and walked.uses < self._passes:
            self.log.say("unused_batches", step, {"count": self._passes}, need=2)
        self._depends = bool(self._depends) or self._is_dependent(walked.leaves)

    def _is_dependent(self, leaves: list[torch.Tensor]) -> bool:
        """Whether a loss depends on a parameter of a model, or on what an optimizer holds."""
        held = {id(one) for _, one in self._context.parameters()}
        held |= self._context.held()
        return not leaves or any(id(one) in held or isinstance(one, nn.Parameter) for one in leaves)

    @_event
    def backward_ends(self) -> None:
        """`backward()` has returned."""
        self._depth = max(0, self._depth - 1)
        if not (self._depth or self._rests or self._elsewhere or self._is_passive()):
            self._run("order", self._order.backward_ends)
            if not self._is_settled:
                self._run("volumes", self._volumes.backward_ends)

    # --------------------------------------------------------------------------------------------------------- updates

    @_event
    def registers(self, optimizer: Optimizer) -> None:
        """The script names an optimizer, or the launcher has found it."""
        self._run("order", self._order.known, optimizer)

    @_event
    def catch_up(self, roots: Any) -> None:
        """The first backward pass has ended before anything was seen."""
        self._run("order", self._order.catch_up)
        if isinstance(roots, torch.Tensor) and roots.grad_fn is not None:
            self._run("graph", self._walk, roots)

    @_event
    def before_update(self, optimizer: Optimizer, closure: bool) -> None:
        """``optimizer.step()`` is called."""
        if self._rests:
            return
        self._stepping.append(id(optimizer))
        if self._stepping.count(id(optimizer)) > 1:  # a subclass calls the method that it overrides
            return
        self._run("order", self._order.before_update, optimizer, closure)
        self._run("optimizers", self._optimizers.before_update, optimizer)
        self._run("modes", self._modes.before_update, optimizer)
        self._run("aliases", self._aliases.before_update)
        if self._is_settled:
            return
        self._run("copies", self._copies.before_update)
        self._run("models", self._models.look)
        self._run("losses", self._losses.before_update)
        self._run("own_optimizers", self._own_optimizers.before_update, optimizer, closure)
        if self._roots and not closure:
            self._run("losses", self._losses.maximized, optimizer, self._roots)
        if self._depends is False and not closure:
            self.log.say("loss_is_leaf", self._context.step, need=2)
        self._run("updates", self._updates.before, optimizer, closure)

    @_event
    def after_update(self, optimizer: Optimizer, closure: bool) -> None:
        """``optimizer.step()`` has returned."""
        if self._rests:
            self._count_update()
            self._run("copies", self._copies.after_update)
            return
        if self._stepping and self._stepping.pop() in self._stepping:
            return
        self._run("optimizers", self._optimizers.after_update, optimizer)
        self._run("membership", self._membership.after_update, optimizer)
        if not self._is_settled:
            self._run("updates", self._updates.after, optimizer)
            self._run("ages", self._ages.after_update, optimizer)
            self._run("replicas", self._replicas.after_update, optimizer)
            self._run("settings", self._settings.after_update, optimizer)
        self._end_update(optimizer, closure)

    def _end_update(self, optimizer: Optimizer, closure: bool) -> None:
        self._run("order", self._order.after_update, optimizer, closure)
        if not self._is_settled:
            self._run("models", self._models.after_update)
            self._run("hook_counts", self._hook_counts.after_update)
        self._context.values.poll()
        self._tokens.forget()
        self._preferences.update_ends()
        self._pairs.update_ends()
        self._count_update()
        self._run("copies", self._copies.after_update)
        self._run("aliases", self._aliases.after_update)
        if not self._is_settled:
            self._run("volumes", self._volumes.after_update, self._is_compiled)
        self._walks = 0
        self._roots, self._depends = [], None

    def _count_update(self) -> None:
        """Count an update, and decide what looks at the next one."""
        context = self._context
        was_due = context.due
        context.updates += 1
        is_quiet = context.updates >= _SETTLED and not context.due
        self._is_settled, self._releases = is_quiet and not was_due, is_quiet and was_due
        if context.updates % _APART == 0:
            before, self._since = self._since, time.perf_counter()
            self._is_short = self._since - before < _SHORT * _APART
            context.is_seldom = self._is_short and context.updates >= _MANY
        self._rests = self._is_settled and self._is_short
        self._updated(context.updates)

    @_event
    def clips(self, parameters: Any) -> None:
        """Gradients are about to be clipped."""
        if self._rests:
            return
        clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self._run("order", self._order.clips, clipped)

    @_event
    def scales(self, scaler: Any) -> None:
        """A GradScaler has scaled a loss."""
        self._run("order", self._order.scaled, scaler)

    @_event
    def scaler_begins(self, optimizer: Any) -> None:
        """A GradScaler steps an optimizer, or skips it."""
        self._updates_before = self._context.updates
        self._run("order", self._order.scaler_begins)

    @_event
    def scaler_ends(self, optimizer: Any) -> None:
        """A GradScaler has stepped an optimizer, or skipped it."""
        self._run("order", self._order.scaler_ends)
        if isinstance(optimizer, Optimizer) and self._context.updates == self._updates_before:
            self._end_update(optimizer, closure=False)

    @_event
    def schedule_steps(self, schedule: Any, metric: Any = None) -> None:
        """A learning rate schedule is about to step, by a metric or without one."""
        self._run("order", self._order.schedule_steps, schedule, metric)

    # ------------------------------------------------------------------------------------------------------------ data

    @_event
    def batch(self, iterator: Any, batch: Any, states: Any) -> None:
        """A data loader has given a batch."""
        if not self._elsewhere:
            gradients = self._context.gradients
            self._run("loaders", self._loaders.batch, iterator, batch, states)
            self._run("settings", self._settings.batch, iterator)
            if gradients:
                self._run("missing", self._missing.batch, tensors_of(batch))
            self._run("inputs", self._stored.batch, iterator, tensors_of(batch), gradients)
            if gradients and getattr(iterator, "_num_yielded", 1) == 1:
                self._run("balance", self._balance.sampler, iterator)
            epoch = self._loaders.epoch
            if epoch != self._epoch:
                self._epoch = epoch
                self._run("modes", self._modes.epoch_begins, epoch)
            self._batch = epoch, gradients

    @_event
    def loads(self, module: nn.Module, state: Any, strict: bool) -> None:
        """Weights are about to be loaded into a module."""
        if not self._elsewhere:
            self._run("models", self._models.loads, module, state, strict)
            self._run("settings", self._settings.loads, module, state)

    @_event
    def close(self) -> None:
        """The training has ended: judge what was read, and write the counts."""
        self._run("modes", self._modes.close)
        self._run("functions", self._functions.close)
        self._run("volumes", self._volumes.close)
        self._run("loaders", self._loaders.look)
        self._run("copies", self._copies.close)
        self._run("distillation", self._distillation.close)
        self._run("settings", self._settings.close, self._order.stage_end)
        self._run("order", self._order.close)
        self._context.values.poll(wait=True)
        self.log.close(self._context.updates)
