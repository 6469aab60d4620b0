"""Findings for programs: SARIF, annotations of GitHub Actions, and messages."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from contextlib import contextmanager

import pytest

from smdwidgets.cli import main
from smdwidgets.cli._notify import TOKEN, Notifier
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.finding import Finding


@pytest.fixture
def overfit(tmp_path, monkeypatch):
    """A log whose validation loss rises while the training loss falls."""
    monkeypatch.chdir(tmp_path)
    rows = (f"epoch {n}: train loss {1 / n:.3f} val loss {0.3 + abs(n - 6) / 20:.3f}\n" for n in range(1, 30))
    (tmp_path / "train.log").write_text("".join(rows))
    return "train.log"


def test_sarif_names_kind_level_place_and_id(overfit, capsys):
    assert main(["diagnose", overfit, "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    result = run["results"][0]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "overfit"
    assert rule["fullDescription"]["text"]
    assert result["level"] == "error"
    assert result["message"]["text"].startswith("Validation loss rises since step")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.log"
    assert result["partialFingerprints"]["smdwidgets/id"].startswith("overfit:")


def test_ids_are_those_of_json(overfit, capsys):
    main(["diagnose", overfit, "--json"])
    [plain] = json.loads(capsys.readouterr().out)
    main(["diagnose", overfit, "--sarif"])
    [run] = json.loads(capsys.readouterr().out)["runs"]
    ids = [result["partialFingerprints"]["smdwidgets/id"] for result in run["results"]]
    assert ids == [finding["id"] for finding in [*plain["findings"], *plain["notes"]]]


def test_annotations_of_github_are_one_line_each(overfit, capsys):
    assert main(["diagnose", overfit, "--github"]) == 1
    [line, *_] = capsys.readouterr().out.splitlines()
    assert line.startswith("::error title=Validation loss rises since step")
    assert "train.log: Validation loss rises" in line


def test_names_cannot_begin_a_command():
    hostile = Finding(
        "spike", "warning", "medium", title="a\n::error::x, y", text="t\n::error::z", try_="%0A::set-env::"
    )
    from smdwidgets.cli._annotations import github

    [line] = github([Diagnosis("run\n::error::r", findings=(hostile,))]).splitlines()
    assert line.startswith("::warning title=")
    assert "%250A" in line


def test_formats_exclude_each_other(overfit, capsys):
    with pytest.raises(SystemExit) as exited:
        main(["diagnose", overfit, "--sarif", "--json"])
    assert exited.value.code == 2


def test_notify_needs_follow(overfit, capsys):
    assert main(["diagnose", overfit, "--notify", "true"]) == 2
    assert "--notify requires --follow" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- messages


def finding(kind="spike", first=3):
    return Finding(kind, "warning", "medium", "loss", first, title="a", text=f"{kind} at {first}.")


@contextmanager
def receiver(statuses=()):
    """Run a web server. Yield its address and what it received.

    It answers with these status codes, then with 200.
    """
    received, answers = [], list(statuses)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop(0) if answers else 200
            if status == 200:
                received.append((json.loads(body), dict(self.headers)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?key=secret", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_one_message_for_each_new_and_each_withdrawn_finding(monkeypatch):
    monkeypatch.setenv(TOKEN, "t0ken")
    with receiver() as (address, received):
        notifier = Notifier(address)
        notifier.update(Diagnosis("run"))
        notifier.update(Diagnosis("run", findings=(finding(first=3),)))
        notifier.update(
            Diagnosis("run", findings=(finding(first=4), finding("diverged", 9)))
        )  # the same, with another onset
        notifier.update(Diagnosis("run", findings=(finding("diverged", 9),)))
        notifier.close()
    assert [(body["event"], body["id"]) for body, _ in received] == [
        ("new", "spike:loss:3"),
        ("new", "diverged:loss:9"),
        ("withdrawn", "spike:loss:4"),
    ]
    assert {headers["Authorization"] for _, headers in received} == {"Bearer t0ken"}


def test_failures_are_tried_again_and_then_said_without_the_address(capsys):
    with receiver([500, 429]) as (address, received):
        notifier = Notifier(address, pause=0.01)
        notifier.update(Diagnosis("run", findings=(finding(),)))
        notifier.close()
        assert len(received) == 1
        assert not capsys.readouterr().err
    notifier = Notifier(address, pause=0.01)  # nobody answers now
    notifier.update(Diagnosis("run", findings=(finding(),)))
    notifier.close()
    warning = capsys.readouterr().err
    assert "a message to 127.0.0.1 was not delivered" in warning
    assert "secret" not in warning


def test_a_receiver_that_hangs_does_not_delay_the_diagnosis(tmp_path):
    code = "import sys, time; sys.stdin.read(); time.sleep(600)"
    notifier = Notifier(f"{sys.executable} -c '{code}'")
    for number in range(1500):  # more than wait at once
        notifier.update(Diagnosis("run", findings=(finding(first=number),) if number % 2 else ()))
    assert notifier._messages.qsize() <= 1000
    notifier.close(timeout=0)


def test_command_gets_the_message_on_its_standard_input(tmp_path):
    out = tmp_path / "out.json"
    script = tmp_path / "script.py"
    script.write_text("import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())")
    notifier = Notifier(f"{sys.executable} {script} {out}")
    notifier.update(Diagnosis("run", findings=(finding(),)))
    notifier.close()
    message = json.loads(out.read_text())
    assert (message["event"], message["run"], message["text"]) == ("new", "run", "spike at 3.")
    assert message["finding"]["kind"] == "spike"


def test_command_without_a_shell(tmp_path, capsys):
    notifier = Notifier(f"/nonexistent; touch {tmp_path}/made", pause=0.01)
    notifier.update(Diagnosis("run", findings=(finding(),)))
    notifier.close()
    assert not (tmp_path / "made").exists()
    assert "was not delivered" in capsys.readouterr().err
