"""Measure the map of a run with very many values.

Usage: `python tests/benchmarks/bench_large_map.py [--tensors 100000] [--steps 1000] [--planted 1000] [--run FOLDER]
[--browser]`.

The run is written by the product's own writer: statistics of all tensors at every step, the loss at every step, and
values of all tensors at the first one. Events of one step are planted: half of them NaN, half of them 10,000 times the
usual size. Figures are printed with their targets, which are for 100 million values on two quiet cores. `--browser`
also opens the run in JupyterLab in Chromium, and goes to its first NaN; screenshots are in `.cache/screenshots`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

KINDS = (
    *(f"self_attn.{part}_proj.weight" for part in "qkvo"),
    *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    "mlp.router.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
)
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Milliseconds between two refreshes of the screen, and the resolution of a browser's clock.
REFRESH, RESOLUTION = 16.7, 0.1


def names_of(count: int) -> list[str]:
    """Return names of weights and their gradients, layer by layer."""

    def each() -> Iterator[str]:
        for layer in range(-(-count // (2 * len(KINDS)))):
            for kind in KINDS:
                yield f"model.layers.{layer}.{kind}"
                yield f"gradient/model.layers.{layer}.{kind}"

    return [name for name, _ in zip(each(), range(count), strict=False)]


def write_collections(root: Path) -> None:
    """Begin a run with the loss, weights and their gradients."""
    folder = root / "collections/000000000"
    folder.mkdir(parents=True)
    patterns = {"losses": "^loss$", "weights": "^model", "gradients": "^gradient/"}
    collections = {name: {"name": name, "include_regex": [regex]} for name, regex in patterns.items()}
    content = {"collections": collections, "_meta": {"num_workers": 1}}
    (folder / "worker_0_collections.json").write_text(json.dumps(content))


def write_run(root: Path, tensors: int, steps: int, planted: int) -> None:
    """Write the run, and `planted.json` with step, tensor and kind of each event."""
    from smdwidgets import _core

    chance = np.random.default_rng(0)
    names = names_of(tensors)
    events: dict[int, list[tuple[int, bool]]] = {}
    where = chance.choice(tensors, planted, replace=False)
    for at, (tensor, step) in enumerate(zip(where, chance.integers(40, steps - 1, planted), strict=True)):
        events.setdefault(int(step), []).append((int(tensor), at % 2 == 0))
    write_collections(root)
    base, none = np.exp(chance.normal(-4, 1, tensors)), np.zeros(tensors, np.int64)
    with _core.StatisticsWriter(root, seconds=1e9) as writer:
        numbers = [writer.add(name, "float32", [4096, 4096]) for name in names]
        for step in range(steps):
            std, nan = base * (1 + 0.05 * chance.normal(size=tensors)), none.copy()
            for tensor, is_nan in events.get(step, ()):
                nan[tensor], std[tensor] = int(is_nan), std[tensor] * (1 if is_nan else 1e4)
            mean, count = 0.01 * std * chance.normal(size=tensors), none + (1 << 24)
            l2 = np.sqrt(count - nan) * np.hypot(mean, std)
            counts = {"count": count, "nan": nan, "neg_inf": none, "pos_inf": none, "zeros": none}
            moments = {"min": mean - 4 * std, "max": mean + 4 * std, "mean": mean, "std": std, "l1": 0.8 * std * count}
            rest = {"l2": l2, "abs_max": abs(mean) + 4 * std, "update": 0.01 * l2}
            writer.append(step, numbers, {**counts, **moments, **rest}, 1)
            with _core.StepWriter(root, step, "worker_0", 1) as event:
                event.tensor("loss", np.float32(2 + np.exp(-step / 100) + 0.01 * chance.normal()))
                shown = range(tensors) if step == 0 else [tensor for tensor, _ in events.get(step, ())]
                for tensor in shown:
                    event.tensor(names[tensor], np.full(4, np.nan if nan[tensor] else std[tensor], np.float32))
    (root / "training_job_end.ts").touch()
    listed = [(step, names[tensor], is_nan) for step, some in events.items() for tensor, is_nan in some]
    (root / "planted.json").write_text(json.dumps(listed))


def opened(root: str) -> None:
    """Open the run as the explorer does, and print the figures."""
    begin, busy = time.perf_counter(), time.process_time()
    import smdwidgets
    from smdwidgets.survey import Survey
    from smdwidgets.survey.bins import NAN, SUDDEN
    from smdwidgets.widgets.survey_packets import Colour, Window, detail, poster, poster_window

    seconds: dict[str, float] = {}

    def done(what: str) -> None:
        nonlocal begin, busy
        seconds[what], begin = time.perf_counter() - begin, time.perf_counter()
        seconds[f"{what} busy"], busy = time.process_time() - busy, time.process_time()

    done("import")
    trial = smdwidgets.create_trial(root)
    names = trial.tensor_names()
    done("open")
    survey = Survey(trial)
    survey.update()
    done("survey")
    numbered = {name: at for at, name in enumerate(names)}
    window = poster_window(survey, numbered)
    assert window is not None
    poster(0, survey, Colour(), window, {}, append=False)
    done("poster")
    listed = survey.findings()
    text = "".join(clause.text for clause in survey.sentence(listed))
    done("sentence")
    views = []
    for at in range(40):
        level = survey.level + at % 3
        first = (at * 97) % max(1, (survey.steps() or (0, 0))[1] >> level)
        some = {name: numbered[name] for name in names[at * 480 % len(names) :][:480]}
        view = time.perf_counter()
        list(detail(0, survey, Colour(), Window(some, level, first, 128), {}, append=True))
        views.append(time.perf_counter() - view)
    bins = survey.bins(names, "", 0, "growth", window.level, window.first, window.count)
    planted = json.loads(Path(root, "planted.json").read_text())
    want = [NAN if is_nan else SUDDEN for *_, is_nan in planted]
    rows = [numbered[name] for _, name, _ in planted]
    places = [(step >> window.level) - window.first for step, *_ in planted]
    seen = int(((bins.flag[rows, places] & want) > 0).sum())
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    print(
        json.dumps(
            {
                **seconds,
                "view": sorted(views)[len(views) * 95 // 100],
                "events": len(planted),
                "invisible": len(planted) - seen,
                "memory": memory,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
                "text": text,
            }
        )
    )


def ask(root: Path) -> dict[str, Any]:
    """Return the figures of a process that opens the run."""
    done = subprocess.run([sys.executable, __file__, "--open", str(root)], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def show(what: str, figure: str, target: str, fulfilled: bool) -> None:
    print(f"{what:64} {figure:>16}   {target:12} {'' if fulfilled else 'MISSED'}", flush=True)


def main() -> None:
    """Write the run unless it exists, build its pyramid, and measure."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--tensors", type=int, default=100_000)
    asked.add_argument("--steps", type=int, default=1000)
    asked.add_argument("--planted", type=int, default=1000)
    asked.add_argument("--run", type=Path, help="the run, written if it is missing")
    asked.add_argument("--write-only", action="store_true")
    asked.add_argument("--browser", action="store_true", help="also measure the page")
    asked.add_argument("--open", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.open:
        opened(options.open)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = options.run or Path(folder, "run")
        if not root.exists():
            write_run(root, options.tensors, options.steps, options.planted)
        if not options.write_only:
            measure(root, options.tensors * options.steps)
            if options.browser:
                browse(root)


def measure(root: Path, values: int) -> None:
    """Build the pyramid, and print the figures of a process that uses it."""
    import smdwidgets

    statistics = root / "statistics/worker_0"
    (statistics / "survey.pyramid").unlink(missing_ok=True)
    compact = smdwidgets.compact  # imports the modules, which is not a part of building
    begin, busy = time.perf_counter(), time.process_time()
    size = compact(root).pyramids
    wall, busy = time.perf_counter() - begin, time.process_time() - busy
    rows = sum(each.stat().st_size for each in statistics.iterdir() if each.name != "survey.pyramid")
    print(f"{values:,} values; statistics of {rows / 1e6:,.0f} MB; compacted in {wall:.0f} s, {busy:.0f} s of a core")
    show("pyramid / statistics", f"{size / rows:.1%}", "<= 15 %", size <= 0.15 * rows)
    rate = values / busy / 1e6
    show("building, million values a second and core", f"{rate:.2f}", ">= 5", rate >= 5)
    figures = ask(root)
    first = figures["open"] + figures["survey"] + figures["poster"]
    show("first picture with names", f"{first:.2f} s", "<= 3 s", first <= 3)
    for what in ("import", "open", "survey", "poster", "sentence"):
        show(f"  {what}: seconds, and those of a core", f"{figures[what]:.2f} {figures[f'{what} busy']:.2f}", "", True)
    show("sentence, after that", f"{figures['sentence']:.2f} s", "<= 10 s", figures["sentence"] <= 10)
    view = figures["view"] * 1000
    show("480 tensors x 128 bins for the page, 95 % within", f"{view:.1f} ms", "<= 150 ms", view <= 150)
    memory = figures["memory"] / 1e6
    show("memory of the process", f"{memory:.0f} MB", "<= 600 MB", memory <= 600)
    lost = figures["invisible"]
    show(f"of {figures['events']} events of a step, invisible at first", str(lost), "0", lost == 0)
    print(figures["text"])


def browse(root: Path) -> None:
    """Open the run in JupyterLab, and print the figures of the page."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from playwright.sync_api import expect, sync_playwright

    from e2e.chromium import launch
    from e2e.jupyter import Jupyter, Server
    from e2e.large_map import look

    expect.set_options(timeout=90_000)
    repository = Path(__file__).resolve().parents[2]
    step, name, _ = min(event for event in json.loads((root / "planted.json").read_text()) if event[2])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = launch(driver)
        server = Server("lab", Path(folder))
        try:
            server.wait()
            lab = Jupyter(server, browser, repository / ".cache/screenshots")
            figures = look(lab, root, name, step, "largest-map")
            lab.close(check=True)
        finally:
            server.stop()
            browser.close()
    times = figures.seconds
    show("page: names", f"{times['names']:.2f} s", "", True)
    show("page: first picture with names", f"{times['picture']:.2f} s", "<= 3 s", times["picture"] <= 3)
    show("page: sentence", f"{times['sentence']:.2f} s", "<= 10 s", times["sentence"] <= 10)
    for what, (median, most) in figures.frames.items():
        figure = f"{median:.1f}, {most:.1f} ms"
        show(
            f"page: {what}, 50 % and 95 % of frames within",
            figure,
            f"<= {REFRESH} ms",
            most <= REFRESH + 1.5 * RESOLUTION,
        )
    heap, kernel = figures.heap / 1e6, figures.kernel / 1e6
    show("page: memory of all scripts", f"{heap:.0f} MB", "<= 300 MB", heap <= 300)
    show("page: memory of the kernel", f"{kernel:.0f} MB", "<= 600 MB", kernel <= 600)
    print(figures.sentence)


if __name__ == "__main__":
    main()
