"""Grading: a verifier that fails costs one score, never a run, and is never a zero."""

import asyncio
import time
from concurrent.futures import Future

import pytest

from isocost import meter
from isocost.errors import UserError
from isocost.meter import Meter
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem, Rollout, Score

REWARDS = """
import os, sys, time
def act(completions, **columns):
    said = completions[0]
    print("chatter")
    if said == "exit": sys.exit(0)
    if said == "die": os._exit(0)
    if said == "hang":
        while True: pass
    if said == "raise": raise KeyError("lost")
    if said == "none": return [None]
    if said == "nan": return [float("nan")]
    if said == "word": return ["good"]
    if said == "slow": time.sleep(0.3)
    return [float(len(said))]
"""


def rollouts(*texts, answer="85"):
    problem = Problem("p", (Message("user", "47+38="),), answer)
    return [Rollout(problem, (), t, attempt=i) for i, t in enumerate(texts)]


def values(scores):
    return [None if s is None else s.value for s in scores]


@pytest.fixture(scope="module")
def rewards(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "rewards.py"
    path.write_text(REWARDS)
    return f"python:{path}:act"


def test_pure_verifiers_in_place_and_the_bill():
    bill = Meter()
    grader = Grader("exact", meter=bill)
    with meter.on(meter.PROBE):
        assert values(asyncio.run(grader(rollouts("85", "84", "85 ")))) == [1.0, 0.0, 0.0]
    assert bill.of(meter.PROBE).verify == 3 and bill.of(meter.TRAIN).verify == 0 and bill.total.seconds > 0


def test_marking_plain_texts_is_on_the_bill_too(rewards):
    """What checks an answer key costs as much as what marks a rollout."""
    problem = rollouts("x")[0].problem
    for verifier in ("exact", rewards):
        with Grader(verifier, workers=1, meter=Meter()) as grader, meter.on(meter.PROBE):
            grader.mark([("a", problem), ("b", problem)])
            cost = grader.meter.of(meter.PROBE)
        assert cost.verify == 2 and cost.seconds > 0 and grader.meter.total == cost and not grader.failures


def test_what_was_marked_when_a_grading_was_cancelled_is_on_the_bill(rewards):
    """One of two is marked, in half a second; the other never will be."""
    def submit(text, problem, tokens, saw):
        marked = Future()
        if text == "a":
            marked.set_result((("score", 1.0), 0.5))
        return marked

    async def cancelled(grader):
        task = asyncio.ensure_future(grader(rollouts("a", "b")))
        for _ in range(9):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with Grader(rewards, workers=1) as grader:
        grader._pool.submit = submit
        asyncio.run(cancelled(grader))
        assert (grader.meter.of().verify, grader.meter.of().seconds) == (2, 0.5)


def test_an_exception_in_place_is_no_score():
    grader = Grader("numeric")
    assert values(asyncio.run(grader(rollouts("3", answer="three")))) == [None]
    assert grader.failures == {"exception": 1} and "is not one number" in grader.examples["exception"]


@pytest.fixture(scope="module")
def two_workers(rewards):
    with Grader(rewards, workers=2, timeout=1.0) as grader:
        asyncio.run(grader(rollouts("slow", "slow")))   # both have started
        yield grader


def test_every_way_to_fail_gives_none_and_is_counted(rewards):
    said = ("ok", "exit", "die", "raise", "none", "nan", "word", "hang", "fine")
    with Grader(rewards, workers=1, timeout=1.0) as grader:
        assert values(asyncio.run(grader(rollouts(*said)))) == [2.0, *[None] * 7, 4.0]
        assert grader.failures == {"exception": 3, "died": 1, "none": 1, "not finite": 1, "timeout": 1}
        assert grader.meter.of().verify == len(said)


def test_scores_come_in_launch_order(two_workers):
    assert values(asyncio.run(two_workers(rollouts("slow", "a", "bb", "ccc")))) == [4.0, 1.0, 2.0, 3.0]


def test_a_busy_event_loop_does_not_eat_into_the_time_limit(two_workers):
    async def busy():
        marking = asyncio.ensure_future(two_workers(rollouts("slow", "a")))
        await asyncio.sleep(0)
        time.sleep(two_workers.timeout + 0.5)       # what is tested: an event loop that does nothing for so long
        return await marking

    assert values(asyncio.run(busy())) == [4.0, 1.0]


def test_a_closed_grader_opens_again(two_workers):
    two_workers.close()
    assert two_workers.mark([("abc", rollouts("x")[0].problem)]) == [3.0]


def test_a_file_that_does_not_import_is_the_users_mistake(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with Grader(f"python:{path}:f", workers=1) as grader, pytest.raises(UserError, match="does not import"):
        asyncio.run(grader(rollouts("a")))
    path.write_text("x = 1\n")
    with Grader(f"python:{path}:f", workers=1) as grader, pytest.raises(UserError, match="no function 'f'"):
        grader.mark([("a", rollouts("a")[0].problem)])


def test_a_tower_of_powers_costs_one_score():
    pytest.importorskip("math_verify")
    with Grader("math", workers=1, timeout=2.0) as grader:
        said = rollouts(r"\boxed{10^{10^{10^{10}}}}", r"\boxed{85}")
        assert values(asyncio.run(grader(said))) == [None, 1.0]


def test_right_and_wrong_are_one_object_each():
    a, b, c = asyncio.run(Grader("exact")(rollouts("85", "85", "1")))
    assert a is b and c == Score(0.0)


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(UserError, match="more than 0"):
        Grader("exact", timeout=0)
