"""Tests of findings: ids, order, JSON, and the table of kinds."""

import dataclasses
import itertools
import json
import string
from pathlib import Path

import pytest

from smdwidgets._text import quoted
from smdwidgets.cli import main
from smdwidgets.finding import CHECKS, CONFIDENCES, KINDS, Curve, Evidence, Finding, about, ordered
from smdwidgets.finding.document import with_kinds

CURVE = Curve("loss", (0, 10), (1.0, float("inf")), 0, 10)
EVIDENCE = Evidence("loss is NaN", "loss", 10, float("nan"), -float("inf"), "worker_1", CURVE)
FINDING = Finding(
    "not_finite",
    "problem",
    "proof",
    "loss",
    10,
    20,
    title="`loss` is NaN",
    text="`loss` is NaN.",
    try_="Look.",
    evidence=(EVIDENCE,),
    explains=("diverged:loss:20",),
    rivals=("input_not_finite",),
    incident=10,
    others=("fc1",),
)


@pytest.mark.parametrize(
    "name", ["gradient/model.layers.26.post_attention_layernorm.weight", "gradient/" + "a." * 2000 + "weight", "a`b\n"]
)
def test_a_quoted_name_has_its_start_and_end_in_one_line(name):
    text = quoted(name)
    assert text.startswith("`" + name[:1])
    assert text.endswith(("weight`", "\\n`"))
    assert text.count("`") == 2
    assert len(text) <= 164
    assert text.isprintable()


def test_id_consists_of_kind_subject_and_first_step():
    assert FINDING.id == "not_finite:loss:10"
    assert dataclasses.replace(FINDING, text="other", confidence="low").id == FINDING.id
    assert dataclasses.replace(FINDING, first=None).id == "not_finite:loss:"


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "not_finit"), ("level", "fatal"), ("confidence", "sure"), ("source", "me"), ("rivals", ("no_kind",))],
)
def test_invalid_fields_raise(field, value):
    with pytest.raises(ValueError, match=r"unknown kind|invalid"):
        dataclasses.replace(FINDING, **{field: value})


def test_unknown_kind_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'not_finite'"):
        Finding.of("not_finit", "problem", "proof", 0, 0, ["loss"])


def test_json_keeps_everything_including_values_that_are_not_finite():
    text = json.dumps(FINDING.to_json(), allow_nan=False)
    back = Finding.from_json(json.loads(text))
    assert repr(back.evidence) == repr(FINDING.evidence)  # NaN is not equal to itself
    assert dataclasses.replace(back, evidence=()) == dataclasses.replace(FINDING, evidence=())
    assert json.loads(text)["id"] == FINDING.id


@pytest.mark.parametrize("content", [{}, {"kind": "spike"}, FINDING.to_json() | {"evidence": None}])
def test_json_that_is_no_finding_raises(content):
    with pytest.raises(ValueError, match="not a finding"):
        Finding.from_json(content)


def test_order_is_confidence_then_first_step_then_forward_pass():
    forward = {"a": 0, "b": 1, "c": 2}
    levels = [*itertools.product(CONFIDENCES[:3], (0, 5), "abc")]
    expected = [Finding("frozen", "problem", confidence, name, first) for confidence, first, name in levels]
    expected += [Finding("frozen", "problem", "low", "a", 0), Finding("frozen", "note", "low", "a", 1)]
    assert ordered(expected[::-1], forward) == expected
    assert ordered(expected[::2] + expected[1::2], forward) == expected


def test_repr_is_one_printable_line():
    finding = Finding.of("frozen", "problem", "proof", 0, 9, ["a\n\x1b"], {"tensor": "a\n\x1b", "saves": 3})
    assert repr(finding).isprintable()
    assert str(finding).isprintable()
    assert about(finding) == "problem, proof · steps 0 to 9 · smdwidgets explain frozen"


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.id)
def test_a_kind_explains_only_kinds_that_come_later(kind):
    later = [*KINDS][[*KINDS].index(kind.id) + 1 :]
    assert kind.explains <= {*later}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.id)
def test_a_kind_has_all_texts(kind):
    assert all((kind.title, kind.name, kind.meaning, kind.healthy, kind.advice, kind.fact))
    assert not [name for _, name, _, _ in string.Formatter().parse(kind.advice) if name]
    assert kind.id == kind.title.lower().replace(" ", "_")


@pytest.mark.parametrize(("name", "kinds"), [("diagnosis.md", None), ("checks.md", CHECKS)])
def test_documentation_has_the_section_of_every_kind(name, kinds):
    page = (Path(__file__).parents[3] / "docs" / name).read_text(encoding="utf-8")
    assert page == with_kinds(page, kinds), f"run: python -m smdwidgets.finding.document docs/{name}"
    anchors = [line[4:].lower().replace(" ", "-") for line in page.splitlines() if line.startswith("### ")]
    expected = kinds or [kind for kind in KINDS.values() if kind.page == name]
    assert [f"{name}#{anchor}" for anchor in anchors] == [kind.url for kind in expected]


def test_explain_prints_the_row_of_a_kind(capsys):
    assert main(["explain", "rate_too_high"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    row = KINDS["rate_too_high"]
    assert all(part in out for part in (row.title, row.meaning, row.healthy, row.advice, row.url))
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(KINDS)


def test_explain_suggests_a_kind(capsys):
    assert main(["explain", "rate_to_high"]) == 2
    assert "Did you mean 'rate_too_high'" in capsys.readouterr().err
