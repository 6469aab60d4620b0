"""Change every byte of every golden run, and truncate files at every length.

Each read gives the correct value or a typed error, if the damage can be detected. In smdebug's own records a flipped
byte of a number cannot be detected, because their checksum is a constant. All other damage can: framing, names, steps,
modes, the files that an index file names; and everything with a true checksum.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import campaign
from faults.golden import InMemory, entries_of, key_of, same
from python.trials import golden
from smdwidgets import _core, create_trial
from smdwidgets.exceptions import SMDebugError

#: Larger files are sampled, also in the long campaign.
SMALL = 64 << 10
#: Memory that reading may need in addition to twice the file size.
SPARE = 48 << 20


def places(content: bytes, short: int, chance: random.Random) -> Iterator[int]:
    """Return the offsets of bytes to change: all of a small file in the long campaign."""
    if len(content) > SMALL:
        yield from sorted(chance.sample(range(len(content)), campaign.size(short, SMALL)))
    else:
        yield from campaign.some(range(len(content)), short, chance)


def changed(content: bytes, at: int, chance: random.Random) -> Iterator[bytes]:
    """Yield a byte inverted, and with one bit flipped."""
    for mask in (0xFF, 1 << chance.randrange(8)):
        yield content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


@pytest.fixture(params=golden.NAMES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> InMemory:
    return InMemory.load(request.param, tmp_path)


def test_event_files(run: InMemory) -> None:
    chance = campaign.rng("events", run.name)
    by_file: dict[str, list[_core.Entry]] = {}
    for entry in run.entries.values():
        by_file.setdefault(entry.event_key, []).append(entry)
    with campaign.tally(f"event files {run.name}") as counts:
        for file, entries in campaign.some(sorted(by_file.items()), 20, chance):
            content = run.files[file]
            for at in places(content, 150, chance):
                hit = next((e for e in entries if e.offset <= at < e.offset + e.length), None)
                if hit is None:
                    continue
                right, record, inside = run.values[key_of(hit)], run.record(hit), at - hit.offset
                for wrong in changed(record, inside, chance):
                    counts["flipped"] += 1
                    outcome = judge(hit, wrong, right)
                    counts[outcome] += 1
                    is_payload = 12 <= inside < hit.length - 4
                    assert outcome != "other" or (is_payload and not run.is_vouched(hit)), (hit.name, file, at)
                counts["cut"] += 1
                # For a truncated file, only the header of the last record before the cut is still valid.
                outcome = judge(hit, record[:inside], right)
                counts[outcome] += 1
                assert outcome == "refused", (hit.name, file, at)
    assert campaign.LONG or counts["flipped"] or not run.values


def judge(entry: _core.Entry, record: bytes, right: object) -> str:
    try:
        value = entry.decode(record)
    except SMDebugError:
        return "refused"
    return "right" if same(value, right) else "other"  # type: ignore[arg-type]


def judge_index(run: InMemory, file: str, content: bytes, counts: Counter[str]) -> None:
    """Read a changed index file: each value is correct or rejected."""
    counts["index files"] += 1
    entries = entries_of({file: content})
    counts["index files refused"] += not entries
    doubled = run.doubled(file)
    for entry in entries:
        if run.is_as_it_was(entry):
            counts["right"] += 1
            continue
        record = run.record(entry)
        right = run.values.get(key_of(entry))
        try:
            value = entry.decode(record)
        except SMDebugError:
            counts["refused"] += 1
            continue
        assert right is not None, (file, entry.name, "a value where none was saved")
        if not same(value, right):
            # The last of several entries with a name counts; whether there was a later one cannot be detected.
            assert entry.name in doubled, (file, entry.name, content)
            counts["other"] += 1
            continue
        # Modes in smdebug's own records sometimes contradict their index files, so that damage cannot be detected.
        known = run.entries[key_of(entry)]
        assert entry.crc is None or (entry.mode, entry.mode_step) == (known.mode, known.mode_step), (file, content)
        counts["right"] += 1


def test_index_files(run: InMemory) -> None:
    chance = campaign.rng("index", run.name)
    with campaign.tally(f"index files {run.name}") as counts:
        for file, content in campaign.some(sorted(run.indexes().items()), 8, chance):
            for at in places(content, 60, chance):
                for wrong in changed(content, at, chance):
                    judge_index(run, file, wrong, counts)
                judge_index(run, file, content[:at], counts)


def test_whole_runs(run: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same through a trial on a directory: opened, listed, and read in all ways."""
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0")
    # A missing event file is waited for, 200 seconds in a run that has not ended.
    monkeypatch.setenv("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", "0")
    chance = campaign.rng("runs", run.name)
    root = tmp_path / "whole"
    for key, content in run.files.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(content)
    ask_everything(run, root, {}, Counter())  # once, so that lazy loading does not count as growth
    before, largest = campaign.most_memory(), max(map(len, run.files.values()))
    with campaign.tally(f"whole runs {run.name}") as counts:
        for _ in range(campaign.size(6, 150)):
            key = chance.choice(sorted(key for key, content in run.files.items() if content))
            content = run.files[key]
            at = chance.randrange(len(content))
            wrong = chance.choice([*changed(content, at, chance), content[:at]])
            (root / key).write_bytes(wrong)
            counts["runs"] += 1
            ask_everything(run, root, {key: wrong}, counts)
            (root / key).write_bytes(content)
    assert campaign.most_memory() - before <= 2 * largest + SPARE
    shutil.rmtree(root)


def ask_everything(run: InMemory, root: Path, wrong: dict[str, bytes], counts: Counter[str]) -> None:
    try:
        trial = create_trial(root, wait=0, skip_bad_index=True)
    except SMDebugError:
        counts["not opened"] += 1
        return
    with trial:
        trial.refresh_data()
        trial.steps(show_incomplete_steps=True)
        for name in trial.tensor_names():
            tensor = trial.tensor(name)
            for step in tensor.steps(show_incomplete_steps=True):
                for worker in tensor.workers(step):
                    counts[judge_value(run, tensor, step, worker, wrong)] += 1
        try:
            table = trial.values(worker="*")
        except SMDebugError:
            return
        counts["refused"] += len(table.errors)
        rows = zip(table["name"], table["step"], table["worker"], table["value"], strict=True)
        for name, step, worker, value in rows:
            right = run.values.get((name, step, worker))
            assert right is not None
            if not same(right, right.dtype.type(value) if right.shape == () else value):
                assert undetectable(run, (name, step, worker), wrong), (name, step, worker)


def judge_value(run: InMemory, tensor, step: int, worker: str, wrong: dict[str, bytes]) -> str:
    key = (tensor.name, step, worker)
    try:
        value = tensor.value(step, worker=worker)
        tensor.shape(step, worker=worker)
        tensor.reduction_values(step, worker=worker)
    except SMDebugError:
        return "refused"
    right = run.values.get(key)
    assert right is not None, key
    if same(value, right):
        return "right"
    assert undetectable(run, key, wrong), key
    return "other"


def undetectable(run: InMemory, key: tuple[str, int, str], wrong: dict[str, bytes]) -> bool:
    """Return whether the damage is undetectable.

    It is in the payload of a record whose checksum is a constant.
    """
    entry = run.entries[key]
    if entry.index_key in wrong:
        return entry.name in run.doubled(entry.index_key)
    return entry.event_key in wrong and not run.is_vouched(entry)
