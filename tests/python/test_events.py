"""Events of TensorBoard logs in memory, with and without damage."""

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdwidgets import _core


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def event(step: int, *values: bytes) -> bytes:
    wall_time = b"\x09" + struct.pack("<d", 100.0 + step)
    summary = b"".join(field(1, value) for value in values)
    return _core.write_record(wall_time + field(2, step) + field(5, summary))


def metadata(plugin: str, **more: bytes) -> bytes:
    return field(
        9, field(1, field(1, plugin.encode())) + field(2, more.get("name", b"")) + field(3, more.get("text", b""))
    )


def scalar_tensor(tag: str, dtype: int, content: bytes) -> bytes:
    return field(1, tag.encode()) + field(8, field(1, dtype) + field(2, b"") + field(4, content)) + metadata("scalars")


class TestEvents:
    def test_scalars_of_old_and_new_writers(self):
        log = _core.version_record(99.0)
        log += b"".join(_core.scalar_record("old", step, 100.0 + step, step / 2) for step in range(5))
        log += event(
            7, scalar_tensor("new", 1, struct.pack("<f", 0.5)), scalar_tensor("double", 2, struct.pack("<d", 0.1))
        )
        log += event(8, scalar_tensor("new", 1, struct.pack("<f", 0.25)))
        events = _core.read_events(log)
        assert events.version == "brain.Event:2"
        assert list(events.scalars) == ["old", "new", "double"]
        steps, wall_times, values = events.scalars["old"]
        assert (steps.tolist(), values.tolist()) == ([0, 1, 2, 3, 4], [0.0, 0.5, 1.0, 1.5, 2.0])
        assert wall_times.tolist() == [100.0, 101.0, 102.0, 103.0, 104.0]
        assert [column.tolist() for column in events.scalars["new"]] == [[7, 8], [107.0, 108.0], [0.5, 0.25]]
        assert events.scalars["double"][2].tolist() == [0.1]
        assert (events.problems, events.others, events.end) == ([], [], len(log))

    def test_other_values_are_decoded_on_access(self):
        content = np.arange(6, dtype="f4")
        tensor = field(8, field(1, 1) + field(2, field(2, field(1, 6))) + field(4, content.tobytes()))
        pictures = field(8, field(1, 7) + field(2, field(2, field(1, 2))) + field(8, b"\x89PNG") + field(8, b"\xff"))
        image = field(4, field(1, 2) + field(2, 3) + field(3, 1) + field(4, b"\x89PNG"))
        audio = field(
            6,
            b"\x0d" + struct.pack("<f", 8000) + field(2, 1) + field(3, 9) + field(4, b"RIFF") + field(5, b"audio/wav"),
        )
        log = event(
            3,
            *(field(1, tag) + value for tag, value in ((b"t", tensor), (b"s", pictures), (b"i", image), (b"a", audio))),
        )
        log += event(4, field(1, b"t") + tensor + metadata("mine", name=b"T", text=b"of *it*"))
        log += _core.write_record(field(4, b"a graph"))
        bounds = {"min": 0.0, "max": 4.0, "num": 3.0, "sum": 5.0, "sum_squares": 9.0}
        log += _core.histogram_record("h", 5, 1.0, [1.0, 4.0], [2.0, 1.0], **bounds)
        t, s, i, a, named, h = _core.read_events(log).others
        assert [x.kind for x in (t, s, i, a, h)] == ["tensor", "tensor", "image", "audio", "histogram"]
        assert (t.tag, t.step, t.wall_time, t.plugin) == ("t", 3, 103.0, "")
        assert (named.plugin, named.display_name, named.description, named.step) == ("mine", "T", "of *it*", 4)
        assert t.value.tolist() == content.tolist()
        assert t.value.flags.writeable
        assert s.value.tolist() == [b"\x89PNG", b"\xff"]
        assert i.value == {"height": 2, "width": 3, "colorspace": 1, "encoded": b"\x89PNG"}
        assert (a.value["sample_rate"], a.value["frames"], a.value["encoded"]) == (8000.0, 9, b"RIFF")
        histogram = h.value
        assert (histogram.pop("limits").tolist(), histogram.pop("counts").tolist()) == ([1.0, 4.0], [2.0, 1.0])
        assert histogram == bounds
        assert repr(h) == "<Event histogram 'h' at step 5>"

    def test_incomplete_record_is_not_read(self):
        parts = [_core.scalar_record("loss", step, 0.0, step) for step in range(3)]
        ends = [0, *itertools.accumulate(len(part) for part in parts)]
        log = b"".join(parts)
        for size in range(len(log) + 1):
            events = _core.read_events(log[:size])
            whole = max(n for n, end in enumerate(ends) if end <= size)
            assert not events.problems
            assert events.end == ends[whole]
            assert sum(len(steps) for steps, _, _ in events.scalars.values()) == whole

    @given(st.integers(0, 10**6), st.integers(0, 7))
    def test_one_damaged_record_is_one_problem(self, place, bit):
        records = [_core.scalar_record("loss", step, 0.0, step) for step in range(5)]
        log = bytearray(b"".join(records))
        place %= len(log) - len(records[-1])
        log[place] ^= 1 << bit
        hit, at = 0, 0
        while at + len(records[hit]) <= place:
            at += len(records[hit])
            hit += 1
        events = _core.read_events(bytes(log))
        assert events.scalars["loss"][0].tolist() == [step for step in range(5) if step != hit]
        [(offset, message)] = events.problems
        assert offset == at
        assert message.endswith(f"at byte {at + len(records[hit])}")

    @given(st.binary(max_size=300))
    def test_arbitrary_bytes_do_not_raise(self, payload):
        _core.read_events(payload)
        events = _core.read_events(_core.write_record(payload))
        assert len(events.problems) <= 1
        for other in events.others:
            assert isinstance(repr(other), str)


def test_histogram_requires_a_count_for_each_limit():
    with pytest.raises(ValueError, match="2 limits but 1 counts"):
        _core.histogram_record("h", 0, 0.0, [1.0, 2.0], [1.0], min=0, max=0, num=0, sum=0, sum_squares=0)
