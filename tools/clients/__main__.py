"""Compare smdwidgets with smdebug on public programs.

Usage: `python -m clients CLONE [--only PATTERN]`.

Each program runs twice, in separate processes and working directories: with the real smdebug, and with smdwidgets after
`install_as_smdebug()`. Exit status, exceptions, output and the runs that both write are compared.

Each program runs twice, in separate processes and working directories: with the real smdebug, and with smdwidgets after
`install_as_smdebug()`. Exit status, exceptions, output and the runs that both write are compared.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from clients import compare, environments, launch
from clients.catalog import CATALOG, DEBUGGER, ENVIRONMENTS, EXAMPLES, Client, group_of, known
from clients.sources import Clone, NotAClone
from steps import CACHE, ROOT, SetupError

LOGS = Path(os.environ.get("SMDWIDGETS_CLIENTS_CACHE", CACHE / "clients"))
MARKS = {DEBUGGER: ("smdebug/__init__.py",), EXAMPLES: ("README.md",)}
HOW_TO_GET = """\
skipped: {reason}.
  Get a clone:  git clone https://github.com/awslabs/sagemaker-debugger
  Then run:     make clients CLONE=path/to/sagemaker-debugger
  More clients: git clone https://github.com/aws/amazon-sagemaker-examples, and add NOTEBOOKS=path/to/amazon-sagemaker-examples"""


@dataclass
class Row:
    """One line of the table."""

    client: Client
    smdebug: str = "–"
    smdwidgets: str = "–"
    comparison: str = ""
    failed: bool = False
    ran: bool = True
    unexplained: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    logs: tuple[Path, ...] = ()


def _framework(program: Path) -> str:
    """The framework that a script imports."""
    text = program.read_text(encoding="utf-8", errors="replace")
    for package, framework in (
        ("torch", "torch"),
        ("tensorflow", "keras"),
        ("keras", "keras"),
        ("xgboost", "xgboost"),
        ("mxnet", "mxnet"),
    ):
        if re.search(rf"^\s*(?:import|from) {package}\b", text, re.M):
            return framework
    return "none"


def _runnable(program: Path, kind: str) -> bool:
    """Whether a file is a program that uses smdebug."""
    text = program.read_text(encoding="utf-8", errors="replace")
    return "smdebug" in text and (kind != "script" or "__main__" in text or program.suffix == ".py")


def listed(clones: dict[str, Clone]) -> list[Client]:
    """Return the clients of a clone: those in the catalog and those found by search."""
    clients = [one for one in CATALOG if one.repository in clones]
    present = [one for one in clients if one.not_run or clones[one.repository].find(one.path)]
    absent = [replace(one, not_run="not in the clone") for one in clients if one not in present]
    taken = {one.path for one in clients}
    found = []
    for name in clones[DEBUGGER].files:
        group = group_of(name)
        if group is None or name in taken or not name.endswith((".py", ".ipynb")):
            continue
        program = clones[DEBUGGER].find(name)
        if program is None or group.not_run.startswith("helper") or not _runnable(program, group.kind):
            continue
        found.append(
            Client(
                name,
                group.framework or _framework(program),
                group.kind,
                not_run=group.not_run,
                values=group.framework != "keras",
            )
        )
    return [*present, *found, *absent]


def _literal_names(program: Path) -> list[str]:
    """Tensor names that a notebook passes to `tensor()`."""
    if program.suffix != ".ipynb":
        return []
    text = program.read_text(encoding="utf-8").replace('\\"', '"')
    return re.findall(r"""\.tensor\(\s*["']([^"'\\]+)["']""", text)


