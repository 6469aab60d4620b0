"""Texts of a run are shown as text in terminals, messages, charts and reports."""

from __future__ import annotations

import html.parser
import io
import json
import logging
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from faults.hostile import runs
from faults.hostile.names import ALL, LARGE, MARKUP, SMALL, TERMINAL, UNICODE, acting, file_name
from smdwidgets import cli, create_trial, exceptions
from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules import RuleRunner
from smdwidgets.rules.report import XgboostReport
from smdwidgets.stop import STOP_FILE, stop_requested
from smdwidgets.storage import StoreError
from smdwidgets.storage.address import Address

#: Maximum length of a message, including quotations.
LONGEST = 20_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.hostile(tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.log(tmp_path_factory.mktemp("hostile") / "log")


def is_text(said: str, allowed: str = "\n") -> None:
    assert acting(said, allowed) == []
    said.encode()  # not a lone surrogate


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = cli.main([str(each) for each in arguments])
    output = capsys.readouterr()
    assert code in (0, 1, 2)
    is_text(output.out + output.err)
    return output.out + output.err


# ------------------------------------------------------------------------------------------------------------- terminal


@pytest.mark.parametrize("kind", ["run", "log"])
def test_commands_escape_names_for_the_terminal(request, capsys, tmp_path, kind: str) -> None:
    path = request.getfixturevalue(kind)
    for arguments in (
        ["inspect"],
        ["inspect", "--all"],
        ["check"],
        ["diagnose", "--notes"],
        ["report", "-o", tmp_path / "page.html"],
    ):
        said = command(capsys, arguments[0], path, *arguments[1:])
        assert max(map(len, said.splitlines())) < 4000
    if kind == "run":
        command(capsys, "verify", path)
        command(capsys, "show", path, "texts")
    for text in list(SMALL.values())[:: 1 if kind == "run" else 8]:
        said = command(capsys, "show", path, text)
        assert max(map(len, said.splitlines())) < 4000
        command(capsys, "show", path, f"no {text}")
    for arguments in (["inspect", "--json"], ["check", "--json"], ["diagnose", "--json"], ["check", "--junit"]):
        said = command(capsys, arguments[0], path, *arguments[1:])
        json.loads(said) if "--json" in arguments else ElementTree.fromstring(said)


@pytest.mark.parametrize("text", TERMINAL.values(), ids=TERMINAL.keys())
def test_string_values_are_escaped_for_the_terminal(tmp_path, capsys, text: str) -> None:
    run = runs.plain(tmp_path / "run", steps=1)
    runs.save(run, 1, {"s": np.array([text, "b"])})
    said = command(capsys, "show", run, "s")
    first, *rest = said.splitlines()
    assert first.startswith("s  step 1")
    assert all(line.startswith("  | ") for line in rest)


class _Anything(exceptions.SMDebugError):
    pass


@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_error_messages_escape_quoted_texts(text: str) -> None:
    train = ModeKeys.TRAIN
    errors: list[SMDebugError] = [
        exceptions.TensorUnavailable(text, [text, f"{text}x"]),
        exceptions.TensorUnavailableForStep(text, 1, train, True, text),
        exceptions.ShapeUnavailableForStep(text, 1),
        exceptions.InvalidWorker(text, [text, "b"]),
        exceptions.InvalidCollectionConfiguration(text),
        exceptions.UnknownCollection(text, [text, "b"]),
        exceptions.MissingCollectionFiles(text, 1, 2),
        exceptions.RunNotFound(text, text),
        exceptions.SeveralRuns(text, [text, "b"]),
        exceptions.RegexTooSlow(text, 1.0),
        exceptions.RuleEvaluationConditionMet(text, 1),
        exceptions.InsufficientInformationForRuleInvocation(text, text),
        exceptions.TrainingStopped(text, text, 1),
        exceptions.WaitTimeout(text, 1.0),
        exceptions.IndexReaderException(text),
        exceptions.RunIOError(5, text, text),
        exceptions.CorruptDataError(text),
        StoreError(Address("s3", text, text), text, text, text, text),
        _Anything(text),
    ]
    for error in errors:
        is_text(str(error))
        assert len(str(error)) <= LONGEST, type(error)


def test_errors_of_queries_are_text(run: Path) -> None:
    with create_trial(run) as trial:
        for text in (*SMALL.values(), "\ud800"):
            for ask in (
                lambda text=text: trial.tensor(f"no {text}"),
                lambda text=text: trial.tensor("w/0/" + SMALL["script"]).value(0, worker=text),
                lambda text=text: trial.tensor("w/0/" + SMALL["script"]).value(99, worker=text),
                lambda text=text: trial.tensor("w/0/" + SMALL["script"]).reduction_value(0, text),
                lambda text=text: create_trial(f"/nowhere/x{file_name(text)}"),
            ):
                with pytest.raises((SMDebugError, ValueError)) as raised:
                    ask()
                is_text(str(raised.value))
                assert len(str(raised.value)) <= LONGEST


def test_warning_of_a_misspelt_collection_is_text(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with create_trial(run) as trial:
        for text in (*SMALL.values(), "\ud800"):
            trial.collection_manager.add(f"{text}z")
            trial.collection(f"{text}zz")
    assert caplog.messages
    for message in caplog.messages:
        is_text(message)
        assert len(message) <= LONGEST


# ----------------------------------------------------------------------------------------------------------------- repr


class Elements(html.parser.HTMLParser):
    """Return the elements and attributes that a browser would create."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("kind", ["run", "log"])
def test_repr_is_text_and_its_html_is_a_table(request, kind: str) -> None:
    with create_trial(request.getfixturevalue(kind)) as trial:
        things: list[Any] = [trial, *(trial.tensor(text) for text in ALL.values())]
        for thing in things:
            is_text(repr(thing))
            made = thing._repr_html_()
            is_text(made)
            assert len(made) < LONGEST
            assert Elements(made).found <= {"table", "caption", "b", "tbody", "tr", "th", "td"}
            assert Elements(made).attributes <= {"style"}
        for collection in trial.collections().values():
            is_text(repr(collection))


def test_stop_file_is_text(tmp_path: Path) -> None:
    for text in (*SMALL.values(), "\ud800"):
        (tmp_path / STOP_FILE).write_text(json.dumps({"reason": text, "by": text, "step": text, "time": text}))
        is_text(str(stop_requested(tmp_path)))


# -----------------------------------------------------------------------------------------------------------------
# rules


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which rules fire for every hostile name: zeros, NaN, a growing loss."""
    root = tmp_path_factory.mktemp("bad") / "run"
    names = list(SMALL.values())
    everything = {"tensor_names": names}
    kinds = ("losses", "weights", "gradients", "biases", "relu_output")
    runs.collections(root, {"default": {}, **dict.fromkeys(kinds, everything)})
    for step in range(12):
        zeros = np.zeros((4, 4), np.float32)
        values = {name: np.float32(step * (at + 1)) if at % 3 else zeros * np.nan for at, name in enumerate(names)}
        runs.save(root, step, values | {f"zero/{name}": zeros for name in names[:5]})
    return runs.end(root)


def test_findings_of_rules_are_text(bad: Path, capsys, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    names = ["ExplodingTensor", "AllZero", "LossNotDecreasing", "VanishingGradient", "WeightUpdateRatio"]
    with create_trial(bad) as trial:
        runner = RuleRunner(trial, names[:1], follow=False)
        runner.add("AllZero", tensor_regex=".*")
        runner.start()
        assert runner.wait(60)
        assert any(evaluation.fired for evaluation in runner)
        for evaluation in runner:
            for event in evaluation.firings:
                is_text(str(event))
                for finding in event.findings:
                    is_text(str(finding))
            is_text(evaluation.message)
        is_text(repr(runner))
        made = runner._repr_html_()
        is_text(made)
        assert not Elements(made).found & {"script", "img", "svg", "iframe", "a", "style"}
        assert not {name for name in Elements(made).attributes if name.startswith("on")}
    said = command(capsys, "check", bad, "--rules", "ExplodingTensor,LossNotDecreasing")
    assert len(said.splitlines()) == 3
    is_text("".join(record.getMessage() for record in caplog.records))


# --------------------------------------------------------------------------------------------------------------- charts


def test_chart_shows_names_unchanged(run: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    with create_trial(run) as trial:
        for label, text in {
            **dict(list(MARKUP.items())[::2]),
            "formula": MARKUP["formula"],
            **dict(list(TERMINAL.items())[::3]),
            "large": LARGE["a megabyte"],
        }.items():
            ax = trial.tensor(text).plot.histogram()
            title = ax.get_title()
            is_text(title)
            assert len(title) < 400, label
            ax.figure.savefig(io.BytesIO(), format="png")
            drawn = io.StringIO()
            ax.figure.savefig(drawn, format="svg")
            root = ElementTree.fromstring(drawn.getvalue().split("?>", 1)[-1].split('.dtd">', 1)[-1])
            assert not [each for each in root.iter() if each.tag.rpartition("}")[2] in ("script", "image", "a")]
            pyplot.close("all")
        ax = trial.plot.scalars(f"^{re.escape(MARKUP['formula'])}$")
        ax.figure.savefig(io.BytesIO(), format="png")
        pyplot.close("all")


# --------------------------------------------------------------------------------------------------------------- report


def xgboost_run(root: Path) -> Path:
    """A training of XGBoost with hostile features, metrics and hyperparameters."""
    names = list({**MARKUP, **TERMINAL, **UNICODE}.values())
    kinds = ("metrics", "feature_importance", "hyperparameters", "labels", "predictions")
    metrics = [f"train-{name}" for name in names[:4]] + [f"validation-{name}" for name in names[:4]]
    importance = [f"feature_importance/gain/{name}" for name in names]
    hyper = [f"hyperparameters/{name}" for name in names]
    tensors = (metrics, importance, hyper, ["labels"], ["predictions"])
    runs.collections(root, {kind: {"tensor_names": mine} for kind, mine in zip(kinds, tensors, strict=True)})
    for step in range(4):
        values: dict[str, Any] = {name: np.float64(1 + step) for name in metrics + importance}
        values |= {name: np.array([names[at % len(names)]]) for at, name in enumerate(hyper)}
        values |= {"labels": np.array([0.0, 1, 0, 1]), "predictions": np.array([0.1, 0.9, 0.4, 0.3])}
        runs.save(root, step, values)
    # A tensor that cannot be read: its error is quoted.
    path = root / runs.event_key(3)
    path.write_bytes(path.read_bytes()[:-40])
    return runs.end(root)


def test_xgboost_report_contains_only_text(tmp_path: Path) -> None:
    with create_trial(xgboost_run(tmp_path / "<b>run")) as trial:
        report = XgboostReport(trial)
        page = report.html()
        assert not Elements(page).found & {"script", "img", "iframe", "foreignobject", "object", "embed"}
        assert not {name for name in Elements(page).attributes if name.startswith("on")}
        is_text(page)
        assert "default-src 'none'" in page
        notebook = json.loads(report.to_notebook(tmp_path / "report.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            assert not re.search(r"(?<!\\)[<\[`*]|(?<!\\)\$", cell["source"]), cell["source"]
        else:
            compile(cell["source"], "cell", "exec")
