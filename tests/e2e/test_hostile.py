"""A hostile run in a real browser: no scripts, no requests, and names as text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.looking import Looking
from faults.hostile import runs
from faults.hostile.names import LARGE, MARKUP, PWNED, SPREADSHEET, TERMINAL, UNICODE, acting

pytestmark = pytest.mark.slow

#: Records everything that a script of a run could do: set the variable, open a dialog, violate the policy, add an
#: element.
WATCH = f"""
  window.{PWNED} = undefined;
  window.noticed = [];
  for (const name of ['alert', 'confirm', 'prompt', 'open', 'eval'])
    if (name !== 'eval') window[name] = (...args) => {{ window.noticed.push(name + ' ' + args); return null; }};
  document.addEventListener('securitypolicyviolation', (e) => window.noticed.push('policy ' + e.violatedDirective + ' ' + e.blockedURI));
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return every hostile name as tensor, collection, worker, value and finding."""
    root = tmp_path_factory.mktemp("hostile") / "<b onclick=alert(1)>&amp;\u202e"
    names = {**MARKUP, **SPREADSHEET, **TERMINAL, **UNICODE, "large": LARGE["a megabyte of markup"]}
    runs.hostile(root, names, steps=3)
    texts = list(names.values())[:8]
    runs.save(root, 3, {"texts": np.array(texts), texts[0]: np.full((4, 4), np.nan, np.float32)})
    return root


def nothing_happened(page: Page) -> None:
    assert page.evaluate(f"() => [window.{PWNED} ?? null, window.noticed]") == [None, []]
    made = ".smdw img, .smdw script, .smdw iframe, .smdw a, .smdw style, .smdw object, .smdw [onclick], .smdw [onerror], .smdw [onmouseover], .smdw [onload]"
    assert page.locator(made).count() == 0
    assert acting(page.locator(".smdw").first.inner_text(), "\n\t") == []
    spoken = page.evaluate(
        "() => [...document.querySelectorAll('.smdw [title], .smdw [aria-label]')].map((e) => e.title + e.ariaLabel).join()"
    )
    assert acting(spoken, "\n\t") == []


def look_at(look: Looking, query: str, said: str) -> None:
    """Select a tensor in the map and check that its name is displayed as text."""
    look.query(query).row(said).click()
    expect(look.el.locator(".smdw-name")).to_contain_text(said)


def test_hostile_run_in_a_notebook(lab, run):
    show = (
        f"import smdwidgets\nt = smdwidgets.create_trial({str(run)!r})\n"
        f"w = smdwidgets.explore(t, tensor={MARKUP['handler']!r}, rules=['ExplodingTensor'],"
        " panels=['histogram', 'heatmap', 'values', 'statistics', 'rules'])\nw"
    )
    reprs = f"from IPython.display import display\ndisplay(t, t.tensor({MARKUP['script']!r}), w.rules)\nprint(t)"
    notebook = lab.open([show, reprs], prepare=lambda page: page.add_init_script(WATCH), size=(1280, 1600))
    notebook.run(0).run(1)
    look = Looking.at(notebook)
    expect(look.el.locator(".smdw-name")).to_have_text(MARKUP["handler"])
    expect(look.panel("rules").locator(".smdw-status").first).to_contain_text("Found")
    look.panel("rules").locator(".smdw-rule-name").first.click()
    look_at(look, "onclick=alert", MARKUP["prompt"])
    look_at(look, "beacon.invalid/markdown", "![x](http://")
    look_at(look, "gpj", "loss\\u202egpj.exe")
    look_at(look, "2J", "a\\x1b[2J")
    look_at(look, "texts", "texts")
    expect(look.panel("values").locator("[role=gridcell]").first).to_contain_text("<script>")
    notebook.screenshot("hostile-lab")
    nothing_happened(notebook.page)
    assert notebook.output(1).locator("script, img, iframe, [onerror], [onclick]").count() == 0
    assert notebook.foreign == []


@pytest.mark.parametrize("made_by", ["to_html", "report", "xgboost"])
def test_exported_page_of_a_hostile_run_executes_and_requests_nothing(
    browser: Browser, run: Path, tmp_path: Path, shots: Path, made_by: str
):
    import smdwidgets
    from faults.hostile.test_text import xgboost_run
    from smdwidgets import cli
    from smdwidgets.rules.report import XgboostReport

    page_file = tmp_path / "page.html"
    if made_by == "to_html":
        widget = smdwidgets.explore(run, tensor=MARKUP["handler"], rules=["ExplodingTensor"])
        assert widget.rules.wait(60)
        widget.to_html(page_file, tensors=[MARKUP["handler"], MARKUP["end of script"], "texts"])
        widget.close()
    elif made_by == "report":
        assert cli.main(["report", str(run), "-o", str(page_file)]) == 0
    else:
        with smdwidgets.create_trial(xgboost_run(tmp_path / "run")) as trial:
            XgboostReport(trial).to_html(page_file)
    asked: list[str] = []
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": 1100, "height": 1000})
    page.add_init_script(WATCH)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    refused: list[str] = []
    page.on("requestfailed", lambda request: refused.append(request.url) if request.failure == "csp" else None)
    page.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
    page.goto(page_file.as_uri())
    if made_by == "xgboost":
        expect(page.locator("h1")).to_contain_text("XGBoost")
        assert page.locator("img, script, iframe, object, a[href^=javascript], [onclick], [onerror]").count() == 0
        assert acting(page.locator("body").inner_text(), "\n\t") == []
        assert page.evaluate(f"() => [window.{PWNED} ?? null, window.noticed]") == [None, []]
    else:
        look = Looking(page.locator(".smdw").first)
        expect(look.el.locator(".smdw-name")).not_to_have_text("")
        look.keys("ArrowLeft", "Home")
        nothing_happened(page)
        assert page.title().endswith(": smdwidgets")
        assert acting(page.title()) == []
    page.screenshot(path=str(shots / f"hostile-{made_by}.png"))
    assert asked == [page_file.as_uri()]
    assert complaints == []
    # The policy also blocks a script that was injected, and its network requests.
    page.evaluate(
        f"""() => {{
          const script = document.createElement('script'); script.textContent = 'window.{PWNED} = 99'; document.body.append(script);
          const image = document.createElement('img'); image.src = 'http://beacon.invalid/x'; document.body.append(image);
          const button = document.createElement('b'); button.setAttribute('onclick', 'window.{PWNED} = 98'); document.body.append(button); button.click();
          fetch('http://beacon.invalid/y').catch(() => 0);
        }}"""
    )
    page.wait_for_function("() => window.noticed.filter((each) => each.startsWith('policy')).length >= 4")
    assert page.evaluate(f"() => window.{PWNED} ?? null") is None
    page.close()
    # A blocked image counts both as requested and as blocked.
    assert asked[1:] == refused


def test_steps_beyond_the_browser_number_range_are_reported(lab, tmp_path):
    run = runs.plain(tmp_path / "run")
    index = json.loads((run / runs.index_key(1)).read_text())
    for step in (2**53 - 1, 2**53, 2**53 + 1, 10**17 + 1):
        path = run / runs.index_key(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        index["meta"]["event_file_name"] = runs.event_key(step)
        path.write_text(json.dumps(index))
    notebook = lab.open(
        [f"import smdwidgets\nw = smdwidgets.explore({str(run)!r}, tensor='w')\nw", "w.step, w.trial.steps()"]
    )
    notebook.run(0)
    look = Looking.at(notebook).at_step(2**53)
    expect(look.el).to_contain_text("2 steps beyond 2^53 are not shown")
    look.keys("ArrowLeft").at_step(2**53 - 1)
    look.keys("ArrowLeft").at_step(2)
    assert str(2**53 + 1) in notebook.run(1).text(1)
