"""Run the core's tests for aarch64 in QEMU: `python tools/emulated.py`.

zig links the tests statically against musl, so that they need no library of the other system.
"""

from __future__ import annotations

import shutil
import sys

import steps
from steps import SetupError, apt_install, can_apt, run
from wheels import PYTHON, TOOLS, with_tools

TARGET = "aarch64-unknown-linux-musl"
EMULATOR = "qemu-aarch64"


def main() -> None:
    """Build and run the tests; exit with the reason when something fails."""
    try:
        steps.ensure(TOOLS)
        if shutil.which(EMULATOR) is None:
            if not can_apt():
                raise SetupError(f"{EMULATOR} not found; install QEMU's user mode (Debian: apt install qemu-user)")
            apt_install("qemu-user")
        run("rustup", "target", "add", TARGET)
        runner = f"CARGO_TARGET_{TARGET.upper().replace('-', '_')}_RUNNER"
        env = {**with_tools(), runner: EMULATOR}
        words = ("--locked", "-p", "smdwidgets-core", "--lib", "--tests", "--target", TARGET)
        run(PYTHON.with_name("cargo-zigbuild"), "test", *words, env=env)
    except SetupError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
