"""Nested values as JSON, and back."""

from __future__ import annotations

import collections
import dataclasses
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets.replay.tree import Lost, decode, encode, mapped

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
NESTED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(st.text(), inner).map(collections.OrderedDict)
        | st.lists(inner).map(collections.deque)
        | st.sets(st.integers())
    ),
    max_leaves=30,
)


@given(NESTED)
def test_every_nested_value_reads_back(value):
    text = json.dumps(encode(value, lambda leaf: None), allow_nan=False)
    assert decode(json.loads(text), str) == value


@given(NESTED)
def test_mapping_copies_containers_and_changes_nothing(value):
    assert mapped(value, lambda leaf: leaf) == value


def test_tensors_are_kept_elsewhere():
    arrays = {}

    def keep(leaf):
        if isinstance(leaf, np.ndarray):
            arrays[str(len(arrays))] = leaf
            return str(len(arrays) - 1)
        return None

    value = {"x": np.arange(3), "more": (np.ones(2), np.float32(0.5), np.int64(7))}
    read = decode(json.loads(json.dumps(encode(value, keep))), arrays.__getitem__)
    assert read["x"] is arrays["0"]
    assert read["more"][1:] == (0.5, 7)


def test_classes_of_batches_are_kept_in_the_process():
    Row = collections.namedtuple("Row", "x y")

    @dataclasses.dataclass(frozen=True)
    class Batch:
        rows: list
        name: str = "a"

    words = collections.UserDict({"ids": [1, 2]})
    batch = mapped([Row(1, 2), Batch([3]), words, collections.Counter(a=2)], lambda leaf: leaf * 2)
    assert batch == [Row(2, 4), Batch([6], "aa"), {"ids": [2, 4]}, collections.Counter(a=4)]
    assert [type(one) for one in batch] == [Row, Batch, collections.UserDict, collections.Counter]
    assert words["ids"] == [1, 2]


def test_other_objects_and_endless_containers_are_lost_by_name():
    endless: list = []
    endless.append(endless)
    assert "too many containers" in json.dumps(encode(endless, lambda leaf: None))
    assert decode(encode(object(), lambda leaf: None), str) == Lost("builtins.object")
