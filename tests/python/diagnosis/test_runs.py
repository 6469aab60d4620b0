"""Test the diagnosis of runs on disk.

The runs are logs, runs of hooks and live runs. All forms of output are tested.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from python.diagnosis import curves
from python.diagnosis.scalar_runs import RUNS
from python.logs import logs
from smdwidgets import Diagnosis, _core, cli, create_trial, diagnose
from smdwidgets.diagnosis import Diagnoser, diagnose_runs, diagnoser
from smdwidgets.diagnosis.follow import Confirmation
from smdwidgets.diagnosis.reading import Key, Rows, ScalarReader
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.numpy import Hook
from smdwidgets.survey import Survey


def test_columns_are_freed_before_what_stands_out_is_read(tmp_path, monkeypatch):
    write_run(tmp_path / "run")
    readers, alive = [], []
    make = diagnoser.tensor_reader

    def noted(*args):
        reader = make(*args)
        readers.append(weakref.ref(reader))
        return reader

    update = Survey.update

    def looked(survey, *args):
        alive.append(readers[0]() is not None)
        update(survey, *args)

    monkeypatch.setattr(diagnoser, "tensor_reader", noted)
    monkeypatch.setattr(Survey, "update", looked)
    once = diagnose(tmp_path / "run")
    assert alive == [False]
    readers.clear()
    live = Diagnoser(create_trial(tmp_path / "run"))
    assert str(live.update()) == str(once)
    assert alive == [False, True], "another call reads only what is new"


def write_log(path, columns, steps):
    with SummaryWriter(str(path)) as writer:
        for name, values in columns.items():
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                writer.add_scalar(name, value, step)
    return path


@pytest.fixture
def log(tmp_path):
    """A log of a run that overfits after step 2,000."""
    columns = {"train/loss": curves.falling(), "val/loss": curves.rising_after(0.5)}
    return write_log(tmp_path / "log", columns, curves.steps())


def write_run(path, *, begin=0, end=200, values=None):
    """A run whose evaluation loss rises after half of its 200 training steps."""
    training, validation = curves.falling(200), curves.rising_after(0.5, 200)
    with Hook(path) as hook:
        for step in range(begin, end):
            hook.set_mode(ModeKeys.TRAIN)
            hook.save_tensor("net_loss", np.float32(training[step]), "losses")
            hook.save_tensor("weight", np.ones((3, 4), np.float32), "weights")
            hook.step()
            hook.set_mode(ModeKeys.EVAL)
            hook.save_tensor("net_loss", np.float32(validation[step]), "losses")
            hook.step()
    return path


def test_log_with_tags_of_both_roles(log):
    result = diagnose(log)
    assert isinstance(result, Diagnosis)
    assert [one.kind for one in result] == ["overfit"]
    assert result.run == str(log)


def test_log_with_a_directory_per_mode_counts_steps_of_the_log(tmp_path):
    write_log(tmp_path / "run" / "train", {"epoch_loss": curves.falling()}, curves.steps())
    write_log(tmp_path / "run" / "validation", {"epoch_loss": curves.rising_after(0.5)}, curves.steps())
    [one] = diagnose(tmp_path / "run").findings
    assert one.kind == "overfit"
    assert abs(one.first - 2000) <= 200


def test_run_of_a_hook_pairs_modes_and_counts_global_steps(tmp_path):
    result = diagnose(create_trial(write_run(tmp_path / "run")))
    [one] = result.findings
    assert one.kind == "overfit"
    assert abs(one.first - 200) <= 20
    assert result.summary == "1 finding in 2 series and 1 tensor, steps 0 to 399."
    assert [(each.name, each.role) for each in result.judged[:2]] == [
        ("net_loss", "training"),
        ("net_loss", "validation"),
    ]


def test_texts_name_the_mode_of_series_that_share_a_name(tmp_path):
    result = diagnose(create_trial(write_run(tmp_path / "run")))
    [one] = result.findings
    assert one.text.startswith(one.title + " (`net_loss` (EVAL) ")
    assert "; `net_loss` (TRAIN) still falls)" in one.text
    assert [each.text.split(" 0.")[0] for each in one.evidence] == ["net_loss (EVAL)", "net_loss (TRAIN)"]
    assert one.names == ("net_loss",)
    assert [str(each).partition(", ")[0] for each in result.judged[:2]] == [
        "net_loss (TRAIN): training loss",
        "net_loss (EVAL): validation loss",
    ]
    assert str(result.judged[1]).endswith("compared with net_loss (TRAIN)")
    assert "<code>net_loss</code> (EVAL)" in result._repr_html_()


def test_texts_omit_the_mode_of_a_series_whose_name_is_unique(tmp_path):
    with Hook(tmp_path / "run") as hook:
        hook.set_mode(ModeKeys.TRAIN)
        for value in curves.rising_after(0.5, height=3):
            hook.save_tensor("net_loss", np.float32(value), "losses")
            hook.step()
    result = diagnose(create_trial(tmp_path / "run"))
    assert result.findings[0].title.startswith("`net_loss` rises since step ")
    assert str(result.judged[0]).startswith("net_loss: training loss, ")


def test_reason_lists_a_name_of_several_modes_once(tmp_path):
    for mode in ("train", "validation"):
        write_log(tmp_path / "run" / mode, {"loss": np.ones(4)}, np.arange(4))
    assert diagnose(tmp_path / "run").summary == "Cannot tell: fewer than 10 values (loss)."


def test_mode_that_appears_later_is_shown_for_the_earlier_series():
    class Source:
        mode = "TRAIN"

        def is_loss(self, name):
            return False

        def new_rows(self, progress):
            return [(Key("loss", self.mode, ""), Rows(np.arange(20), np.ones(20)))]

    source = Source()
    reader = ScalarReader(source, {})
    assert [one.label for one in reader.update()] == ["loss"]
    source.mode = "EVAL"
    assert [one.label for one in reader.update()] == ["loss (TRAIN)", "loss (EVAL)"]


def test_series_that_a_restart_made_void_is_forgotten():
    rows = [(Key(name, "TRAIN", ""), Rows(np.arange(20), np.ones(20))) for name in ("loss", "val/loss")]

    class Source:
        def is_loss(self, name):
            return False

        def new_rows(self, progress):
            return rows

    reader = ScalarReader(Source(), {})
    assert [one.name for one in reader.update()] == ["loss", "val/loss"]
    rows = [(Key("val/loss", "TRAIN", ""), Rows(np.empty(0, np.int64), np.empty(0), whole=True))]
    assert [one.name for one in reader.update()] == ["loss"]


def test_live_log_of_two_modes_reads_each_row_once(tmp_path):
    read = []
    live = None
    for begin, end in ((0, 40), (40, 50), (50, 60)):
        for mode in ("train", "validation"):
            logs.log(tmp_path / mode, logs.scalars({"loss": [1 / (1 + step) for step in range(begin, end)]}, begin))
        if live is None:
            live = Diagnoser(create_trial(tmp_path, live=True))
            source = live._scalars._source
            new_rows = source.new_rows
            source.new_rows = lambda progress, new_rows=new_rows: read.extend(found := new_rows(progress)) or found
        assert live.update() == diagnose(create_trial(tmp_path))
    assert [(key.mode, len(rows.steps)) for key, rows in read] == [
        ("TRAIN", 40), ("EVAL", 40), ("TRAIN", 10), ("EVAL", 10), ("TRAIN", 10), ("EVAL", 10),
    ]  # fmt: skip


def test_restarted_log_is_judged_by_the_values_written_last(tmp_path):
    write_log(tmp_path / "log", {"train/loss": curves.rising_after(0.6, height=3)}, curves.steps())
    resumed = curves.steps()[240:]
    with SummaryWriter(str(tmp_path / "log"), filename_suffix=".later") as writer:
        for step, value in zip(resumed.tolist(), curves.falling()[240:].tolist(), strict=True):
            writer.add_scalar("train/loss", value, step)
    result = diagnose(tmp_path / "log")
    assert not result.findings
    assert str(result.judged[0]) == "train/loss: training loss, 400 values, 160 superseded"


@pytest.mark.parametrize(("again", "is_said"), [(15, True), (1, False)])
def test_values_that_were_written_again_are_said(tmp_path, again, is_said):
    epochs = [*range(1, 16), *range(16 - again, 16)]
    lines = [f"Epoch {epoch}/15 loss: {2 * 0.9**epoch:.4f}" for epoch in epochs]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    found = diagnose(tmp_path / "train.log")
    assert any("written again" in gap for gap in found.coverage.gaps) == is_said
    assert ("15 earlier values of `loss` were written again" in str(found)) == is_said


def test_live_log_equals_one_call_at_every_update(tmp_path):
    at, values = curves.steps(), curves.rising_after(0.5, height=3)
    live = None
    for begin in range(0, 400, 80):
        # A closed writer has written everything; the next one continues in a new file.
        with SummaryWriter(str(tmp_path), filename_suffix=f".{begin:03d}") as writer:
            for index in range(begin, begin + 80):
                writer.add_scalar("loss", values[index], int(at[index]))
        if live is None:
            live = Diagnoser(create_trial(tmp_path, live=True))
        result = live.update()
        assert result == diagnose(create_trial(tmp_path))
        assert result.judged[0].points == begin + 80
    assert [one.kind for one in result] == ["diverged"]


def test_wall_clocks_that_go_back_do_not_matter(tmp_path):
    values = curves.rising_after(0.5, height=3).tolist()
    for name, clock in (("even", lambda step: 100.0 + step), ("odd", lambda step: 1e9 - 1e6 * (step % 7) - step)):
        records = [_core.scalar_record("loss", step, clock(step), value) for step, value in enumerate(values)]
        logs.log(tmp_path / name, b"".join(records))
    even, odd = (diagnose(tmp_path / name) for name in ("even", "odd"))
    assert [one.kind for one in even] == ["diverged"]
    assert (odd.findings, odd.judged) == (even.findings, even.judged)


def test_live_update_reads_no_row_twice(log, monkeypatch):
    live = Diagnoser(create_trial(log))
    before = live.update()
    monkeypatch.setattr(
        live._scalars, "_renew", lambda changed: pytest.fail(f"judged again: {changed}") if changed else None
    )
    assert live.update() == before


def test_update_after_an_interruption_reads_everything_again(tmp_path):
    live = Diagnoser(create_trial(write_run(tmp_path / "run")))

    def interrupted(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live.update(interrupted)
    assert live.update() == diagnose(tmp_path / "run")


def test_progress_reaches_its_total(tmp_path, log):
    for run in (write_run(tmp_path / "run"), log):
        calls = []
        diagnose(run, progress=lambda done, total, calls=calls: calls.append((done, total)))
        assert calls
        assert all(0 <= done <= total for done, total in calls)


def test_following_ends_with_the_run(tmp_path):
    results = list(diagnose(write_run(tmp_path / "run"), follow=True))
    assert [one.kind for one in results[-1]] == ["overfit"]


def test_live_finding_needs_two_evaluations_and_can_be_withdrawn():
    at, values = curves.steps(), curves.rising_after(0.5, height=3)
    seen, confirmation = [], Confirmation()
    run = {}
    live = Diagnoser(run)
    for end in (396, 397, 398, 400):
        run["loss"] = at[:end], values[:end]
        seen.append([one.kind for one in confirmation.update(live.update())])
    assert seen == [[], [], [], []]
    more = np.concatenate([values, values[-40:]])
    run["loss"] = curves.steps(440), more
    assert [one.kind for one in confirmation.update(live.update())] == ["diverged"]
    run["loss"] = curves.steps(840), np.concatenate([more, curves.falling(400, start=0.3)])
    after = confirmation.update(live.update())
    assert (after.findings, [one.kind for one in after.withdrawn]) == ((), ["diverged"])
    assert "Withdrawn: `loss` rises" in after.text()


def test_text_form_names_fact_cause_advice_and_section(log):
    lines = repr(diagnose(log)).splitlines()
    assert lines[0] == "1 finding in 2 series, steps 0 to 3,990."
    assert lines[2].startswith("1. Validation loss rises since step ")
    assert any(line.startswith("   Try: Keep the checkpoint of step ") for line in lines)
    assert lines[-1].endswith("smdwidgets explain overfit")
    assert all(len(line) <= 100 for line in lines)


def test_notes_list_what_each_series_was_taken_for(log):
    text = diagnose(log).text(notes=True)
    assert "val/loss: validation loss, 400 values, compared with train/loss" in text


def test_html_form_plots_the_evidence_and_escapes_names(tmp_path):
    name = "train/<b>loss"
    write_log(tmp_path / "log", {name: curves.rising_after(0.5, height=3)}, curves.steps())
    page = diagnose({name: (curves.steps(), curves.rising_after(0.5, height=3))})._repr_html_()
    assert "<b>loss" not in page
    assert page.count("<svg") == page.count("<polyline") == page.count("<rect") == 1
    assert "nan" not in page.lower()


@pytest.mark.slow
def test_forms_of_many_series_stay_small():
    run = {f"group{at}/loss": (curves.steps(20), curves.falling(20)) for at in range(1000)}
    result = diagnose(run)
    assert "and 900 more" in result._repr_html_()
    assert len(result._repr_html_()) < 20_000
    assert len(repr(result)) < 300


def test_json_and_table_forms_hold_every_finding(log):
    pytest.importorskip("pandas")
    result = diagnose(log)
    plain = json.loads(json.dumps(result.to_json()))
    assert plain["findings"][0]["kind"] == "overfit"
    assert plain["judged"][0] == {
        "name": "train/loss",
        "kind": "loss",
        "role": "training",
        "points": 400,
        "partner": "",
        "superseded": 0,
        "mode": "",
    }
    assert result.to_pandas()["kind"].tolist() == ["overfit"]


def run_command(capsys, *arguments):
    code = cli.main(["diagnose", *map(str, arguments)])
    result = capsys.readouterr()
    return code, result.out, result.err


def test_report_shows_the_diagnosis_and_its_policy_permits_the_style(tmp_path, capsys):
    page = tmp_path / "report.html"
    assert cli.main(["report", str(write_run(tmp_path / "run")), "-o", str(page), "--no-rules"]) == 0
    assert "1 finding in 2 series and 1 tensor" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    body = text[text.index("<body>") :]
    assert "Validation loss rises since step" in body
    [style] = re.findall(r"<style>(.*?)</style>", body, re.DOTALL)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in text
    assert " style=" not in body[: body.index("smdw-page")]


def test_exit_codes(log, tmp_path, capsys):
    healthy = write_log(tmp_path / "healthy", {"loss": curves.falling()}, curves.steps())
    unknown = write_log(tmp_path / "unknown", {"foo": curves.falling()}, curves.steps())
    level = write_log(tmp_path / "level", {"loss": 5 + 0.02 * np.sin(curves.steps())}, curves.steps())
    assert run_command(capsys, log)[0] == 1
    assert run_command(capsys, healthy)[0] == 0
    assert run_command(capsys, unknown)[0] == 2
    assert run_command(capsys, unknown, "--allow-unjudged")[0] == 0
    assert run_command(capsys, unknown, "--kind", "foo=loss")[0] == 0
    assert run_command(capsys, healthy, log)[0] == 1
    assert run_command(capsys, level)[0] == 0
    assert run_command(capsys, level, "--fail-on", "low")[0] == 1
    code, out, err = run_command(capsys, tmp_path / "absent")
    assert (code, out) == (2, "")
    assert "no run at" in err


def test_every_run_of_a_log_directory_is_diagnosed(log, tmp_path, capsys):
    write_log(tmp_path / "healthy", {"loss": curves.falling()}, curves.steps())
    code, out, _ = run_command(capsys, tmp_path)
    assert code == 1
    assert f"{log}:" in out
    assert "Nothing wrong seen in 1 series" in out


def test_no_run_stops_the_others(log, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no run")
    damaged = write_run(tmp_path / "damaged")
    for file in (*(damaged / "index").rglob("*.json"), *(damaged / "segments").rglob("*.*")):
        file.write_text("{")
    fails = write_run(tmp_path / "fails")
    update = Diagnoser.update

    def failing(self, progress=None, last=False):
        if "fails" in str(self._run.path):
            raise MemoryError("no room")
        return update(self, progress, last)

    monkeypatch.setattr(Diagnoser, "update", failing)
    opened = create_trial(log)
    runs = [tmp_path / "missing", tmp_path / "empty", tmp_path / "text", damaged, fails, opened, log]
    results = list(diagnose_runs(runs))
    assert [one.run for one in results] == [str(run) for run in (*runs[:5], opened.path, log)]
    assert [one.can_tell for one in results] == [False] * 5 + [True, True]
    assert all(one.summary.startswith("Cannot tell: ") for one in results[:5])
    assert "MemoryError: no room" in results[4].summary
    assert results[5] == results[6] == diagnose(log)
    with pytest.raises(SMDebugValueError, match="invalid kind"):
        next(diagnose_runs([log], kinds={"loss": "nonsense"}))


def test_json_output_of_several_runs(log, capsys):
    code, out, _ = run_command(capsys, log, log, "--json", "--fail-on", "high")
    found = json.loads(out)
    assert code == 1
    assert [one["run"] for one in found] == [str(log)] * 2


def test_follow_option_prints_the_diagnosis_at_the_end(tmp_path, capsys):
    code, out, _ = run_command(capsys, write_run(tmp_path / "run"), "--follow")
    assert code == 1
    assert "Validation loss rises since step" in out


def test_invalid_options_are_refused(log, capsys):
    assert "expected NAME=KIND" in run_command(capsys, log, "--kind", "loss")[2]
    assert "invalid kind 'los'" in run_command(capsys, log, "--kind", "x=los")[2]
    assert "--follow takes one run" in run_command(capsys, log, log, "--follow")[2]


def test_interrupted_command_returns_130(log):
    script = (
        "import sys, smdwidgets.diagnosis.diagnoser as d, smdwidgets.cli as cli\n"
        "def interrupted(*a, **k): raise KeyboardInterrupt\n"
        "d.ScalarReader.update = interrupted\n"
        "sys.exit(cli.main(['diagnose', sys.argv[1]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_first_diagnosis_of_a_log_knows_that_it_has_ended(tmp_path):
    log = RUNS["reward_of_language_that_collapses"][1](np.random.default_rng(1))
    points = sorted((step, name, value) for name, course in log.items() for step, value in zip(*course, strict=True))
    table = tmp_path / "metrics.csv"
    table.write_text("step,name,value\n" + "".join(f"{step},{name},{value}\n" for step, name, value in points))
    os.utime(table, (1e9, 1e9))
    [finding] = diagnose(create_trial(tmp_path))
    assert (finding.kind, finding.confidence) == ("collapsed", "medium")
