"""Values from records: every dtype, every kind of damage, and golden runs."""

import gc
import hashlib
import json
import mmap
import struct
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fixtures import unpacked
from smdwidgets import _core
from smdwidgets.exceptions import CorruptDataError, DataError, TruncatedDataError, UnsupportedDataError

GOLDEN = unpacked("golden")
CONSTANT = 0x062DC0B3
NUMBERS = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    """A field of the protobuf wire: an integer, or a length and bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(*fields: bytes) -> bytes:
    """The payload of an event with one tensor."""
    return field(5, field(1, field(1, b"x") + field(8, b"".join(fields))))


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, field(1, size)) for size in sizes))


def smdebug(payload: bytes) -> bytes:
    """A record with smdebug's constant instead of a checksum."""
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", _core.masked_crc(length)) + payload + struct.pack("<I", CONSTANT)


def record_of(array: np.ndarray, number: int) -> bytes:
    return smdebug(tensor(field(1, number), shape(*array.shape), field(4, array.tobytes())))


@pytest.mark.parametrize(("number", "dtype"), NUMBERS.items())
@pytest.mark.parametrize("sizes", [(), (3,), (2, 3), (0, 4), (1,) * 32])
def test_every_dtype_round_trips(number, dtype, sizes):
    array = np.arange(np.prod(sizes, dtype=int)).astype(dtype).reshape(sizes)
    value = _core.decode(record_of(array, number))
    assert (value.dtype, value.shape) == (np.dtype(dtype), sizes)
    assert value.tobytes() == array.tobytes()


def test_int8_is_signed():
    assert _core.decode(record_of(np.array([-1], "i1"), 6)).tolist() == [-1]


def test_bfloat16_uses_ml_dtypes():
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    value = _core.decode(record_of(array, 14))
    assert value.dtype == array.dtype
    assert value.tolist() == [1.5, -2.0]


