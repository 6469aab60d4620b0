"""Names with any number are looked for without trying all numbers."""

from __future__ import annotations

import re

import pytest

from smdwidgets.config import Collection
from smdwidgets.hooks.capture import save_spec
from smdwidgets.hooks.capture.save_spec import Patterns

PREFIXES = ("fc1_output_", "relu_input_", "layers.12.attention_output_", "optimizer/Adam_output_")
PATTERNS = (
    "relu",
    "^optimizer/[^/]+/(learning_rate_\\d+|gradient_norm)",
    "[Ll]oss_(?!input).*output",
    "^(?!gradient/|optimizer/).*_(input|output)_\\d+$",
    "output_[^a]$",
    "output_[^a][^a]$",
    "output_.[0-9]$",
    "output_..$",
    "_output_1$",
    "attention_output_(7|900)$",
    "output_[13-5]$",
    "^fc1_output_\\w{2}$",
    "input_$",
    "layers\\.1[2-4]\\..*output_0",
    "layers\\.3\\d",
)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_numbers_that_are_tried_are_enough(pattern, prefix):
    collection = Collection("chosen", include_regex=[pattern])
    expected = any(re.search(pattern, f"{prefix}{number}") for number in range(2000))
    assert Patterns().match_numbered(collection, prefix) == expected


def test_most_patterns_take_one_try(monkeypatch):
    tried = []
    is_found = save_spec.is_found
    monkeypatch.setattr(save_spec, "is_found", lambda *what: tried.append(what) or is_found(*what))
    patterns = ["^(?!gradient|optimizer/).*weight", "^gradient", "[Ll]oss_(?!input).*output", PATTERNS[1]]
    assert not Patterns().match_numbered(Collection("chosen", include_regex=patterns), "fc1_output_")
    assert len(tried) <= len(patterns)
