"""Python and TypeScript give equal answers to random queries on random tables."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python.queries.vectors import VECTORS, answer, tables
from smdwidgets.naming.tensors import model_order
from smdwidgets.queries.table import STATISTICS, VIEWS

TEXTS = 4_000
JS = Path(__file__).parents[3] / "js"

KEYS = ("change", "worst", "last", "first", "name", *STATISTICS)
OPERATORS = ("<", "<=", ">", ">=", "=", "!=", "==", "=>", "<>", "!", "~")
NUMBERS = (
    "0",
    "1",
    "2",
    "0.5",
    "-1",
    "1e-3",
    "1E3",
    ".5",
    "5.",
    "inf",
    "-inf",
    "nan",
    "1e999",
    "+2",
    "1_0",
    "0x1",
    "٣",
)
NAMES = (
    *("layers.0.weight", "layers.10.bias", "LAYERS.2.weight", "gradient/layers.0.weight", "loss", "val loss", "a|b"),
    *(
        'it"s',
        "*",
        "x\\y",
        "\u202eabc",
        "重み[0]",
        "ﬁ.w",
        "😀.w",
        "Ünï",
        "a/b/c",
        "@home",
        "layers.007.w",
        "layers.7.w",
        "",
    ),
)
VALUES = ("ended", "9", "nan", '"val loss"', "true")
WORDS = (
    *("and", "or", "not", "'", "`"),
    *("top", "sort", "by", "steps", "as", "asc", "desc", "..", "map", "tpo", "srot", "chnage", "l3", "sizes", "rms"),
    *('"', "\\", "|", "||", "/", "@", "*", "#", "'", "(", ")", "[", "]", "{", "}", "^", "$", "+", "?", ".", ","),
    *("@weights", "@Weights", '@"my layers"', "@losses", "@nothing", "lr", "state", '"val loss"', "ended", "min(x)"),
)
PIECES = (
    *(
        "a",
        "w",
        "l",
        ".",
        "\\.",
        "\\d",
        "\\w",
        "\\s",
        "\\S",
        "\\W",
        "\\D",
        "\\b",
        "\\B",
        "^",
        "$",
        "|",
        "(",
        ")",
        "(?:",
    ),
    *(
        "[a-z]",
        "[^a]",
        "[\\d.]",
        "[^\\w]",
        "[]",
        "[-a]",
        "[a-]",
        "[z-a]",
        "*",
        "+",
        "?",
        "{2}",
        "{1,3}",
        "{0,}",
        "{",
        "}",
    ),
    *(
        "\\/",
        "\\|",
        "\\\\",
        "\\q",
        "\\1",
        "(?=",
        "\\t",
        "loss",
        "layers",
        "重",
        "😀",
        "{9999}",
        "*?",
        "++",
        "\u202e",
        "B",
        "K",
    ),
)
CHARACTERS = "".join(WORDS) + " \t\n\u00a0\u3000\u2028\ufeff\x00\x1b\x85\x1c\u200b\u0301\ud800İıßKſ٣０ａ"


def number(rng: random.Random) -> Any:
    return rng.choice(
        [0, 1, 1, 2, 0.5, 3, 7.25, 1e-30, 1e300, 1e-300, rng.random(), rng.random() * 10, None, {"number": "inf"}]
    )


def table(rng: random.Random) -> dict[str, Any]:
    """Return random tables in the format of the vectors."""
    names = rng.sample(NAMES, len(NAMES))
    statistics: dict[str, Any] = {}
    for name in names[: len(names) - 3]:
        steps = sorted(rng.sample(range(0, 100, 5), rng.randint(1, 12)))
        statistics[name] = {"step": steps}
        for statistic in STATISTICS:
            if rng.random() < 0.9:
                same = [number(rng)] * len(steps)
                values = same if rng.random() < 0.2 else [number(rng) for _ in steps]
                if statistic in ("surprise", "mean", "min", "max"):
                    values = [-value if isinstance(value, float) and rng.random() < 0.5 else value for value in values]
                statistics[name][statistic] = values
    places = range(len(names))
    collections = {name: sorted(rng.sample(places, 4)) for name in ("weights", "losses", "my layers")}
    runs = {f"run_{at}/{rng.choice(NAMES)}": None for at in range(12)}
    words = ["ended", "Ended", "running", "10", "9", "a10", "a9", True, False]
    keys = {
        "lr": [number(rng) for _ in runs],
        "state": [rng.choice(words) for _ in runs],
        "val loss": [number(rng) for _ in runs],
        "min(x)": [rng.choice([number(rng), rng.choice(words)]) for _ in runs],
    }
    return {
        "tensors": {"names": names, "collections": {**collections, "nothing": []}, "statistics": statistics},
        "runs": {"names": [*runs], "keys": keys, "ascending": ["val loss"]},
    }


def spelt(rng: random.Random, word: str) -> str:
    """Return a word, sometimes with another case or a typing error."""
    if word and rng.random() < 0.1:
        at = rng.randrange(len(word))
        other = rng.choice(CHARACTERS)
        return rng.choice([word.upper(), word[:at] + word[at + 1 :], word[:at] + other + word[at:], word.title()])
    return word


def key(rng: random.Random) -> str:
    return spelt(rng, rng.choice((*KEYS, "lr", "state", '"val loss"', "min(x)")))


def select(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return ""
    if kind == 1:
        return "/" + "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 6))) + rng.choice(["/", "/", "/", ""])
    if kind == 2:
        return spelt(rng, rng.choice(["@weights", "@LOSSES", '@"my layers"', "@nothing", "@x"]))
    if kind == 3:
        return '"' + rng.choice(NAMES).replace("\\", "\\\\").replace('"', '\\"') + rng.choice(['"', '"', ""])
    name = rng.choice(NAMES)
    cut = name[rng.randrange(len(name) + 1) :]
    return spelt(rng, rng.choice([cut, f"{cut}*", f"*{cut[:2]}*", cut.replace("|", "\\|"), "l*.w"]))


def stage(rng: random.Random) -> str:
    step = rng.choice((*NUMBERS[:4], "10", "50", "95", ""))
    return rng.choice(
        [
            lambda: spelt(rng, rng.choice(STATISTICS)),
            lambda: (
                f"{key(rng)}{rng.choice([' ', ''])}{rng.choice(OPERATORS[:7] * 3 + OPERATORS)} {rng.choice(NUMBERS)}"
            ),
            lambda: f"{key(rng)} {rng.choice(['=', '!='])} {rng.choice(VALUES)}",
            lambda: (
                f"{spelt(rng, 'top')} {rng.choice(['1', '3', '12', *NUMBERS])} by {key(rng)} {rng.choice(['', '', 'asc', 'desc'])}"
            ),
            lambda: f"sort {spelt(rng, 'by')} {key(rng)} {spelt(rng, rng.choice(['', 'asc', 'DESC']))}",
            lambda: f"steps {step}{rng.choice([' .. ', '..'])}{rng.choice(['50', '95', '', '7'])}",
            lambda: f"as {spelt(rng, rng.choice(VIEWS))}",
            lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4))),
        ]
    )()


def comparison(rng: random.Random) -> str:
    """Return a comparison, often a valid one."""
    pattern = rng.choice(["layers", "w*t", '"loss"', "'val loss'", "/^l/", "`a|b`", "/(0|1)+\\.w/", "ended", "=", "("])
    return rng.choice(
        [
            f"{key(rng)} {rng.choice(OPERATORS[:6])} {rng.choice(NUMBERS[:10])}",
            f"{rng.choice(['name', 'state', key(rng)])} ~ {pattern}",
            f"{rng.choice(['name', 'state'])} = {rng.choice(['loss', 'none', *VALUES])}",
        ]
    )


def condition(rng: random.Random, depth: int = 0) -> str:
    """Return conditions that are combined, often valid ones."""
    part = rng.randrange(7 if depth < 4 else 3)
    if part < 2:
        return comparison(rng)
    if part == 2:
        return rng.choice([select(rng), "l", "weight", "@weights", '"a"', "val loss", "/w|l/", "run", "lr"])
    if part == 3:
        return f"{rng.choice(['not ', 'NOT ', 'not'])}{condition(rng, depth + 1)}"
    if part == 4:
        return f"({condition(rng, depth + 1)}{rng.choice([')', ')', ')', ' )', ''])}"
    joint = spelt(rng, rng.choice(["and", "or", "AND"]))
    return f"{condition(rng, depth + 1)} {joint} {condition(rng, depth + 1)}"


def from_grammar(rng: random.Random) -> str:
    parts = [rng.choice([select, condition, stage])(rng), *(stage(rng) for _ in range(rng.randint(0, 3)))]
    return rng.choice([" | ", "|"]).join(parts)


def changed(rng: random.Random) -> str:
    text = rng.choice(VECTORS["cases"])["text"]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([rng.choice(CHARACTERS), rng.choice(WORDS), ""]) + text[at + rng.randint(0, 2) :]
    return text


def noise(rng: random.Random) -> str:
    pool: str | tuple[str, ...] = rng.choice([CHARACTERS, WORDS, PIECES])
    text = "".join(rng.choice(pool) for _ in range(rng.randint(0, 30)))
    return rng.choice([text, f"/{text}/", f"a | {text}", f'"{text}', f"@{text}"])


MAKERS: tuple[Callable[[random.Random], str], ...] = (
    *(from_grammar, from_grammar, changed, noise),
    lambda rng: f"{rng.choice(['', '| ', 'l | '])}{condition(rng)}",
    lambda rng: f"{rng.choice(['', '| '])}{comparison(rng)} {rng.choice(['and', 'or'])} {comparison(rng)}",
)


def in_node(script: str, *arguments: str, given: str) -> list[Any]:
    """Return what a script of the front end writes, one JSON value a line."""
    if shutil.which("node") is None or not (JS / "node_modules" / "esbuild").is_dir():
        pytest.skip("Node.js and the packages of the front end are not installed")
    command = ["node", str(JS / "scripts" / script), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_both_evaluators_agree(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    described = table(rng)
    path = tmp_path / "tables.json"
    path.write_text(json.dumps({"tables": described}))
    known = tables(described)
    texts = [rng.choice(MAKERS)(rng) for _ in range(TEXTS)]
    asked = [{"table": rng.choice(["tensors", "tensors", "tensors", "runs"]), "text": text} for text in texts]
    theirs = in_node("query.mjs", str(path), given="".join(json.dumps(each) + "\n" for each in asked))
    assert len(theirs) == len(asked)
    found = 0
    for each, its in zip(asked, theirs, strict=True):
        # Through JSON, as the other answer.
        mine = json.loads(json.dumps(answer(known[each["table"]], each["text"])))
        assert mine == its, each
        found += "rows" in mine
        if "error" in mine:
            error = mine["error"]
            assert 0 <= error["start"] <= error["end"] <= len(each["text"]), each
    # Neither all errors nor all results.
    assert TEXTS / 8 < found < TEXTS * 4 / 5


def test_model_order_is_that_of_the_run_map() -> None:
    rng = random.Random(0)
    parts = [
        "model",
        "layers",
        "0",
        "1",
        "02",
        "10",
        "blocks",
        "attn",
        "q_proj",
        "weight",
        "bias",
        "x",
        "",
        "Ünï",
        "重み",
    ]
    given, mine = [], []
    for size in [0, 1, 2, 5, 20, 80, 200, 400]:
        names = [
            rng.choice(["", "", "gradient/", "gradients/", "model."])
            + rng.choice([".", "/"]).join(rng.choice(parts) for _ in range(rng.randint(1, 6)))
            for _ in range(size)
        ]
        names = list(dict.fromkeys(names))
        chosen = rng.sample(range(len(names)), len(names) // 3)
        members = {"weights": chosen[::3], "losses": chosen[1::3], "gradients": chosen[2::3]}
        given.append(json.dumps({"names": names, "collections": members}))
        mine.append(model_order(names, members))
    assert in_node("model-order.mjs", given="\n".join(given)) == mine