def test_bfloat16_error_names_ml_dtypes(run_python):
    code = f"""
import sys
sys.modules["ml_dtypes"] = None
from smdwidgets import _core
try:
    _core.decode({record_of(np.array([1], ml_dtypes.bfloat16), 14)!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    output = run_python(code)
    assert output.startswith("UnsupportedDataError")
    assert "ml_dtypes" in output


class TestBuffers:
    array = np.arange(1000, dtype="f4")
    record = record_of(array, 1)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, "u1").copy()])
    def test_value_is_a_writable_copy_of_any_buffer(self, kind):
        data = kind(self.record)
        value = _core.decode(data)
        assert value.tobytes() == self.array.tobytes()
        assert value.flags.writeable
        assert value.flags.aligned
        value[...] = 7
        assert bytes(data) == self.record
        assert _core.decode(data).tobytes() == self.array.tobytes()

    def test_value_of_one_byte_is_not_a_shared_bytes_object(self):
        value = _core.decode(record_of(np.array([True]), 10))
        value[...] = False
        assert bytes([1])[0] == 1

    def test_value_does_not_lock_its_buffer(self, tmp_path):
        path = tmp_path / "events"
        path.write_bytes(b"12345" + self.record)
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        value = _core.decode(data, 5)
        data.close()
        assert value.tobytes() == self.array.tobytes()

    def test_a_buffer_that_another_thread_writes_is_read_in_one_state(self):
        states = [record_of(np.full(1 << 18, value, "f4"), 1) for value in (1, 2)]
        buffer, stop = bytearray(states[0]), threading.Event()

        def write():
            while not stop.is_set():
                for state in states:
                    buffer[:] = state

        writer = threading.Thread(target=write)
        writer.start()
        try:
            values = [np.unique(_core.decode(buffer)).tolist() for _ in range(100)]
        finally:
            stop.set()
            writer.join()
        assert all(value in ([1.0], [2.0]) for value in values)

    def test_memory_of_an_array_cannot_be_resized(self):
        value = _core.decode(self.record)
        memory = value.base
        assert repr(memory) == "<Memory, 4000 bytes>"
        assert not hasattr(memory, "clear")
        with memoryview(memory) as view:
            assert (view.nbytes, view.readonly) == (4000, False)
        del value
        gc.collect()
        with memoryview(memory) as view:
            assert bytes(view) == self.array.tobytes()

    def test_non_contiguous_buffers_are_rejected(self):
        with pytest.raises(BufferError, match="C-contiguous"):
            _core.decode(np.zeros(100, "u1")[::2])

    def test_offsets(self):
        data = record_of(np.array([1], "u1"), 4) + record_of(np.array([2], "u1"), 4)
        assert _core.decode(data, len(data) // 2).tolist() == [2]
        for offset in (len(data), 10**6):
            with pytest.raises(TruncatedDataError):
                _core.decode(data, offset)
        with pytest.raises(OverflowError):
            _core.decode(data, -1)


class TestText:
    @given(
        hnp.arrays(
            "U5",
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            elements=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
        )
    )
    def test_any_rank(self, array):
        payload = tensor(shape(*array.shape), *(field(8, str(x).encode()) for x in array.reshape(-1)))
        value = _core.decode(smdebug(payload))
        assert value.dtype.kind == "U"
        assert value.shape == array.shape
        assert (value == array).all()
        assert value.flags.writeable

    def test_invalid_utf8_is_an_error(self):
        with pytest.raises(CorruptDataError, match="UTF-8"):
            _core.decode(smdebug(tensor(shape(1), field(8, b"\xff"))))

    def test_padding_of_strings_is_limited(self):
        long, count = b"x" * 100_000, 10_000
        payload = tensor(shape(count + 1), field(8, long), *(field(8, b"a") for _ in range(count)))
        value = _core.decode(smdebug(payload))
        assert value.dtype.kind == "O"
        assert value[0] == long.decode()
        assert value[-1] == "a"


class TestDamage:
    record = record_of(np.arange(6, dtype="f4").reshape(2, 3), 1)

    def test_truncated_data_is_an_error_at_every_length(self):
        for size in range(len(self.record)):
            with pytest.raises(TruncatedDataError, match="byte 0: truncated data"):
                _core.decode(self.record[:size])

    @given(st.integers(0, len(record) * 8 - 1))
    def test_flipped_bit_is_an_error_or_changes_only_values(self, bit):
        data = bytearray(self.record)
        data[bit // 8] ^= 1 << bit % 8
        try:
            value = _core.decode(bytes(data))
        except DataError:
            return
        assert value.size <= len(self.record)
        assert 12 <= bit // 8 < len(self.record) - 4

    @given(st.binary(max_size=200))
    def test_random_bytes_are_an_error(self, payload):
        with pytest.raises(DataError):
            _core.decode(payload)
        try:
            _core.decode(smdebug(payload))
        except DataError as error:
            assert "byte" in str(error)  # noqa: PT017

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ([field(1, 1), shape(3), field(4, b"1234")], CorruptDataError),
            ([field(1, 1), shape(-1), field(4, b"1234")], CorruptDataError),
            ([field(1, 1), shape(2**62), field(4, b"1234")], CorruptDataError),
            ([field(1, 1), shape(*[1] * 65), field(4, b"1234")], UnsupportedDataError),
            ([field(1, 29), shape(1), field(4, b"1")], UnsupportedDataError),
            ([field(1, 1), shape(2**40), field(5, b"1234")], UnsupportedDataError),
        ],
    )
    def test_invalid_tensors(self, fields, error):
        with pytest.raises(error):
            _core.decode(smdebug(tensor(*fields)))

    def test_message_names_the_offset(self):
        data = b"?" * 1000 + self.record
        with pytest.raises(CorruptDataError, match="byte 999: record header checksum mismatch"):
            _core.decode(data, 999)


def test_threads_read_the_same_values():
    records = [
        _core.write_record(tensor(field(1, 1), shape(50_000), field(4, struct.pack("<f", i) * 50_000)))
        for i in range(4)
    ]
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(i for i in list(range(4)) * 20 if not (_core.decode(records[i]) == i).all())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_checksums():
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.masked_crc(b"0x12345678") == CONSTANT
    big = np.arange(100_000, dtype="f8")
    assert _core.crc32c(big) == _core.crc32c(big.tobytes())


def test_references_are_released():
    data = bytes(record_of(np.zeros(10), 2))
    before = sys.getrefcount(data)
    for _ in range(100):
        _core.decode(data)
        _core.crc32c(data)
    assert sys.getrefcount(data) == before


class TestGolden:
    """Runs that smdebug 1.0.34 wrote, compared with its own results."""

    @staticmethod
    def values(run: Path):
        for index in sorted(run.glob("run/index/*/*.json")):
            content = json.loads(index.read_text())
            events = run / "run" / content["meta"]["event_file_name"]
            for entry in content["tensor_payload"]:
                yield index.name[:12], entry["tensorname"], events, entry["start_idx"], entry["length"]

    @staticmethod
    def digest(value: np.ndarray) -> dict[str, object]:
        data = json.dumps(value.reshape(-1).tolist()).encode() if value.dtype.kind == "U" else value.tobytes()
        dtype = "str" if value.dtype.kind == "U" else value.dtype.name
        return {"dtype": dtype, "shape": list(value.shape), "sha256": hashlib.sha256(data).hexdigest()}

    @pytest.mark.parametrize(
        "name", ["core_dtypes", "core_scalars_and_empty", "core_special_values", "core_strings", "full_crc_events"]
    )
    def test_values_equal_those_of_smdebug_where_it_can_read_them(self, name):
        oracle = json.loads((GOLDEN / name / "oracle.json").read_text())["tensors"]
        seen = 0
        for step, tensor_name, events, start, length in self.values(GOLDEN / name):
            data = events.read_bytes()
            value = _core.decode(data[start : start + length])
            assert value.tobytes() == _core.decode(data, start).tobytes()
            expected = oracle[tensor_name]["at"][str(int(step))]["value"]
            seen += 1
            if "raises" in expected or "none" in expected:
                # What smdebug writes but cannot read: five dtypes, tensors without elements, and true checksums.
                assert value.size == 0 or value.dtype.name in NUMBERS.values()
                continue
            if tensor_name == "dtype/int8":
                assert value.dtype == np.int8
                expected = expected | {"dtype": "int8"}
            assert self.digest(value) == {key: expected[key] for key in ("dtype", "shape", "sha256")}
        assert seen

    def test_damaged_files_fail_individually(self):
        found = {}
        for step, _, events, start, length in self.values(GOLDEN / "corrupt_events"):
            try:
                found[int(step)] = _core.decode(events.read_bytes()[start : start + length]).shape
            except DataError as error:
                found[int(step)] = type(error)
        assert found == {
            0: (8,), 1: TruncatedDataError, 2: CorruptDataError, 3: CorruptDataError, 4: (8,), 5: CorruptDataError,
            6: TruncatedDataError,
        }  # fmt: skip
