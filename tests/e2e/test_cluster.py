"""The explorer of a run in a bucket in JupyterLab, while two workers read it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import expect

from e2e.looking import Looking
from python.widgets.talk import begin, end
from servers import CREDENTIALS, rclone_server
from smdwidgets import _core

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
STEPS, TENSORS = 6000, 24

#: Parts after which reading waits, of about 30.
HELD_AFTER = 10

CELLS = [
    """import os, threading
os.environ.update({environment!r})
from distributed import Client
from smdwidgets.survey import Survey
from smdwidgets.trials import plans
plans.AIM = plans.LEAST = 0.05  # many parts
go, add, added = threading.Event(), Survey._add, []

def held(survey, *arguments):
    add(survey, *arguments)
    added.append(survey)
    if len(added) == {held_after}:
        go.wait()

Survey._add = held
import smdwidgets
client = Client({address!r}, set_as_default=False)
smdwidgets.use(client)""",
    "smdwidgets.explore('s3://runs/run')",
    "go.set()",
    "smdwidgets.use(None)\nclient.close()",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], str]]:
    """Variables of an S3 server with a run, and a cluster that has them."""
    root = tmp_path_factory.mktemp("served")
    run = begin(root / "runs" / "run")
    rng = np.random.default_rng(0)
    value = rng.normal(size=64).astype(np.float32)
    for step in range(STEPS):
        with _core.StepWriter(run, step, "worker_0", 1, step) as writer:
            for n in range(TENSORS):
                scale = 30 if n == 7 and 4000 <= step < 4020 else 1 + 0.1 * np.sin(step / 500 + n)
                found = value * np.float32(scale * rng.normal(1, 0.03))
                if n == 11 and step >= 5000:
                    found[0] = np.nan
                writer.tensor(f"layers.{n // 4}.{'qkvo'[n % 4]}_proj.weight", found)
    end(run)
    patch = pytest.MonkeyPatch()
    with rclone_server(root) as endpoint:
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
        environment["AWS_CONFIG_FILE"] = os.devnull
        for name, content in environment.items():
            patch.setenv(name, content)
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
            yield environment, made.scheduler_address
    patch.undo()


def test_the_page_says_that_workers_read_until_the_map_is_whole(lab, cluster):
    environment, address = cluster
    first, *rest = CELLS
    notebook = (
        lab.open([first.format(environment=environment, address=address, held_after=HELD_AFTER), *rest]).run(0).run(1)
    )
    look = Looking.at(notebook, 1)
    facts = look.el.locator(".smdw-run-facts")
    said = look.el.locator(".smdw-run > .smdw-note")
    expect(said).to_have_text(re.compile(r"[1-9]\d?% read by 2 workers"), timeout=120_000)
    expect(said).to_be_visible()
    expect(look.el.get_by_role("button", name="Stop")).to_be_visible()
    notebook.screenshot("cluster-reading")
    notebook.run(2)
    expect(facts).to_have_text(re.compile("all read$"), timeout=180_000)
    expect(look.el.get_by_role("button", name="Stop")).to_be_hidden()
    expect(look.el.locator(".smdw-diagnosis")).to_contain_text("layers.2.o_proj.weight")
    notebook.screenshot("cluster-complete")
    notebook.run(3)
