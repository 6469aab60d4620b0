"""Checks of what the loss gets: activation, shapes, targets, output."""

from __future__ import annotations

import math
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.networks import FEWEST_INPUTS, FIRST_LOSS, Link, judge_links, judge_scale
from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import (
    REGRESSION,
    LossCall,
    activation_before,
    adds_up,
    attracts_only,
    cosines_before,
    entropy_is_added,
    is_chosen,
    layer_before,
    linear_layers,
    logits_before,
    negated_divergence,
    reshaped_from,
    rewarded_likelihood,
    softmax_axis,
    sums_rows,
    weighted_likelihood,
    weights_of_targets,
)
from smdwidgets.checks.torch.layers import CONVOLUTIONS, NORMS, weight_of
from smdwidgets.checks.torch.sums import parts_of
from smdwidgets.checks.torch.values import is_plain, sampled, some_rows
from smdwidgets.finding import Level

__all__ = ["LossChecks"]

_PROBABILITIES = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
#: What activations can give.
_RANGES = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "relu": (0.0, math.inf)}
#: Rows and elements that are read.
_ROWS, _COLUMNS, _TARGETS = 64, 32, 4096
#: Fewest probabilities of a row that are a picture.
_PICTURE = 64
_MOST_CLASSES = 64
#: Steps at which all rows of the output are equal.
_CONSTANT = 6
_TOLERANCE = 1e-6
#: Share of samples with several labels.
_SEVERAL = 0.05
#: Fewest rows whose outputs are compared with their targets.
_FEWEST_ROWS = 8
#: Size of targets relative to that of all outputs, checked steps at which it is so, and the first step that counts.
_FAR, _STILL_FAR, _FIRST_FAR = 30.0, 8, 16
#: Step from which on outputs are compared with the mean of the targets, the number of steps, and how near the error is
#: to the variance of the targets.
_EARLY, _COMPARED, _LIKE_THE_MEAN = 96, 8, 0.03
#: Scale of cosines from which on classes can be distinguished, that below which they hardly can, and the largest
#: probability of a class that is too small.
_SCALE, _SMALL_SCALE, _UNSURE = 1.0, 0.5, 0.5
#: Fewest layers whose random weights are judged, and most.
_FEWEST_LAYERS, _MOST_LAYERS = 2, 16
#: First loss relative to guessing if an embedding that is also the output layer is too large.
_FIRST_TIED_LOSS = 3.0
#: How near to 1 a ratio of probabilities is if both are the same.
_SAME_RATIO = 1e-5
#: Indices that are read, repeated ones of them at least, and share of values that are lost at least.
_MOST_PLACES, _REPEATED, _LOST = 4096, 3, 0.2
#: Share of the frames that batches use, and batches that use too few.
_USED, _BATCHES = 0.75, 4
#: Rows at which a teacher is compared with labels, most rows of a batch, and the share that agree by chance.
_TAUGHT, _MOST_ROWS, _AT_CHANCE = 96, 4096, 1.5
#: Fewest rows that values are added to, and the share of them up to the last one that gets any.
_MANY_ROWS, _REACHED = 32, 0.5
#: Looks at which all labels of a layer are one class.
_ONE_LABEL = 16
#: Fewest positive labels, if all are; and fewest losses and labels, if all are negative. A positive one may be rare.
_FEW_POSITIVE, _ONE_NEGATIVE, _FEW_NEGATIVE = 1024, 64, 1 << 14
#: Growth of targets that makes a loss rise: at least, and at most without doubt.
_GROWN, _MOST_GROWN = 1.25, 100.0


