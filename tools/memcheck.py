"""The memory of the compiled code under watch: `python tools/memcheck.py [asan | miri | valgrind ...]`, what this machine has.

asan      the core's tests, all instructions that the machine has, with AddressSanitizer
miri      the core's tests that touch no file, interpreted: undefined behaviour of any kind (needs a nightly Rust with miri)
valgrind  the extension module in Python: values, buffers, records, writing (needs valgrind)
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import setup
from steps import CACHE, ROOT

TARGET = "x86_64-unknown-linux-gnu"
#: Miri takes a thousand times as long, and knows no files of a directory. What is left out here, asan runs.
PURE = ("crc::", "record", "tensor::", "proto::", "simd::", "picture::", "reduce::tests::", "index::", "checked::")
#: Tests that go through every unsafe block of the extension: buffers taken and buffers given.
EXTENSION = (
    "tests/python/catalog/test_files.py",
    "tests/python/test_records.py",
    "tests/python/test_step_writer.py",
)


def _run(*command: str, **env: str) -> int:
    print("==> " + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, check=False).returncode


def asan() -> int:
    """A build of its own. The switch is not stable yet, hence the bootstrap variable."""
    return _run(
        "cargo", "test", "--locked", "-p", "smdwidgets-core", "--target", TARGET, "--target-dir", str(CACHE / "asan"),
        RUSTC_BOOTSTRAP="1",
        RUSTFLAGS="-Zsanitizer=address",
        RUSTDOCFLAGS="-Zsanitizer=address",
        ASAN_OPTIONS="detect_leaks=0",
        PROPTEST_CASES="64",
    )  # fmt: skip


def miri() -> int:
    """Interpreted, a few cases of each property."""
    return _run(
        "cargo", "+nightly", "miri", "test", "--locked", "-p", "smdwidgets-core", "--lib",
        "--target-dir", str(CACHE / "miri"), "--", *PURE,
        MIRIFLAGS="-Zmiri-disable-isolation",
        PROPTEST_CASES="2",
        PROPTEST_DISABLE_FAILURE_PERSISTENCE="true",
    )  # fmt: skip


def valgrind() -> int:
    """Python's own allocator is switched off, so that every object is watched; errors count where our module is on the stack."""
    setup.ensure(["python", "front-end", "extension"])
    log = CACHE / "valgrind.log"
    failed = _run(
        "valgrind", "--error-limit=no", "--num-callers=40", "--undef-value-errors=no", f"--log-file={log}",
        str(setup.PYTHON), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "timeout=3600",
        # That one spends hours on hypothesis's own table of all characters.
        "--hypothesis-profile=few", "--deselect", "tests/python/test_records.py::TestText::test_any_rank", *EXTENSION,
        PYTHONMALLOC="malloc",
        CI="1",
    )  # fmt: skip
    errors = [part for part in re.split(r"\n==\d+== \n", log.read_text(errors="replace")) if "_core.abi3" in part]
    errors = [part for part in errors if re.search(r"Invalid|Mismatched|overlap|uninitialised", part)]
    print("\n".join(errors[:5]))
    print(f"{len(errors)} errors with our module on the stack (all in {log.relative_to(ROOT)})")
    return int(bool(failed or errors))


def have(name: str) -> bool:
    """Whether this machine has what it takes."""
    if name == "valgrind":
        return shutil.which("valgrind") is not None
    if name == "miri":
        asked = subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True, check=False)
        return not asked.returncode
    return sys.platform == "linux" and os.uname().machine == "x86_64"


CHECKS: dict[str, Callable[[], int]] = {"asan": asan, "miri": miri, "valgrind": valgrind}


def main(names: list[str]) -> int:
    """0 when every check that could be run found nothing."""
    if unknown := [name for name in names if name not in CHECKS]:
        sys.exit(f"error: no such check: {', '.join(unknown)} (there are {', '.join(CHECKS)})")
    outcome = {}
    for name in names or CHECKS:
        outcome[name] = "not on this machine" if not have(name) else "FAILED" if CHECKS[name]() else "ok"
    print("\n" + "\n".join(f"{name:<10} {said}" for name, said in outcome.items()))
    return int("FAILED" in outcome.values() or set(outcome.values()) == {"not on this machine"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
