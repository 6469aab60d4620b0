"""Coordinate checks: slopes, verdicts, texts, pictures, and wrong uses.

Trainings are in the tests of PyTorch.
"""

import json
import sys

import numpy as np
import pytest

import smdwidgets
from smdwidgets import cli
from smdwidgets.coordinate_check import CoordinateCheck
from smdwidgets.coordinate_check.result import judged
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError

WIDTHS = (64, 128, 256, 512)


def scaling(start, size, change):
    """Return sizes and changes of a layer with these exponents of the width."""
    widths = np.array(WIDTHS, float)[:, None]
    sizes = 0.3 * widths ** np.array([start, size])
    return sizes, 0.01 * widths ** np.array([np.nan if change is None else 0, np.nan if change is None else change])


def check(**layers):
    made = {name: scaling(*one) for name, one in layers.items()}
    found = judged(
        WIDTHS, {name: one[0] for name, one in made.items()}, {name: one[1] for name, one in made.items()}, 0.25
    )
    return CoordinateCheck(WIDTHS, 5, 2, 0.25, found)


@pytest.mark.parametrize(
    ("exponents", "verdict"),
    [
        ((0, 0, 0), "steady"),
        ((-0.5, 0.1, 0.1), "steady"),
        ((0, 0.5, 0.6), "grows"),
        ((0.5, 0.5, None), "grows"),
        ((0, 0.1, 0.9), "grows"),
        ((0, 0, -0.5), "vanishes"),
        ((0, -0.5, None), "steady"),
    ],
)
def test_a_layer_is_judged_by_its_exponents(exponents, verdict):
    [layer] = check(fc=exponents).layers
    assert layer.verdict == verdict
    assert layer.start_slope == pytest.approx(exponents[0])
    assert layer.slope == pytest.approx(exponents[1])
    assert layer.change_slope == pytest.approx(exponents[2], nan_ok=True) if exponents[2] is not None else True


def test_texts_name_the_layers_and_factors():
    found = check(embed=(0, 0, 0), fc=(0, 1, 1), out=(0, 0.5, 0.5), norm=(0, 0, -0.5))
    assert not found.passed
    assert [one.name for one in found.failing] == ["fc", "out", "norm"]
    assert "2 of 4 layers grow with the width, `fc` 8.0 times from width 64 to 512." in found.summary
    assert "1 of 4 layers learn less the wider the model is, `norm` 2.8 times less" in found.summary
    lines = repr(found).splitlines()
    assert lines[0] == "coordinate check FAILED: 4 widths, 5 updates, 2 seeds"
    assert any(line.split() == ["fc", "19.2", "154", "+0.00", "+1.00", "+1.00", "grows"] for line in lines)
    passed = check(embed=(0, 0, 0), fc=(0, 0.1, 0.1))
    assert passed.summary == "All 2 layers keep their size from width 64 to 512, before and after 5 updates."
    assert passed.table()["verdict"].tolist() == ["steady", "steady"]


def test_values_that_are_not_finite_fail():
    sizes = np.array([[1.0, 1.0], [1.0, np.nan], [1.0, 1.0]])
    found = CoordinateCheck((8, 16, 32), 1, 1, 0.25, judged((8, 16, 32), {"fc": sizes}, {"fc": sizes}, 0.25))
    assert not found.passed
    assert "`fc` has values that are not finite" in found.summary
    json.dumps(found.to_json(), allow_nan=False)


def test_a_model_of_many_layers_lists_those_that_fail():
    steady = {f"layer{index}": (0, 0, 0) for index in range(100)}
    text = repr(check(**steady, last=(0, 1, 1)))
    assert "last" in text
    assert "and 61 steady layers" in text


def test_the_picture_names_the_layers_that_fail(tmp_path):
    pytest.importorskip("matplotlib")
    ax = check(embed=(0, 0, 0), fc=(0, 1, 1), norm=(0, 0, -0.5)).plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["fc: grows", "change of norm: vanishes"]
    assert ax.get_title() == "2 of 3 layers depend on the width"
    ax.figure.savefig(tmp_path / "widths.png")
    assert check(fc=(0, 0, 0)).plot().get_title() == "all layers keep their size"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, WIDTHS), {}, "must be a function"),
        ((print, (64, 128, 128)), {}, "at least three different widths"),
        ((print, (64, 128, 0)), {}, "invalid width 0"),
        ((print, (64, 128, 1.5)), {}, r"invalid width 1\.5"),
        ((print, WIDTHS), {"steps": 0}, "invalid steps 0"),
        ((print, WIDTHS), {"seeds": True}, "invalid seeds"),
        ((print, WIDTHS), {"tolerance": float("nan")}, "invalid tolerance"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments, options, message):
    with pytest.raises((SMDebugTypeError, SMDebugValueError), match=message):
        smdwidgets.coordcheck(*arguments, **options)


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (None, ["absent.py"], "no file 'absent.py'"),
        ("def make_gpt(width): pass", ["model.py"], "has no function 'make'"),
        ("def make_gpt(width): pass", ["model.py:make_gtp"], "Did you mean 'make_gpt'?"),
        ("raise RuntimeError('planted')", ["model.py"], "cannot be trained: RuntimeError: planted"),
        ("def make(width): pass", ["model.py", "--widths", "a,b"], "invalid --widths 'a,b'"),
        ("def make(width): pass", ["model.py", "--widths", "64,128"], "at least three different widths"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(tmp_path, monkeypatch, capsys, content, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    if content is not None:
        (tmp_path / "model.py").write_text(content)
    assert cli.main(["coordcheck", *words]) == 2
    assert message in capsys.readouterr().err
