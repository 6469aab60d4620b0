"""The public interface of trials and tensors."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from python.trials import runs
from smdwidgets import Collection, Trial, create_trial, modes
from smdwidgets.exceptions import (
    InvalidWorker,
    OutsideRunError,
    RunNotFound,
    SMDebugError,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
    TrialClosed,
)
from smdwidgets.numpy import Hook
from smdwidgets.trials import LocalTrial, RemoteTrial, SourceTrial, StepState, Tensor, TensorBoardTrial
from smdwidgets.trials.resolver import StepResolver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A run with two modes and several tensors; one tensor is missing from some steps."""
    root = tmp_path / "mlp"
    runs.collections(root, given=[Collection("weights", ["weight$"], ["odd"]), Collection("empty")])
    for step in range(0, 60, 10):
        mode = modes.EVAL if step % 30 == 20 else modes.TRAIN
        values = {"loss": np.float32(1 / (step + 1)), "fc1.weight": np.full((2, 3), step, np.float32)}
        if step == 30:
            values["odd"] = np.arange(4)
        runs.step(root, step, values, mode=mode, mode_step=step // 10)
    return runs.end(root)


@pytest.fixture
def trial(path: Path) -> Trial:
    return create_trial(path)


def test_all_forms_of_a_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    monkeypatch.setenv("USERPROFILE", str(path.parent))
    monkeypatch.chdir(path.parent)
    spellings = [path, str(path), f"{path}/", f" {path} ", "~/mlp", "mlp", path.as_uri()]
    for trial in map(create_trial, spellings):
        assert isinstance(trial, LocalTrial)
        assert trial.name == "mlp"
        assert trial.steps() == [0, 10, 20, 30, 40, 50]
    assert create_trial(path, name="mine").name == "mine"
    assert create_trial(path, parallel=False, check=True, index_mode=True, cache=True) == create_trial(path)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"path": "/no/such/run"}, RunNotFound, "no such file or directory"),
        ({"path": "  "}, SMDebugValueError, "empty"),
        ({"path": "gopher://x/y"}, SMDebugValueError, "gopher://"),
        ({"path": __file__}, RunNotFound, r"files that end in '.py' are not read; read are CSV"),
        ({"path": f"{__file__}/below"}, RunNotFound, "is a file, not a directory"),
        ({"path": Path(__file__).parent}, RunNotFound, "none of its \\d+ files"),
        ({"path": "x", "range_step": (1, 2)}, TypeError, "'range_steps'"),
        ({"path": "x", "profiler": True}, SMDebugNotImplementedError, "profiler"),
    ],
)
def test_directory_without_a_run_is_rejected_at_once(
    given: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        create_trial(**given)


def test_foreign_index_file_adds_no_worker(tmp_path: Path) -> None:
    runs.run(tmp_path, range(2))
    runs.step(tmp_path, 1, worker="algo-1")
    assert create_trial(tmp_path).workers() == ["worker_0"]


def test_missing_run_raises_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        create_trial("/no/such/run")


@pytest.mark.parametrize("bad", [(2, 1), (2, 2), (-1, 3), (1.5, None), ("1", None), (1, 2, 3), 4, (True, None)])
def test_invalid_ranges(path: Path, bad: object) -> None:
    with pytest.raises(AssertionError, match="range_steps"):
        create_trial(path, range_steps=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ((20, None), [20, 30, 40, 50]),
        ((None, 20), [0, 10]),
        ((10, 30), [10, 20]),
        ((None, None), [0, 10, 20, 30, 40, 50]),
    ],
)
def test_ranges(path: Path, given: tuple[int | None, int | None], steps: list[int]) -> None:
    trial = create_trial(path, range_steps=given)
    assert trial.steps() == steps
    assert trial.tensor("loss").steps() == steps
    assert trial.has_tensor("odd") == (30 in steps)


def test_steps_and_modes(trial: Trial) -> None:
    assert trial.modes() == [modes.TRAIN, modes.EVAL]
    assert trial.steps(modes.TRAIN) == [0, 1, 3, 4]
    assert trial.steps("eval") == [2, 5]
    assert trial.steps(modes.PREDICT) == []
    assert (trial.mode(20), trial.mode_step(20)) == (modes.EVAL, 2)
    assert trial.mode_modestep(21) == (None, None)
    assert trial.global_step(modes.EVAL, 5) == 50
    assert trial.global_step(modes.EVAL, 3) is None
    assert trial.has_passed_step(20) == StepState.AVAILABLE
    assert trial.has_passed_step(21) == StepState.UNAVAILABLE
    assert trial.has_passed_step(1, modes.EVAL) == StepState.UNAVAILABLE
    with pytest.raises(ValueError, match=r"Did you mean modes\.TRAIN"):
        trial.steps("TRIAN")
    with pytest.raises(TypeError, match="int"):
        trial.steps(1)  # type: ignore[arg-type]