def run_client(client: Client, clone: Clone, environs: environments.Environments, options: argparse.Namespace) -> Row:
    """Run both sides of a client and compare them."""
    row = Row(client)
    if client.not_run:
        row.comparison, row.ran = f"not run: {client.not_run}", False
        return row
    needed = ENVIRONMENTS[client.framework]
    pythons = [environs.python(needed.smdebug), environs.python(needed.smdwidgets)]
    if pythons[0] is None or pythons[1] is None:
        missing = " and ".join(
            f".venv-{name}"
            for name, python in zip((needed.smdebug, needed.smdwidgets), pythons, strict=True)
            if python is None
        )
        row.comparison, row.ran = f"not run: {missing} is not installed", False
        return row
    program = clone.find(client.path)
    assert program is not None
    folder = LOGS / client.slug
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sides = launch.Sides(
        smdebug=pythons[0],
        smdwidgets=pythons[1],
        package=options.smdwidgets_path,
        smdebug_path=tuple(map(str, options.smdebug_path)),
        referee=environs.python("peers"),
        reader=Path(sys.executable),
    )
    prepared = None
    if client.kind in ("notebook", "rules"):
        names = list(dict.fromkeys([*client.names, *_literal_names(program)]))
        prepared = launch.prepare(client, names or ["loss", "weight"], sides, folder)
    outcomes = []
    for side in launch.SIDES:
        outcome = launch.run_side(client, side, program, clone.path, prepared, sides, folder, options.timeout)
        if client.kind == "script" and not outcome.timed_out:
            outcome.runs = launch.read_runs(folder / side, sides, folder, options.timeout)
        outcomes.append(outcome)
    first, second = outcomes
    if client.framework == "keras":
        first.runs = {name: compare.with_keras_names(run) for name, run in first.runs.items()}
    row.smdebug, row.smdwidgets = first.short(), second.short()
    row.logs = (first.log, second.log)
    _judge(row, first, second)
    if not options.keep:
        for made in (*launch.SIDES, "prepared", "tmp"):
            shutil.rmtree(folder / made, ignore_errors=True)
    (folder / "comparison.txt").write_text(
        "\n".join([row.comparison, *row.unexplained, *row.explained]) + "\n", encoding="utf-8"
    )
    return row


def _judge(row: Row, first: launch.Outcome, second: launch.Outcome) -> None:
    """Fill in the comparison of a row."""
    if first.timed_out and not second.timed_out:
        row.comparison, row.ran = "not compared: smdebug exceeds the time-out", False
        return
    found, same = compare.differences(first, second, row.client.kind, values=row.client.values)
    for one in found:
        entry = known(row.client.name, one)
        if entry:
            row.explained.append(f"{one} ({entry.reason}: {entry.documented})")
            if one.startswith("ends with"):
                break  # whatever else differs follows from the exception
        else:
            row.unexplained.append(one)
    if first.error and not first.timed_out and not second.timed_out:
        reason = f"{first.error['type']}: {first.error['message']}".split("\n")[0][:90]
        if not second.error:
            # smdebug cannot run the program with this release of the framework: nothing to compare with.
            row.comparison, row.unexplained = f"smdwidgets finishes; smdebug raises {reason}", []
            return
        if not found:
            row.comparison, row.ran = f"not compared: both raise {reason}", False
            return
    if row.client.kind == "tests" and not first.error:
        tests = first.result["outcomes"]
        passed = sum(outcome == "passed" for outcome in tests.values())
        if not passed:
            reason = next((outcome for outcome in tests.values() if ": " in outcome), next(iter(tests.values())))
            row.comparison, row.ran = f"not compared: no test passes with smdebug ({reason[:90]})", False
            return
        if len(row.explained) == passed:
            row.comparison, row.ran = f"not compared: each of {passed} tests: {row.explained[0]}", False
            return
    row.failed = bool(row.unexplained)
    if row.unexplained:
        more = f" (+{len(row.unexplained) - 1})" if len(row.unexplained) > 1 else ""
        row.comparison = f"differs: {row.unexplained[0]}{more}"
    elif row.explained:
        row.comparison = f"known: {row.explained[0]}"
    else:
        row.comparison = f"same: {same}"


