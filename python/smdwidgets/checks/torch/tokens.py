"""Checks of models of sequences: targets, and what an output depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, is_readable, sizes_of_gradient
from smdwidgets.checks.torch.layers import BATCH_NORMS
from smdwidgets.checks.torch.values import is_plain

__all__ = ["TokenChecks", "final_runs"]

#: Rows and positions that are read.
_ROWS, _POSITIONS = 16, 2048
#: Shares of targets that equal a shifted input, and of neighbours that are equal in ordinary text at most.
_EQUAL, _REPEATED = 0.98, 0.6
#: Share of targets that count, below which tokens are masked.
_MASKED = 0.6
#: A run of this many equal tokens at the end of a row is padding.
_RUN = 3
_FEWEST_CLASSES = 9
#: Share of the rows that end with padding.
_PADDED = 0.4
#: Share of the occurrences of padding that are at the end of a row at least.
_AT_THE_END = 0.8

#: Largest dependence of an output on the token at its position, relative to that on others, where a code of all tokens
#: is between.
_OWN = 1.2

_Tokens = NDArray[np.float64]


class TokenChecks:
    """Compares the targets of a loss with the tokens that the model got.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: The tokens of the last pass, and the mask of attention.
        self._tokens: torch.Tensor | None = None
        self._mask: torch.Tensor | None = None
        #: The token that is padding for the only embedding of a model, by its id, and that of the last pass.
        self._pads: dict[int, int | None] = {}
        self._pad: int | None = None
        #: Other tokens that the model got, such as those of a decoder.
        self._others: list[torch.Tensor] = []
        #: Whether a decoder has got the targets shifted by one, so that the first tokens may be the targets.
        self._decodes = False
        self._embedded: torch.Tensor | None = None
        #: The logits of the last pass, by row and position.
        self._logits: torch.Tensor | None = None
        self._shape: tuple[int, ...] = ()
        self._watched: Any = None
        self._probed = False
        #: Whether an output depends on later positions; None: not known.
        self._sees_future: bool | None = None
        #: Whether an output depends on other tokens as much as on that at its position: a code of all is between.
        self._is_code = False
        #: Whether an output depends on the same position of other rows. The first dimension may be that of positions.
        self._mixes_rows = False

    # --------------------------------------------------------------------------------------------------------- passes

    def enters(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], probes: bool) -> None:
        """A model is called."""
        tensors = [one for one in (*inputs, *named.values()) if isinstance(one, torch.Tensor)]
        first = named.get("input_ids", tensors[0] if tensors else None)
        is_tokens = isinstance(first, torch.Tensor) and first.ndim == 2 and not first.is_floating_point()
        self._shape = tuple(first.shape[:2]) if isinstance(first, torch.Tensor) else ()
        self._tokens = first if is_tokens and is_plain(first) else None
        others = [
            one for one in tensors if one is not first and one.ndim == 2 and one.dtype in (torch.int64, torch.int32)
        ]
        self._others = [one for one in others if is_tokens and is_plain(one)]
        self._context.token_rows = self._shape[0] if is_tokens else 0
        if is_tokens and id(model) not in self._pads:
            parts = [one for one in model.modules() if isinstance(one, nn.Embedding)]
            self._pads[id(model)] = parts[0].padding_idx if len(parts) == 1 else None
        self._pad = self._pads.get(id(model))
        mask = named.get("attention_mask")
        self._mask = mask if isinstance(mask, torch.Tensor) and is_plain(mask) and mask.ndim == 2 else None
        if is_tokens and probes and not self._probed and self._context.gradients and model.training:
            embedding = next((one for one in model.modules() if isinstance(one, nn.Embedding)), None)
            if embedding is not None:
                self._watched = embedding.register_forward_hook(self._embeds)

    def _embeds(self, module: nn.Module, inputs: Any, output: Any) -> None:
        tokens = self._tokens
        is_first = self._embedded is None and tokens is not None and isinstance(output, torch.Tensor)
        if is_first and output.requires_grad and tokens is not None and output.ndim == 3:
            rows, positions = tokens.shape
            if tuple(output.shape[:2]) in ((rows, positions), (positions, rows)):
                self._embedded = output

    def leaves(self, model: nn.Module, output: Any, hooked: Callable[[], bool]) -> None:
        """A model has returned.

        ``hooked``: whether code of the script would see a backward pass.
        """
        if self._watched is not None:
            self._watched.remove()
            self._watched = None
        if not (isinstance(output, torch.Tensor) and output.ndim == 3):
            self._others = []  # a model that computes its loss gets the targets
        logits = _first_tensor(output) if self._tokens is not None else None
        is_of_tokens = logits is not None and logits.requires_grad and logits.shape[:2] == self._shape
        self._logits = logits if is_of_tokens and logits is not None and logits.ndim == 3 and is_plain(logits) else None
        embedded, self._embedded = self._embedded, None
        if embedded is None or self._probed:
            return
        self._probed = True
        if hooked():
            self._off("the model has backward hooks, which would see the probe")
            return
        logits = _first_tensor(output)
        if logits is None or logits.ndim != 3 or not logits.requires_grad or logits.shape[:2] != self._shape:
            return
        if not (is_plain(logits) and is_plain(embedded)) or logits.shape[1] < 5:
            return
        self._probe(model, logits, embedded)

    def _probe(self, model: nn.Module, logits: torch.Tensor, embedded: torch.Tensor) -> None:
        """Compute the gradient of one output with respect to the embedded tokens."""
        if not is_readable(logits):
            self._off("the graph contains functions that are written in Python")
            return
        rows, positions = logits.shape[:2]
        middle = positions // 2
        # The last row: a causal mask over the batch would hide that the first one depends on others.
        with torch.enable_grad():
            one = logits[-1, middle]
        sizes = sizes_of_gradient(one, embedded)
        if sizes is None:
            return
        if sizes.shape[:2] != logits.shape[:2]:  # the model exchanges rows and positions
            sizes = sizes.transpose(0, 1)
        normalized = any(isinstance(part, BATCH_NORMS) and part.training for part in model.modules())
        context, step = self._context, self._context.step

        are_rows = context.batch_rows == rows != positions

        def judge(of_row: Any, others: Any) -> None:
            self._sees_future = bool(of_row[middle + 1 :].max() > 0)
            self._is_code = self._sees_future and of_row[middle] <= _OWN * np.delete(of_row, middle).max()
            if normalized or not others.any():
                return
            if are_rows or np.delete(others, middle, axis=1).any():  # other rows, and other positions of them
                context.log.say("rows_mixed", step)
            else:
                self._mixes_rows = True

        others = sizes[:-1].amax(-1)[-_ROWS:]
        context.values.read(judge, sizes[-1].amax(-1), others)

    def _off(self, reason: str) -> None:
        self._context.log.off(("sees_future", "rows_mixed"), reason)

    def forget(self) -> None:
        """Drop the tokens of the last pass."""
        self._tokens = self._mask = self._logits = None
        self._others = []

    # --------------------------------------------------------------------------------------------------------- targets

    def look(self, call: LossCall) -> None:
        """Compare the targets of a loss with the tokens of the last pass."""
        tokens, target = self._tokens, call.target
        classes = call.input.shape[1] if call.input.ndim > 1 else 1
        if tokens is None or call.kind not in ("cross_entropy", "nll_loss"):
            return
        if target.is_floating_point() or not is_plain(target) or tokens.device != target.device:
            return
        if classes < _FEWEST_CLASSES:
            self._look_at_labels(call, tokens)
            return
        ignored, step = call.ignored, self._context.step
        for other in self._others:
            self._read_other(other, target, ignored, step)
        rows, positions = tokens.shape
        length = next((one for one in range(positions, max(0, positions - 3), -1) if target.numel() == rows * one), 0)
        if length < 5:
            return
        mask = self._mask if self._mask is not None and self._mask.shape == tokens.shape else None
        tensors = [tokens[:_ROWS, :_POSITIONS], target.reshape(rows, length)[:_ROWS, :_POSITIONS]]
        whole = length <= _POSITIONS

        def judge(tokens: _Tokens, targets: _Tokens, mask: _Tokens | None = None) -> None:
            self._compare(tokens, targets, ignored, step)
            if whole:
                self._padding(tokens, targets, mask, ignored, step)

        if length == positions - 1 and self._is_second(call.input, rows, length):
            # The first output is left out, so that the others are at the positions of their tokens.
            self._context.values.read(
                lambda tokens, targets: self._same(tokens, targets, ignored, step), tokens[:_ROWS, 1:], tensors[1]
            )
            return
        self._context.values.read(judge, *tensors, *([] if mask is None else [mask[:_ROWS, :_POSITIONS]]))

    def _is_second(self, input: torch.Tensor, rows: int, length: int) -> bool:
        """Whether a loss gets the output from its second position on."""
        logits = self._logits
        if logits is None or input.ndim != 2 or logits.shape[2] != input.shape[1] or logits.device != input.device:
            return False
        if input.shape[0] != rows * length or logits.device.type != "cpu":
            return False
        first = input[0].detach().log_softmax(-1)
        own = [logits[0, at].detach().log_softmax(-1) for at in (0, 1)]
        return not torch.allclose(first, own[0], atol=1e-4) and torch.allclose(first, own[1], atol=1e-4)

    def _look_at_labels(self, call: LossCall, tokens: torch.Tensor) -> None:
        """Look whether labels of tokens, such as tags, count at padding."""
        pad, step, ignored = self._pad, self._context.step, call.ignored
        if pad is None or call.target.numel() != tokens.numel() or call.reduction not in ("mean", "sum"):
            return

        def judge(tokens: _Tokens, labels: _Tokens) -> None:
            values = np.unique(labels[tokens == pad])
            if len(values) == 1 and values[0] != ignored and (tokens[:, -1] == pad).mean() > _PADDED:
                say = self._context.log.say
                say("padding_in_loss", step, {"what": "labels of padding", "token": pad}, need=2)

        rows = [one.reshape(tokens.shape)[:_ROWS, :_POSITIONS] for one in (tokens, call.target)]
        self._context.values.read(judge, *rows)

    def _read_other(self, other: torch.Tensor, target: torch.Tensor, ignored: int | None, step: int) -> None:
        """Read further tokens that may be the targets."""
        rows, positions = other.shape
        length, rest = divmod(target.numel(), max(1, rows))
        if rest or abs(length - positions) > 1 or length < 5 or other.device != target.device:
            return

        are_places_equal = length == positions <= _POSITIONS

        def judge(tokens: _Tokens, targets: _Tokens) -> None:
            self._same(tokens, targets, ignored, step)
            if are_places_equal:
                self._padding(tokens, targets, None, ignored, step)

        targets = target.reshape(rows, length)[:_ROWS, :_POSITIONS]
        self._context.values.read(judge, other[:_ROWS, :_POSITIONS], targets)

    def _same(self, tokens: _Tokens, targets: _Tokens, ignored: int | None, step: int) -> None:
        """Compare targets with the tokens of a decoder."""
        width = min(tokens.shape[1], targets.shape[1])
        counted = (targets != ignored)[:, :width]
        self._decodes = self._decodes or _is_shifted(tokens, targets, ignored)
        # The sequence may come first.
        self._decodes = self._decodes or _is_shifted(tokens.T, targets.T, ignored)
        varied = width > 4 and (tokens[:, 1:] == tokens[:, :-1]).mean() < _REPEATED
        if varied and counted.sum() >= 8 and (tokens[:, :width] == targets[:, :width])[counted].mean() > _EQUAL:
            self._context.log.say("labels_unshifted", step, need=2)

    def _compare(self, tokens: _Tokens, targets: _Tokens, ignored: int | None, step: int) -> None:
        counted = targets != ignored
        equal = {}
        for shift in (0, 1, 2):
            width = min(tokens.shape[1] - shift, targets.shape[1])
            use = counted[:, :width]
            if width > 4 and use.sum() >= 8:
                equal[shift] = float((targets[:, :width] == tokens[:, shift : shift + width])[use].mean())
        repeated = float((tokens[:, 1:] == tokens[:, :-1]).mean())
        if not equal or repeated >= _REPEATED:
            return
        shift = max(equal, key=lambda one: equal[one])
        if equal[shift] <= _EQUAL:
            return
        say = self._context.log.say
        if self._mixes_rows and shift:  # the targets show that the second dimension is that of the positions
            say("rows_mixed", step)
        if shift == 0:
            if not (self._decodes or self._is_code):
                # Most targets do not count where tokens are masked.
                say("targets_masked" if counted.mean() < _MASKED else "labels_unshifted", step, need=2)
        elif shift == 2:
            say("labels_shifted_twice", step, need=2)
        elif self._sees_future:
            say("sees_future", step, {"what": "tokens"})

    def _padding(self, tokens: _Tokens, targets: _Tokens, mask: _Tokens | None, ignored: int | None, step: int) -> None:
        if (targets[:, -1] == ignored).all():  # a model that shifts within the loss ignores the last position
            targets = targets[:, :-1]
            mask = mask[:, 1:] if mask is not None else None
        length = targets.shape[1]
        values, counts = np.unique(targets[:, -1], return_counts=True)
        token = values[counts.argmax()]
        runs = final_runs(targets, token)
        share = float((runs >= _RUN).mean())
        is_padding = token != ignored and share > _PADDED and runs.mean() < 0.95 * length and len(targets) > 1
        say = self._context.log.say
        if is_padding and _is_only_at_the_end(tokens, token):
            facts = {"what": f"token {int(token)} ends {share:.0%} of the rows", "token": int(token)}
            say("padding_in_loss", step, facts, need=2)
        elif mask is not None and mask.shape == targets.shape and (mask == 0).any():
            counted = (targets[mask == 0] != ignored).mean()
            if counted > 0.5:
                say("padding_in_loss", step, {"what": "targets of masked positions"}, need=2)


def final_runs(tokens: _Tokens, token: float) -> NDArray[np.int64]:
    """Return how many times a token ends each row."""
    runs: NDArray[np.int64] = np.cumprod(tokens[:, ::-1] == token, axis=1).sum(1)
    return runs


def _is_only_at_the_end(tokens: _Tokens, token: float) -> bool:
    """Whether a token is nearly always at the end of a row.

    The largest of sorted numbers is also elsewhere.
    """
    return bool(final_runs(tokens, token).sum() >= _AT_THE_END * (tokens == token).sum())


def _is_shifted(tokens: _Tokens, targets: _Tokens, ignored: int | None) -> bool:
    """Whether the targets are the tokens from the second one on."""
    width = min(tokens.shape[1], targets.shape[1])
    if width < 5:
        return False
    targets = targets[:, : width - 1]
    equal = (tokens[:, 1:width] == targets)[targets != ignored]
    return bool(equal.size) and float(equal.mean()) > _EQUAL


def _first_tensor(output: Any) -> torch.Tensor | None:
    logits = getattr(output, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    if isinstance(output, torch.Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    return next((one for one in values if isinstance(one, torch.Tensor) and one.ndim == 3), None)