def test_results_are_not_shared(trial: Trial) -> None:
    for ask in (trial.steps, trial.tensor_names, trial.tensor("loss").steps, trial.modes, trial.workers):
        before = list(ask())
        ask().clear()
        assert ask() == before
    trial.collections().clear()
    assert trial.collections()


def test_names(trial: Trial) -> None:
    assert trial.tensor_names() == trial.tensors() == ["fc1.weight", "loss", "odd"]
    assert trial.tensor_names(10) == ["fc1.weight", "loss"]
    assert trial.tensor_names(3, modes.TRAIN) == ["fc1.weight", "loss", "odd"]
    assert trial.tensor_names(3, modes.EVAL) == []
    assert trial.tensor_names(True) == trial.tensor_names(show_prefixed_tensors=True) == trial.tensor_names()
    assert trial.tensor_names(mode=modes.EVAL) == ["fc1.weight", "loss"]
    assert trial.tensor_names(mode=modes.PREDICT) == []
    assert trial.tensor_names(collection="weights") == ["fc1.weight", "odd"]
    assert trial.tensor_names(step=0, collection="weights") == ["fc1.weight"]
    assert trial.tensor_names(collection=Collection("mine", ["^l"])) == ["loss"]
    assert trial.tensor_names(regex=["^l", "^o"]) == ["loss", "odd"]
    assert trial.tensor_names(regex="^(?!fc)") == ["loss", "odd"]
    with pytest.raises(ValueError, match="mutually exclusive"):
        trial.tensor_names(regex="a", collection="weights")


def test_collections(trial: Trial) -> None:
    assert set(trial.collections()) == {"default", "weights", "empty"}
    assert trial.collection("weights").include_regex == ["weight$"]
    assert trial.tensor_names(collection="empty") == []
    # Rules request collections that frameworks use, whether they were saved or not.
    assert trial.tensor_names(collection="gradients") == []


