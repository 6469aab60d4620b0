"""Checks of a model: parameters, symmetric weights, inputs, autocast."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.layers import BATCH_NORMS, CONVOLUTIONS, DROPOUTS, NORMS, weight_of
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["ModelChecks"]

#: Layers that are looked at, rows and columns that are read of each, and elements of the largest matrix to decompose.
_LAYERS, _ROWS, _COLUMNS, _LARGEST = 32, 8, 64, 1_000_000
#: Elements of the inputs that are read at each pass.
_SAMPLED = 97
#: The update at which units are compared again, and passes whose layers are looked at.
_UPDATES, _PASSES = 7, 4
#: Momentum of batch normalization, the weight of the newest batch, that is large; share of values that dropout removes.
_NEWEST, _REMOVED = 0.9, 0.8
#: Attributes that look like `requires_grad` and are not.
_MISSPELLED = re.compile(r"requ?i?e?re?[sd]?_?grads?(ient)?s?$")


class ModelChecks:
    """Checks the models of a training.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._equal: dict[str, Any] = {}
        self._watched: list[Any] = []
        self._passes = 0
        self._has_seen_values = False
        self._spectral: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def enters(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], is_compiled: bool) -> None:
        """A model is called."""
        context = self._context
        self.look()
        if not is_compiled and self._passes < _PASSES and context.log.runs("autocast_lost"):
            self._passes += 1
            self._watch_autocast(model)
        tensors = [one for one in (*inputs, *named.values()) if isinstance(one, torch.Tensor)]
        if context.due:
            self._inputs(tensors)
        if tensors and context.gradients and context.log.runs("zero_batch"):
            self._zeros(tensors[0])
        if not model.training:
            self._spectral_norms(model)

    def look(self) -> None:
        """Look at the parameters of models that were not seen before."""
        for model in self._context.models():
            if model not in self._known:
                self._known[model] = True
                self._trainable(model)
                self._frozen_by_name(model)
                self._tied(model)
                self._repeated(model)
                self._units(model)
                self._settings(model)

    def leaves(self) -> None:
        """A model has returned: remove the callbacks of this pass."""
        for handle in self._watched:
            handle.remove()
        self._watched.clear()

    def after_update(self) -> None:
        """An update has happened."""
        if self._equal and self._context.updates >= _UPDATES:
            for model in self._context.models():
                self._units(model)
            self._equal.clear()

    # ------------------------------------------------------------------------------------------------------ parameters

    def _trainable(self, model: nn.Module) -> None:
        parameters = [one for one in model.parameters() if not nn.parameter.is_lazy(one)]
        trained = [one for one in parameters if one.requires_grad]
        number, of = sum(one.numel() for one in trained), sum(one.numel() for one in parameters)
        if not trained or number >= of / 2:
            return
        norms = {id(one) for part in model.modules() if isinstance(part, NORMS) for one in part.parameters(False)}
        only = all(id(one) in norms for one in trained)
        facts = {"share": f"{number / of:.2%}", "only": ", and only normalization layers" if only else ""}
        self._context.log.say("mostly_frozen", self._context.step, facts, level="problem" if only else None)

    def _frozen_by_name(self, model: nn.Module) -> None:
        """Look for an attribute that should freeze parameters and does not."""
        context, step = self._context, self._context.step
        ignored: list[tuple[str, str]] = []
        for name, one in model.named_parameters():
            ignored += [(key, name) for key in _misspelled(one) if one.requires_grad]
        for name, part in model.named_modules():
            keys = [*_misspelled(part), *(["requires_grad"] if vars(part).get("requires_grad") is False else [])]
            if keys and any(one.requires_grad for one in part.parameters()):
                ignored += [(key, name or type(part).__name__) for key in keys]
        if ignored:
            key, name = ignored[0]
            context.log.say("freeze_ignored", step, {"attribute": key, "tensor": name}, [each for _, each in ignored])

    def _settings(self, model: nn.Module) -> None:
        """Look for settings that mean the opposite in another framework."""
        context, step = self._context, self._context.step
        for name, part in model.named_modules():
            if isinstance(part, BATCH_NORMS) and part.track_running_stats and part.momentum is not None:
                self._momentum(name, part)
            if isinstance(part, DROPOUTS) and part.p >= _REMOVED:
                context.log.say("strong_dropout", step, {"what": f"`{name}`", "share": f"{part.p:.0%}"}, [name])

    def _momentum(self, name: str, norm: Any) -> None:
        """Look whether running statistics never settle, or stay as they are."""
        facts = {"tensor": name, "momentum": norm.momentum}

        def judge(means: Any) -> None:
            if not means.any():  # none were loaded
                self._say_momentum(name, facts, "its running statistics stay at their initial values")

        if norm.momentum >= _NEWEST:
            self._say_momentum(name, facts, "its running statistics are those of about one batch")
        elif norm.momentum == 0 and norm.training and is_plain(norm.running_mean):
            self._context.values.read(judge, norm.running_mean)

    def _say_momentum(self, name: str, facts: dict[str, Any], what: str) -> None:
        self._context.log.say("norm_momentum", self._context.step, {**facts, "what": what}, [name])

    def loads(self, module: nn.Module, state: Any, strict: bool) -> None:
        """Weights are about to be loaded into a module."""
        own = dict(_tensors(module))
        if not isinstance(state, Mapping) or not own or not state:
            return
        context, step = self._context, self._context.step
        name = type(module).__name__
        matching = [key for key in own if key in state]
        if not matching and not strict:
            facts = {"model": name, "key": next(iter(own)), "given": str(next(iter(state)))}
            context.log.say("nothing_loaded", step, facts, [name])
        same = [key for key in matching if isinstance(state[key], torch.Tensor) and _is_same(own[key], state[key])]
        if matching and len(same) == len(matching) and context.updates:
            context.log.say("alias_loaded", step, {"model": name}, [name])

    def _tied(self, model: nn.Module) -> None:
        embeddings, outputs = (
            [weight for one in model.modules() if isinstance(one, kind) and (weight := weight_of(one)) is not None]
            for kind in (nn.Embedding, nn.Linear)
        )
        context, step = self._context, self._context.step
        pairs = [
            (one, other)
            for one in embeddings[:4]
            for other in outputs
            if one is not other and one.shape == other.shape and one.numel() > 256
        ]
        for one, other in pairs[:8]:
            if not (is_plain(one) and is_plain(other)) or one.device != other.device:
                continue
            if one.data_ptr() == other.data_ptr() or not (one.requires_grad and other.requires_grad):
                continue
            names = [context.name_of(one), context.name_of(other)]

            def judge(first: Any, second: Any, names: list[str] = names) -> None:
                if (first == second).all() and first.std() > 0:
                    context.log.say("untied", step, {"tensor": names[0], "other": names[1]}, names)

            context.values.read(judge, sampled(one, 1000), sampled(other, 1000))

    def _repeated(self, model: nn.Module) -> None:
        """Look for a list that has one layer in several places."""
        for name, part in model.named_modules():
            if not isinstance(part, nn.ModuleList | nn.Sequential):
                continue
            layers = [one for one in part if any(True for _ in one.parameters())]
            if len(layers) > 1 and len({id(one) for one in layers}) < len(layers):
                most = max(sum(other is one for other in layers) for one in layers)
                shown = name or type(part).__name__
                facts = {"tensor": shown, "count": most, "layer": type(layers[0]).__name__}
                self._context.log.say("layer_repeated", self._context.step, facts, [shown])

    def _units(self, model: nn.Module) -> None:
        """Remember layers whose units are equal.

        Say so if they still are after updates that changed them.
        """
        context, step = self._context, self._context.step
        layers = [
            one for one in model.modules() if isinstance(one, (nn.Linear, *CONVOLUTIONS)) and weight_of(one) is not None
        ]
        for layer in layers[:_LAYERS]:
            weight = layer.weight
            if (
                not is_plain(weight)
                or weight.shape[0] < 2
                or not weight.requires_grad
                or not weight.is_floating_point()
            ):
                continue
            name = context.name_of(weight)
            if context.updates and name not in self._equal:
                continue
            earlier = self._equal.get(name)

            def judge(rows: Any, name: str = name, earlier: Any = earlier) -> None:
                if not (rows == rows[0]).all():
                    return
                if earlier is None:
                    self._equal[name] = rows
                elif rows.shape == earlier.shape and (rows != earlier).any():
                    context.log.say("symmetric_units", step, {"tensor": name, "count": context.updates}, [name])

            context.values.read(judge, weight.detach()[:_ROWS].reshape(min(_ROWS, weight.shape[0]), -1)[:, :_COLUMNS])

    def _spectral_norms(self, model: nn.Module) -> None:
        context, step = self._context, self._context.step
        if not context.log.runs("spectral_norm_stale") or model in self._spectral:
            return
        self._spectral[model] = True
        for part in model.modules():
            weight, u, v = (getattr(part, name, None) for name in ("weight_orig", "weight_u", "weight_v"))
            if not all(isinstance(one, torch.Tensor) and is_plain(one) for one in (weight, u, v)):
                continue
            assert weight is not None
            assert u is not None
            assert v is not None
            matrix = weight.detach().flatten(1)
            if matrix.numel() > _LARGEST or matrix.shape != (u.numel(), v.numel()):
                continue
            name = context.name_of_module(part)

            def judge(matrix: Any, u: Any, v: Any, name: str = name) -> None:
                used, true = float(u @ matrix @ v), float(np.linalg.norm(matrix, 2))
                if used < 0.8 * true:
                    context.log.say("spectral_norm_stale", step, {"tensor": name, "true": true, "used": used}, [name])

            context.values.read(judge, matrix, u, v)

    # ---------------------------------------------------------------------------------------------------------- inputs

    def _zeros(self, inputs: torch.Tensor) -> None:
        """Look whether all inputs are 0, while those of other passes are not."""
        context, step = self._context, self._context.step
        on_device = not inputs.is_cpu
        if not is_plain(inputs) or not inputs.is_floating_point() or inputs.numel() < _COLUMNS:
            return
        if on_device and not context.due:
            return
        if on_device or (not _middle(inputs) and not bool(sampled(inputs, _SAMPLED).any())):

            def judge(nonzero: Any) -> None:
                if nonzero.any():
                    self._has_seen_values = True
                elif self._has_seen_values:
                    context.log.say("zero_batch", step, {"what": "All values of the batch are 0"}, need=2)

            context.values.read(judge, inputs.detach().count_nonzero().reshape(1))
        else:
            self._has_seen_values = True

    def _inputs(self, tensors: list[torch.Tensor]) -> None:
        sizes = sorted({one.shape[0] for one in tensors if one.ndim > 1})
        say, step = self._context.log.say, self._context.step
        if len(sizes) > 1 and sizes[0] == 1 and sum(one.ndim > 1 and one.shape[0] == sizes[-1] for one in tensors):
            same_rank = {one.ndim for one in tensors if one.ndim > 1}
            if len(same_rank) == 1:
                say("batch_sizes", step, {"sizes": " and ".join(map(str, sizes))}, need=2)
        if tensors and tensors[0].dtype is torch.float64:
            say("float64", step)

    def _watch_autocast(self, model: nn.Module) -> None:
        layers = [one for one in model.modules() if isinstance(one, (nn.Linear, *CONVOLUTIONS))]
        self._watched += [one.register_forward_hook(self._layer_returns) for one in layers[:_LAYERS]]

    def _layer_returns(self, module: nn.Module, inputs: Any, output: Any) -> None:
        try:
            if not isinstance(output, torch.Tensor) or torch.compiler.is_compiling():
                return
            device = output.device.type
            if not torch.is_autocast_enabled(device):
                return
            first_input = inputs[0] if inputs else None
            is_float = (
                isinstance(first_input, torch.Tensor)
                and first_input.is_floating_point()
                and first_input.dtype is not torch.float64
            )
            # A subclass, such as one with quantized weights, may compute in float32 by design.
            if output.dtype is torch.float32 and is_float and type(module) in (nn.Linear, *CONVOLUTIONS):
                name = self._context.name_of_module(module)
                self._context.log.say("autocast_lost", self._context.step, {"tensor": name}, [name], need=2)
        except Exception as error:
            self._context.log.off(("autocast_lost",), f"{type(error).__name__}: {error}")


def _misspelled(one: Any) -> list[str]:
    """Return attributes that are False and look like `requires_grad`."""
    return [
        key
        for key, value in getattr(one, "__dict__", {}).items()
        if value is False and key != "requires_grad" and _MISSPELLED.match(key)
    ]


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same memory."""
    return is_plain(one) and is_plain(other) and one.numel() > 0 and one.data_ptr() == other.data_ptr()


def _middle(tensor: torch.Tensor) -> float:
    """Return the element in the middle, which is not 0 in most batches."""
    return float(tensor[tuple(size // 2 for size in tensor.shape)])
