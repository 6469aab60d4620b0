"""The rows that signals give the Run Map, and queries over them."""

import numpy as np
import pytest

import smdwidgets
from smdwidgets.numpy import Hook
from smdwidgets.signals import rows as rows_module
from smdwidgets.signals.file import SignalFile, SignalWriter
from smdwidgets.signals.record import SignalLog
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import INFINITE, NAN, SUDDEN

SAVES = 20
EVERY = 4
LAYER = "blocks.1.attention"
HEAD = f"attention_max/{LAYER}/head 2"


def heads():
    values = np.tile(np.array([5.0, 6.0, 0.0, 4.0]), (SAVES, 1))
    values[:, 2] = 2 * np.exp(0.25 * np.arange(SAVES))
    return values


def write(folder, by_kind, most=None, worker="worker_0"):
    writer = SignalWriter(SignalFile(folder, worker).append)
    for key in by_kind:
        writer.declare(*key, most=most)
    for save in range(SAVES):
        writer.write(save * EVERY, {key: values[save] for key, values in by_kind.items()})
    return writer


@pytest.fixture
def run(tmp_path):
    with Hook(tmp_path / "run") as hook:
        for step in range(SAVES * EVERY):
            hook.save_scalar("loss", 1 + np.exp(-step / 20))
            if not step % 10:
                hook.save_tensor("blocks.1.weight", np.full((4, 4), 1 + step / 100), "weights")
            hook.step()
    loads = np.full((SAVES, 4), 1.0)
    loads[5:, 3] = 0
    by_kind = {
        ("attention_max", LAYER): heads(),
        ("attention_entropy", LAYER): np.full((SAVES, 4), 0.5),
        ("router_load", "blocks.1.moe"): loads,
        ("log_z", ""): np.full((SAVES, 1), -3.0),
        ("sigma_max", "AdamW"): np.ones((SAVES, 2)),
        ("gradient_noise", ""): np.ones((SAVES, 4)),
    }
    write(tmp_path / "run", by_kind)
    return tmp_path / "run"


def survey_of(run):
    survey = Survey(smdwidgets.create_trial(run))
    survey.update()
    return survey


def bins(survey, name, stat="growth"):
    found = survey.bins([name], "", 0, stat, 2, 0, SAVES)
    return found.mid[0], found.flag[0]


def test_rows_are_heads_experts_and_the_model(run):
    rows = smdwidgets.create_trial(run).reader.signal_rows()
    assert {name.rpartition("/")[0] for name in rows} == {
        f"attention_max/{LAYER}", f"attention_entropy/{LAYER}", "router_load/blocks.1.moe", "",
    }  # fmt: skip
    assert len(rows) == 13
    [row] = rows[HEAD]
    assert row.steps.tolist() == [*range(0, SAVES * EVERY, EVERY)]
    # Both limits are marked where they are first passed: 2 exp(0.25 n) > 50 and > 100.
    assert np.flatnonzero(row.crossings()).tolist() == [13, 16]


def test_the_survey_has_them_relative_to_their_start_or_healthy_value(run):
    survey = survey_of(run)
    growth, flags = bins(survey, HEAD)
    np.testing.assert_allclose(growth, 0.25 * np.arange(SAVES) / np.log(10), atol=1e-4)
    assert np.flatnonzero(flags & SUDDEN).tolist() == [13, 16]
    np.testing.assert_allclose(10 ** bins(survey, HEAD, "size")[0], heads()[:, 2], rtol=1e-4)
    # An expert without tokens is empty; an equal share is the middle of the scale, whatever the first load was.
    load, _ = bins(survey, "router_load/blocks.1.moe/expert 3")
    assert load[:5].tolist() == [0] * 5
    assert (load[5:] < -6).all()
    np.testing.assert_allclose(10 ** bins(survey, "log_z", "size")[0], 3, rtol=1e-5)
    assert survey.findings() == []
    # They are no tensors: the sentence counts the weight and the loss.
    assert "in 2 tensors and" in "".join(clause.text for clause in survey.sentence([]))


def test_a_load_that_is_uneven_from_the_start_is_shown(tmp_path, run):
    write(run, {("router_load", "blocks.0.moe"): np.tile([4.0, 0.25, 0, 0], (SAVES, 1))}, worker="worker_1")
    survey = survey_of(run)
    assert bins(survey, "router_load/blocks.0.moe/expert 0")[0][0] == pytest.approx(np.log10(4), abs=1e-5)
    assert bins(survey, "router_load/blocks.0.moe/expert 1")[0][0] == pytest.approx(-np.log10(4), abs=1e-5)


