"""NLPSequenceRatio."""

from __future__ import annotations

import numpy as np

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Numbers, RuleParameterError
from smdwidgets.rules.selector import Selector


class NLPSequenceRatio(BuiltinRule):
    """Detect input sequences dominated by one token, such as padding or "unknown".

    Fires when the share of one of the `token_values` among all tokens of a step exceeds its limit in
    `token_thresholds_percent`. Limits are in the same order as the values; a single limit applies to all values. All
    workers and all matching tensors are counted together.

    What to do: for padding, batch sequences of similar length. For unknown tokens, use a larger or different
    vocabulary.
    """

    collections = {"input_sequence": {"include_regex": ".*embedding0_input_0", "save_interval": "500"}}

    tensor_regex = regex_parameter(
        (
            r".*embedding\d+_input_0",
            r"(?i)^(?!gradient).*embed[^/]*(_|/)input",
            r"(?i)(^|[/_.])(input_ids|token_ids|tokens)([/_.:]|$)",
        ),
        documented=".*embedding0_input_0",
    )
    token_values = Numbers((0.0,), "Tokens to count.")
    token_thresholds_percent = Numbers((50.0,), "Maximum share of each token in percent.")

    def check(self) -> None:
        if len(self.token_thresholds_percent) not in (1, len(self.token_values)):
            raise RuleParameterError(
                f"{self.rule_name} got {len(self.token_thresholds_percent)} token_thresholds_percent for "
                f"{len(self.token_values)} token_values; pass one threshold, or one per value"
            )

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex)

    def judge(self, step: int) -> None:
        selector = self.selector
        self.rows(selector, step)
        tokens, counts = self.measurements.cached(
            ("tokens", selector, step, self.token_values), lambda: self._count(selector, step)
        )
        if not tokens:
            raise NothingToJudge("the tensors at this step hold no tokens")
        limits = self.token_thresholds_percent
        name = self.measurements.names(selector, step)[0]
        for at, (token, count) in enumerate(zip(self.token_values, counts, strict=True)):
            limit = limits[at if len(limits) > 1 else 0]
            share = 100.0 * count / tokens
            if share > limit:
                message = f"{number(share)} % of {tokens} tokens are {number(token)}, limit {number(limit)} %"
                self.blame(name, step, share, limit, message)

    def _count(self, selector: Selector, step: int) -> tuple[int, list[int]]:
        tokens, counts = 0, [0] * len(self.token_values)
        for name, worker in self.rows(selector, step):
            try:
                value = self.measurements.value(name, step, worker)
            except SMDebugError:
                continue
            if value.dtype.kind not in "fiub":
                continue
            tokens += value.size
            for at, token in enumerate(self.token_values):
                counts[at] += int(np.count_nonzero(value == token))
        return tokens, counts
