"""Send messages about findings to a command or an address."""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from smdwidgets._text import shown
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.finding import Finding

TOKEN: Final = "SMDWIDGETS_NOTIFY_TOKEN"
"""Environment variable with the bearer token of an address."""
_TRIES: Final = 4
#: Seconds before the second try; each further pause is twice as long.
_PAUSE: Final = 1.0
#: Seconds for one try.
_TIMEOUT: Final = 30.0
#: Seconds in which the rest is sent when the command ends.
_AT_END: Final = 30.0
#: Seconds in which the thread notices that it is to stop.
_POLL: Final = 0.2
#: Messages that wait; further ones are dropped, with a warning.
_MOST: Final = 1000


class Notifier:
    """Sends messages from a thread.

    A slow receiver never delays the diagnosis.

    Args:
        target: a command, which gets the message as JSON on its standard input, or an ``http(s)`` address, to which it
            is posted.
    """

    def __init__(self, target: str, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._is_address = target.startswith(("http://", "https://"))
        #: What warnings name: an address may contain a secret.
        self._name = urlsplit(target).hostname or "?" if self._is_address else shown(target, 100)
        try:
            self._command = [] if self._is_address else shlex.split(target)
        except ValueError as error:
            raise SMDebugValueError(f"invalid --notify {shown(target, 100)}: {error}") from None
        if not self._is_address and not self._command:
            raise SMDebugValueError("invalid --notify ''; expected a command or an http(s) address")
        self._address = target
        self._listed: dict[tuple[str, str], Finding] = {}
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue(_MOST)
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._send_all, name="smdwidgets-notify", daemon=True)
        self._thread.start()

    def update(self, result: Diagnosis) -> None:
        """Send what is new and what is withdrawn since the last diagnosis of the run."""
        listed = {(finding.kind, finding.subject): finding for finding in result.findings}
        new = [listed[key] for key in listed.keys() - self._listed.keys()]
        gone = [self._listed[key] for key in self._listed.keys() - listed.keys()]
        self._listed = listed
        self._put("new", result.run, sorted(new, key=lambda finding: finding.first or 0))
        self._put("withdrawn", result.run, gone)

    def _put(self, event: str, run: str, findings: Iterable[Finding]) -> None:
        for finding in findings:
            message = {"event": event, "run": run, "id": finding.id, "text": finding.text, "finding": finding.to_json()}
            try:
                self._messages.put_nowait(message)
            except queue.Full:
                print(f"warning: a message to {self._name} is dropped: {_MOST:,} are waiting", file=sys.stderr)

    def close(self, timeout: float = _AT_END) -> None:
        """Send what is waiting, for at most ``timeout`` seconds.

        A command that still runs then is ended.
        """
        deadline = time.monotonic() + timeout
        while self._messages.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        self._stopped.set()
        if (process := self._process) is not None:
            process.kill()
        self._thread.join(_POLL * 2)

    def _send_all(self) -> None:
        while not self._stopped.is_set():
            try:
                message = self._messages.get(timeout=_POLL)
            except queue.Empty:
                continue
            self._send(json.dumps(message).encode())
            self._messages.task_done()

    def _send(self, data: bytes) -> None:
        for attempt in range(_TRIES):
            problem = self._post(data) if self._is_address else self._run(data)
            if not problem:
                return
            if attempt + 1 < _TRIES and self._stopped.wait(self._pause * 2**attempt):
                break
        print(f"warning: a message to {self._name} was not delivered: {problem}", file=sys.stderr)

    def _run(self, data: bytes) -> str:
        try:
            process = self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            process.communicate(data, timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"no end after {_TIMEOUT:.0f} s"
        except OSError as error:
            return str(error.strerror)
        finally:
            self._process = None
        return f"exit code {process.returncode}" if process.returncode else ""

    def _post(self, data: bytes) -> str:
        headers = {"Content-Type": "application/json", "User-Agent": "smdwidgets"}
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        try:
            request = urllib.request.Request(self._address, data, headers, method="POST")
            with urllib.request.urlopen(request, timeout=_TIMEOUT):
                return ""
        except urllib.error.HTTPError as error:
            return f"status {error.code}"
        except (OSError, ValueError) as error:
            return type(error).__name__ if not isinstance(error, urllib.error.URLError) else str(error.reason)
