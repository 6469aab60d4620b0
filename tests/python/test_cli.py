import subprocess
import sys

import pytest

import smdwidgets
from smdwidgets import cli


def test_version_equals_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"smdwidgets {smdwidgets.__version__}\n"


def test_module_is_executable():
    done = subprocess.run([sys.executable, "-m", "smdwidgets", "--help"], capture_output=True, text=True, check=True)
    assert "usage: smdwidgets" in done.stdout
    assert done.stderr == ""
