"""What processes that run a training again are to do, as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

__all__ = ["Kind", "Task"]

Kind = Literal["run", "operators", "explain", "try"]


@dataclass(frozen=True)
class Task:
    """What is executed.

    Attributes:
        run: directory of the run.
        folders: folder of the recording of each worker, by rank.
        results: directory of the results.
        kind: ``"run"``: the steps; ``"operators"``: with all operators of one; ``"explain"``: to explain an incident;
            ``"try"``: with changes, and with each row alone.
        step: the step of the question.
        last: the last step that may be executed; None: the last that was recorded.
        changes: arguments of `what_if`; an empty one stands for the usual changes.
        rows: whether rows are ranked.
    """

    run: str
    folders: Mapping[int, str]
    results: str = ""
    kind: Kind = "run"
    step: int | None = None
    last: int | None = None
    changes: Sequence[Mapping[str, Any]] = field(default=())
    rows: bool = False

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the task of a file."""
        content = json.loads(path.read_bytes())
        return cls(**{**content, "folders": {int(rank): folder for rank, folder in content["folders"].items()}})

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def result(self, rank: int) -> Path:
        """Return the file of a worker's result."""
        return Path(self.results) / f"{rank}.json"
