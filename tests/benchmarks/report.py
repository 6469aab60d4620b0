"""Write RESULTS.md: one section per benchmark program, replaced by each run."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# Benchmark results

Each section is written by the program that it names. Both sides of a comparison run on the same machine, in the same run.
Compare the ratios: absolute times depend on the machine.
"""


def machine() -> str:
    """Describe the machine without identifying it."""
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
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(title: str, body: str, *, path: Path = RESULTS) -> None:
    """Replace the section of this title, or append it."""
    text = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    section = f"## {title}\n\n{date.today().isoformat()}; {machine()}.\n\n{body.strip()}\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    if found:
        text = text[: found.start()] + section + ("\n" if found.end() < len(text) else "") + text[found.end() :]
    else:
        text = text.rstrip("\n") + "\n\n" + section
    path.write_text(text, encoding="utf-8")
