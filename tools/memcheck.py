"""Check the memory safety of the compiled code.

Usage: `python tools/memcheck.py [asan | miri | valgrind ...]`; the default is every check that this machine supports.

asan      the core's tests with AddressSanitizer, with all instruction sets of the machine
miri      the core's tests without file access, for all kinds of undefined behaviour; needs nightly Rust with miri
valgrind  the extension module in Python: values, buffers, records, writing; needs valgrind
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
#: Miri is a thousand times slower and has no directories. AddressSanitizer runs the tests that are omitted here.
PURE = ("crc::", "record", "tensor::", "proto::", "simd::", "picture::", "reduce::tests::", "index::", "checked::")
#: Tests that reach every unsafe block of the extension: buffers from Python and buffers to Python.
EXTENSION = (
    "tests/python/catalog/test_files.py",
    "tests/python/test_records.py",
    "tests/python/test_step_writer.py",
)


def _run(*command: str, **env: str) -> int:
    print("==> " + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, check=False).returncode


def asan() -> int:
    """Run the core's tests under AddressSanitizer.

    RUSTC_BOOTSTRAP enables the option, which is not stable yet.
    """
    return _run(
        "cargo", "test", "--locked", "-p", "smdwidgets-core", "--target", TARGET, "--target-dir", str(CACHE / "asan"),
        RUSTC_BOOTSTRAP="1",
        RUSTFLAGS="-Zsanitizer=address",
        RUSTDOCFLAGS="-Zsanitizer=address",
        ASAN_OPTIONS="detect_leaks=0",
        PROPTEST_CASES="64",
    )  # fmt: skip


def miri() -> int:
    """Run the core's tests under Miri, with a few cases of each property."""
    return _run(
        "cargo", "+nightly", "miri", "test", "--locked", "-p", "smdwidgets-core", "--lib",
        "--target-dir", str(CACHE / "miri"), "--", *PURE,
        MIRIFLAGS="-Zmiri-disable-isolation",
        PROPTEST_CASES="2",
        PROPTEST_DISABLE_FAILURE_PERSISTENCE="true",
    )  # fmt: skip


def valgrind() -> int:
    """Run tests of the extension under valgrind.

    Python's allocator is disabled, so that every object is checked. Errors count if the extension is on the stack.
    """
    setup.ensure(["python", "front-end", "extension"])
    log = CACHE / "valgrind.log"
    failed = _run(
        "valgrind", "--error-limit=no", "--num-callers=40", "--undef-value-errors=no", f"--log-file={log}",
        str(setup.PYTHON), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "timeout=3600",
        # This test spends hours on hypothesis's table of all characters.
        "--hypothesis-profile=few", "--deselect", "tests/python/test_records.py::TestText::test_any_rank", *EXTENSION,
        PYTHONMALLOC="malloc",
        CI="1",
    )  # fmt: skip
    errors = [part for part in re.split(r"\n==\d+== \n", log.read_text(errors="replace")) if "_core.abi3" in part]
    errors = [part for part in errors if re.search(r"Invalid|Mismatched|overlap|uninitialised", part)]
    print("\n".join(errors[:5]))
    print(f"{len(errors)} errors with the extension on the stack (all errors: {log.relative_to(ROOT)})")
    return int(bool(failed or errors))


def is_available(name: str) -> bool:
    """Return whether this machine supports a check."""
    if name == "valgrind":
        return shutil.which("valgrind") is not None
    if name == "miri":
        found = subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True, check=False)
        return not found.returncode
    return sys.platform == "linux" and os.uname().machine == "x86_64"


CHECKS: dict[str, Callable[[], int]] = {"asan": asan, "miri": miri, "valgrind": valgrind}


def main(names: list[str]) -> int:
    """Run the checks; return 0 if none of them failed."""
    if unknown := [name for name in names if name not in CHECKS]:
        sys.exit(f"error: unknown check: {', '.join(unknown)}; choose from {', '.join(CHECKS)}")
    outcome = {}
    for name in names or CHECKS:
        outcome[name] = "not available" if not is_available(name) else "FAILED" if CHECKS[name]() else "ok"
    print("\n" + "\n".join(f"{name:<10} {result}" for name, result in outcome.items()))
    return int("FAILED" in outcome.values() or set(outcome.values()) == {"not available"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
