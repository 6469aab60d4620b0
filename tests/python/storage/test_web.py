"""Runs behind plain web servers: pages of links, and listing files."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdwidgets
from python.logs.logs import scalars
from python.s3.test_s3_trial import everything, write_run
from smdwidgets.exceptions import RunNotFound, SMDebugError
from smdwidgets.numpy import Hook
from smdwidgets.storage import Connection, StoreError
from smdwidgets.storage.web import LISTING, Links
from smdwidgets.trials import RemoteTrial, TensorBoardTrial


class Handler(SimpleHTTPRequestHandler):
    """Python's server with byte ranges, which records the paths asked for."""

    protocol_version = "HTTP/1.1"
    lists = True
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def list_directory(self, path: Any) -> Any:
        if self.lists:
            return super().list_directory(path)
        self.send_error(403)
        return None

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(folder: Path, *, lists: bool = True) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Some", (Handler,), {"asked": asked, "lists": lists})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("where", ["jobs/run", ""])
def test_run_behind_a_web_server(tmp_path: Path, where: str) -> None:
    write_run(tmp_path / where, range(12), workers=2)
    with serving(tmp_path) as (host, _), smdwidgets.create_trial(f"{host}/{where}") as far:
        assert isinstance(far, RemoteTrial)
        with smdwidgets.create_trial(tmp_path / where) as near:
            assert everything(far) == everything(near)
        assert far.loaded_all_steps


def list_files(root: Path, sizes: bool = True) -> None:
    lines = []
    for path in root.rglob("*"):
        if path.is_file():
            about = path.stat()
            lines.append(f"{path.relative_to(root).as_posix()}" + f"\t{about.st_size}\t{about.st_mtime}" * sizes)
    (root / LISTING).write_text("# the files of the run\n" + "\n".join(lines))


@pytest.mark.parametrize("sizes", [True, False])
def test_run_with_a_listing_file(tmp_path: Path, sizes: bool) -> None:
    root = write_run(tmp_path / "run", range(5))
    with serving(tmp_path, lists=False) as (host, _):
        with pytest.raises(StoreError, match=rf"does not list.*autoindex.*{LISTING}"):
            smdwidgets.create_trial(f"{host}/run")
        list_files(root, sizes)
        with smdwidgets.create_trial(f"{host}/run") as trial:
            assert trial.steps() == [0, 1, 2, 3, 4]
            assert float(trial.tensor("t1").value(4)[0]) == 401
        (root / LISTING).write_text("index/a.json\tlarge\n")
        with pytest.raises(StoreError, match=f"{LISTING}.*line 1 is not a key, a size and a time"):
            smdwidgets.create_trial(f"{host}/run")


def test_growing_run_and_log(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run", range(2))
    (root / "training_job_end.ts").unlink()
    log = tmp_path / "log" / "events.out.tfevents.1.host"
    log.parent.mkdir()
    log.write_bytes(scalars({"loss": [3, 2]}))
    with (
        serving(tmp_path) as (host, _),
        smdwidgets.create_trial(f"{host}/run") as run,
        smdwidgets.create_trial(f"{host}/log", live=True) as curve,
    ):
        assert isinstance(curve, TensorBoardTrial)
        assert (run.steps(), curve.steps()) == ([0, 1], [0, 1])
        write_run(root, range(2, 4))
        log.write_bytes(log.read_bytes() + scalars({"loss": [1]}, first=2))
        assert (run.steps(), curve.steps()) == ([0, 1, 2, 3], [0, 1, 2])


def test_refresh_skips_folders_of_read_steps(tmp_path: Path) -> None:
    write_run(tmp_path / "run", range(2998, 3002), tensors=1)
    with serving(tmp_path) as (host, asked), closing(Connection().storage(f"{host}/run")) as storage:
        assert len(list(storage.list("index/"))) == 4
        asked.clear()
        last = "index/000000003/000000003000_worker_0.json"
        assert list(storage.list("index/", last)) == ["index/000000003/000000003001_worker_0.json"]
        assert not [path for path in asked if "000000002" in path]


def test_a_web_server_is_not_written(tmp_path: Path) -> None:
    with serving(tmp_path) as (host, _):
        with pytest.raises(SMDebugError, match="a web server can only be read; pass s3://"):
            Hook(f"{host}/run")
        with closing(Connection().storage(f"{host}/run")) as storage:
            for write in (lambda: storage.put("a", b"x"), lambda: storage.delete(["a"])):
                with pytest.raises(StoreError, match="can only be read"):
                    write()
        with pytest.raises(RunNotFound, match=r"no object has this prefix|none of its"):
            smdwidgets.create_trial(f"{host}/run")


PAGES = {
    "Apache": '<table><tr><th><a href="?C=N;O=D">Name</a></th></tr><tr><td><a href="/runs/">Parent Directory</a></td></tr>'
    '<tr><td><a href="index/">index/</a></td><td>2026-01-01 10:00</td><td>-</td></tr>'
    '<tr><td><a href="a%20b%23.json">a b#.json</a></td><td>1.2K</td></tr></table>',
    "nginx": '<html><body><h1>Index of /runs/mlp/</h1><hr><pre><a href="../">../</a>\n<a href="index/">index/</a>  01-Jan-2026 10:00  -\n'
    '<a href="a%20b%23.json">a b#.json</a>   850\n</pre>',
    "absolute": '<A HREF="/runs/mlp/index/">index</A><A href="/runs/mlp/a%20b%23.json">a</A><a href="/other/c">c</a>',
    "dotted": '<a href="./index/">i</a><a href="./a%20b%23.json">a</a><a href=".">.</a><a name="x">y</a>',
}


@pytest.mark.parametrize("server", PAGES)
def test_pages_of_servers(server: str) -> None:
    links = Links("runs/mlp")
    links.feed(PAGES[server])
    assert links.entries == {("runs/mlp/index", True), ("runs/mlp/a b#.json", False)}


@pytest.mark.parametrize(
    "href",
    [
        "https://elsewhere/x",
        "//elsewhere/x",
        "javascript:alert(1)",
        "%2e%2e/x",
        "..%2fx",
        "a/b",
        "/x",
        "x?y",
        "#x",
        "mailto:a@b",
        "x%00",
        "http://[",
    ],
)
def test_links_that_lead_elsewhere_are_ignored(href: str) -> None:
    links = Links("runs/mlp")
    links.feed(f'<a href="{href}">x</a>')
    assert not links.entries


def test_endless_folders_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path.joinpath(*["x"] * 40)
    inside.mkdir(parents=True)
    with (
        serving(tmp_path) as (host, _),
        closing(Connection().storage(host)) as storage,
        pytest.raises(StoreError, match="more than 32 deep"),
    ):
        list(storage.list(""))


def test_file_url_is_a_local_directory(tmp_path: Path) -> None:
    write_run(tmp_path / "a b", range(3))
    with smdwidgets.create_trial((tmp_path / "a b").as_uri()) as trial:
        assert [float(trial.tensor("t0").value(step)[0]) for step in trial.steps()] == [0, 100, 200]
    with Hook((tmp_path / "c d").as_uri()) as hook:
        hook.save_tensor("w", np.ones(3), "weights")
        hook.step()
    assert (tmp_path / "c d" / "index").is_dir()
