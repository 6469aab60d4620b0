"""Text and HTML representations of trials and tensors.

Names come from files, so everything is escaped.
"""

from __future__ import annotations

from smdwidgets._text import listed, markup, natural, shown, visible
from smdwidgets.modes import ModeKeys
from smdwidgets.run_end import RunEnd
from smdwidgets.trials.reader import RunReader

#: Maximum characters of one value.
_LONGEST = 400


def _span(steps: list[int]) -> str:
    """Return the number of steps, the first and the last.

    >>> _span([0, 10, 20])
    '3 steps, 0 to 20'
    """
    if not steps:
        return "no steps"
    return f"1 step, {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps, {steps[0]} to {steps[-1]}"


def _state(end: RunEnd | None) -> str:
    """Return whether the run is running, or how it ended if the end marker tells.

    >>> _state(None), _state(RunEnd()), _state(RunEnd("signal", "SIGTERM"))
    ('running', 'ended', 'ended: signal (SIGTERM)')
    """
    if end is None:
        return "running"
    return "ended" if end.how == "ended" else f"ended: {end}"


def _trial_facts(reader: RunReader) -> list[tuple[str, str]]:
    """Return labels and values of a summary, without reading or refreshing."""
    if reader.unread and not reader.closed:
        return [("path", reader.path), ("state", "not read yet")]
    index, run = reader.index, reader.run
    state = "closed" if reader.closed else _state(run.end())
    facts = [("path", reader.path), ("state", state), ("steps", _span(index.steps()))]
    if not run.partly_read:
        modes = [ModeKeys(number) for number in index.modes() if number != ModeKeys.GLOBAL.value]
        facts += [("", f"{mode.name}: {_span(index.mode_steps(mode.value))}") for mode in modes]
        names = sorted(index.names(), key=natural)
        facts.append(
            ("tensors", f"{len(names)}" + (f": {listed([shown(name, 60) for name in names])}" if names else ""))
        )
    else:
        facts.append(("tensors", "not read yet"))
    workers = sorted(set(index.workers()) | reader.collection_workers, key=natural)
    facts.append(("workers", f"{len(workers)}: {listed(workers)}" if workers else "none yet"))
    collections = sorted(reader.collection_manager.collections, key=natural)
    facts.append(("collections", listed(collections, 12) if collections else "none"))
    facts += [("note", text) for texts in reader.collection_manager.notes.values() for text in texts[:4]]
    problems = run.problems()
    if problems:
        facts.append(("problems", f"{len(problems)} {run.damage}: see trial.problems()"))
    return facts


def trial_text(reader: RunReader, kind: str) -> str:
    """Return the repr of a trial of a kind, the name of its class."""
    lines = [f"<{kind} {shown(reader.name)}"]
    lines += [f"  {label + ':' if label else '':<13}{visible(fact, _LONGEST)}" for label, fact in _trial_facts(reader)]
    return "\n".join(lines) + ">"


def trial_html(reader: RunReader, kind: str) -> str:
    """Return the HTML representation of a trial of a kind, the name of its class."""
    return _table(f"{kind} {shown(reader.name)}", _trial_facts(reader))


def _tensor_facts(reader: RunReader, tensor_name: str) -> list[tuple[str, str]]:
    if reader.closed:
        return [("state", "the trial is closed")]
    index = reader.index
    steps = index.steps_of(tensor_name)
    facts = [("trial", reader.name)]
    aliases = [alias for alias, name in reader.collection_manager.aliases.items() if name == tensor_name]
    if aliases:
        facts.append(("alias", listed([shown(alias, 60) for alias in aliases])))
    sharded = False
    location = next((entry for step in reversed(steps[-8:]) if (entry := index.find(tensor_name, step))), None)
    if location is not None:
        try:
            dtype, shape = reader.head(location)
            if whole := reader.run.sharded(tensor_name, location.step):
                sharded, shape = True, whole.shape
            facts.append(("newest", f"{dtype} {shape}, step {location.step}"))
        except Exception as error:  # a repr must not raise
            facts.append(("newest", f"unreadable: {error}"))
    elif steps:
        facts.append(("newest", "reductions or shape only"))
    facts.append(("steps", _span(steps) + (" (of the steps read so far)" if reader.run.partly_read else "")))
    if steps:
        kinds = [
            ("abs_" if absolute else "") + name for name, absolute, _ in index.stored_reductions(tensor_name, steps[-1])
        ]
        if kinds:
            facts.append(("reductions", listed(kinds, 18)))
        workers = sorted(index.workers_of(tensor_name, steps[-1]), key=natural)
        if len(workers) > 1:
            facts.append(("shards" if sharded else "workers", listed(workers)))
    return facts


def tensor_text(reader: RunReader, name: str) -> str:
    """Return the repr of a tensor."""
    facts = ", ".join(f"{label}: {visible(fact, _LONGEST)}" for label, fact in _tensor_facts(reader, name))
    return f"<Tensor {shown(name)} ({facts})>"


def tensor_html(reader: RunReader, name: str) -> str:
    """Return the HTML representation of a tensor."""
    return _table(f"Tensor {shown(name)}", _tensor_facts(reader, name))


def _table(title: str, facts: list[tuple[str, str]]) -> str:
    # The notebook's table style applies, in light and dark themes.
    rows = "".join(
        f"<tr><th style='text-align:left'>{markup(label)}</th><td style='text-align:left'>{markup(fact, _LONGEST)}</td></tr>"
        for label, fact in facts
    )
    return f"<table><caption style='text-align:left'><b>{markup(title)}</b></caption><tbody>{rows}</tbody></table>"
