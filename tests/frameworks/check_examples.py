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

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def sections(page):
    """Return the examples of each section: what fires, and the fix."""
    parts = page.partition("<!-- kinds: begin -->")[2].split("\n### ")[1:]
    return {part.partition("\n")[0].lower().replace(" ", "_"): _BLOCK.findall(part) for part in parts}


def prelude(page, framework):
    """Return what all examples of a framework begin with."""
    rest = page.partition("## Examples")[2].partition(f"<!-- needs: {framework} -->")[2]
    return _BLOCK.findall(rest)[0]


def runner_of(page, name):
    """Return the test file that runs the example of a check, or "" if it has none."""
    section = page.partition(f"\n### {name.replace('_', ' ').capitalize()}\n")[2].partition("\n### ")[0]
    mark = re.search(r"<!-- not run: tests/frameworks/(\S+) runs it", section)
    return mark[1] if mark else ""


def run(code, begin):
    """Run an example; return the checks that fired."""
    space = {"__name__": "example"}
    exec(compile(begin, "prelude", "exec"), space)
    opened, note = [], process.opened
    process.opened = lambda hook: (opened.append(hook), note(hook))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "example", "exec"), space)
    finally:
        process.opened = note
    files, off, updates = {}, {}, 0
    for number, hook in enumerate(opened):
        hook.close()
        for file in Path(hook.out_dir).glob("checks/*.jsonl"):
            records = CheckRecords.parse({file.stem: file.read_bytes()})
            files |= {(number, one.id): one.level for one in records}
            off |= records.off
            updates += records.updates
    return {"fired": [[id, level] for (_, id), level in files.items()], "off": off, "updates": updates}


def outcomes(place, framework, names, **env):
    """Run the examples of these checks as `smdwidgets run` does.

    Return what fired, by check and whether it is fixed.
    """
    words = ["--checks-only", "--steps", "1000", sys.executable, __file__, PAGE, framework, *names]
    done = place.run(*words, env={"OMP_NUM_THREADS": "1", **env})
    assert done.code in (0, 1), done.err
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    return {(one["check"], one["fixed"]): one for one in lines}


def is_right(check, found):
    """Assert that an example fires, and that its fix does not."""
    broken, fixed = found[check, False], found[check, True]
    assert check in {id for id, _ in broken["fired"]}
    assert {level for _, level in fixed["fired"]} <= {"note"}
    assert check not in {id for id, _ in fixed["fired"]}


#: Runs each script in one process, and prints what fired; the launcher opens a hook for each training.
_RUNNER = """
import json, pathlib
from frameworks.check_examples import run
begin, scripts = json.loads(pathlib.Path("scripts.json").read_text())
for name, script in scripts.items():
    found = run(script, begin)
    print(json.dumps([name, found["fired"], found["off"], found["updates"]]), flush=True)
"""


def run_scripts(folder, begin, scripts, **env):
    """Run scripts as `smdwidgets run` does.

    Return the checks that fired and those that are off, by script.
    """
    return {name: found[:2] for name, found in checked_scripts(folder, begin, scripts, **env).items()}


def checked_scripts(folder, begin, scripts, **env):
    """Run scripts as `run_scripts` does; also return how many updates were checked."""
    from python.launch.launching import Place  # this file is also a script, which does not see it

    place = Place(folder, Path(__file__).parents[1])
    place.write("scripts.json", json.dumps([begin, scripts]))
    place.write("train.py", _RUNNER)
    done = place.run("--checks-only", "--steps", "1000", "train.py", env={"OMP_NUM_THREADS": "1", **env})
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("[")]
    assert {name for name, *_ in lines} == set(scripts), done.err
    return {name: (dict(map(tuple, found)), off, updates) for name, found, off, updates in lines}


def both(place, begin, scripts, **env):
    """Run scripts one after the other, with Python and as `smdwidgets run` does."""
    calls = [f"exec(BEGIN)\nexec({script!r})" for script in scripts.values()]
    place.write("train.py", "\n".join([f"BEGIN = {begin!r}", *calls]))
    return place.python("train.py", env=env), place.run("train.py", env=env)


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    begin = prelude(text, sys.argv[2])
    wanted = sys.argv[3:]  # a process records 100 trainings at most
    for name, codes in sections(text).items():
        for number, code in enumerate(codes):
            if name in wanted:
                print(json.dumps({"check": name, "fixed": bool(number), **run(code, begin)}), flush=True)
