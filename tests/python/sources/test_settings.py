"""Settings in YAML files, with PyYAML and without it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.sources.settings import plain_value, read_settings


@pytest.fixture(params=["with PyYAML", "without PyYAML"])
def has_yaml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "without PyYAML":
        monkeypatch.setitem(sys.modules, "yaml", None)
        return False
    pytest.importorskip("yaml")
    return True


@pytest.mark.usefixtures("has_yaml")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("it's", "it's"),
        ("'it''s'", "it's"),
        ('"5"', "5"),
        ("'1e-3'", "1e-3"),
        ("1e-3", 0.001),
        ("-7", -7),
        ("1.10", 1.1),
        ("010", "010"),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("infinity", "infinity"),
        ("nan", "nan"),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("True", True),
        ("yes", "yes"),
        ("~", None),
        ("", None),
        ("adam  # the optimizer", "adam"),
        ("a#b", "a#b"),
        ("http://x:80/y", "http://x:80/y"),
        ("[1, 2.5, null]", [1, 2.5, None]),
        ("[]", []),
    ],
)
def test_a_value_of_one_line(text: str, value: object) -> None:
    assert read_settings(f"a: {text}\nb: 1\n") == ({"a": value, "b": 1}, "")


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ("i: |\n  text: 5\n  more: 6", {"i": "text: 5\nmore: 6"}),
        ("i: >\n  text: 5", {"i": "text: 5"}),
        ("i: {x: 1}", {"i/x": 1}),
        ("i: [1, a]", {"i": [1, "a"]}),
        ("i:\n- 1\n- 2", {"i": [1, 2]}),
        ("i:\n  - 1\n  - x: 2", {}),
        ('i: "a\\tb"', {"i": "a\tb"}),
        ("i: one\n  two: three", None),
        ("i: one\n  two", {"i": "one two"}),
        ("i: &x 5", {"i": 5}),
        ("i: !!python/object:os.system [x]", {}),
        ("i: !!binary aGk=", {}),
    ],
)
def test_other_entries_are_read_with_pyyaml_or_left_out(entry: str, values: object, has_yaml: bool) -> None:
    settings = read_settings(f"a: 1\n{entry}\nb: 2\n")
    if values is None and has_yaml:
        assert settings.values == {}
        assert settings.note.startswith("not valid YAML")
        return
    read = {name: value.rstrip("\n") if isinstance(value, str) else value for name, value in settings.values.items()}
    assert read == {"a": 1, "b": 2, **(values if has_yaml else {})}  # type: ignore[dict-item]
    assert bool(settings.note) == (not has_yaml or not values)


@pytest.mark.usefixtures("has_yaml")
def test_mappings_are_nested() -> None:
    text = "---\n# run\nmodel:\n  width: 4\n  head:\n    bias: false\n\n'k:ey': 3\nmodel.lr: 1\n"
    values = {"model/width": 4, "model/head/bias": False, "k:ey": 3, "model.lr": 1}
    assert read_settings(text) == (values, "")


def test_lines_after_one_that_is_no_entry_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    values, note = read_settings("a: 1\n? b\n: 2\nc: 3\n")
    assert (values, note) == ({"a": 1}, "only the first lines are read; install PyYAML to read all settings")


@pytest.mark.usefixtures("has_yaml")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "- " * 30_000,
        "? " * 30_000,
        "{a: " * 15_000,
        "a: &a [1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join(['*a'] * 9)}]\n" for i in range(20)),
        "a: &a {x: 1}\n" + "".join(f"b: &a {{<<: [{', '.join(['*a'] * 9)}]}}\n" for i in range(20)),
    ],
    ids=["flow", "list", "keys", "mappings", "aliases", "merges"],
)
def test_hostile_text_takes_little_memory(text: str) -> None:
    settings = read_settings(text)
    assert len(settings.values) <= 2
    assert settings.note


@pytest.mark.usefixtures("has_yaml")
@given(st.text(st.sampled_from("ab:-{}[],&*!|>'\"# \n1.e\t"), max_size=60))
def test_any_text_is_read_or_left_out(text: str) -> None:
    assert isinstance(read_settings(text).values, dict)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), st.text("ab'\"#: 1.-e\n", max_size=8), max_size=4)
)
def test_without_pyyaml_no_value_differs_from_that_of_pyyaml(values: dict[str, str]) -> None:
    yaml = pytest.importorskip("yaml")
    # PyYAML writes texts such as "1e1" without quotes, because YAML 1.1 has no such numbers; YAML 1.2 and we have.
    numbers = [value for value in values.values() if isinstance(plain_value(value), float)]
    assume(not any(isinstance(yaml.safe_load(value), str) for value in numbers))
    text = yaml.safe_dump(values)
    expected = read_settings(text).values
    assert expected == values
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "yaml", None)
        read = read_settings(text).values
    assert read.items() <= expected.items()


def test_a_run_says_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "hparams.yaml").write_text("lr: 0.5\nx: !y z\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.hparams() == {"lr": 0.5}
    assert any("left out" in note for note in map(str, [*trial.notes(), *trial.problems()]))
