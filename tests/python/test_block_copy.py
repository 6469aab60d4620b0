"""Copies of blocks of memory."""

import numpy as np
import pytest

from smdwidgets import _core


@pytest.mark.parametrize("size", [0, 1, 100, 65_535, 65_536, 65_600, 1_000_003])
@pytest.mark.parametrize("skipped", [0, 1, 60])
def test_bytes_are_equal(size, skipped):
    source = np.random.default_rng(0).integers(0, 255, size, "u1")
    memory = np.full(size + 200, 7, "u1")
    _core.copy(source, memory[skipped : skipped + size])
    assert memory[skipped : skipped + size].tobytes() == source.tobytes()
    assert (memory[:skipped] == 7).all()
    assert (memory[skipped + size :] == 7).all()


def test_element_types_and_shapes_do_not_matter():
    source = np.arange(40_000, dtype="f8").reshape(100, 400)
    target = np.empty(320_000, "u1")
    _core.copy(source, target)
    assert target.view("f8").tolist() == source.ravel().tolist()


def test_unsuitable_memory_is_refused():
    array = np.zeros(100, "u1")
    for source, target in (
        (array, np.zeros(99, "u1")),
        (array[:50], array[25:75]),
    ):
        with pytest.raises(ValueError, match=r"cannot copy 100 bytes into 99|share memory"):
            _core.copy(source, target)
    for source, target in ((array[::2], np.zeros(50, "u1")), (array, np.zeros(200, "u1")[::2]), (array, b"x" * 100)):
        with pytest.raises(BufferError):
            _core.copy(source, target)
