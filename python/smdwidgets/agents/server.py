"""The MCP server: the answers as tools of the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from smdwidgets._text import visible
from smdwidgets.agents.answers import Answers
from smdwidgets.exceptions import SMDebugError, SMDebugRuntimeError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_INSTRUCTIONS: Final = (
    "Find out why a training run went wrong. Begin with list_runs, then diagnose a run. A finding has a stable id, "
    "kind:subject:first step, which evidence takes. explain says what a kind means. Paths are relative to the "
    "directories that the server was given. Nothing is changed."
)

P = ParamSpec("P")
R = TypeVar("R")


def serve(roots: Sequence[str]) -> None:
    """Serve on standard input and output until the client disconnects."""
    answers = Answers(roots)
    server = server_of(answers)
    try:
        server.run("stdio")
    finally:
        answers.close()


def server_of(answers: Answers) -> MCPServer:
    """Return a server whose tools give these answers. Requires the package mcp."""
    try:
        from mcp.server.mcpserver import Image, MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise SMDebugRuntimeError(
            f"agents require mcp 2 or newer ({error}); run: pip install 'smdwidgets[mcp]'"
        ) from None

    def with_errors(answer: Callable[P, R]) -> Callable[P, R]:
        """Return errors as answers: the agent can correct its question."""

        @wraps(answer)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return answer(*args, **kwargs)
            except (SMDebugError, OSError, ValueError) as error:
                raise ToolError(visible(error, 1000)) from None

        return wrapped

    server = MCPServer("smdwidgets", instructions=_INSTRUCTIONS, version=version("smdwidgets"), log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for answer in (
        answers.list_runs,
        answers.diagnose,
        answers.explain,
        answers.evidence,
        answers.query,
        answers.compare,
    ):
        server.tool(annotations=reads, structured_output=False)(with_errors(answer))

    def picture(run: str, tensor: str, step: int | None = None) -> Any:
        """Return a PNG: the histogram of a tensor at a step, or the curve of a scalar."""
        return Image(data=with_errors(answers.picture)(run, tensor, step), format="png")

    server.tool(annotations=reads, structured_output=False)(picture)
    return server
