"""When a trial checks for new steps, and when it does not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh
from smdwidgets.trials import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return create_trial(runs.run(tmp_path, range(2), ended=False))


def grow(trial: Trial) -> int:
    step = sum(1 for _ in Path(trial.path).rglob("*.tfevents"))
    runs.step(Path(trial.path), step)
    return step


def sees_news(trial: Trial) -> bool:
    return grow(trial) in trial.steps()


def test_next_call_sees_new_steps(trial: Trial) -> None:
    assert all(sees_news(trial) for _ in range(5))


def test_every_call_sees_new_steps(trial: Trial) -> None:
    root = Path(trial.path)
    for ask in (
        lambda step: trial.tensor("x").steps()[-1] == step,
        lambda step: trial.tensor("x").value(step)[0] == step,
        lambda step: trial.tensor(f"new{step}").value(step).tolist() == [step],
        lambda step: trial.has_tensor(f"new{step}"),
        lambda step: f"new{step}" in trial.tensor_names(),
        lambda step: trial.mode_step(step) == step,
        lambda step: trial.has_passed_step(step).name == "AVAILABLE",
        lambda step: trial.tensor("x").workers(step) == ["worker_0"],
        lambda step: trial.tensor("x").prev_steps(step, 1) == [step],
    ):
        step = sum(1 for _ in root.rglob("*.tfevents"))
        runs.step(root, step, {"x": [float(step)], f"new{step}": [step]})
        assert ask(step)


def test_no_refresh_and_back(trial: Trial) -> None:
    with no_refresh(trial) as held:
        assert held is trial
        assert not sees_news(trial)
        with refresh(trial):
            assert sees_news(trial)
        assert not sees_news(trial)
        with no_refresh([trial]):
            assert not sees_news(trial)
        assert not sees_news(trial)
    assert sees_news(trial)


def test_setting_is_restored_after_an_exception(trial: Trial) -> None:
    with pytest.raises(KeyError), no_refresh(trial):
        raise KeyError
    assert sees_news(trial)
    trial.dynamic_refresh = False
    with pytest.raises(KeyError), refresh([trial]):
        raise KeyError
    assert not trial.dynamic_refresh
    assert not sees_news(trial)


def test_waiting_keeps_the_setting(trial: Trial) -> None:
    trial.wait_for_steps([0])
    assert trial.dynamic_refresh
    with no_refresh(trial):
        step = grow(trial)
        trial.wait_for_steps([step])
        assert not trial.dynamic_refresh


def test_assignment_within_a_block_ends_with_the_block(trial: Trial) -> None:
    with no_refresh(trial):
        trial.dynamic_refresh = True
        assert trial.dynamic_refresh
    assert trial.dynamic_refresh
    with refresh(trial):
        trial.dynamic_refresh = False
    assert trial.dynamic_refresh


def test_no_refresh_of_several_trials_rejects_other_types(trial: Trial) -> None:
    with pytest.raises(AttributeError), no_refresh([trial, object()]):  # type: ignore[list-item]
        pass
    assert trial.dynamic_refresh


def test_blocks_of_several_threads_may_overlap(trial: Trial) -> None:
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with no_refresh(trial):
            first_in.set()
            second_in.wait(10)
        first_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    first_in.wait(10)
    with no_refresh(trial):
        second_in.set()
        first_out.wait(10)
        assert not trial.dynamic_refresh
    thread.join()
    assert trial.dynamic_refresh


def test_ended_run_is_not_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = create_trial(runs.run(tmp_path, range(2)))
    assert not trial.loaded_all_steps
    assert trial.steps() == [0, 1]
    assert trial.loaded_all_steps
    runs.step(tmp_path, 2)
    assert trial.steps() == [0, 1]
    trial.refresh_data()  # except on request
    assert trial.steps(show_incomplete_steps=True) == [0, 1, 2]


def test_files_that_arrive_after_the_end_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_TRAINING_END_DELAY_REFRESH", "0.4")
    trial = create_trial(runs.run(tmp_path, range(2), ended=False))
    runs.end(tmp_path, ago=0)
    late = threading.Timer(0.1, runs.step, (tmp_path, 2))
    late.start()
    assert trial.steps() == [0, 1, 2]
    late.join()
    assert trial.loaded_all_steps


def test_index_file_that_is_repaired_later(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(2), ended=False))
    good = tmp_path / "index/000000000/000000000001_worker_0.json"
    bad = tmp_path / "index/000000000/000000000002_worker_0.json"
    runs.step(tmp_path, 3)
    bad.write_text("{")
    assert trial.tensor("x").steps() == [0, 1, 3]
    [(key, message)] = trial.problems()
    assert bad.name in key
    assert bad.name in message
    runs.step(tmp_path / "elsewhere", 2)
    event = "events/000000000002/000000000002_worker_0.tfevents"
    (tmp_path / event).parent.mkdir()
    (tmp_path / "elsewhere" / event).rename(tmp_path / event)
    bad.write_text((tmp_path / "elsewhere/index/000000000" / bad.name).read_text())
    assert good.exists()
    assert trial.tensor("x").value(2)[0] == 2
    assert trial.tensor("x").steps() == [0, 1, 2, 3]
    assert trial.problems() == []


def test_rewritten_collections_are_read_again(trial: Trial) -> None:
    from smdwidgets import Collection

    assert set(trial.collections()) == {"default"}
    runs.collections(Path(trial.path), given=[Collection("late", tensor_names=["x"])])
    assert trial.tensor_names(collection="late") == ["x"]


def test_rewritten_step_is_read_again(trial: Trial) -> None:
    root = Path(trial.path)
    x = trial.tensor("x")
    assert x.value(0).tolist() == [0, 0, 0]
    for step in (0, 1):
        runs.step(root, step, {"before": [1.0, 2.0], "x": [7.0]})
    # Open files keep their content; offset and bytes never come from two different files.
    assert x.value(0).tolist() in ([0, 0, 0], [7.0])
    # Otherwise the old record no longer exists at its offset.
    assert x.value(1).tolist() == [7.0]
    assert create_trial(root).tensor("x").value(0).tolist() == [7.0]


def test_arguments_as_strings() -> None:
    assert parse_list_from_str("a,b") == ["a", "b"]
    assert parse_list_from_str(None) == parse_list_from_str("") == []
    assert parse_list_from_str(["a"]) == ["a"]
    assert parse_list_from_str("a;b", ";") == ["a", "b"]
    assert parse_bool(None, True) is parse_bool("True", False) is parse_bool(True, False) is True
    assert parse_bool("false", True) is False
    with pytest.raises(ValueError, match="'yes'"):
        parse_bool("yes", False)
