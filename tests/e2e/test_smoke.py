"""The package can be imported in a real kernel, and the harness sees what it must see."""

import pytest

import smdwidgets


def test_the_package_tells_its_version_in_a_notebook(jupyter):
    notebook = jupyter.open(["import smdwidgets\nsmdwidgets.__version__"])
    notebook.run(0)
    assert notebook.text(0).endswith(f"'{smdwidgets.__version__}'")


def test_a_request_beyond_loopback_and_an_error_in_the_page_are_noticed(lab):
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
