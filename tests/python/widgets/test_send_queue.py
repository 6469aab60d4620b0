"""Order and thread of the messages to the browser."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from smdwidgets.widgets.send_queue import SendQueue


def test_messages_of_a_thread_are_sent_at_once_and_in_order() -> None:
    sent: list[Any] = []
    queue = SendQueue(lambda message, packets: sent.append((message["n"], packets)))
    queue.message_received()
    assert queue.push_mode == "thread"
    for n in range(3):
        queue.post({"n": n}, [bytes([n])])
    assert sent == [(0, [b"\0"]), (1, [b"\1"]), (2, [b"\2"])]


def test_messages_for_a_subshell_are_sent_by_its_loop_in_order() -> None:
    sent: list[tuple[int, int]] = []
    queue = SendQueue(lambda message, packets: sent.append((message["n"], threading.get_ident())))
    ready, done = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    async def subshell() -> None:
        queue.message_received()
        ready.set()
        while len(sent) < 100:
            await asyncio.sleep(0.001)
        done.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(subshell(),))
    thread.start()
    assert ready.wait(60)
    assert queue.push_mode == "loop"
    for n in range(100):
        queue.post({"n": n})
    assert done.wait(60)
    assert sent == [(n, thread.ident) for n in range(100)]
    queue.close()
    thread.join()
    loop.close()


def test_nothing_is_sent_after_closing() -> None:
    sent: list[Any] = []
    queue = SendQueue(lambda message, packets: sent.append(message))
    queue.close()
    queue.post({"n": 1})
    assert sent == []
