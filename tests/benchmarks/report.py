"""RESULTS.md: one section a benchmark program, replaced when that program has run."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# Measured

Each section is written by the program it names, on one machine, in one run, ours beside the peer. The ratios are what
counts: absolute times do not carry over to another machine.
"""


def machine() -> str:
    """What this machine is, without saying which."""
    flags = ""
    try:
        cpu = Path("/proc/cpuinfo").read_text()
        flags = next(
            (f" with {name}" for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if f" {flag} " in cpu), ""
        )
    except OSError:
        pass
    return f"{os.cpu_count()} cores of {platform.machine()}{flags}, {platform.system()}, Python {platform.python_version()}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(title: str, body: str, *, path: Path = RESULTS) -> None:
    """Puts a section in place of the one of the same title, or at the end."""
    text = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    section = f"## {title}\n\n{date.today().isoformat()}; {machine()}.\n\n{body.strip()}\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    if found:
        text = text[: found.start()] + section + ("\n" if found.end() < len(text) else "") + text[found.end() :]
    else:
        text = text.rstrip("\n") + "\n\n" + section
    path.write_text(text, encoding="utf-8")
