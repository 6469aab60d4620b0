"""Check of adversarial trainings: what the generator learns to look like."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["GeneratorChecks"]

#: Losses of labels, how near two labels are, and losses of the generator that show the fault.
_LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss")
_NEAR, _NEED = 0.3, 3
#: Labels of one kind that are kept, and samples that a model has made last.
_MOST_LABELS, _MOST_SAMPLES = 4, 4
#: Elements of the output of a judge.
_KEPT = 65_536


class GeneratorChecks:
    """Compares the labels that generated samples get in the losses of both networks.

    A sample that one model has made and another one judges is generated. Its label in the loss of the generator, to
    which it has gradients, is that of real samples.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Outputs of models, by their places in memory, and the model that made each.
        self._samples: dict[int, tuple[weakref.ref[nn.Module], weakref.ref[torch.Tensor]]] = {}
        #: What the model that is called judges: real or generated samples, without or with a gradient.
        self._judged = ""
        #: Outputs of a judge, and what it has judged.
        self._outputs: list[tuple[torch.Tensor, str]] = []
        self._labels: dict[str, list[float]] = {"real": [], "generated": []}

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._judged = ""
        first = tensors[0] if tensors else None
        if not looks or len(self._context.optimizers()) == 1 or first is None or not is_plain(first):
            return
        maker, sample = self._samples.get(first.data_ptr(), (None, None))
        if maker is None or sample is None or maker() in (None, model) or (own := sample()) is None:
            # Samples of the training have no graph.
            self._judged = "" if first.requires_grad else "real"
        elif own.shape == first.shape:
            self._judged = "own" if first.requires_grad else "generated"

    def leaves(self, model: nn.Module, output: Any) -> None:
        """A model has returned."""
        if not isinstance(output, torch.Tensor) or not is_plain(output) or not output.numel():
            return
        if len(self._context.optimizers()) == 1:
            return
        self._samples[output.data_ptr()] = weakref.ref(model), weakref.ref(output)
        while len(self._samples) > _MOST_SAMPLES:
            del self._samples[next(iter(self._samples))]
        if self._judged and output.numel() <= _KEPT:
            self._outputs = [*self._outputs[-3:], (output.detach(), self._judged)]

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        if call.kind not in _LOSSES or not is_plain(call.target) or not call.target.is_floating_point():
            return
        place = call.input.data_ptr()
        labelled = [what for one, what in self._outputs if one.data_ptr() == place]
        if labelled and call.target.numel() > 1:
            what = labelled[-1]
            self._context.values.read(lambda labels: self._judge(what, labels), call.target.reshape(-1)[:64])

    def _judge(self, what: str, labels: Any) -> None:
        log, label = self._context.log, float(labels.mean())
        if np.ptp(labels) > _NEAR:
            return
        if what != "own":
            self._labels[what] = [*self._labels[what], label][-_MOST_LABELS:]
            return
        real, generated = (float(np.mean(one)) if one else np.nan for one in self._labels.values())
        if abs(label - generated) < _NEAR < abs(label - real):
            facts = {"label": f"{label:.3g}", "real": f"{real:.3g}"}
            log.say("generator_reversed", self._context.step, facts, ["loss"], need=_NEED)
        else:
            log.unseen("generator_reversed")
