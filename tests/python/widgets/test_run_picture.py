"""The picture of a run in stills and stories, drawn without a browser."""

from __future__ import annotations

import base64
import io
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import smdwidgets
import smdwidgets.numpy as smd
from smdwidgets.survey import RuleFirings, Survey
from smdwidgets.widgets import run_picture, still
from smdwidgets.widgets.run_picture import Marks

STEPS, BAD, BAD_AT = 60, "layers.3.weight", 40
SVG = "{http://www.w3.org/2000/svg}"


def write(path: Path, tensors: int = 6, steps: int = STEPS) -> Path:
    rng = np.random.default_rng(0)
    with smd.Hook(path) as hook:
        for step in range(steps):
            for number in range(tensors):
                value = rng.normal(size=(4, 4)).astype(np.float32)
                if f"layers.{number}.weight" == BAD and step >= BAD_AT:
                    value[0, 0] = np.nan
                hook.save_tensor(f"layers.{number}.weight", value, "weights")
            hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
            hook.step()
    return path


@pytest.fixture
def survey(tmp_path: Path) -> Survey:
    found = Survey(smdwidgets.create_trial(write(tmp_path / "run")))
    found.update()
    return found


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def violet(svg: str) -> list[tuple[float, float, float]]:
    """Return x, y and width of the marks of values that are not finite."""
    marks = [each.attrib for each in ElementTree.fromstring(svg).iter(f"{SVG}rect") if each.get("fill") == "#9600ff"]
    return [(float(mark["x"]), float(mark["y"]), float(mark["width"])) for mark in marks][
        :-1
    ]  # the last is the legend's


def test_map_has_the_colours_of_the_page(survey):
    svg = run_picture.draw(survey, title="run", stat="size")
    assert svg is not None
    encoded = re.search(r"data:image/png;base64,([^\"]+)", svg)
    assert encoded is not None
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded[1]))).convert("RGB")).reshape(-1, 3)
    cividis = {tuple(colour) for colour in run_picture.colour_map("cividis").tolist()}
    drawn = {tuple(colour) for colour in pixels.tolist()}
    assert {(0, 32, 77), (255, 234, 70)} <= drawn <= {*cividis, (247, 247, 247)}


def test_map_marks_where_values_begin_to_be_nan(survey):
    svg = run_picture.draw(survey, title="run", loss="loss", marks=Marks(step=BAD_AT, tensor=BAD))
    assert svg is not None
    assert {"run", BAD, "loss", "step 40", "0", "20"} <= set(texts(svg))
    (line, onset) = violet(svg)
    assert line[0] == onset[0]
    assert onset[2] == 5
    axis = run_picture._Axis(0, STEPS - 1, 0)
    assert onset[0] == pytest.approx(axis.edge(BAD_AT), abs=0.1)
    # The loss falls from the top to the bottom of its lane.
    curve = next(
        each.get("d") for each in ElementTree.fromstring(svg).iter(f"{SVG}path") if each.get("stroke-width") == "1.5"
    )
    assert curve is not None
    points = [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([\d. ]+)", curve)]
    assert len(points) == STEPS
    assert points[0][0] == pytest.approx(axis.x(0), abs=0.1)
    assert [y for _, y in points] == sorted(y for _, y in points)


def test_picture_of_a_part_of_the_steps(survey):
    svg = run_picture.draw(survey, title="run", tensors=[BAD], span=(30, 50), marks=Marks(step=10))
    assert svg is not None
    assert "step 10" not in texts(svg)
    assert "layers.0.weight" not in texts(svg)
    assert violet(svg)[1][0] == pytest.approx(run_picture._Axis(30, 50, 0).edge(10), abs=0.1)


@pytest.mark.parametrize("stat", ["growth", "surprise", "size", "l2", "update", "zeros", "not_finite"])
def test_every_statistic_is_drawn(survey, stat):
    svg = run_picture.draw(survey, title="run", stat=stat)
    assert svg is not None
    assert any(text.startswith("Colour: ") for text in texts(svg))


def test_firings_of_rules_are_merged(survey):
    rules = [RuleFirings(f"Rule{i}", tuple(range(10, 50)), {}) for i in range(5)]
    svg = run_picture.draw(survey, title="run", rules=rules)
    assert svg is not None
    assert svg.count("#b3261e") <= 3 * 40
    assert "+2 more" in texts(svg)


def test_hostile_names_are_escaped(tmp_path):
    with smd.Hook(tmp_path / "run") as hook:
        for _ in range(10):
            hook.save_tensor('<script>"x"</script>\u202e', np.ones((2, 2), np.float32), "weights")
            hook.step()
    survey = Survey(smdwidgets.create_trial(tmp_path / "run"))
    survey.update()
    svg = run_picture.draw(survey, title="<b>&\x1b", marks=Marks(tensor='<script>"x"</script>\u202e'))
    assert svg is not None
    assert "<script" not in svg
    assert any("script" in text for text in texts(svg))


def test_picture_of_many_tensors_is_small(tmp_path):
    survey = Survey(smdwidgets.create_trial(write(tmp_path / "run", tensors=400, steps=20)))
    survey.update()
    svg = run_picture.draw(survey, title="run", marks=Marks(tensor=BAD))
    assert svg is not None
    assert len(svg) < still.MOST
    assert BAD in texts(svg)


def test_still_has_the_sentence_and_the_map(tmp_path):
    widget = smdwidgets.explore(write(tmp_path / "run"), tensor=BAD, step=45)
    assert widget.live_diagnosis is not None
    widget.live_diagnosis.completed(0)
    html = widget._still._data()["text/html"]
    picture = re.findall(r'<img alt="" src="data:image/svg\+xml;base64,([^"]+)">', html)
    assert len(picture) == 1
    assert "step 45" in texts(base64.b64decode(picture[0]).decode("utf-8"))
    sentence = widget.diagnosis.findings[0].title.replace("`", "")
    assert html.index(sentence) < html.index("<img") < html.index("Explorer: run")
    widget.close()


def test_still_of_a_live_run_is_updated(tmp_path, monkeypatch):
    published: list[tuple[str, bool]] = []
    monkeypatch.setattr(still, "REST", 0.01)
    monkeypatch.setattr(
        still, "publish", lambda data, name="", update=False: published.append((data["text/plain"], update))
    )
    with smd.Hook(tmp_path / "run") as hook:
        for _ in range(3):
            hook.save_tensor("w", np.ones((2, 2), np.float32), "weights")
            hook.step()
        trial = smdwidgets.create_trial(tmp_path / "run", wait=60)
        trial.wait_for_steps([2], timeout=60)
        widget = smdwidgets.explore(trial)
        widget._still.display()
        assert published == [(published[0][0], False)]
        assert "3 steps" in published[0][0]
        hook.save_tensor("w", np.ones((2, 2), np.float32), "weights")
        hook.step()
        end = time.monotonic() + 60
        while "4 steps" not in published[-1][0]:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert published[-1][1]
    widget.close()
