"""Opening a run executes and imports nothing, and opens no other files.

Python's audit events are the evidence.
"""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.hostile import runs

WATCHER = r"""
import sys, os, json

run, out = os.path.realpath(sys.argv[1]), sys.argv[2]
sys.path.insert(0, sys.argv[3])

import numpy as np
import smdwidgets, smdwidgets.cli
from smdwidgets.cli import inspect, show, verify, check, diagnose, report
from smdwidgets.rules.report import XgboostReport
from smdwidgets.hooks.core.json_config import read
import smdwidgets.sources, smdwidgets.widgets, smdwidgets.trials.tensorboard.trial, ipywidgets

# Whatever is loaded at first use is loaded now, over a run with nothing wrong.
def everything(path, page):
    for arguments in (["inspect", path], ["verify", path], ["show", path, "w"], ["check", path], ["check", path, "--json"],
                      ["diagnose", path, "--notes"], ["diagnose", path, "--json"],
                      ["report", path, "-o", page]):
        smdwidgets.cli.main(arguments)
    with smdwidgets.create_trial(path, skip_bad_index=True) as trial:
        repr(trial), trial._repr_html_(), trial.collections(), trial.problems()
        names = trial.tensor_names()
        for name in names:
            tensor = trial.tensor(name)
            repr(tensor), tensor._repr_html_()
            for step in tensor.steps():
                try:
                    tensor.value(step)
                except smdwidgets.exceptions.SMDebugError:
                    pass
        trial.reductions(names[:3], reductions=["mean"])
        widget = smdwidgets.explore(trial, rules=["ExplodingTensor"])
        widget._repr_mimebundle_(), repr(widget)
        widget.to_html(page)
        widget.close()
        try:
            repr(XgboostReport(trial).html())
        except smdwidgets.exceptions.SMDebugError:
            pass

"\x1b".encode("unicode_escape"), "é".encode("cp437")
smdwidgets.sources.formats()  # reads which installed packages have formats
everything(sys.argv[4], out + ".html")

EXECUTES = ("exec", "compile", "import", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn",
            "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "pickle.find_class", "marshal.loads",
            "ctypes.dlopen", "shutil.", "webbrowser.open", "code.__new__", "os.startfile")
seen = []
package = os.path.dirname(smdwidgets.__file__)

def watch(event, args):
    if event == "open":
        path = args[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, int):
            return
        path = os.path.abspath(path)
        inside = path == run or path.startswith(run + os.sep)
        ours = path.startswith(out) or os.path.basename(path).startswith("." + os.path.basename(out)) or path.startswith(package)
        if not inside and not ours:
            seen.append(["open", path])
    elif event.startswith(EXECUTES):
        # A module that is there already is only looked up.
        if event == "import" and args[0] in sys.modules:
            return
        seen.append([event, repr(args)[:300]])

sys.addaudithook(watch)
everything(run, out + ".html")
found, done = list(seen), True
open(out, "w").write(json.dumps(found))
"""


