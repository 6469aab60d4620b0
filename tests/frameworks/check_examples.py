"""Run the examples of docs/checks.md, and print which checks fire.

Run it with `smdwidgets run --checks-only`, which opens a hook for each training.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path

from smdwidgets.checks.record import CheckRecords
from smdwidgets.hooks.core import process

_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def sections(page):
    """Return the examples of each section: what fires, and the fix."""
    parts = page.partition("<!-- kinds: begin -->")[2].split("\n### ")[1:]
    return {part.partition("\n")[0].lower().replace(" ", "_"): _BLOCK.findall(part) for part in parts}


def prelude(page):
    """Return what all examples begin with."""
    return _BLOCK.findall(page.partition("## Examples")[2])[0]


def run(code, begin):
    """Run an example; return the checks that fired."""
    space = {"__name__": "example"}
    exec(compile(begin, "prelude", "exec"), space)
    before = set(process.open_hooks())
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "example", "exec"), space)
    files, off = {}, {}
    for number, hook in enumerate(set(process.open_hooks()) - before):
        hook.close()
        for file in Path(hook.out_dir).glob("checks/*.jsonl"):
            records = CheckRecords.parse({file.stem: file.read_bytes()})
            files |= {(number, one.id): one.level for one in records}
            off |= records.off
    return {"fired": [[id, level] for (_, id), level in files.items()], "off": off}


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    wanted = sys.argv[2:]  # a process records 100 trainings at most
    for name, codes in sections(text).items():
        for number, code in enumerate(codes):
            if name in wanted:
                print(json.dumps({"check": name, "fixed": bool(number), **run(code, prelude(text))}), flush=True)