def test_unknown_collection_is_created_empty_and_can_be_filled(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    mine = trial.collection("mine")
    assert (mine.name, mine.include_regex, mine.tensor_names) == ("mine", [], set())
    assert trial.tensor_names(collection="mine") == []
    mine.include("^l")
    mine.add_tensor_name("odd")
    assert trial.collection("mine") is mine
    assert trial.collections()["mine"] is mine
    assert trial.tensor_names(collection="mine") == trial.tensor_names(collection=mine) == ["loss", "odd"]
    trial.refresh_data()
    assert trial.tensor_names(collection="mine") == ["loss", "odd"]
    trial.collection("gradients").include("weight")
    assert trial.tensor_names(collection="gradients") == ["fc1.weight"]
    assert caplog.messages == []


def test_tensor_names_of_an_unknown_collection_is_an_error(trial: Trial) -> None:
    with pytest.raises(SMDebugValueError, match=r"has no collection 'weihgts'\. Did you mean 'weights'\?"):
        trial.tensor_names(collection="weihgts")
    with pytest.raises(SMDebugValueError, match=r"has no collection 'x'\. Choose from default, empty, weights\."):
        trial.tensor_names(collection="x")
    assert "weihgts" not in trial.collections()


def test_misspelt_collection_is_a_warning(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    assert trial.collection("weihgts").tensor_names == set()
    with pytest.raises(TypeError, match="coll_name must be a string, got 3"):
        trial.collection(3)  # type: ignore[arg-type]
    assert ["no collection 'weihgts'. Did you mean 'weights'?" in message for message in caplog.messages] == [True]


def test_new_collection_of_the_run_replaces_the_empty_one(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    hook.save_tensor("a", 1.0)
    hook.step()
    hook.flush()
    with create_trial(tmp_path) as trial:
        assert trial.collection("late").tensor_names == set()
        hook.save_tensor("b", 1.0, "late")
        hook.close()
        assert trial.collection("late").tensor_names == {"b"}
        assert trial.tensor_names(collection="late") == ["b"]


def test_modes_of_global_steps_with_the_name_of_smdebug(trial: Trial) -> None:
    expected = {step: (trial.mode(step), trial.mode_step(step)) for step in trial.steps(show_incomplete_steps=True)}
    assert trial._global_to_mode == expected
    assert len(expected) > 2


def test_errors_suggest_the_nearest_name(trial: Trial) -> None:
    assert not trial.has_tensor("fc1.wieght")
    with pytest.raises(TensorUnavailable, match=r"Did you mean 'fc1\.weight'"):
        trial.tensor("fc1.wieght")
    with pytest.raises(SMDebugValueError, match="Did you mean 'mean'"):
        trial.tensor("loss").reduction_value(0, "meen")
    with pytest.raises(InvalidWorker, match="'worker_0'"):
        trial.tensor("loss").value(0, worker="worker_1")
    with pytest.raises(InvalidWorker):
        trial.tensor("loss").value(0, worker="")


def test_values(trial: Trial) -> None:
    weight = trial.tensor("fc1.weight")
    assert weight is trial.tensor("fc1.weight")
    assert weight.value(30).tolist() == weight.value(3, modes.TRAIN).tolist() == [[30.0] * 3] * 2
    assert weight.value(5, "eval", worker="worker_0")[0, 0] == 50
    assert weight.value(np.int64(30))[0, 0] == 30
    assert list(weight.values(modes.EVAL)) == [2, 5]
    assert weight.shapes(modes.EVAL) == {2: (2, 3), 5: (2, 3)}
    assert weight.dtype == np.float32
    assert weight.original_name is None
    assert weight.workers(30) == ["worker_0"]
    assert weight.prev_steps(35, 2) == [20, 30]
    assert weight.prev_steps(30, 0) == []
    assert weight.prev_steps(5, mode=modes.EVAL) == [2, 5]


def test_values_are_writable_and_independent(trial: Trial) -> None:
    weight = trial.tensor("fc1.weight")
    for value in (weight.value(10), weight.value(10), weight.value(10, copy=True), weight.value(10, copy=False)):
        assert value[0, 0] == 10
        value[0, 0] = 7


def test_arrays_outlive_their_trial(path: Path) -> None:
    with create_trial(path) as trial:
        value = trial.tensor("fc1.weight").value(40)
        tensor = trial.tensor("loss")
    assert value.sum() == 240
    for ask in (
        trial.steps,
        trial.tensor_names,
        lambda: trial.tensor("odd"),
        lambda: tensor.value(0),
        lambda: tensor.value(0, modes.TRAIN),
        tensor.steps,
    ):
        with pytest.raises(TrialClosed, match="create_trial"):
            ask()
    trial.close()
    assert "closed" in repr(trial)
    assert "closed" in repr(tensor)


def test_missing_step_is_resolved_once_after_the_run_has_ended(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.steps()
    assert trial.loaded_all_steps
    resolved = []
    look_up = StepResolver._look_up
    monkeypatch.setattr(StepResolver, "_look_up", lambda *args: resolved.append(args[1]) or look_up(*args))
    with pytest.raises(StepUnavailable):
        trial.tensor("odd").value(11)
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("odd").value(10)
    assert resolved == [11, 10]


def test_missing_tensors_and_steps(trial: Trial) -> None:
    odd = trial.tensor("odd")
    for ask in (odd.value, odd.shape, lambda step: odd.reduction_value(step, "mean"), odd.reduction_values):
        with pytest.raises(TensorUnavailableForStep, match="step 10"):
            ask(10)
        for step in (11, 1000, -1, 2**80):
            with pytest.raises(StepUnavailable):
                ask(step)
    with pytest.raises(TensorUnavailableForStep):
        odd.workers(10)
    with pytest.raises(SMDebugNotImplementedError, match="value"):
        odd.step(10)


def test_future_step(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(3), ended=False))
    with pytest.raises(StepNotYetAvailable, match="wait_for_steps"):
        trial.tensor("x").value(3)
    runs.step(tmp_path, 3)
    assert trial.tensor("x").value(3)[0] == 3


def test_saved_and_computed_reductions(tmp_path: Path) -> None:
    from smdwidgets._core import reduction_name

    value = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    runs.collections(tmp_path)
    saved = {
        "full": value,
        reduction_name("mean", False, "only"): np.float32(99),
        reduction_name("l2", True, "full"): 7.0,
    }
    runs.step(tmp_path, 0, saved, shapes={"shape": [4, 5]})
    trial = create_trial(runs.end(tmp_path))
    assert trial.tensor_names() == ["full", "only", "shape"]
    full, only, shape = (trial.tensor(name) for name in trial.tensor_names())
    assert full.reduction_value(0, "l2", abs=True) == 7.0  # as it was saved, without recomputing
    assert full.reduction_value(0, "l2") == pytest.approx(np.sqrt(30))
    assert full.reduction_value(0, "std") == pytest.approx(value.std())
    assert full.reduction_values(0) == {("l2", True): 7.0}
    assert only.reduction_value(0, "mean") == 99
    assert only.reduction_values(0) == {("mean", False): 99}
    assert only.dtype is None
    assert shape.shape(0) == (4, 5)
    assert shape.original_name == "shape"
    assert "reductions" in repr(only)
    with pytest.raises(TensorUnavailableForStep, match="reduction_values") as raised:
        only.value(0)
    assert raised.value.has_reductions
    assert raised.value.tname == "only"
    with pytest.raises(TensorUnavailableForStep, match="'abs_max'") as raised:
        only.reduction_value(0, "max", abs=True)
    assert raised.value.tname == "only"


def test_strings_have_no_mean(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    runs.step(tmp_path, 0, {"words": np.array(["a", "bc"])})
    words = create_trial(runs.end(tmp_path)).tensor("words")
    assert words.value(0).tolist() == ["a", "bc"]
    with pytest.raises(SMDebugError, match="cannot compute mean"):
        words.reduction_value(0, "mean")


def test_inputs_labels_predictions(tmp_path: Path) -> None:
    runs.collections(tmp_path, given=[Collection("inputs", ["_input_"])])
    for step, mode in ((0, modes.TRAIN), (1, modes.EVAL)):
        values = {f"m_input_{n}": np.float32(10 * step + n) for n in (0, 2, 10)} | {
            "labels": step,
            "predictions": -step,
        }
        runs.step(tmp_path, step, values, mode=mode, mode_step=0)
    trial = create_trial(runs.end(tmp_path))
    assert [float(value) for value in trial.inputs(1)] == [10.0, 12.0, 20.0]
    assert [float(value) for value in trial.inputs(0, modes.EVAL)] == [10.0, 12.0, 20.0]
    assert [int(value) for value in trial.labels(0, modes.EVAL)] == [1]
    assert [int(value) for value in trial.predictions(1)] == [-1]


def test_pickling(path: Path) -> None:
    trial = create_trial(path, name="mine", range_steps=(10, None))
    again = pickle.loads(pickle.dumps(trial))
    assert again == trial
    assert hash(again) == hash(trial)
    assert again.steps() == trial.steps()
    assert pickle.loads(pickle.dumps(trial.tensor("odd"))).value(30).tolist() == [0, 1, 2, 3]


def test_sixteen_threads_read_one_live_trial(tmp_path: Path) -> None:
    trial = create_trial(runs.run(tmp_path, range(3), ended=False))
    wrong: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                x = trial.tensor("x")
                steps = x.steps()
                assert steps == sorted(steps)
                assert x.value(steps[-1])[0] == steps[-1]
                assert float(x.reduction_value(steps[0], "mean")) == steps[0]
                assert trial.tensor_names(regex="x") == ["x"]
                assert trial.has_passed_step(steps[-1]) == StepState.AVAILABLE
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for step in range(3, 60):
        runs.step(tmp_path, step)
    runs.end(tmp_path)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert trial.steps() == list(range(60))
    assert trial.loaded_all_steps


def test_mode_step_repeated_by_a_restart(tmp_path: Path) -> None:
    runs.collections(tmp_path)
    for step, at in enumerate([0, 1, 0, 1, 2]):
        values = {"x": [float(step)], **({"late": [float(step)]} if step > 2 else {})}
        runs.step(tmp_path, step, values, mode=modes.TRAIN, mode_step=at)
    trial = create_trial(runs.end(tmp_path))
    x, late = trial.tensor("x"), trial.tensor("late")
    assert trial.steps(modes.TRAIN) == x.steps(modes.TRAIN) == [0, 1, 2]
    assert trial.steps() == x.steps() == [0, 1, 2, 3, 4]
    assert [trial.global_step(modes.TRAIN, step) for step in range(3)] == [0, 1, 4]
    assert [x.value(step)[0] for step in range(5)] == [0, 1, 2, 3, 4]  # both are visible
    assert x.value(1, modes.TRAIN)[0] == 1
    assert late.steps(modes.TRAIN) == [1, 2]
    assert late.value(1, modes.TRAIN)[0] == 3
    assert list(late.values(modes.TRAIN)) == [1, 2]


def test_hostile_index_reads_nothing_outside_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    runs.run(run, range(2))
    (tmp_path / "secret").write_bytes((run / "events/000000000000/000000000000_worker_0.tfevents").read_bytes())
    index = run / "index/000000000/000000000001_worker_0.json"
    index.write_text(index.read_text().replace("events/000000000001/000000000001_worker_0.tfevents", "../secret"))
    with pytest.raises((OutsideRunError, SMDebugError)):
        create_trial(run).tensor("x").value(1)


@pytest.mark.parametrize("kind", [LocalTrial, RemoteTrial, TensorBoardTrial, SourceTrial, Tensor])
def test_classes_have_few_base_classes(kind: type) -> None:
    bases = kind.__mro__[:-1]
    assert len(bases) <= 3, bases