class LossChecks:
    """Checks each loss function that a backward pass begins with.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._classes: Counter[int] = Counter()
        #: The labels of the last loss of classes, and how many answers of a teacher were compared with them and agree.
        self._last_labels: torch.Tensor | None = None
        self._taught = self._agreed = 0
        #: By layer that gives the logits: the only label so far, or None, and the labels that were looked at.
        self._only_labels: dict[int, tuple[float | None, list[int]]] = {}
        #: Whether the first squared error was compared with that of the mean.
        self._has_first_error = self._has_first_loss = False
        #: The deviation of the weights of each layer before the first update, by the id of its weight.
        self._deviations: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        #: Errors relative to the variance of the targets.
        self._shares: deque[float] = deque(maxlen=_COMPARED)
        #: The first and last variances of the targets, or mean squares of those of actions.
        self._sizes: tuple[list[float], deque[float]] = [], deque(maxlen=_COMPARED)

    def look(self, call: LossCall) -> None:
        """Check one call of a loss function."""
        say, step = self._context.log.say, self._context.step
        prediction, target = call.input, call.target
        if not (is_plain(prediction) and is_plain(target)) or not prediction.numel() or not target.numel():
            return
        if not prediction.ndim or not target.ndim:  # one number, such as the value of one state
            return
        classes = prediction.shape[1] if prediction.ndim > 1 else 1
        activation = activation_before(call.before)
        if call.kind in REGRESSION:
            self._shapes(call)
        if activation == "softmax" and classes == 1:
            say("softmax_one_unit", step)
        if call.kind == "cross_entropy":
            if classes == 1 and not target.is_floating_point():
                say("one_class_ce", step)
            if activation in ("softmax", "sigmoid"):
                say("softmax_before_loss", step, {"what": f"A {activation}"})
            self._flattened(call)
        self._limited(call, activation)
        self._axis(call)
        if call.kind == "cross_entropy" and prediction.ndim == 2 and classes > 2:
            self._cosines(call, classes)
            # The first backward pass may have passed before the model was known.
            is_first = self._context.updates < 2 and not self._has_first_loss
            if is_first and not target.is_floating_point() and target.ndim == 1:
                # An update with huge gradients makes all weights large.
                self._has_first_loss = any(True for _ in self._context.models())
                self._first_loss(call, classes)
                self._tied_first_loss(call, classes)
        if self._context.updates < 2 and self._context.log.runs("no_activation"):
            self._layers(call)
        # An optimizer with a closure moves the weights before its first update ends.
        is_first = self._context.updates < 2 and not self._has_first_error
        if is_first and call.kind == "mse_loss" and prediction.shape == target.shape:
            self._has_first_error = any(True for _ in self._context.models())
            self._first_loss(call, 0)
        if call.is_negated:
            self._negated(call)
        if (call.kind == "nll_loss" and prediction.ndim == 2 and classes > 1) or call.kind == "ctc_loss":
            self._log_probabilities(call)
        self._exclusive(call, activation)
        if call.kind == "binary_cross_entropy_with_logits" and activation == "sigmoid":
            say("double_sigmoid", step)
        if call.kind in ("cross_entropy", "nll_loss") and not target.is_floating_point():
            self._context.classes = classes
            self._last_labels = target if target.ndim == 1 and len(target) <= _MOST_ROWS else None
            self._count_classes(target, classes, call.ignored)
            if classes > 1:
                self._one_label(call, classes)
        if call.kind in _PROBABILITIES and classes == 1 and target.numel() == len(prediction):
            self._one_binary_label(call)
        if call.kind in REGRESSION or call.kind in _PROBABILITIES:
            self._targets(call, activation if call.kind in REGRESSION else "sigmoid")
        # Probabilities of many numbers, as of an autoencoder of pictures, are a regression, too.
        is_picture = call.kind == "binary_cross_entropy" and prediction.ndim > 1 and prediction[0].numel() >= _PICTURE
        if (call.kind in REGRESSION or is_picture) and prediction.shape == target.shape:
            self._level(call)
        if call.kind != "ctc_loss" and (call.kind != "cross_entropy" or classes > 1) and not _is_repeated(prediction):
            self._output(prediction)
        if call.kind == "ctc_loss":
            if prediction.ndim == 3 and reshaped_from(call.before) == (
                classes,
                prediction.shape[0],
                prediction.shape[2],
            ):
                self._exchanged_by_view(call)
            self._frames(call)
            if call.ignored is not None:
                self._blanks(call, call.ignored)
        if call.reduction == "sum":
            say("sum_reduction", step)

    def _exchanged_by_view(self, call: LossCall) -> None:
        """Look at a `view` that exchanges the numbers of rows and frames only."""
        frames, rows = call.input.shape[:2]
        if frames != rows and rows > 1:
            self._context.log.say("rows_mixed", self._context.step, None, ["loss"], need=2)

    def _frames(self, call: LossCall) -> None:
        """Look for frames of a connectionist loss that no row of a batch uses."""
        frames, log = call.input.shape[0], self._context.log
        if call.input.ndim != 3 or not call.input_lengths:
            return
        used = max(call.input_lengths)
        if used < _USED * frames:
            log.say("frames_unused", self._context.step, {"used": used, "frames": frames}, need=_BATCHES)
        else:
            log.unseen("frames_unused")

    def teaches(self, shares: torch.Tensor) -> None:
        """A loss multiplies logarithms of probabilities with those of a teacher."""
        labels, step = self._last_labels, self._context.step
        if labels is None or labels.shape != shares.shape[:1] or labels.device != shares.device or not is_plain(shares):
            return

        def judge(shares: Any, labels: Any) -> None:
            classes = shares.shape[1]
            if not np.allclose(shares.sum(1), 1, atol=1e-3) or shares.max(1).mean() < 2 / classes:
                return
            if np.allclose(shares.max(1), 1, atol=1e-6):  # labels in another form
                return
            self._taught += len(labels)
            self._agreed += int((shares.argmax(1) == labels).sum())
            usual = float(np.unique(labels, return_counts=True)[1].max()) / len(labels)
            if self._taught >= _TAUGHT and self._agreed / self._taught < _AT_CHANCE * max(1 / classes, usual / 2):
                facts = {"share": f"{self._agreed / self._taught:.0%}", "rows": self._taught, "classes": classes}
                self._context.log.say("teacher_unrelated", step, facts)

        self._context.values.read(judge, shares, labels)

    def indexes(self, index: torch.Tensor, rows: int) -> None:
        """Values are added to rows, which an index names."""
        if rows < _MANY_ROWS or not is_plain(index):
            return
        step = self._context.step

        def judge(largest: Any) -> None:
            share = (largest[0] + 1) / rows
            if share < _REACHED:
                facts = {"rows": rows, "largest": int(largest[0]), "share": f"{share:.0%}"}
                self._context.log.say("rows_out_of_reach", step, facts, need=2)

        self._context.values.read(judge, index.max().reshape(1))

    def returns(self, index: torch.Tensor, picked: torch.Tensor) -> None:
        """Values that an index has picked are added to rows by another one."""
        picked = picked.reshape(len(picked), -1)[:, 0] if picked.ndim > 1 else picked
        if picked.shape != index.shape or len(index) < _FEWEST_ROWS or not (is_plain(index) and is_plain(picked)):
            return
        step = self._context.step

        def judge(index: Any, picked: Any) -> None:
            # Each row at most once is a selection, and the same row for all is a sum.
            if np.array_equal(index, picked) and 1 < len(np.unique(index)) < len(index):
                self._context.log.say("messages_to_itself", step, {"rows": len(np.unique(index))}, need=2)

        self._context.values.read(judge, sampled(index, _TARGETS), sampled(picked, _TARGETS))

    def _blanks(self, call: LossCall, blank: int) -> None:
        """Look for the blank of a connectionist loss among its targets."""
        lengths, step = call.lengths, self._context.step
        targets = call.target
        if targets.ndim == 2:  # each row is filled up
            if len(lengths) != len(targets):
                return
            places = torch.arange(targets.shape[1], device=targets.device)
            targets = targets[places < torch.tensor(lengths, device=targets.device)[:, None]]

        def judge(targets: Any) -> None:
            share = float((targets == blank).mean()) if len(targets) else 0.0
            if share:
                self._context.log.say("blank_in_targets", step, {"blank": blank, "share": f"{share:.1%}"}, need=2)

        self._context.values.read(judge, targets.reshape(-1)[:_TARGETS])

    def _layers(self, call: LossCall) -> None:
        """Layers that no activation separates."""
        weights = linear_layers(call.before)
        names = [self._context.name_of(one) for one in weights]
        links = [
            Link(name, True, True, one[0].numel(), one.shape[0])
            for name, one in zip(names, weights, strict=True)
            if is_plain(one) and one.ndim > 1
        ]
        judge_links(self._context.log, links, self._context.step)

    def _limited(self, call: LossCall, activation: str) -> None:
        """Logits whose range an activation limits."""
        is_binary = call.kind == "binary_cross_entropy_with_logits"
        if activation not in ("relu", "tanh") or not (is_binary or call.kind == "cross_entropy"):
            return
        # Logits that are not negative can distinguish classes; a share below one half cannot be given.
        level: Level | None = "warning" if activation == "relu" and not is_binary else None
        facts = {"activation": "ReLU" if activation == "relu" else activation}
        self._context.log.say("limited_logits", self._context.step, facts, ["loss"], level=level)

    def _cosines(self, call: LossCall, classes: int) -> None:
        """Logits that are cosines, so that no class can get a large probability."""
        context, step, product = self._context, self._context.step, cosines_before(call.before)
        if product is None or not all(is_plain(one) for one in product[1:]):
            return
        scale, rows, columns = product
        best = 1 / (1 + (classes - 1) * math.exp(-2 * min(scale, 1e2)))
        if scale > _SCALE or best > _UNSURE:
            return

        def judge(rows: Any, columns: Any) -> None:
            if all(np.abs(np.linalg.norm(one, axis=1) - 1).max() < 1e-3 for one in (rows, columns)):
                facts = {"activation": f"cosines times {scale:.3g}"}
                level: Level | None = None if scale <= _SMALL_SCALE else "warning"
                context.log.say("limited_logits", step, facts, ["loss"], level=level)

        context.values.read(judge, rows[:_ROWS], columns[:_ROWS])

    def before_update(self) -> None:
        """An optimizer is about to step."""
        if self._context.updates or self._deviations or not self._context.log.runs("large_initial_weights"):
            return
        # A first update with huge gradients makes all weights large. The model may be known only now.
        for layer in [*self._random_layers(), *self._tied_layers(None)]:
            self._deviations[id(layer.weight)] = weakref.ref(layer.weight), _deviation(layer.weight)

    def _first_loss(self, call: LossCall, classes: int) -> None:
        """A loss far above guessing at the start, and large random weights."""
        if len(layers := self._random_layers()) >= _FEWEST_LAYERS:
            self._judge_first(call, classes, layers)

    def _random_layers(self) -> list[Any]:
        """Return the layers whose weights are judged; none where layers normalize."""
        parts = [part for model in self._context.models() for part in model.modules()]
        layers = [
            one
            for one in parts
            if isinstance(one, (nn.Linear, *CONVOLUTIONS))
            and (weight := weight_of(one)) is not None
            and weight[0].numel() >= FEWEST_INPUTS
        ][:_MOST_LAYERS]
        plain = all(is_plain(one.weight) and one.weight.is_floating_point() for one in layers)
        return [] if any(isinstance(one, NORMS) for one in parts) or not plain else layers

    def _tied_first_loss(self, call: LossCall, classes: int) -> None:
        """A loss far above guessing at the start, and a large tied embedding."""
        if layers := self._tied_layers(classes):
            self._judge_first(call, classes, layers, _FIRST_TIED_LOSS)

    def _tied_layers(self, classes: int | None) -> list[Any]:
        """Return the output layer of so many classes, if an embedding has its weights."""
        parts = [part for model in self._context.models() for part in model.modules()]
        embeddings = {id(weight_of(one)) for one in parts if isinstance(one, nn.Embedding)} - {id(None)}
        layers = [one for one in parts if isinstance(one, nn.Linear) and id(weight_of(one)) in embeddings]
        is_tied = len(layers) == 1 and classes in (None, layers[0].weight.shape[0]) and is_plain(layers[0].weight)
        return layers if is_tied else []

    def _judge_first(self, call: LossCall, classes: int, layers: list[Any], above: float = FIRST_LOSS) -> None:
        """Compare the first loss with guessing, and the size of the weights.

        ``above``: the loss, relative to guessing, from which on it is too large.
        """
        context = self._context
        deviations = [self._first_deviation(one.weight) for one in layers]
        kept = [one for one in deviations if one is not None]
        if len(kept) < len(deviations):
            return
        step, names = context.step, [context.name_of(one.weight) for one in layers]
        inputs = [one.weight[0].numel() for one in layers]
        target = some_rows(call.target, _ROWS)
        if call.kind == "mse_loss":
            losses = (some_rows(call.input, _ROWS) - target) ** 2
        else:
            counted = (target >= 0) & (target < classes)
            losses = -some_rows(call.input, _ROWS).gather(1, target.clamp(0, classes - 1)[:, None])[counted]

        def judge(losses: Any, target: Any, *deviations: Any) -> None:
            if losses.size:
                pairs = zip(names, deviations, inputs, strict=True)
                gains = {name: float(one) * math.sqrt(count) for name, one, count in pairs}
                guessing = float(target.var()) if call.kind == "mse_loss" else math.log(classes)
                judge_scale(context.log, gains, float(losses.mean()), guessing, step, above)

        context.values.read(judge, losses, target, *kept)

    def _first_deviation(self, weight: torch.Tensor) -> torch.Tensor | None:
        """Return the deviation of weights before the first update, or None."""
        if not self._context.updates:
            return _deviation(weight)
        reference, deviation = self._deviations.get(id(weight), (None, None))
        return deviation if reference is not None and reference() is weight else None

    def signs(self, root: Any) -> None:
        """Look at the signs of the terms that a loss adds up.

        ``root``: the node that `backward()` begins with.
        """
        context, step = self._context, self._context.step
        if len(context.optimizers()) != 1:
            return
        if negated_divergence(adds_up(root)):
            what = "A divergence of distributions (x - exp(x), or log(x) - x) has the wrong sign"
            context.log.say("loss_negated", step, {"what": what}, ["loss"], need=2)
        if attracts_only(root):
            what = (
                "The loss only makes outputs similar, with gradients through both sides: a constant output minimizes it"
            )
            context.log.say("no_stop_gradient", step, {"what": what}, ["loss"], need=2)
        elif teachers := weights_of_targets(root):
            if context.held().isdisjoint(map(id, teachers)):
                return
            what = "A divergence has gradients through its targets, which other weights compute: the teacher follows the student"
            context.log.say("no_stop_gradient", step, {"what": what}, ["loss"], need=2)
        if entropy_is_added(root):
            context.log.say("entropy_penalized", step, subject=["loss"], need=2)
        if _compares_outputs(root):
            context.log.say("policy_loss", step, {"what": "compares outputs for two kinds of rows"}, ["loss"], need=2)
        rewards = rewarded_likelihood(root)
        if rewards is not None and is_plain(rewards) and rewards.is_floating_point():

            def reward(values: Any) -> None:
                if values.min() < 0 < values.max():
                    facts = {"what": "weighs log-probabilities with advantages"}
                    context.log.say("policy_loss", step, facts, ["loss"], need=2)

            context.values.read(reward, sampled(rewards, _TARGETS))
        weights = weighted_likelihood(root)
        if weights is None or not is_plain(weights) or not weights.is_floating_point():
            return

        def judge(values: Any) -> None:
            if np.isfinite(values).all() and np.ptp(values) > 0:
                context.log.say("policy_negated", step, subject=["loss"], need=2)

        context.values.read(judge, sampled(weights, _TARGETS))

    def ratio(self, ratios: torch.Tensor) -> None:
        """A loss uses the exponential of a difference of which both sides have gradients."""
        context, step = self._context, self._context.step
        if not is_plain(ratios):
            return

        def judge(ratios: Any) -> None:
            if np.abs(ratios - 1).max() < _SAME_RATIO:
                context.log.say("ratio_of_itself", step, subject=["loss"], need=2)

        context.values.read(judge, sampled(ratios, _TARGETS))

    def _axis(self, call: LossCall) -> None:
        """A softmax over the rows of the batch, for a loss of classes."""
        prediction, axis = call.input, call.axis
        if prediction.ndim != 2 or prediction.shape[0] == prediction.shape[1] or prediction.shape[1] < 2:
            return
        if axis is None and call.kind in (*REGRESSION, "nll_loss", "binary_cross_entropy"):
            axis = softmax_axis(call.before, 2)
        if axis == 0 and prediction.shape[0] > 1:
            self._context.log.say("softmax_over_rows", self._context.step, {"shape": tuple(prediction.shape)}, need=2)

    def _flattened(self, call: LossCall) -> None:
        """Logits whose rows a `view` has mixed."""
        before = reshaped_from(call.before)
        if before is None or call.input.ndim != 2 or len(before) < 3 or call.target.ndim != 1:
            return
        classes = call.input.shape[1]
        facts, say, step = {"shape": before, "classes": classes}, self._context.log.say, self._context.step
        if before[-1] != classes and before[1] == classes:
            say("reshaped_classes", step, {**facts, "what": "in place of moving the classes to the end"}, need=2)
            return
        rows = call.flattened
        if len(rows) == 2 and len(before) == 3 and rows[0] != rows[1] and rows == before[1::-1]:
            what = f"and the targets of shape {rows} are flattened in another order"
            say("reshaped_classes", step, {**facts, "what": what}, need=2)

    def _negated(self, call: LossCall) -> None:
        """A loss whose sign was changed, for targets that differ."""
        context, step = self._context, self._context.step
        if call.target.numel() < 2 or len(context.optimizers()) != 1:
            return

        def judge(targets: Any) -> None:
            if (targets != targets.flat[0]).any():  # those of a discriminator are all equal
                context.log.say("loss_negated", step, {"what": f"The loss ({call.kind}) is negated"}, ["loss"], need=2)

        context.values.read(judge, sampled(call.target, _TARGETS))

    def maximized(self, optimizer: Any, calls: list[LossCall]) -> None:
        """An optimizer that maximizes has stepped, after passes of these losses."""
        groups = optimizer.param_groups
        if calls and groups and all(group.get("maximize") is True for group in groups):
            what = f"{type(optimizer).__name__} maximizes the loss ({calls[0].kind})"
            self._context.log.say("loss_negated", self._context.step, {"what": what}, ["loss"], need=2)

    def diverges(self, targets: torch.Tensor) -> None:
        """A divergence multiplies targets with a softmax in place of its logarithm."""
        context, step = self._context, self._context.step
        if not is_plain(targets):
            return

        def judge(rows: Any) -> None:
            if (rows >= 0).all() and np.abs(rows.sum(-1) - 1).max() < 1e-3:
                context.log.say("kl_not_log", step, need=2)

        context.values.read(judge, some_rows(targets.reshape(-1, targets.shape[-1]), _ROWS))

    def _shapes(self, call: LossCall) -> None:
        prediction, target = call.input, call.target
        strides = [stride for stride, size in zip(target.stride(), target.shape, strict=True) if size > 1]
        expanded = call.before is not None and call.before.name().startswith("Expand")
        if expanded and prediction.shape == target.shape and 0 in strides and any(strides):
            # `F.mse_loss` broadcasts both before it computes the loss. Broadcasting one of them may be meant, as for
            # the labels of a discriminator.
            facts = {"shapes": f"of both are broadcast to {tuple(prediction.shape)}", "result": list(prediction.shape)}
            self._context.log.say("broadcast_loss", self._context.step, facts, ["loss"])
        elif expanded and prediction.shape == target.shape and any(strides) and _is_repeated(prediction):
            rows = target.shape[0]
            if rows > 1 and sums_rows(call.before, rows):
                shapes = f"(1,) and {tuple(target.shape)}, where the prediction is one number, computed of all rows"
                facts = {"shapes": shapes, "prediction": [1], "result": list(target.shape)}
                self._context.log.say("broadcast_loss", self._context.step, facts, ["loss"], need=2)
        elif prediction.shape != target.shape and prediction.numel() > 1:
            whole = torch.broadcast_shapes(prediction.shape, target.shape)
            if math.prod(whole) > max(prediction.numel(), target.numel()):
                self.pair([tuple(prediction.shape), tuple(target.shape), tuple(whole)])

    def pair(self, shapes: list[tuple[int, ...]]) -> None:
        """Two tensors are broadcast to all pairs of rows."""
        *shapes_of_both, whole = shapes
        facts = {
            "shapes": f"{' and '.join(map(str, shapes_of_both))} give {whole}",
            "prediction": list(shapes_of_both[0]),
            "result": list(whole),
        }
        self._context.log.say("broadcast_loss", self._context.step, facts, ["loss"])

    def adds_to(self, indices: torch.Tensor) -> None:
        """Values are added to indexed places by an assignment."""
        context, step = self._context, self._context.step

        def judge(places: NDArray[np.float64]) -> None:
            _, counts = np.unique(places, return_counts=True)
            lost = 1 - len(counts) / len(places)
            # One place for what does not count may be repeated on purpose.
            if (counts > 1).sum() >= _REPEATED and lost > _LOST:
                context.log.say("repeated_index", step, {"share": f"{lost:.0%}"}, ["loss"], need=2)

        if len(indices):
            context.values.read(judge, indices[:_MOST_PLACES])

    def _exclusive(self, call: LossCall, activation: str) -> None:
        """A softmax, whose classes exclude each other, for samples with several labels."""
        prediction, target, context = call.input, call.target, self._context
        is_softmax = call.kind == "cross_entropy" or (call.kind == "binary_cross_entropy" and activation == "softmax")
        if not is_softmax or prediction.ndim != 2 or prediction.shape != target.shape or prediction.shape[1] < 2:
            return
        step = context.step

        def judge(targets: Any) -> None:
            labels = targets.sum(1)
            several = float(((targets == 0) | (targets == 1)).all(1).mean()), float((labels > 1).mean())
            if several[0] == 1 and several[1] > _SEVERAL:
                facts = {"share": f"{several[1]:.0%}", "most": int(labels.max())}
                context.log.say("several_labels", step, facts, ["loss"], need=2)

        context.values.read(judge, some_rows(target, _ROWS))

    def _level(self, call: LossCall) -> None:
        """Note an error that equals the variance of the targets, and distant targets."""
        context, step = self._context, self._context.step
        prediction, target = call.input, call.target
        if prediction.shape[0] < _FEWEST_ROWS or not target.is_floating_point():
            return
        of_actions = is_chosen(call.before)

        def judge(outputs: Any, targets: Any) -> None:
            self._compare(outputs.reshape(len(outputs), -1), targets.reshape(len(targets), -1), step, of_actions)

        # Neighbours of one row may be alike, as in pictures, but rows are compared with rows.
        every = max(1, prediction[0].numel() // _COLUMNS)
        rows = [some_rows(one, _ROWS).reshape(min(_ROWS, one.shape[0]), -1)[:, ::every] for one in (prediction, target)]
        context.values.read(judge, *rows)

    def _compare(self, outputs: Any, targets: Any, step: int, of_actions: bool) -> None:
        log = self._context.log
        if not (np.isfinite(outputs).all() and np.isfinite(targets).all()):
            return
        spread = float(targets.var(0).mean())
        middle, reach = abs(float(targets.mean())), float(np.abs(outputs).max())
        if middle > _FAR * max(reach, float(targets.std())) or spread > (_FAR * max(reach, 1.0)) ** 2:
            facts = {"target": float(np.abs(targets).mean()), "what": f"no output is above {reach:.3g}"}
            still = _STILL_FAR if step >= _FIRST_FAR else _STILL_FAR + 1
            log.say("targets_not_scaled", step, facts, ["loss"], need=still)
        else:
            log.unseen("targets_not_scaled")
        if spread <= 0:
            return
        # Values of actions that are always rewarded grow together, and hardly differ.
        size = float((targets**2).mean()) if of_actions else spread
        self._grow(size, float(((outputs - targets) ** 2).mean()) < spread, step)
        if step < _EARLY:
            return
        # The mean of a few rows is nearer to them than that of all.
        share = float(((outputs - targets) ** 2).mean()) / (spread * len(targets) / (len(targets) - 1))
        self._shares.append(share)
        if len(self._shares) == self._shares.maxlen and abs(float(np.median(self._shares)) - 1) < _LIKE_THE_MEAN:
            log.say("no_better_than_mean", step, {"share": float(np.median(self._shares))}, ["loss"])
        else:
            log.unseen("no_better_than_mean")

    def _grow(self, size: float, are_followed: bool, step: int) -> None:
        """Look whether the targets grow, and the outputs follow them."""
        first, last = self._sizes
        (first if len(first) < _COMPARED else last).append(size)
        growth = math.sqrt(np.median(last) / np.median(first)) if len(last) == last.maxlen else 1.0
        if _GROWN < growth < _MOST_GROWN and are_followed:
            self._context.log.say("targets_grow", step, {"growth": growth}, ["loss"])
        else:
            self._context.log.unseen("targets_grow")

    def _log_probabilities(self, call: LossCall) -> None:
        context, step, function = self._context, self._context.step, call.kind
        rows = call.input.flatten(0, -2)[:16]

        def judge(total: Any, exponentials: Any, least: Any) -> None:
            # A connectionist loss computes no softmax, so that one without a logarithm is not too many.
            if function == "nll_loss" and least.min() >= 0 and np.abs(total - 1).max() < 1e-3:
                context.log.say("softmax_before_loss", step, {"what": "A softmax, and no logarithm,"}, need=2)
            elif np.abs(exponentials).max() > 1e-2 and np.isfinite(exponentials).all():
                context.log.say("nll_not_log", step, {"function": function}, need=2)

        context.values.read(judge, rows.sum(-1), rows.float().logsumexp(-1), rows.amin(-1))

    def _count_classes(self, target: torch.Tensor, classes: int, ignored: int | None) -> None:
        if not 2 < classes <= _MOST_CLASSES or not self._context.log.runs("off_by_one"):
            return
        if ignored is not None and 0 <= ignored < classes:  # a class, such as padding or background, is left out
            return
        context, step = self._context, self._context.step
        if context.token_rows not in (0, target.numel()):  # tokens, of which some are never predicted, such as padding
            return

        def judge(labels: Any) -> None:
            values, counts = np.unique(labels[labels != ignored], return_counts=True)
            for value, count in zip(values, counts, strict=True):
                self._classes[int(value)] += int(count)
            total = sum(self._classes.values())
            if total >= 20 * classes and not self._classes[0] and set(self._classes) - {0} == set(range(1, classes)):
                context.log.say("off_by_one", step, {"classes": classes, "count": total})

        context.values.read(judge, sampled(target, _TARGETS))

    def _one_label(self, call: LossCall, classes: int) -> None:
        """Look whether all labels are one class, which has an output of a layer to itself.

        Logits that are similarities, such as those of a contrastive loss, may have the right one at the same place.
        """
        weight = layer_before(call.before) if self._context.log.runs("labels_equal") else None
        if weight is None or weight.shape[0] != classes:
            return
        ignored = call.target == call.ignored
        least, largest = call.target.masked_fill(ignored, classes).amin(), call.target.masked_fill(ignored, -1).amax()
        self._add_labels(weight, least, largest, call.target.numel(), lambda label, counts: len(counts) >= _ONE_LABEL)

    def _one_binary_label(self, call: LossCall) -> None:
        """Look whether all labels of two classes are one.

        A positive label may be rare. A layer that no optimizer has may be asked for one class only.
        """
        weight = layer_before(logits_before(call.before)) if self._context.log.runs("labels_equal") else None
        if weight is None or weight.shape[0] != 1 or self._has_several_labels(weight):
            return
        if id(weight) not in self._context.held():
            return

        def are_enough(label: float, counts: list[int]) -> bool:
            looks, rows = (_ONE_LABEL, _FEW_POSITIVE) if label else (_ONE_NEGATIVE, _FEW_NEGATIVE)
            return label in (0, 1) and len(counts) >= looks and sum(counts) >= rows

        self._add_labels(weight, call.target.amin(), call.target.amax(), call.target.numel(), are_enough)

    def _has_several_labels(self, weight: torch.Tensor) -> bool:
        label, _ = self._only_labels.get(id(weight), (None, []))
        return label is not None and label < 0

    def _add_labels(
        self,
        weight: torch.Tensor,
        least: torch.Tensor,
        largest: torch.Tensor,
        count: int,
        are_enough: Callable[[float, list[int]], bool],
    ) -> None:
        """Add the labels of a loss to those that its layer has had.

        Args:
            weight: the weights of the layer.
            least: the smallest label.
            largest: the largest one; it is below the smallest one if none counts.
            count: the number of labels.
            are_enough: whether so many labels, of losses that were looked at, show that all are this one.
        """
        if self._has_several_labels(weight):
            return
        key, step = id(weight), self._context.step

        def judge(least: Any, largest: Any) -> None:
            label, counts = self._only_labels.get(key, (None, []))
            if least[0] > largest[0]:  # none counts
                return
            if least[0] != largest[0] or label not in (None, least[0]):
                self._only_labels[key] = -1.0, []
                return
            label, counts = self._only_labels[key] = float(least[0]), [*counts, count]
            if are_enough(label, counts):
                self._context.log.say("labels_equal", step, {"count": sum(counts), "label": label}, ["loss"])

        self._context.values.read(judge, least.reshape(1), largest.reshape(1))

    def _targets(self, call: LossCall, activation: str) -> None:
        target, context, step = call.target, self._context, self._context.step
        is_onehot_shaped = target.ndim == 2 and target.shape[1] > 2
        columns = target.shape[1] if is_onehot_shaped else 1
        same_shape = call.input.shape == target.shape
        few = target.ndim == 1 or target.shape[-1] == 1

        def judge(targets: Any) -> None:
            if activation in _RANGES:
                low, high = _RANGES[activation]
                outside = float(((targets < low - _TOLERANCE) | (targets > high + _TOLERANCE)).mean())
                if outside > 0.05:
                    facts = {"share": f"{outside:.0%}", "activation": activation}
                    context.log.say("unreachable_targets", step, facts, need=2)
            if call.kind in _PROBABILITIES or not same_shape or not (targets == np.round(targets)).all():
                return
            values = np.unique(targets)
            if is_onehot_shaped and columns <= _TARGETS:
                rows = targets[: targets.size // columns * columns].reshape(-1, columns)
                if len(rows) and len(values) == 2 and (rows.sum(1) == 1).all() and (rows.max(1) == 1).all():
                    context.log.say("mse_on_onehot", step, need=2)
            elif few and targets.size >= 32 and 2 <= len(values) <= 12:
                context.log.say("mse_on_classes", step, {"count": len(values)}, need=3)

        if is_onehot_shaped:
            context.values.read(judge, target[: max(1, _TARGETS // columns)].reshape(-1)[:_TARGETS])
        else:
            context.values.read(judge, sampled(target, _TARGETS))

    def _output(self, prediction: torch.Tensor) -> None:
        if prediction.shape[0] < 8 or not self._context.log.runs("constant_output"):
            return
        context, step = self._context, self._context.step

        def judge(outputs: Any) -> None:
            scale = max(float(np.abs(outputs).max()), 1e-12)
            if np.isfinite(outputs).all() and float(np.ptp(outputs, axis=0).max()) <= 1e-6 * scale:
                context.log.say("constant_output", step, need=_CONSTANT)
            else:
                context.log.unseen("constant_output")

        rows = some_rows(prediction, _ROWS)
        context.values.read(judge, rows.reshape(rows.shape[0], -1)[:, :_COLUMNS])


def _is_repeated(prediction: torch.Tensor) -> bool:
    """Whether a prediction is one number that is compared with many targets."""
    return prediction.numel() > 1 and not any(prediction.stride())


def _compares_outputs(root: Any) -> bool:
    """Whether a loss adds outputs for some rows, and subtracts those for others."""
    signs: dict[int, set[bool]] = {}
    for (node, _), factor in parts_of((root, 0)).items():
        weight = layer_before(node)
        if weight is not None and weight.shape[0] == 1:
            signs.setdefault(id(weight), set()).add(factor > 0)
    return any(len(one) == 2 for one in signs.values())


def _deviation(weight: torch.Tensor) -> torch.Tensor:
    """Return the deviation of weights, of a sample."""
    return sampled(weight, _TARGETS).float().std(correction=0)
