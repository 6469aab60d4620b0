"""Traits of version 0.1.0 that `query` has replaced."""

import warnings

import numpy as np
import pytest

import smdwidgets
from python.widgets.talk import begin, end, save
from smdwidgets.widgets.replaced_traits import query_of


@pytest.fixture
def run(tmp_path):
    root = begin(tmp_path / "run")
    save(root, 0, {"fc.weight": np.ones(3, np.float32)})
    return end(root)


@pytest.mark.parametrize(
    ("text", "kind", "query"),
    [
        ("", "fuzzy", ""),
        ("  ", "regex", ""),
        ("layers.3 q_proj", "fuzzy", "layers.3*q_proj"),
        ('a|b "c"', "fuzzy", r"a\|b*\"c\""),
        ("gradient/fc", "fuzzy", r"gradient\/fc"),
        ("/^fc/", "fuzzy", "/^fc/"),
        ("/^fc", "fuzzy", "/^fc/"),
        ("^fc/w", "regex", r"/^fc\/w/"),
        (r"a\/b", "regex", r"/a\/b/"),
    ],
)
def test_old_filter_becomes_a_query(text, kind, query):
    assert query_of(text, kind) == query


def test_old_arguments_warn_at_the_call(run):
    with pytest.warns(DeprecationWarning, match="'filter' will be removed") as caught:
        widget = smdwidgets.widgets.Explorer(run, filter="^fc", filter_kind="regex")
    assert caught[0].filename == __file__
    assert widget.query == "/^fc/"
    widget.close()


def test_old_attributes_warn_and_set_the_query(run):
    widget = smdwidgets.explore(run)
    with pytest.warns(DeprecationWarning, match="'filter'") as caught:
        widget.filter = "fc weight"
    assert caught[0].filename == __file__
    assert widget.query == "fc*weight"
    with pytest.warns(DeprecationWarning, match="'filter_kind'"):
        widget.filter_kind = "regex"
    assert widget.query == "/fc weight/"
    with pytest.warns(DeprecationWarning, match="'filter"):
        assert (widget.filter, widget.filter_kind) == ("fc weight", "regex")
    widget.close()


def test_query_does_not_warn(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        widget = smdwidgets.explore(run, query="fc | l2")
    assert "filter" not in widget.trait_names()
    widget.close()
