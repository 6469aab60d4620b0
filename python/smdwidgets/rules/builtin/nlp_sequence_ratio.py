"""NLPSequenceRatio."""

from __future__ import annotations

import numpy as np

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Numbers, RuleParameterError
from smdwidgets.rules.selector import Selector


class NLPSequenceRatio(BuiltinRule):
    """Too large a part of the input sequences is one token, such as padding or "unknown".

    Fires when of all tokens of a step more than the given percentage have one of the `token_values`. Each value has its own
    percentage in `token_thresholds_percent`, in the same order; a single percentage holds for all. Workers and several tensors count
    together.

    What to do: for padding, batch sequences of like length; for unknown tokens, a larger or other vocabulary.
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
    token_thresholds_percent = Numbers((50.0,), "For each of them the largest tolerated share.")

    def check(self) -> None:
        if len(self.token_thresholds_percent) not in (1, len(self.token_values)):
            raise RuleParameterError(
                f"{self.rule_name}: {len(self.token_values)} token_values need as many token_thresholds_percent, or one, not "
                f"{len(self.token_thresholds_percent)}."
            )

    def judge(self, step: int) -> None:
        selector = Selector((), self.tensor_regex)
        self.rows(selector, step)
        tokens, counts = self.measurements.kept(
            ("tokens", selector, step, self.token_values), lambda: self._count(selector, step)
        )
        if not tokens:
            raise NothingToJudge("the tensors of this step hold no tokens")
        limits = self.token_thresholds_percent
        name = self.measurements.names(selector, step)[0]
        for at, (token, count) in enumerate(zip(self.token_values, counts, strict=True)):
            limit = limits[at if len(limits) > 1 else 0]
            share = 100.0 * count / tokens
            if share > limit:
                message = f"{number(share)} % of {tokens} tokens are {number(token)}, {number(limit)} % is tolerated"
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
