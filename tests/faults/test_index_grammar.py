"""Malformed index files: wrong types, missing or repeated keys, invalid numbers.

Values are correct or rejected whatever an index file contains: names, steps, modes and lengths are compared with the
records.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from faults import campaign
from faults.golden import InMemory
from faults.test_flipped_bytes import judge_index
from python.trials import golden, runs
from smdwidgets import modes

#: JSON as text, because Python objects have no repeated keys and no numbers like 1e999.
NUMBERS = (
    "0 -0 1 -1 1.5 0.0 1e3 1E400 -1e400 1e-400 9007199254740992 9007199254740993 18446744073709551615 18446744073709551616 "
    "-9223372036854775809 NaN Infinity -Infinity 0x10 01 +1 .5 1. 1_000 " + "9" * 400
).split()
STRINGS = [
    '""',
    '" "',
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u202egnp"',
    '"e\\u0301"',
    '"\\uFEFF"',
    '"' + "a" * 100_000 + '"',
    '"../../etc/passwd"',
    '"/etc/passwd"',
    '"events"',
    '"12"',
    '"TRAIN"',
    '"unterminated',
    "'single'",
    '"\\x41"',
    '"tab\there"',
]
OTHERS = ["null", "true", "false", "{}", "[]", "[[]]", '{"a": 1}', "nul", "", "[" * 5_000, '{"a":' * 5_000]
TRAILS = ["", " ", "\n", ",", "}", "]", "{}", "\x00", "// comment", "garbage", "\ufeff"]


class Text(str):
    """JSON text that is used unchanged."""


def text_of(value: object) -> str:
    """JSON of lists, with objects as lists of pairs."""
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(part)}" for key, part in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return json.dumps(value)


class Pairs(list):
    """An object with possibly repeated keys, in any order."""


def nodes(value: object) -> list[tuple[list, int]]:
    """Return all positions of values in a document: the containing list and the index."""
    found: list[tuple[list, int]] = []
    if isinstance(value, Pairs):
        for at, (_, part) in enumerate(value):
            found.append((value, at))
            found += nodes(part)
    elif isinstance(value, list):
        for at, part in enumerate(value):
            found.append((value, at))
            found += nodes(part)
    return found


def get(place: tuple[list, int]) -> object:
    within, at = place
    return copy.deepcopy(within[at][1] if isinstance(within, Pairs) else within[at])


def put(place: tuple[list, int], value: object) -> None:
    within, at = place
    within[at] = (within[at][0], value) if isinstance(within, Pairs) else value


def mutate(document: object, chance: random.Random) -> str:
    """Return the document with one to three errors."""
    document = Pairs([("root", document)])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        places = nodes(document)
        within, at = place = chance.choice(places)
        value = get(place)
        match chance.randrange(10):
            case 0:
                put(place, Text(chance.choice(NUMBERS)))
            case 1:
                put(place, Text(chance.choice(STRINGS)))
            case 2:
                put(place, Text(chance.choice(OTHERS)))
            case 3:
                del within[at]
            case 4:
                within.insert(chance.randrange(len(within) + 1), within[at])
            case 5 if isinstance(within, Pairs):
                name = chance.choice(
                    [*(key for key, _ in within), "start_idx", "length", "meta", "tensorname", "", "x"]
                )
                within[at] = (name, value)
            case 6:
                put(place, get(chance.choice(places)))
            case 7 if isinstance(value, int):
                put(place, value + chance.choice([-1, 1, 4, 12, 16, -16, 256, 2**32, 2**53 - value, -value]))
            case 7 if isinstance(value, str):
                put(place, value + chance.choice(["0", " ", "\0", "é", "x"]))
            case 8 if isinstance(value, list) and len(value) > 1:
                chance.shuffle(value)
            case _:
                other = chance.choice(places)
                mine, theirs = value, get(other)
                put(place, theirs)
                put(other, mine)
        if not document:
            break
    body = text_of(document[0][1]) if document else ""
    match chance.randrange(30):
        case 0:
            body += chance.choice(TRAILS)
        case 1:
            body = chance.choice(TRAILS) + body
        case 2:
            body = body.replace(", ", ",\r\n\t")
        case 3:
            body += body
    return body


def encoded(text: str, chance: random.Random) -> bytes:
    encoding = "utf-8" if chance.random() < 0.97 else chance.choice(["utf-16", "utf-32", "latin-1", "utf-8-sig"])
    return text.encode(encoding, "replace")


def parsed(content: bytes) -> object:
    return json.loads(content, object_pairs_hook=Pairs)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the package's writer with two workers, two modes and checksums."""
    root = runs.collections(tmp_path_factory.mktemp("ours"), workers=2)
    for step in range(4):
        for rank in range(2):
            values = {"w": [step + rank] * 4, "loss": 1 / (step + 1), "smdebug/reductions/min/w": float(step)}
            mode = modes.EVAL if step % 2 else modes.TRAIN
            runs.step(root, step, values, f"worker_{rank}", mode, step // 2, shapes={"s": [2, 3]})
    return root


def test_mutated_index_files(tmp_path: Path, ours: Path) -> None:
    sources = [InMemory.load(name, tmp_path / name) for name in golden.NAMES if "large" not in name]
    files = {path.relative_to(ours).as_posix(): path.read_bytes() for path in ours.rglob("*") if path.is_file()}
    sources.append(InMemory.of("ours", files))
    chance = campaign.rng("grammar")
    documents: list[tuple[InMemory, str, bytes]] = []
    for run in sources:
        for key, content in sorted(run.indexes().items()):
            try:
                parsed(content)
            except ValueError:
                continue  # damaged on purpose
            documents.append((run, key, content))
    documents = [document for document in documents if len(document[2]) < 20_000]
    with campaign.tally("index grammar") as counts:
        for _ in range(campaign.size(6_000, 200_000)):
            run, key, content = chance.choice(documents)
            wrong = encoded(mutate(parsed(content), chance), chance)
            judge_index(run, key, wrong, counts)
    assert_both(counts)


def assert_both(counts: Counter[str]) -> None:
    """A campaign that rejects nothing or reads nothing is not a test."""
    assert counts["index files refused"] > counts["index files"] / 20
    assert counts["right"] > counts["index files"] / 20
    assert counts["refused"]
