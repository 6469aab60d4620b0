"""The catalog on real directories: listing, reading and refreshing."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdwidgets import _core

KEY = "index/000000000/{:012d}_{}.json"


def test_steps_and_workers_are_known_from_file_names(run, write):
    for step in range(5):
        write(step, {"a": np.zeros(2)})
    write(3, {"a": np.zeros(2)}, worker="worker_1")
    catalog = _core.Catalog()
    assert catalog.list_local(str(run)) == 6
    for index in run.glob("index/*/*.json"):
        index.write_text("not read")
    assert catalog.steps() == [0, 1, 2, 3, 4]
    assert catalog.workers() == ["worker_0", "worker_1"]
    assert catalog.workers_at(3) == ["worker_0", "worker_1"]
    assert catalog.complete_until(2) == 3
    assert catalog.complete_until(3) == -1
    assert catalog.names() == []
    assert len(catalog.unread()) == 6
    assert catalog.problems() == []
    assert "so far" in repr(catalog)


def test_only_requested_index_files_are_read(run, write):
    for step in range(0, 100, 10):
        write(step, {"a": np.zeros(2)}, mode=1, mode_step=step // 10)
    catalog = _core.Catalog()
    catalog.list_local(str(run))
    assert catalog.load_local(str(run), [90, 91]) == 1
    assert catalog.names() == ["a"]
    assert len(catalog.unread()) == 9
    assert catalog.mode_of(90) == (1, 9)
    assert catalog.mode_of(80) is None
    assert catalog.load_local(str(run)) == 9
    assert catalog.load_local(str(run)) == 0


def test_has_reads_the_newest_index_file_first(run, write):
    for step in range(40):
        write(step, {"late" if step > 30 else "early": np.zeros(2)})
    catalog = _core.Catalog()
    catalog.list_local(str(run))
    assert catalog.has_local(str(run), "late")
    assert len(catalog.unread()) == 39
    assert catalog.has_local(str(run), "early")
    assert catalog.unread()
    assert not catalog.has_local(str(run), "never")
    assert not catalog.unread()


def test_new_steps_appear_at_the_next_listing(run, write):
    catalog = _core.Catalog()
    assert catalog.list_local(str(run)) == 0
    for step in range(1500):
        if step % 100 < 3:
            write(step, {"a": np.zeros(1)})
            assert catalog.list_local(str(run)) == 1
            assert catalog.list_local(str(run)) == 0
    assert catalog.num_steps() == 45
    generation = catalog.generation
    assert catalog.list_local(str(run)) == 0
    assert catalog.generation == generation


def test_catalog_of_a_range_ignores_other_steps(run, write):
    for step in range(10):
        write(step, {"a": np.zeros(1)})
    catalog = _core.Catalog(3, 6)
    assert catalog.list_local(str(run)) == 3
    assert catalog.steps() == [3, 4, 5]
    assert _core.Catalog(None, 2).list_local(str(run)) == 2
    assert _core.Catalog(8, None).list_local(str(run)) == 2


def test_keys_and_bytes_from_another_source(run, write, catalog_of):
    for step in range(3):
        write(step, {"a": np.zeros(1), "b": np.ones((2, 3))}, mode=1 + step % 2, mode_step=step // 2)
    keys = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    there = catalog_of(run)
    catalog = _core.Catalog()
    assert catalog.add_keys(keys) == 3
    assert catalog.unread() == [key for key in keys if key.startswith("index/")]
    assert catalog.load(catalog.unread()[0], (run / catalog.unread()[0]).read_bytes())
    assert catalog.load_many([(key, (run / key).read_bytes()) for key in catalog.unread()]) == 2
    for ask in (_core.Catalog.steps, _core.Catalog.names, _core.Catalog.modes, _core.Catalog.num_entries):
        assert ask(catalog) == ask(there)
    assert [catalog.mode_of(step) for step in range(3)] == [(1, 0), (2, 0), (1, 1)]
    with pytest.raises(ValueError, match="is not the key of an index file"):
        catalog.load("events/x.tfevents", b"")


def test_bad_index_file_is_a_problem_until_it_is_repaired(run, write):
    for step in range(3):
        write(step, {"a": np.zeros(1)})
    bad = run / KEY.format(1, "worker_0")
    good = bad.read_bytes()
    bad.write_bytes(good[:-9])
    catalog = _core.Catalog()
    catalog.list_local(str(run))
    assert catalog.load_local(str(run)) == 2
    ((key, message),) = catalog.problems()
    assert key == KEY.format(1, "worker_0")
    assert "invalid index file" in message
    assert "byte" in message
    assert catalog.steps_of("a") == [0, 2]
    assert catalog.load_local(str(run)) == 0
    bad.write_bytes(good)
    assert catalog.load_local(str(run)) == 1
    assert catalog.problems() == []
    assert catalog.steps_of("a") == [0, 1, 2]


def test_rewritten_step_can_be_read_again(run, write, catalog_of):
    write(1, {"a": np.zeros(1)})
    write(2, {"a": np.zeros(1)})
    catalog = catalog_of(run)
    files = _core.Files(str(run))
    assert files.get(catalog, "a", 1) == 0
    assert catalog.refresh_local(str(run), [1, 2]) == 0
    write(1, {"b": np.ones(3), "a": np.full(1, 7.0)})
    assert catalog.refresh_local(str(run), [1, 2]) == 1
    assert catalog.names() == ["a", "b"]
    assert files.get(catalog, "a", 1) == 7


def test_modes_workers_and_names_of_a_run_of_smdebug(golden_runs):
    run = str(golden_runs / "pt_modes" / "run")
    catalog = _core.Catalog()
    catalog.list_local(run)
    catalog.load_local(run)
    assert catalog.modes() == [1, 2, 3]
    steps = catalog.steps()
    assert sorted(step for mode in (1, 2, 3) for step in catalog.steps(mode)) == steps
    for step in steps:
        mode, mode_step = catalog.mode_of(step)
        assert catalog.global_step(mode, mode_step) == step
        assert catalog.names_at(step) == [name for name in catalog.names() if step in catalog.steps_of(name)]
    assert catalog.mode_steps(4) == steps
    assert catalog.global_step(4, steps[-1]) == steps[-1]
    assert catalog.global_step(4, 10**6) is None
    with pytest.raises(ValueError, match="invalid mode"):
        catalog.steps(9)


def test_path_of_a_run_does_not_affect_its_workers(golden_runs):
    run = str(golden_runs / "dunder_path" / "run__with__underscores")
    catalog = _core.Catalog()
    catalog.list_local(run)
    assert catalog.workers() == ["worker_0"]


def test_tensorflow_workers_are_shown_as_devices(run, write, catalog_of):
    write(0, {"a": np.ones(2)}, worker="/job:worker/replica:0/task:1/device:GPU:0")
    assert (run / KEY.format(0, "_job-worker_replica-0_task-1_device-GPU-0")).exists()
    catalog = catalog_of(run)
    shown = "/job:worker/replica:0/task:1/device:GPU:0"
    assert catalog.workers() == [shown]
    for worker in (None, shown, "_job-worker_replica-0_task-1_device-GPU-0"):
        entry = catalog.find("a", 0, worker)
        assert entry is not None
        assert entry.worker == shown
    assert catalog.find("a", 0, "worker_0") is None


def test_shapes_with_and_without_values(golden_runs):
    run = str(golden_runs / "pt_save_shape" / "run")
    catalog = _core.Catalog()
    catalog.list_local(run)
    catalog.load_local(run)
    assert catalog.shape_of("ConvNet_conv1.weight", 4) == (3, 1, 3, 3)
    assert catalog.find("ConvNet_conv1.weight", 4) is None
    assert catalog.original_name("ConvNet_conv1.weight") == "ConvNet_conv1.weight"
    assert catalog.steps_of("ConvNet_conv1.weight") == [0, 2, 4]


def test_stored_reductions_are_found_by_tensor_name(golden_runs):
    run = str(golden_runs / "pt_reductions" / "run")
    catalog, files = _core.Catalog(), _core.Files(run)
    catalog.list_local(run)
    catalog.load_local(run)
    assert not any("reductions" in name for name in catalog.names())
    stored = catalog.stored_reductions("ConvNet_conv1.weight", 4)
    assert len({(op, is_abs) for op, is_abs, _ in stored}) == len(stored) > 5
    for op, is_abs, entry in stored:
        again = catalog.stored_reduction("ConvNet_conv1.weight", 4, op, is_abs)
        assert again is not None
        assert again.offset == entry.offset
        assert entry.name == f"smdebug/reductions/{'abs_' if is_abs else ''}{op}/ConvNet_conv1.weight"
        assert files.value(entry).size == 1
    with pytest.raises(ValueError, match="invalid reduction"):
        catalog.stored_reduction("ConvNet_conv1.weight", 4, "median", False)


@pytest.mark.parametrize("step", [-1, 10**15])
def test_invalid_step_numbers_are_ignored(run, write, catalog_of, step):
    write(0, {"a": np.ones(2)})
    catalog = catalog_of(run)
    assert not catalog.has_step(step)
    assert catalog.find("a", step) is None
    assert catalog.workers_at(step) == []
    assert catalog.mode_of(step) is None
    assert catalog.load_local(str(run), [step]) == 0


def test_catalog_is_consistent_under_threads_while_the_run_grows(run, write):
    """Sixteen threads query, list and read concurrently; none sees a partial step."""
    catalog, files = _core.Catalog(), _core.Files(str(run))
    done, wrong = threading.Event(), []

    def poll() -> None:
        try:
            while not done.is_set():
                catalog.list_local(str(run))
                catalog.load_local(str(run))
                for step in catalog.steps()[-5:]:
                    if catalog.mode_of(step) is None:
                        continue
                    assert catalog.names_at(step) == ["a", "b"]
                    assert files.get(catalog, "a", step).tolist() == [step] * 3
                    assert catalog.find("b", step).mode_step == step
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=poll) for _ in range(16)]
    for thread in threads:
        thread.start()
    for step in range(150):
        write(step, {"a": np.full(3, step), "b": np.zeros(2)}, mode=1)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    catalog.list_local(str(run))
    catalog.load_local(str(run))
    assert catalog.steps_of("a") == list(range(150))


def test_catalog_works_after_fork(run, write, run_python):
    """The child neither waits for the parent's threads nor consumes its events."""
    for step in range(300):
        write(step, {"a": np.zeros(1)})
    said = run_python(f"""
import os, numpy as np
from smdwidgets import _core
run = {str(run)!r}
catalog = _core.Catalog()
catalog.list_local(run), catalog.load_local(run), catalog.list_local(run)
def step(at):
    with _core.StepWriter(run, at) as writer:
        writer.tensor("a", np.zeros(1))
child = os.fork()
if child == 0:
    step(300)
    found = catalog.list_local(run)
    again = _core.Catalog()
    again.list_local(run)
    os._exit(0 if (found, again.load_local(run)) == (1, 301) else 1)
assert os.waitpid(child, 0)[1] == 0
assert catalog.list_local(run) == 1
print("sound")
""")
    assert said == "sound\n"


