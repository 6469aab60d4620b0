"""Hostile object keys and contents: only the run's own objects are requested."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from botocore.exceptions import BotoCoreError, ClientError

import smdwidgets
from python.s3.test_s3_trial import write_run
from servers import FaultyProxy
from smdwidgets.exceptions import CollectionFileError, OutsideRunError, SMDebugError
from smdwidgets.storage import Connection, ObjectMissing, RemoteStorage, StoreError
from smdwidgets.storage.cache import DiskCache
from smdwidgets.storage.protocol import Range

pytestmark = pytest.mark.slow

DEEP = 100_000
STEPS = range(3)
#: Objects that do not belong to the run, in its directories.
HOSTILE = [
    "index/000000000/../../../other/secret",
    "index/000000000/..",
    "index/../../other/secret",
    "index/..//000000000/000000000001_worker_0.json",
    "index/000000000/000000000007_../../../other/secret.json",
    "index/000000000/000000000007_..json",
    "index/000000000/000000000008_a\x01\x1b[2Jb.json",
    "index/000000000/000000000008_a\nb\tc.json",
    "index/000000000/000000000009_wörkér_😀.json",
    "index/000000000/000000000009_\u202eevil.json",
    "index/000000000/000000000009_a b+c%2e%2e%2fd&e=<x>'\"*.json",
    "index/000000000/99999999999999999999_worker_0.json",
    "index/000000000/-00000000001_worker_0.json",
    "collections/../../other/secret_collections.json",
    "collections/000000000/\x07_notes.json",
]


def put_what_the_server_takes(raw: Any, bucket: str, contents: dict[str, bytes]) -> list[str]:
    """A server over a file system rejects keys that are not paths."""
    taken = []
    for key, content in contents.items():
        try:
            raw.put_object(Bucket=bucket, Key=key, Body=content)
        except (ClientError, BotoCoreError, ValueError):
            continue
        taken.append(key)
    return taken


@pytest.fixture
def hostile(bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path) -> list[str]:
    upload(write_run(tmp_path / "run", STEPS), bucket, "run")
    raw.put_object(Bucket=bucket, Key="other/secret", Body=b"not of this run")
    index = (tmp_path / "run" / "index" / "000000000" / "000000000001_worker_0.json").read_bytes()
    outside = index.replace(b"events/000000000001/000000000001_worker_0.tfevents", b"../other/secret")
    assert outside != index
    contents = {f"run/{key}": outside for key in HOSTILE}
    contents["run/index/000000000/000000000020_worker_0.json"] = outside
    return put_what_the_server_takes(raw, bucket, contents)


def test_only_objects_of_the_run_are_requested(endpoint: str, bucket: str, hostile: list[str]) -> None:
    assert len(hostile) >= 8, "the server took too few for this test to tell anything"
    with (
        FaultyProxy(endpoint) as proxy,
        smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=proxy.endpoint, skip_bad_index=True) as trial,
    ):
        assert trial.tensor_names() == [f"t{n}" for n in range(4)]
        for step in STEPS:
            for n in range(4):
                assert float(trial.tensor(f"t{n}").value(step, worker="worker_0")[0]) == step * 100 + n
        messages = []
        for step in set(trial.steps()) - set(STEPS):
            for name in trial.tensor_names():
                for worker in trial.tensor(name).workers(step):
                    with pytest.raises(SMDebugError) as caught:
                        trial.tensor(name).value(step, worker=worker)
                    messages.append(str(caught.value))
        assert any("other/secret" in message for message in messages)
        assert not any(char in message for message in messages for char in "\x01\x07\x1b\u202e")
        for path in proxy.paths:
            asked = urlsplit(path)
            [prefix] = parse_qs(asked.query).get("prefix", [""])
            key = unquote(asked.path).removeprefix(f"/{bucket}").removeprefix("/")
            assert key.startswith("run/") or prefix.startswith("run/"), path
            assert ".." not in key.split("/"), path


def ask_for_each(store: RemoteStorage, keys: list[str]) -> list[str]:
    """Read keys in all possible ways; return those that gave their content."""
    read = []
    for key in keys:
        if ".." in key.split("/"):
            ways: list[Callable[[str], object]] = [
                store.read,
                store.exists,
                lambda key: store.read_ranges([Range(key, 0, 3)]),
                lambda key: list(store.read_many(["plain", key])),
            ]
            for ask in ways:
                with pytest.raises(OutsideRunError, match="points outside the run"):
                    ask(key)
            continue
        if not key.isprintable() and "\u202e" not in key:
            with pytest.raises(StoreError, match="control character") as refused:
                store.read(key)
            assert not any(char in str(refused.value) for char in "\x01\x07\x1b\n\t")
            assert key not in store.list("")
            continue
        many = dict(store.read_many([key, "plain"]))
        assert many.pop("plain") == b"plain"
        if many:  # the server stored it under this name
            content = f"run/{key}".encode()
            assert many == {key: content}
            assert store.read(key) == content
            assert bytes(store.read_ranges([Range(key, 0, 4)])[0]) == b"run/"
            read.append(key)
        else:
            with pytest.raises(ObjectMissing) as caught:
                store.read(key)
            assert caught.value.key == f"run/{key}"
    return read


def test_each_key_returns_its_own_object_or_is_rejected(endpoint: str, bucket: str, raw: Any) -> None:
    taken = put_what_the_server_takes(raw, bucket, {f"run/{key}": f"run/{key}".encode() for key in HOSTILE})
    raw.put_object(Bucket=bucket, Key="run/plain", Body=b"plain")
    with closing(Connection(endpoint_url=endpoint).storage(f"s3://{bucket}/run")) as store:
        assert store.read("plain") == b"plain"
        assert len(ask_for_each(store, [key.removeprefix("run/") for key in taken])) >= 6


def nested(around: str = "{}") -> bytes:
    """JSON nested deeper than any stack."""
    return around.replace("{}", "[" * DEEP + "]" * DEEP).encode()


@pytest.mark.parametrize(
    "around", ["{}", '{"meta": {}}', '{"meta": {"mode": "TRAIN", "mode_step": 3, "other": {}}, "tensor_payload": []}']
)
def test_deeply_nested_index_object_affects_only_itself(
    endpoint: str, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path, around: str
) -> None:
    upload(write_run(tmp_path / "run", STEPS), bucket, "run")
    key = "index/000000000/000000000005_worker_0.json"
    raw.put_object(Bucket=bucket, Key=f"run/{key}", Body=nested(around))
    with smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint, skip_bad_index=True) as trial:
        assert float(trial.tensor("t1").value(2)[0]) == 201
        assert all(problem == key for problem, _ in trial.problems())
        if "other" not in around:
            assert trial.problems()


def test_deeply_nested_collections_object_is_an_error(
    endpoint: str, bucket: str, raw: Any, upload: Callable[[Path, str, str], None], tmp_path: Path
) -> None:
    upload(write_run(tmp_path / "run", STEPS), bucket, "run")
    for around in ("{}", '{"collections": {"a": {}}}', '{"_meta": {}}'):
        key = "collections/000000000/worker_0_collections.json"
        raw.put_object(Bucket=bucket, Key=f"run/{key}", Body=nested(around))
        with pytest.raises(CollectionFileError, match="worker_0_collections"):
            smdwidgets.create_trial(f"s3://{bucket}/run", endpoint_url=endpoint)


def test_cached_files_are_verified_against_the_index(
    endpoint: str,
    bucket: str,
    upload: Callable[[Path, str, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upload(write_run(tmp_path / "run", STEPS, size=60_000), bucket, "run")
    url, options = f"s3://{bucket}/run", {"endpoint_url": endpoint, "cache_dir": tmp_path / "cache"}
    with smdwidgets.create_trial(url, **options) as trial:
        trial.tensor("t0").value(1)
    kept = [path for path in (tmp_path / "cache").glob("*/*") if path.is_file()]
    assert len(kept) == 1
    # With the right length and checksum.
    length = kept[0].stat().st_size - DiskCache._HEAD
    monkeypatch.setattr(
        DiskCache,
        "_path",
        lambda self, identity, wanted: kept[0] if wanted.length == length else tmp_path / "none" / "x",
    )
    evil = nested()
    DiskCache(tmp_path / "cache", 1 << 30).put("", Range("", 0, length), evil[:length].ljust(length, b"["))
    with (
        smdwidgets.create_trial(url, **options) as trial,
        pytest.raises(SMDebugError, match=r"000000000001_worker_0\.tfevents"),
    ):
        trial.tensor("t0").value(1)
    # Invalid files among the pieces; the directory is deleted in between.
    (tmp_path / "cache" / "ab").mkdir(exist_ok=True)
    (tmp_path / "cache" / "ab" / "..notes").write_bytes(evil)
    monkeypatch.undo()
    for path in kept:
        path.unlink()
    with smdwidgets.create_trial(url, **options) as trial:
        assert float(trial.tensor("t0").value(1)[0]) == 100
        for path in (tmp_path / "cache").glob("*/*"):
            path.unlink()
        for folder in (tmp_path / "cache").iterdir():
            folder.rmdir()
        (tmp_path / "cache").rmdir()
        assert float(trial.tensor("t0").value(2)[0]) == 200
