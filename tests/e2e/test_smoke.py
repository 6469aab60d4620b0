"""The package imports in a real kernel, and the test harness detects failures."""

import pytest

import smdwidgets


def test_package_version_in_a_notebook(jupyter):
    notebook = jupyter.open(["import smdwidgets\nsmdwidgets.__version__"])
    notebook.run(0)
    assert notebook.text(0).endswith(f"'{smdwidgets.__version__}'")


def test_external_requests_and_page_errors_are_detected(lab):
    notebook = lab.open(["1"], dark=True)
    notebook.page.evaluate("() => { fetch('http://example.invalid/x').catch(() => {}); }")
    notebook.page.evaluate("() => { setTimeout(() => { throw new Error('noticed'); }); }")
    notebook.page.wait_for_timeout(300)
    assert notebook.foreign == ["http://example.invalid/x"]
    with pytest.raises(AssertionError, match="beyond loopback"):
        notebook.check()
    notebook.foreign.clear()
    assert any("noticed" in error for error in notebook.errors)
    notebook.errors.clear()
