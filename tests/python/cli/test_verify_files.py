"""`smdwidgets verify` of tables, trainer states, stores and checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python.logs.logs import log, scalars
from smdwidgets import cli
from smdwidgets.numpy import Hook

Verify = Callable[[Path], tuple[int, dict[str, Any], str]]
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n"


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(path: Path) -> tuple[int, dict[str, Any], str]:
        code = cli.main(["verify", str(path)])
        text = capsys.readouterr().out
        assert cli.main(["verify", "--json", str(path)]) == code
        return code, json.loads(capsys.readouterr().out), text

    return run


@pytest.mark.parametrize(
    ("run", "lines"),
    [
        ("lightning", ["metrics.csv (table): 3 scalars, 15 values", "(torch checkpoint, 3 files): 6 tensors"]),
        (
            "transformers",
            ["trainer_state.json (trainer state, 4 files): 13 scalars", "(safetensors, 4 files): 75 tensors"],
        ),
        ("mlflow", ["mlflow database): 2 scalars, 8 values", "(mlflow files, 7 files): 2 scalars, 8 values"]),
        ("keras/training.csv", ["training.csv (table): 4 scalars, 20 values"]),
        (
            "torch",
            ["(torch checkpoint, 5 files): 16 tensors", "step_5.pt is not read: the format of PyTorch before 1.6"],
        ),
    ],
)
def test_files_are_named_for_what_they_are(source_runs: Path, verify: Verify, run: str, lines: list[str]) -> None:
    code, found, text = verify(source_runs / run)
    assert (code, found["faults"]) == (0, [])
    for line in lines:
        assert line in text
    assert text.endswith("No faults.\n")


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


@pytest.mark.parametrize(
    ("run", "file", "damage", "message"),
    [
        ("sharded", "checkpoint-200/model-00001-of-00002.safetensors", lambda path: cut(path, 0.9), "it may be incomplete"),
        ("sharded", "checkpoint-100/model.safetensors.index.json", lambda path: cut(path, 0.5), "invalid index"),
        ("torch", "step_1.pt", lambda path: cut(path, 0.5), ""),
        ("transformers", "checkpoint-6/trainer_state.json", lambda path: cut(path, 0.5), ""),
        ("keras", "training.csv", lambda path: path.write_text(path.read_text() + "9;1;2;3;4;5;6;7\n"), "1 rows have more cells"),
    ],
)  # fmt: skip
def test_damage_is_a_fault_of_its_file(
    source_runs: Path,
    tmp_path: Path,
    verify: Verify,
    run: str,
    file: str,
    damage: Callable[[Path], object],
    message: str,
) -> None:
    shutil.copytree(source_runs / run, tmp_path / "run")
    damage(tmp_path / "run" / file)
    code, found, text = verify(tmp_path / "run")
    assert code == 1
    [fault] = found["faults"]
    assert fault["file"] == file
    assert message in fault["message"]
    assert file in text


@pytest.mark.parametrize("beside", ["nothing", "a table", "a log"])
def test_pointers_and_pages_are_no_faults(tmp_path: Path, verify: Verify, beside: str) -> None:
    names = ["metrics.csv", "model.safetensors", "last.ckpt", "mlflow.db"]
    for name in names:
        (tmp_path / name).write_bytes(POINTER)
    (tmp_path / "results.csv").write_bytes(b"<!DOCTYPE html>\n<html>Sign in</html>\n")
    if beside == "a table":
        (tmp_path / "val.csv").write_text("step,loss\n0,1\n")
    elif beside == "a log":
        log(tmp_path, scalars({"loss": [1.0]}))
    code, found, text = verify(tmp_path)
    assert (code, found["faults"]) == (0, [])
    assert found["others"] == dict.fromkeys(names, "a pointer of Git LFS; run git lfs pull") | {
        "results.csv": "an HTML page"
    }
    assert "model.safetensors is not read: a pointer of Git LFS" in text


def test_all_runs_below_a_directory(tmp_path: Path, verify: Verify) -> None:
    for name in ("a", "b"):
        with Hook(tmp_path / name) as hook:
            hook.save_scalar("loss", 1.0)
            hook.step()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.csv").write_text("step,loss\n0,1\n")
    log(tmp_path / "d", scalars({"loss": [1.0]}))
    code, found, _ = verify(tmp_path)
    assert (code, found["runs"], sorted(found["hooks"])) == (0, ["a", "b", "c", "d"], ["a", "b"])
    [events] = (tmp_path / "b" / "events").rglob("*.tfevents")
    cut(events, 0.8)
    code, found, text = verify(tmp_path)
    assert code == 1
    assert found["faults"][0]["file"].startswith("b/events/")
    assert "b/events/" in text
