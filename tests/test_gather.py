"""Time limits, on a loop whose clock moves only when it waits or is held."""

import asyncio

import pytest

from isocost.gather import at_most


class Loop(asyncio.SelectorEventLoop):
    """It waits in no time: its clock is moved to the next thing that is due."""

    def __init__(self):
        super().__init__()
        self.now, self.timers, real = 0.0, 0, self._selector.select
        def select(timeout):
            self.now += timeout or 0.0
            return real(0)
        self._selector.select = select

    def time(self):
        return self.now

    def call_at(self, *given, **named):
        self.timers += 1
        return super().call_at(*given, **named)


def ended(work):
    """When it ended, and whether within its limit."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        try:
            runner.run(work)
            return runner.get_loop().time(), True
        except TimeoutError:
            return runner.get_loop().time(), False


async def slow(limit, takes, held=()):
    """Something that waits for `takes` seconds, while the loop is held for these times, one after the other."""
    async def hold():
        for seconds in held:
            await asyncio.sleep(0)
            asyncio.get_running_loop().now += seconds
    async def wait():
        for _ in range(10):
            await asyncio.sleep(takes / 10)
    other = asyncio.create_task(hold())
    await at_most(limit, wait())
    await other


@pytest.mark.parametrize("takes, kept", [(0.5, True), (1.9, True), (2.1, False), (1e9, False)])
def test_a_limit_holds_to_the_second_where_nothing_holds_the_loop(takes, kept):
    when, was = ended(slow(2.0, takes))
    assert was is kept and when == pytest.approx(min(takes, 2.0))


def test_time_in_which_the_loop_was_held_counts_for_an_eighth_of_the_limit_at_most():
    held = [9.0] * 3
    assert ended(slow(2.0, 1.0, held))[1], "27 seconds passed, three eighths of the limit and its own second counted"
    assert not ended(slow(2.0, 1e9, held))[1], "and what hangs is ended"


def test_what_is_cancelled_from_outside_is_cancelled_and_no_timeout():
    async def stopped():
        task = asyncio.create_task(slow(2.0, 1.0))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(5.0)
    assert ended(stopped()) == (pytest.approx(5.1), True)


def test_what_does_not_wait_needs_no_timer():
    async def at_once():
        return 7

    async def fails():
        raise KeyError("gone")

    async def both():
        loop = asyncio.get_running_loop()
        assert await at_most(2.0, at_once()) == 7
        with pytest.raises(KeyError, match="gone"):
            await at_most(2.0, fails())
        assert loop.timers == 0
        assert await at_most(2.0, asyncio.sleep(1.0, 8)) == 8
        assert loop.timers > 0
    assert ended(both()) == (pytest.approx(1.0), True)


def test_what_waits_goes_on_as_if_it_were_awaited():
    async def handles_its_own():
        heard = []
        try:
            async with asyncio.timeout(1.0):
                await asyncio.sleep(5.0)
        except TimeoutError:
            heard.append("its own limit")
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.5, future.set_exception, KeyError("sent"))
        try:
            await future
        except KeyError as error:
            heard.append(error.args[0])
        return heard, asyncio.current_task()

    async def watched():
        heard, task = await at_most(2.0, handles_its_own())
        assert heard == ["its own limit", "sent"] and task is asyncio.current_task()
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.5, future.set_result, "an answer")
        assert await at_most(2.0, future) == "an answer"
    assert ended(watched()) == (pytest.approx(2.0), True)


def test_what_is_ended_for_its_time_can_clean_up():
    cleaned = []

    async def slow_to_end():
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(0.25)
            cleaned.append(True)
    assert ended(at_most(2.0, slow_to_end())) == (pytest.approx(2.25), False)
    assert cleaned
