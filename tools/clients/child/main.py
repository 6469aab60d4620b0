"""Run one client in this process: `python main.py JOB.json`.

The job names the side (`smdebug` or `smdwidgets`), the program and its arguments. The result is written to the file that
the job names, also when the program raises.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).resolve().parent)


def _error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "type": type(error).__name__,
        "message": str(error).strip()[:300],
        "line": frames[-1].lineno if frames else None,
        "at": f"{frames[-1].name}" if frames else "",
    }


def _script(job: dict[str, Any]) -> dict[str, Any]:
    sys.argv = [job["path"], *job["arguments"]]
    sys.path[0] = str(Path(job["path"]).parent)
    try:
        runpy.run_path(job["path"], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            return {"error": {"type": "SystemExit", "message": str(end.code)}}
    except Exception as error:
        traceback.print_exc()
        return {"error": _error(error)}
    return {}


def main() -> int:
    """Run the job; returns the exit status."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # All modules of this directory, before it leaves sys.path.
    import pytests
    import rules
    import stand_ins

    import notebooks

    os.chdir(job["directory"])
    for path in job["smdebug_path"] if job["side"] == "smdebug" else ():
        sys.path.insert(1, path)
    kinds = {"script": _script, "tests": pytests.run, "notebook": notebooks.run, "rules": rules.run}
    result: dict[str, Any] = {}
    try:
        stand_ins.install(Path(job["directory"]))
        if job["side"] == "smdwidgets":
            import smdwidgets

            smdwidgets.install_as_smdebug()
        result = kinds[job["kind"]](job)
    except BaseException as error:
        result = {"error": _error(error)}
        raise
    finally:
        Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")
    return 1 if result.get("error") else 0


if __name__ == "__main__":
    sys.path[0] = HERE
    sys.exit(main())