TENSORS = st.dictionaries(st.text(max_size=6), st.integers(0, 3), max_size=4)


@given(st.dictionaries(st.tuples(st.integers(0, 2500), st.sampled_from(["worker_0", "w 1"])), TENSORS, max_size=8))
@settings(max_examples=30)
def test_written_entries_are_found(tmp_path_factory, steps):
    run = tmp_path_factory.mktemp("run")
    for (step, worker), tensors in steps.items():
        with _core.StepWriter(str(run), step, worker=worker) as writer:
            for name, size in tensors.items():
                writer.tensor(name, np.full(size, step))
    catalog, files = _core.Catalog(), _core.Files(str(run))
    catalog.list_local(str(run))
    catalog.load_local(str(run))
    assert not catalog.problems()
    kept = {at: tensors for at, tensors in steps.items() if tensors}
    assert catalog.steps() == sorted({step for step, _ in kept})
    assert catalog.names() == sorted({name for tensors in kept.values() for name in tensors})
    for (step, worker), tensors in kept.items():
        for name, size in tensors.items():
            assert files.get(catalog, name, step, worker).tolist() == [step] * size
    shutil.rmtree(run)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "meta",
                        "mode",
                        "mode_step",
                        "tensor_payload",
                        "shape_payload",
                        "tensorname",
                        "start_idx",
                        "length",
                    ]
                ),
                x,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=100)
