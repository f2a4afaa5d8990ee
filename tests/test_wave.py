"""Many methods against their parents: false calls are counted over all of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from isocost import methods
from isocost.compare.judge import QUESTIONS, compare
from isocost.compare.many import RATE, ChangeSet, accepted, wave
from isocost.errors import UserError
from isocost.laws.tracks import Track

C = np.array([0.0, 1000.0, 2000.0, 4000.0, 8000.0])


def arm(gain: float, rng: np.random.Generator, seeds: int = 4, sd: float = 0.01) -> list[Track]:
    """Runs that rise from 0.2 by `gain`."""
    return [Track(f"r{s}", s, C, 0.2 + gain * C / (C + 2000) + np.r_[0, rng.normal(size=4) * sd]) for s in range(seeds)]


def test_benjamini_and_hochberg_by_hand():
    """Their example of fifteen p-values (1995, section 4): four are believed at 0.05, where Bonferroni has three."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590,
         1.0]
    assert accepted(p, 0.05) == 4 and sum(x <= 0.05 / 15 for x in p) == 3
    assert accepted(p[::-1], 0.05) == 4
    assert accepted([0.04, 0.05], 0.05) == 2           # the first alone would not do: 0.04 > 0.025
    assert accepted([0.04, 0.9], 0.05) == 0
    assert accepted([0.06, 0.9], 0.05) == 0 == accepted([0.5], 0.05)


def test_a_method_that_is_better_is_accepted_and_its_copies_are_not():
    rng = np.random.default_rng(3)
    arms = {"parent": arm(0.5, rng), "better": arm(0.7, rng), **{f"copy{i}": arm(0.5, rng) for i in range(6)}}
    found = wave(arms, {name: "parent" for name in arms if name != "parent"}, margin=0.01)
    said = {c.method: (c.verdict, c.parent) for c in found.changes}
    assert said["better"] == ("better", "parent") and found.changes[0].answer("equal cost").value > 0.1
    assert all(said[f"copy{i}"][0] in ("same", "cannot tell") for i in range(6))
    assert found.asked == 7 * len(QUESTIONS) and found.called >= 1
    assert found.alpha == pytest.approx(RATE * found.called / found.asked)
    assert {a.level for c in found.changes for a in c.answers} == {1 - found.alpha}


def test_every_answer_that_is_reported_was_accepted():
    """Interval and p-value are one: as many answers without zero as p-values that the rule keeps."""
    rng = np.random.default_rng(8)
    arms = {"parent": arm(0.5, rng), **{f"m{i}": arm(0.5 + 0.02 * i, rng) for i in range(5)}}
    found = wave(arms, {f"m{i}": "parent" for i in range(5)}, rate=0.2)
    told = [a for c in found.changes for a in c.answers if a.p < found.alpha]
    assert len(told) in (found.called, found.called - 1)        # the last believed may lie on the edge itself
    assert all(a.winner for a in told if a.question != "asymptote")


def test_the_rate_asked_for_is_the_one_that_is_kept():
    rng = np.random.default_rng(8)
    arms = {"p": arm(0.5, rng), **{f"m{i}": arm(0.5 + 0.02 * i, rng) for i in range(5)}}
    found = wave(arms, {f"m{i}": "p" for i in range(5)}, rate=0.9)
    assert found.called == accepted([a.p for c in found.changes for a in c.answers], 0.9)


@pytest.mark.parametrize(("said", "code"), [
    (("same", "same"), 3), (("same", "worse"), 0), (("better", "cannot tell"), 0), (("same", "cannot tell"), 4),
])
def test_exit_codes(said, code):
    changes = tuple(SimpleNamespace(verdict=v) for v in said)
    assert ChangeSet("rollouts", 0.01, RATE, 0, 0, RATE, changes).exit_code == code


def test_chance_differences_are_rarely_called():
    """Forty children alike: at a rate of 0.1 a wave calls any of them different in about a tenth of waves."""
    calls = []
    for number in range(12):
        rng = np.random.default_rng([number, 1])
        arms = {"p": arm(0.5, rng), **{f"m{i}": arm(0.5, rng) for i in range(6)}}
        calls.append(wave(arms, {f"m{i}": "p" for i in range(6)}).called)
    assert np.mean([k > 0 for k in calls]) <= 0.35


def test_a_pair_is_read_where_both_have_been():
    """One method that ended early does not shorten what the others are read at."""
    rng = np.random.default_rng(1)
    early = [Track(t.run, t.seed, t.cost[:4], t.reward[:4]) for t in arm(0.5, rng)]
    found = wave({"p": arm(0.5, rng), "a": arm(0.5, rng), "early": early}, {"a": "p", "early": "p"})
    assert [c.cost for c in found.changes] == [8000.0, 4000.0]


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(UserError, match="one method and its parent"):
        wave({}, {})
    with pytest.raises(UserError, match="a's parent b has no runs"):
        wave({"a": arm(0.5, np.random.default_rng(0))}, {"a": "b"})


def test_one_error_for_every_answer_where_it_is_given():
    rng = np.random.default_rng(2)
    pair = {"a": arm(0.5, rng), "b": arm(0.6, rng)}
    assert {x.level for x in compare(pair, alpha=0.03).answers} == {0.97}
    shared = compare(pair).answers
    assert len({x.level for x in shared}) > 1
    assert [x.p for x in shared] == [x.p for x in compare(pair, alpha=0.03).answers]


def test_what_is_kept_of_waves_follows_from_the_verdicts_and_is_of_shipped_methods():
    """A verdict of better or worse has an interval without 0 for what decided it; counts are those that were judged."""
    kept = json.loads((Path(__file__).parents[1] / "experiments" / "results" / "waves.json").read_text())
    rows = kept["rows"]
    assert len(rows) == 103 and {r["method"] for r in rows} | {r["parent"] for r in rows} <= set(methods.shipped())
    none = {"equal cost": 0.0, "efficiency": 1.0, "asymptote": 0.0}
    for world, w in kept["worlds"].items():
        own = [r for r in rows if r["world"] == world]
        assert w["asked"] == len(QUESTIONS) * len(own) and w["alpha"] == pytest.approx(RATE * w["called"] / w["asked"])
        clear = [(r["method"], q) for r in own for q, (value, low, high) in r["answers"].items()
                 if value is not None and not low <= none[q] <= high]
        assert abs(len(clear) - w["called"]) <= 1        # the last that is believed may lie on the edge itself
        assert {(r["method"], r["by"]) for r in own if r["verdict"] in ("better", "worse")} <= set(clear)
        for r in own:
            assert r["answers"]["equal cost"][0] == pytest.approx(r["reward"] - r["parents"], abs=2e-6)