@pytest.mark.parametrize("kind", ["run", "log", "files"])
def test_opening_a_hostile_run_executes_nothing_and_opens_no_other_files(
    tmp_path: Path, repository: Path, kind: str
) -> None:
    plain = runs.plain(tmp_path / "plain")
    if kind == "run":
        path = runs.hostile(tmp_path / "run")
        runs.save(path, 2, {"w": __import__("numpy").ones(3, "float32")})
        for name in ("conftest.py", "sitecustomize.py", "numpy.py", "smdwidgets.py", "rules.py", "__init__.py"):
            (path / name).write_text("raise SystemExit('a file of the run was executed')")
        (path / "collections" / "rules.py").write_text("raise SystemExit")
    elif kind == "log":
        path = runs.log(tmp_path / "run", {**runs.ALL, "w": "w"})
    else:
        path = runs.files(tmp_path / "run", {**runs.ALL, "w": "w"})
    out = tmp_path / "seen.json"
    # Isolated mode: otherwise Python searches the working directory for modules.
    arguments = [sys.executable, "-I", "-c", WATCHER, str(path), str(out), str(repository / "tests"), str(plain)]
    done = subprocess.run(
        arguments, cwd=path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(out.read_text()) == []


#: Functions that execute or unpickle their argument, by the name that a call has in the source.
EXECUTING = frozenset(
    {
        *(
            "eval",
            "exec",
            "builtins.eval",
            "builtins.exec",
            "os.system",
            "os.popen",
            "ast.literal_eval",
            "literal_eval",
        ),
        *("pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "shelve.open", "yaml.load"),
        *("marshal.load", "marshal.loads", "joblib.load", "torch.load"),
    }
)
#: Options that make a call execute its argument.
OPTIONS = frozenset({"shell", "allow_pickle"})


def executed(program: str) -> Iterator[tuple[int, str]]:
    """Return line and name of calls that execute or unpickle something.

    Programs in strings are read, too.
    """
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            # A module of PyTorch has a method `eval()`; that of a table of pandas evaluates its argument.
            if name in EXECUTING or (name.endswith(".eval") and node.args):
                yield node.lineno, name
            yield from (
                (node.lineno, f"{name}({option.arg}=...)")
                for option in node.keywords
                if option.arg in OPTIONS and ast.unparse(option.value) == "True"
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "(" in node.value:
            with contextlib.suppress(SyntaxError, ValueError):
                yield from ((node.lineno, name) for _, name in executed(textwrap.dedent(node.value)))


def test_package_does_not_execute_data(repository: Path) -> None:
    """Only the processes of a sweep unpickle; `eval` and the like are not called.

    `exec_module` occurs once, where the user has allowed it.
    """
    package = repository / "python" / "smdwidgets"
    calls = {
        (path.relative_to(package).as_posix(), name)
        for path in package.rglob("*.py")
        for _, name in executed(path.read_text(encoding="utf-8"))
    }
    # They read what another process of the same user made for them, never the content of a run.
    between_processes = {"executors/calls.py", "executors/processes.py", "trials/shipping.py"}
    # A replay compiles the loop of the live frame, never text that a run holds.
    live = {("replay/torch/loop.py", "exec")}
    assert calls == {(path, "pickle.loads") for path in between_processes} | live
    executing = [
        path.relative_to(repository / "python" / "smdwidgets").as_posix()
        for path in (repository / "python" / "smdwidgets").rglob("*.py")
        if "exec_module" in path.read_text(encoding="utf-8")
    ]
    # Among the others, one defines smdebug's names as modules of this package, and one calls the loaders of frameworks
    # that a script imports.
    assert sorted(executing) == ["compat.py", "launch/bootstrap/_smdwidgets_finder.py", "rules/config.py"]


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        ("eval(text)", ["eval"]),
        ("frame.eval(text)", ["frame.eval"]),
        ("model.eval()  # eval(text)", []),
        ("advice = '`model.eval()` before an evaluation'", []),
        ("run(words, shell=True)", ["run(shell=...)"]),
        ("np.load(file, allow_pickle=False)", []),
        ("START = '''\nimport pickle\npickle.loads(content)\n'''", ["pickle.loads"]),
    ],
)
def test_calls_that_execute_something_are_seen(program: str, calls: list[str]) -> None:
    assert [name for _, name in executed(program)] == calls


def test_rule_file_is_executed_only_if_allowed(tmp_path: Path) -> None:
    from smdwidgets import create_trial
    from smdwidgets.exceptions import SMDebugValueError
    from smdwidgets.rules import rules_from_json

    mark = tmp_path / "executed"
    source = tmp_path / "rules.py"
    source.write_text(
        f"from smdwidgets.rules import Rule\nopen({str(mark)!r}, 'w').close()\nclass Mine(Rule):\n    def invoke_at_step(self, step):\n        return False\n"
    )
    config = {
        "RuleConfigurationName": "mine",
        "RuleParameters": {"rule_to_invoke": "Mine", "source_s3_uri": str(source)},
    }
    with create_trial(runs.plain(tmp_path / "run")) as trial:
        with pytest.raises(SMDebugValueError, match="allow_custom"):
            rules_from_json([config], trial)
        assert not mark.exists()
        assert "mine" in rules_from_json([config], trial, allow_custom=True)
        assert mark.exists()