def test_other_json_is_not_an_index_file(content):
    catalog = _core.Catalog()
    key = KEY.format(1, "worker_0")
    if not catalog.load(key, json.dumps(content).encode()):
        ((named, message),) = catalog.problems()
        assert named == key
        assert "invalid index file" in message
    assert catalog.steps() == [1]


def test_unreadable_directory_is_an_error(run, write):
    write(0, {"a": np.zeros(1)})
    catalog = _core.Catalog()
    (run / "index").rename(run / "elsewhere")
    (run / "index").write_text("a file")
    assert catalog.list_local(str(run)) == 0
    if os.geteuid() != 0:
        (run / "index").unlink()
        (run / "elsewhere").rename(run / "index")
        (run / "index").chmod(0)
        with pytest.raises(OSError, match="index"):
            catalog.list_local(str(run))
        (run / "index").chmod(0o755)


def test_links_in_the_index_are_not_followed(run, write, tmp_path):
    write(0, {"a": np.zeros(1)})
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (run / "index" / "000000001").symlink_to(other / "index" / "000000000")
    outside = run / KEY.format(5, "worker_0")
    outside.symlink_to(Path("/") / other / KEY.format(0, "worker_0"))
    catalog = _core.Catalog()
    catalog.list_local(str(run))
    assert catalog.load_local(str(run)) == 1
    ((key, message),) = catalog.problems()
    assert key == KEY.format(5, "worker_0")
    assert "points outside the run" in message
