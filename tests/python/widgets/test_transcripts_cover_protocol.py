"""Every part of the protocol occurs in a recorded conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from python.widgets.protocol_checks import check_packet, check_reply
from python.widgets.transcripts import TRANSCRIPTS, packet_of
from smdwidgets.pictures import unpack
from smdwidgets.widgets.protocol import SCHEMA, check_request


def exchanges(recorded: Any) -> Iterator[dict[str, Any]]:
    if isinstance(recorded, dict) and "received" in recorded:
        yield recorded
    elif isinstance(recorded, (dict, list)):
        for each in recorded.values() if isinstance(recorded, dict) else recorded:
            yield from exchanges(each)


def test_transcripts_cover_and_follow_the_protocol() -> None:
    answered, failed, messages, packets, pushed, commands = (set[str]() for _ in range(6))
    for path in TRANSCRIPTS.glob("*.json"):
        for exchange in exchanges(json.loads(path.read_text())):
            sent = exchange["sent"]
            if sent is not None:
                check_request(sent, exact=True)
                commands |= {sent["do"]} if sent["what"] == "rule" else set()
            for received in exchange["received"]:
                message, blocks = received["message"], [unpack(packet_of(packet)) for packet in received["packets"]]
                kinds = [head["kind"] for head, _ in blocks]
                check_reply(message, kinds, None if message["kind"] == "news" else sent["what"])
                for head, arrays in blocks:
                    check_packet(head, arrays)
                messages.add(message["kind"])
                packets |= {*kinds}
                pushed |= {*kinds} if message["kind"] == "news" else set()
                if sent is not None:
                    (failed if message["kind"] == "error" else answered).add(sent["what"])
    assert answered == SCHEMA["requests"].keys()
    assert {"rule", "query", "values", "tile", "frames"} <= failed
    assert messages == SCHEMA["messages"].keys()
    assert packets == {kind for kind, packet in SCHEMA["packets"].items() if not packet.get("exported")}
    # These are computed when the kernel has time, which no recording fixes; see test_live_diagnosis.py and
    # test_live_survey.py.
    assert pushed | {"diagnosis", "survey", "reading", "findings"} == {
        kind for kind, packet in SCHEMA["packets"].items() if packet.get("pushed")
    }
    assert commands == {"start", "pause", "stop", "rerun", "set", "remove", "add"}