def _collapsed(rows: list[Row]) -> list[Row]:
    """Return rows, merging files of a directory that are skipped for the same reason."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        directory = row.client.path.rpartition("/")[0]
        key = row.client.name if row.ran or not row.client.not_run else directory
        groups.setdefault((key, row.client.framework, row.comparison), []).append(row)
    kept: list[Row] = []
    for (directory, _, _), group in groups.items():
        if len(group) > 3:
            kept.append(
                replace(group[0], client=replace(group[0].client, path=f"{directory}/ ({len(group)} files)", label=""))
            )
        else:
            kept += group
    return kept


def print_table(rows: list[Row]) -> None:
    """Print one line per client, then the differences and logs of those that failed."""
    heads = ("client", "framework", "smdebug", "smdwidgets", "comparison")
    rows = _collapsed(rows)
    cells = [(row.client.name, row.client.framework, row.smdebug, row.smdwidgets, row.comparison) for row in rows]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(4)]
    for line in (heads, *cells):
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, (*widths, 0), strict=True)).rstrip())
    for row in rows:
        if row.failed:
            print(f"\n{row.client.name} ({row.client.framework})")
            for one in row.unexplained:
                print(f"  {one}")
            for log in row.logs:
                print(f"  log: {log}")


def main(arguments: list[str]) -> int:
    """Run the clients; return 1 if one differs without a known reason."""
    parser = argparse.ArgumentParser(prog="make clients", description=(__doc__ or "").strip().split("\n")[0])
    parser.add_argument("clone", nargs="?", default="", help="clone of awslabs/sagemaker-debugger")
    parser.add_argument("--notebooks", type=Path, help="clone of aws/amazon-sagemaker-examples")
    parser.add_argument(
        "--only", default="", help="run only clients whose name or framework matches this pattern or contains it"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each side of a client (default: 600)")
    parser.add_argument(
        "--environments",
        type=Path,
        action="append",
        default=[],
        help="folder of .venv-NAME to use as they are; repeatable",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter of one environment, or of all with *=PATH; repeatable",
    )
    parser.add_argument(
        "--smdebug-path", type=Path, action="append", default=[], help="directory to import smdebug from; repeatable"
    )
    parser.add_argument(
        "--smdwidgets-path", type=Path, default=ROOT / "python", help="directory to import smdwidgets from"
    )
    parser.add_argument("--keep", action="store_true", help="keep the runs that the clients write")
    options = parser.parse_args(arguments)
    if not options.clone:
        print(HOW_TO_GET.format(reason="no clone of awslabs/sagemaker-debugger given"))
        return 0
    try:
        clones = {DEBUGGER: Clone.open(Path(options.clone).resolve(), LOGS / "sources" / DEBUGGER, MARKS[DEBUGGER])}
        if options.notebooks:
            clones[EXAMPLES] = Clone.open(options.notebooks.resolve(), LOGS / "sources" / EXAMPLES, MARKS[EXAMPLES])
    except NotAClone as error:
        print(HOW_TO_GET.format(reason=error))
        return 0
    clients = [one for one in listed(clones) if _matches(one, options.only)]
    if not options.environments and not options.python:
        needed = {
            name
            for one in clients
            if not one.not_run
            for name in (ENVIRONMENTS[one.framework].smdebug, ENVIRONMENTS[one.framework].smdwidgets)
        }
        try:
            environments.install(needed)
        except SetupError as error:
            sys.exit(f"error: {error}")
    environs = environments.Environments(
        [*options.environments, ROOT],
        {name: Path(path) for name, _, path in (one.partition("=") for one in options.python)},
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: print the rows so far
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[Row] = []
    interrupted = False
    runnable = sum(not one.not_run for one in clients)
    try:
        for client in sorted(clients, key=lambda one: bool(one.not_run)):
            if not client.not_run:
                print(f"[{len(rows) + 1}/{runnable}] {client.name} ({client.framework})", file=sys.stderr, flush=True)
            rows.append(run_client(client, clones[client.repository], environs, options))
    except KeyboardInterrupt:
        interrupted = True
    except SetupError as error:
        sys.exit(f"error: {error}")
    print_table(rows)
    ran = [row for row in rows if row.ran]
    failed = sum(row.failed for row in ran)
    print(f"\n{len(ran) - failed} passed, {failed} failed, {len(rows) - len(ran)} not compared")
    if interrupted:
        print(f"interrupted: {len(clients) - len(rows)} clients left")
        return 130
    return 1 if failed else 0


def _matches(client: Client, pattern: str) -> bool:
    return not pattern or pattern in client.name or pattern == client.framework or fnmatch(client.name, pattern)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
