"""Have workers that `smdwidgets replay` starts execute their recorded steps.

The directory of this file is first on PYTHONPATH, so Python imports it at startup. The launcher, such as torchrun,
runs as it is. A process that the launcher has given a rank is replaced by one that runs its script again.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
#: The file that says what is executed.
_PLAN = "SMDWIDGETS_REPLAY_PLAN"


def _words(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of Python, and the script or module with its arguments."""
    number = 0
    while number < len(words) and words[number].startswith("-") and words[number] not in ("-m", "-c", "-"):
        number += 2 if words[number] in ("-X", "-W") else 1
    return words[:number], words[number:]


def _replace() -> None:
    plan, rank = os.environ.get(_PLAN), os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
    if not plan or rank is None:
        return
    options, script = _words(sys.orig_argv[1:])
    if not script or script[0] in ("-c", "-"):
        return
    # Processes that the script starts run as they are.
    environment = {name: value for name, value in os.environ.items() if name != _PLAN}
    path = [one for one in environment.pop("PYTHONPATH", "").split(os.pathsep) if os.path.abspath(one or ".") != _HERE]
    if any(path):
        environment["PYTHONPATH"] = os.pathsep.join(path)
    words = [sys.executable, *options, "-m", "smdwidgets.replay.torch.rerun", "--plan", plan, rank, *script]
    os.execve(sys.executable, words, environment)


def _chain() -> None:
    """Import the next ``sitecustomize`` on ``sys.path``.

    Without one this raises ImportError, which Python ignores for this name.
    """
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    sys.modules.pop("sitecustomize", None)
    __import__("sitecustomize")


try:
    _replace()
except OSError as error:
    print(f"smdwidgets: the steps are not executed again: {error}", file=sys.stderr)
finally:
    _chain()
