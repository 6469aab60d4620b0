"""protocol.json, and the code that must agree with it."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import pytest
import traitlets

import smdwidgets
from python.widgets.protocol_checks import check_packet, check_reply
from python.widgets.talk import Page, begin, end, save, weights
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures import frames, packet, unpack
from smdwidgets.rules.evaluation import Outcome, Status
from smdwidgets.widgets import protocol
from smdwidgets.widgets.protocol import PROTOCOL, SCHEMA, check_request, trait_fault
from smdwidgets.widgets.traits import STATE, ViewState

FRAMES = {
    "what": "frames",
    "role": "main",
    "run": 0,
    "tensor": "w",
    "worker": "",
    "near": 0,
    "want": {"stats": True, "update": False, "hist": None, "image": None, "percentiles": True},
}
PLAN = {
    "kind": "plan",
    "run": 0,
    "tensor": "w",
    "worker": "",
    "dtype": "float32",
    "shape": [2, 3],
    "bytes": 24,
    "collections": [],
    "workers": ["worker_0"],
    "form": "number",
    "reduced": False,
    "errors": {},
}


@pytest.fixture
def explorer(tmp_path: Path) -> Any:
    root = begin(tmp_path / "mlp")
    for step in range(3):
        save(root, step, {"w": weights(step), "loss": np.float32(step)})
    widget = smdwidgets.explore(end(root), rules=["LossNotDecreasing"], tensor="w")
    yield widget
    widget.close()


def test_constants_are_those_of_the_kernel() -> None:
    assert packet.VERSION == PROTOCOL
    constants = {name: constant["value"] for name, constant in SCHEMA["constants"].items()}
    assert constants["REDUCTIONS"] == [("abs_" if magnitudes else "") + op for op, magnitudes in frames.REDUCTIONS]
    assert constants["MODES"] == ["", *(mode.name for mode in sorted(ModeKeys, key=lambda mode: mode.value))]
    assert constants["OUTCOMES"] == ["not evaluated", *(outcome.name.lower() for outcome in Outcome)]
    assert literals("RuleStatus") == [str(status) for status in Status]


def literals(name: str) -> list[str]:
    return re.findall("'([^']*)'", SCHEMA["types"][name]["type"])


def test_every_request_has_a_handler(explorer: Any) -> None:
    assert explorer.request_handler._handlers.keys() == SCHEMA["requests"].keys()


def test_traits_are_those_of_the_widgets(explorer: Any) -> None:
    synced = {name for name in explorer.traits(sync=True) if not hasattr(anywidget.AnyWidget, name)}
    synced = {name for name in synced if not name.startswith("_anywidget")} - {"_esm"}
    assert synced == SCHEMA["traits"].keys()
    state = ViewState()
    for name in STATE:
        trait = SCHEMA["traits"][name]
        assert getattr(state, name) == trait["default"], name
        assert trait_fault(name, trait["default"]) is None, name
        enum = ViewState.class_traits()[name]
        enum = enum._trait if isinstance(enum, traitlets.List) else enum
        if isinstance(enum, traitlets.Enum):
            kind = trait["type"].removesuffix("[]")
            listed = literals(kind) if kind in SCHEMA["types"] else re.findall("'([^']*)'", kind)
            assert sorted(listed) == sorted(enum.values), name


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"near": "x"}, "invalid request frames: near must be int, got 'x'"),
        ({"near": True}, "invalid request frames: near must be int, got True"),
        ({"role": "other"}, "invalid request frames: role must be 'main' | 'compare', got 'other'"),
        ({"want": {**FRAMES["want"], "hist": {}}}, "invalid request frames: want.hist.scale is missing"),
        (
            {"want": {**FRAMES["want"], "hist": 3}},
            "invalid request frames: want.hist must be HistogramRequest | null, got 3",
        ),
        ({"colour": 3}, "invalid request frames: colour is not in the protocol"),
        ({"what": "frame"}, "unknown request 'frame'; choose from hello, frames"),
        ({"what": "rule", "do": "halt"}, "invalid command rule: do must be 'start' | 'pause'"),
        ({"what": "rule", "do": "stop", "rule": 3}, "invalid command rule stop: rule must be str, got 3"),
        ({"what": "series", "lines": [{"tensor": "w"}]}, "invalid request series: lines[0].stat is missing"),
        ({"what": "tile", "rows": [0]}, "invalid request tile: step is missing"),
    ],
)
def test_an_invalid_request_is_refused_by_its_argument(changed: dict[str, Any], fault: str) -> None:
    check_request(FRAMES, exact=True)
    with pytest.raises(ValueError, match=re.escape(fault)):
        check_request({**FRAMES, **changed}, exact=True)


def test_the_kernel_answers_an_invalid_request_with_the_fault_and_ignores_unknown_arguments(explorer: Any) -> None:
    page = Page(explorer)
    answer, _ = page.ask("query", run=0, worker="", mode="", text=3)
    assert answer["error"]["message"] == "invalid request query: text must be str, got 3"
    page.ask("hello", protocol=PROTOCOL, again=False)
    answer, _ = page.ask("query", run=0, worker="", mode="", text="lo", colour="red")
    assert len(answer["rows"]) == 1


@pytest.mark.parametrize(
    ("head", "shape", "fault"),
    [
        ({"shape": [2.5]}, (3,), "invalid packet plan: shape[0] must be int, got 2.5"),
        ({"errors": {"3": {"type": "X"}}}, (3,), "invalid packet plan: errors.3.message is missing"),
        ({"extra": 1}, (3,), "invalid packet plan: extra is not in the protocol"),
        ({"kind": "plane"}, (3,), "unknown packet 'plane'; choose from catalog, plan"),
        ({}, (3, 1), "invalid packet plan: array step must be f8[n], got f8[3, 1]"),
        ({}, None, "invalid packet plan: array step is missing"),
    ],
)
def test_an_invalid_packet_is_refused(head: dict[str, Any], shape: Any, fault: str) -> None:
    check_packet(PLAN, {"step": np.zeros(3)})
    with pytest.raises(ValueError, match=re.escape(fault)):
        check_packet({**PLAN, **head}, {} if shape is None else {"step": np.zeros(shape)})


def test_arrays_of_a_packet_have_the_same_number_of_steps() -> None:
    head = {"kind": "series", "run": 0, "tensor": "w", "worker": "", "mode": "", "stat": "mean"}
    check_packet(head, {"step": np.zeros(3), "y": np.zeros(3)})
    with pytest.raises(ValueError, match=r"array y must be f8\[n\], got f8\[2\] with \{'n': 3\}"):
        check_packet(head, {"step": np.zeros(3), "y": np.zeros(2)})


@pytest.mark.parametrize(
    ("message", "heads", "what", "fault"),
    [
        ({"kind": "answer", "id": "1"}, [], "query", "invalid answer of query: rows is missing"),
        ({"kind": "answer", "id": "1", "rows": [3]}, [], "tile", "invalid answer of tile: rows is not in the protocol"),
        ({"kind": "part", "id": "1"}, ["plan"], "tile", "part of tile cannot contain a packet plan; choose from tile"),
        ({"kind": "news"}, ["page"], None, "news of None cannot contain a packet page"),
        ({"kind": "new"}, [], None, "unknown message 'new'"),
    ],
)
def test_an_invalid_reply_is_refused(message: Any, heads: list[str], what: str | None, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        check_reply(message, heads, what)


@pytest.mark.parametrize(("version", "todo"), [(PROTOCOL - 1, "reload the page"), (PROTOCOL + 1, "restart the kernel")])
def test_another_version_is_refused_with_the_remedy(explorer: Any, version: int, todo: str) -> None:
    page = Page(explorer)
    # Arguments of another version can differ, too.
    answer, packets = page.ask("hello", protocol=version)
    assert answer["error"] == {
        "type": "ProtocolMismatch",
        "message": f"protocol mismatch: kernel {PROTOCOL}, page {version}; {todo}",
    }
    assert not packets
    assert page.ask("hello", protocol=PROTOCOL, again=False)[0]["kind"] == "answer"


def test_packets_of_the_initial_state_and_of_an_exported_page_are_valid(explorer: Any, tmp_path: Path) -> None:
    explorer.set_trait("selection", {"kind": "steps", "range": [0, 2]})
    explorer.to_html(tmp_path / "page.html")
    blocks = re.findall(r'class="smdw-packet">([^<]*)<', (tmp_path / "page.html").read_text())
    exported = [unpack(base64.b64decode(block)) for block in blocks]
    assert [head["kind"] for head, _ in exported][:3] == ["page", "catalog", "rules"]
    for head, arrays in [*exported, *map(unpack, explorer._boot)]:
        check_packet(head, arrays)


def test_all_types_can_be_parsed() -> None:
    for described in SCHEMA["types"].values():
        for text in [described["type"]] if "type" in described else described["fields"].values():
            assert names(protocol.parse(text)) <= {*SCHEMA["types"], "int", "float", "str", "bool", "bytes", "null"}
    with pytest.raises(ValueError, match="invalid type"):
        protocol.parse("[int, str")


def names(kind: Any) -> set[str]:
    if kind[0] == "name":
        return {kind[1]}
    inner = kind[1] if kind[0] in {"union", "tuple"} else [] if kind[0] == "literal" else [kind[1]]
    return set().union(*map(names, inner))