def test_a_live_survey_adds_what_came(run):
    writer = SignalWriter(SignalFile(run, "worker_1").append)
    writer.write(0, {("attention_max", "late"): [2.0]})
    trial = smdwidgets.create_trial(run)
    survey = Survey(trial)
    survey.update()
    writer.write(8, {("attention_max", "late"): [60.0]})
    trial.reader.run._signals_read = None  # as if the run had grown
    survey.update()
    growth, flags = bins(survey, "attention_max/late/head 0")
    assert growth[[0, 2]].tolist() == pytest.approx([0, np.log10(30)], abs=1e-5)
    assert np.flatnonzero(flags & SUDDEN).tolist() == [2]
    # The training was resumed from step 4: its later values are others now.
    writer._latest = 0
    writer.write(4, {("attention_max", "late"): [20.0]})
    trial.reader.run._signals_read = None
    assert trial.signal("attention_max/late").values.ravel().tolist() == [2, 20]
    survey.update()
    assert bins(survey, "attention_max/late/head 0")[0][1] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("worker", [None, "*", "worker_0"])
def test_queries_find_them(run, worker):
    found = smdwidgets.query(run, "attention_max | top 2 by growth", worker=worker)
    assert found.names == [HEAD, f"attention_max/{LAYER}/head 0"]
    np.testing.assert_allclose(found["growth"], [np.exp(0.25 * (SAVES - 1)), 1], rtol=1e-4)
    assert smdwidgets.query(run, "growth < 1e-3", worker=worker).names == []
    assert smdwidgets.query(run, "| growth | last < 1e-3", worker=worker).names == ["router_load/blocks.1.moe/expert 3"]
    assert smdwidgets.query(run, "@signals | top 1 by max", worker=worker).names == [HEAD]
    assert smdwidgets.query(run, "blocks.1.weight | growth | last > 1.69", worker=worker).names == ["blocks.1.weight"]


def test_growth_is_that_since_the_start_whatever_the_steps(run):
    [growth] = smdwidgets.query(run, "head 2 | name ~ attention_max | steps 40..40 | growth")["last"]
    assert growth == pytest.approx(np.exp(2.5), rel=1e-4)


def test_the_survey_answers_queries_as_the_values_do(run):
    from smdwidgets.modes import ModeKeys
    from smdwidgets.pictures.overview import collection_members
    from smdwidgets.queries.survey import query_survey

    survey = survey_of(run)
    names = survey.names()
    members = collection_members(survey.trial, names)
    for text in (
        "attention_max | top 2 by growth",
        "| growth | last < 1e-3",
        "weight | growth > 1.5",
        "| top 3 by std",
    ):
        found = query_survey(survey, names, members, text, ModeKeys.GLOBAL, None)
        assert [names[at] for at in found] == smdwidgets.query(run, text).names


def test_odd_values_are_no_fault_of_a_tensor(tmp_path, run):
    values = np.full((SAVES, 2), np.nan)
    values[3:, 0] = np.inf
    write(run, {("attention_max", "odd"): values}, worker="worker_1")
    survey = survey_of(run)
    assert "attention_max/odd/head 1" not in survey.names()
    size, flags = bins(survey, "attention_max/odd/head 0", "size")
    assert size[3] == 20  # the end of the scale
    assert not (flags & (NAN | INFINITE)).any()


def test_a_model_with_very_many_heads_has_a_row_per_layer(run, monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_ROWS", 3)
    rows = smdwidgets.create_trial(run).reader.signal_rows()
    assert set(rows) == {f"attention_max/{LAYER}", f"attention_entropy/{LAYER}", "router_load/blocks.1.moe", "log_z"}
    np.testing.assert_allclose(rows[f"attention_max/{LAYER}"][0].values, heads().max(axis=1), rtol=1e-4)


def test_a_tensor_of_the_same_name_takes_precedence(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.save_tensor("log_z", np.ones(3))
        hook.step()
    writer = SignalWriter(SignalFile(tmp_path / "run", "worker_0").append)
    writer.write(0, {("log_z", ""): [2.0]})
    assert not smdwidgets.create_trial(tmp_path / "run").reader.signal_rows()


def test_arrays_are_the_same_however_often_a_file_is_read():
    lines = []
    writer = SignalWriter(lines.append)
    for step, values in ((0, [1.0]), (2, [2.0, 3.0]), (2, [5.0, 6.0]), (4, [7.0]), (6, [8.0]), (3, [9.0]), (5, [1.0])):
        writer._latest = 0
        writer.write(step, {("router_load", "a"): values})
    content = b"".join(lines)

    def read(often):
        log, known = SignalLog("worker_0"), b""
        for end in range(0, len(content) + 1, 1 if often else len(content)):
            known = content[:end]
            log.update(lambda offset, length, known=known: known[offset : offset + length])
            found = [*log.signals()]
        return found[0]

    once, often = read(False), read(True)
    assert once.steps.tolist() == often.steps.tolist() == [0, 2, 3, 5]
    np.testing.assert_array_equal(once.values, often.values)
    np.testing.assert_array_equal(once.values, [[1, np.nan], [5, 6], [9, np.nan], [1, np.nan]])
