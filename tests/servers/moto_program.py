"""moto's server on a port of this machine: `python moto_program.py PORT`.

A request takes about half the processor time that it takes with `python -m moto.server`: requests are not logged, and
what moto looks up or parses for each request is remembered.
"""

from __future__ import annotations

import functools
import gc
import sys

import moto.backends
import moto.core.serialize
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class QuietHandler(MotoRequestHandler):
    """Answers requests and logs none."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def main(port: int) -> None:
    """Serve until the process is ended."""
    modules = frozenset(moto.backends.list_of_moto_modules())
    moto.backends.list_of_moto_modules = lambda: modules
    moto.core.serialize.parse_to_aware_datetime = functools.lru_cache(moto.core.serialize.parse_to_aware_datetime)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=QuietHandler)
    gc.freeze()
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
