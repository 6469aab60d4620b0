"""Arm a Python process that `smdwidgets run` starts.

The directory of this file is first on PYTHONPATH, so Python imports it at startup in place of the user's own
``sitecustomize``. It imports that one, too, and leaves ``sys.path`` and ``sys.modules`` as they would be without it.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _chain() -> None:
    """Import the next ``sitecustomize`` on ``sys.path``.

    Without one this raises ImportError, which Python ignores for this name. The module is then not in ``sys.modules``.
    """
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    sys.modules.pop("sitecustomize", None)
    __import__("sitecustomize")


sys.path.insert(0, _HERE)
try:
    import _smdwidgets_finder  # type: ignore[import-not-found, unused-ignore]
except Exception as error:  # the script runs whatever happens here
    print(f"smdwidgets: nothing is recorded: {type(error).__name__}: {error}", file=sys.stderr)
else:
    _smdwidgets_finder.install()
finally:
    _chain()
