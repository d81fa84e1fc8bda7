"""Turns at the engine: one at a time, round and round between clients, whatever becomes of whoever waits."""

import asyncio
import threading

import pytest

from privcirnet.service.sessions import RoundRobinExecutor


def played(script):
    async def main():
        turns = RoundRobinExecutor()
        try:
            return await script(turns)
        finally:
            turns.close()

    return asyncio.run(asyncio.wait_for(main(), 10))


def test_a_client_with_many_sessions_gets_no_more_turns():
    done = []

    async def script(turns):
        gate = threading.Event()
        first = asyncio.create_task(turns.run("x", gate.wait))
        await asyncio.sleep(0)
        names = ["a1", "a2", "a3", "b1", "c1", "b2"]
        others = [asyncio.create_task(turns.run(name[0], lambda name=name: done.append(name))) for name in names]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, *others)

    played(script)
    assert done == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_whoever_leaves_the_queue_or_the_engine_holds_up_nobody():
    async def script(turns):
        gate = threading.Event()
        working = asyncio.create_task(turns.run("a", gate.wait))
        await asyncio.sleep(0.01)
        waiting = [asyncio.create_task(turns.run(name, lambda: None)) for name in "bcd"]
        await asyncio.sleep(0)
        working.cancel()
        waiting[0].cancel()
        last = asyncio.create_task(turns.run("a", lambda: "served"))
        await asyncio.sleep(0.01)
        assert not waiting[1].done(), "the engine still works for the one that left"
        gate.set()
        return await last

    assert played(script) == "served"


def test_a_turn_that_was_just_given_is_passed_on():
    async def script(turns):
        await turns.run("a", lambda: None)
        turns._busy = True
        first, second = (asyncio.create_task(turns.run(name, lambda name=name: name)) for name in "bc")
        await asyncio.sleep(0)
        turns._pass_on()
        first.cancel()
        return await second

    assert played(script) == "c"


def test_an_error_reaches_whoever_asked_and_nobody_else():
    async def script(turns):
        with pytest.raises(ZeroDivisionError):
            await turns.run("a", lambda: 1 // 0)
        return await turns.run("a", lambda: "served")

    assert played(script) == "served"


def test_quick_work_is_done_where_it_was_asked_for_unless_the_engine_is_busy():
    names = []

    def name():
        names.append(threading.current_thread().name)

    async def script(turns):
        await turns.run("a", name, here=True)
        gate = threading.Event()
        working = asyncio.create_task(turns.run("b", gate.wait))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(turns.run("a", name, here=True))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(working, waiting)

    played(script)
    assert names[0] == threading.current_thread().name
    assert names[1].startswith("privcirnet turn")
