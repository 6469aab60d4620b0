"""Execute a page's commands, and reply with what they changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.run_table.live import LiveTable
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.command_queue import CommandQueue
from smdwidgets.widgets.live_replay import LiveReplay
from smdwidgets.widgets.live_survey import LiveSurvey
from smdwidgets.widgets.open_runs import run_at
from smdwidgets.widgets.reply import Handler, Reply
from smdwidgets.widgets.rule_controller import RuleController
from smdwidgets.widgets.runs_packets import RunsPackets


class CommandRequests:
    """Executes commands in order of arrival, each once."""

    def __init__(
        self,
        trials: Sequence[Trial],
        rules: RuleController,
        survey: LiveSurvey | None,
        runs: RunsPackets | None,
        replay: LiveReplay | None,
    ) -> None:
        self._trials = trials
        self._rules = rules
        self._survey = survey
        self._runs = runs
        self._replay = replay
        self._queue = CommandQueue(self._execute)
        #: By name of the command. Call them only on the queue's thread; see :meth:`submit`.
        self.handlers: dict[str, Handler] = {
            "rule": self._rule,
            "read_all": self._read_all,
            "runs_work": self._runs_work,
            "launch": self._launch,
            "replay": self._execute_again,
        }

    def submit(self, task: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the queue's thread, after all earlier ones."""
        self._queue.submit(task, *arguments)

    def _rule(self, request: dict[str, Any], reply: Reply) -> None:
        self._queue.execute(reply.id, request)
        with self._rules.in_order():
            reply.answer(self._rules.updates())

    def _runs_work(self, request: dict[str, Any], reply: Reply) -> None:
        self._queue.execute(reply.id, request)
        reply.answer(self._runs.updates() if self._runs is not None else [])

    def _read_all(self, request: dict[str, Any], reply: Reply) -> None:
        self._queue.execute(reply.id, request)
        reply.answer(self._survey.reading_packets() if self._survey is not None else [])

    def _execute_again(self, request: dict[str, Any], reply: Reply) -> None:
        self._queue.execute(reply.id, request)
        reply.answer(self._replay.updates() if self._replay is not None else [])

    def _launch(self, request: dict[str, Any], reply: Reply) -> None:
        self._queue.execute(reply.id, request)
        reply.answer()

    def _execute(self, command: dict[str, Any]) -> None:
        if command["what"] == "rule":
            self._rules.execute(command)
        elif command["what"] == "replay":
            if self._replay is not None:
                self._replay.execute(command)
        elif command["what"] == "launch":
            self._select_launch(int(command["run"]), command["launch"])
        elif command["what"] == "runs_work":
            if self._runs is not None:
                self._work_on_runs(self._runs.table, command)
        elif self._survey is not None:
            self._survey.read_all(int(command["run"]), str(command["do"]))

    def _select_launch(self, number: int, launch: int | None) -> None:
        trial = run_at(self._trials, number)
        if isinstance(trial, TensorBoardTrial):
            trial.select_segment(launch)
        elif launch is not None:
            raise SMDebugError("cannot select a launch: the run is not a TensorBoard log")

    @staticmethod
    def _work_on_runs(table: LiveTable, command: dict[str, Any]) -> None:
        if command["do"] == "diagnose":
            table.diagnose(command["runs"])
        elif command["do"] == "read":
            table.resume()
        else:
            table.stop()
