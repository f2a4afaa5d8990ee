"""Numbers of the IsoCompute paper (arXiv 2603.12151) and of its own equations, worked by hand or by enumeration."""

from __future__ import annotations

import asyncio
from functools import cache

import numpy as np
import pytest

import law_truths as simulated
from isocost.laws import Growth, fit_law
from isocost.planner.training.afford import plan_pilot
from isocost.planner.training.learning_rate import RateRule
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.stats.forms import LOG_SIGMOID, SIGMOID, fit_form
from isocost.stats.passk import dead_at
from isocost.worlds.setting import Setting

NS = (2, 4, 8, 16, 32, 64)
R0, END = 0.3, 8000.0


@pytest.mark.parametrize(("p", "n", "share"), [
    (0.45, 8, 0.01005), (0.03, 8, 0.7837), (0.03, 64, 0.1424), (0.03, 512, 1.7e-7)])
def test_a_group_of_n_earns_the_same_throughout_with_chance_p_to_the_n_plus_q_to_the_n(p, n, share):
    """n samples, all right or all wrong: the estimate of dead groups from n samples has this expectation."""
    assert p**n + (1 - p) ** n == pytest.approx(share, rel=2e-3 if n < 512 else 2e-2)
    by_estimate = p**n * dead_at([n], n, n) + (1 - p) ** n * dead_at([0], n, n)
    assert by_estimate == pytest.approx(p**n + (1 - p) ** n) and dead_at([n // 2], n, n) == 0.0


def test_the_rate_follows_the_root_of_the_batch():
    rule = RateRule(1e-6, 1024)
    assert [rule.at(b) for b in (1024, 8192)] == pytest.approx([1e-6, 2.828e-6], rel=1e-3)


@pytest.mark.parametrize("method", ["isoeasy", "dapo"])
def test_compute_counts_every_rollout_that_was_begun_filtered_groups_included(method, tmp_path):
    """C is the sum over groups of n; dapo throws groups away and pays for them."""
    job = Job(arm=Arm(n=4, B=4, lr=1e-4), name="r", setting=Setting.of(data="sums:base=hard,count=120", held_out=0.3),
              method=method, seed=1, budget={"rollouts": 256})
    end = asyncio.run(run(job, tmp_path))
    journal = read_lines(tmp_path / "journal.jsonl")
    begun = sum(len(x["rewards"]) + x["cancelled"] for x in journal)
    groups = {(x["wave"], x["slot"]) for x in journal}
    steps = [x for x in read_lines(tmp_path / "metrics.jsonl") if "reward" in x]
    assert begun == 4 * len(groups) == steps[-1]["rollouts"]
    assert begun == read_json(tmp_path / "end.json")["bill"]["train"]["rollouts"]
    assert [x["rollouts"] % 16 for x in steps] == [0] * len(steps)
    if method == "dapo":
        assert end["fates"]["filtered"] > 0 and begun > 16 * len(steps) - 1
    else:
        assert begun == 16 * len(steps)


# the law ------------------------------------------------------------------------------------------------------


def reward(x, C):
    """A sigmoid for every log2 n = x; the envelope's best x rises with C towards 4."""
    return SIGMOID.f(C, R0, 0.92 - 0.02 * (x - 4.0) ** 2, 30 * 2 ** (1.2 * x), 1.5)


def pilot(ns, sd=0.002, seeds=3, spoilt=()):
    """Runs of these n; those in `spoilt` follow a curve that is below every other throughout."""
    C, out = np.geomspace(250, END, 8), []
    for n in ns:
        mean = SIGMOID.f(C, R0, 0.4, 3000.0, 1.5) if n in spoilt else reward(np.log2(n), C)
        for seed in range(seeds):
            rng = np.random.default_rng([n, seed])      # so that an arm more moves no other
            luck = np.concatenate([[0], sd * (rng.normal() + rng.normal(size=len(C))) / np.sqrt(2)])
            y = np.concatenate([[R0], mean]) + luck
            out.append(simulated.curve(n, seed, np.concatenate([[0], C]), y, y))
    return out


@cache
def law():
    return fit_law(pilot(NS), draws=60)


def test_the_planted_growth_of_n_is_recovered():
    """The true best n between the grid's is itself nearly a log-sigmoid; its U, k and C0 come back from the pilot."""
    C, x = np.geomspace(280, END, 40), np.linspace(1, 6, 2001)
    star = np.array([x[reward(x, c).argmax()] for c in C])
    true = fit_form(LOG_SIGMOID, C, star, fixed={"L": 1.0})       # no n below 2
    assert np.abs(true(C) - star).max() < 0.15
    found = law().n_star
    assert isinstance(found, Growth), found
    p = {k: v.value for k, v in found.parameters.items()}
    assert p["U"] == pytest.approx(true.parameters["U"], abs=0.5)       # half a step of the grid
    assert p["k"] == pytest.approx(true.parameters["k"], rel=0.5)       # winners come in steps of the grid
    assert np.log(p["C0"]) == pytest.approx(np.log(true.parameters["C0"]), abs=0.6)      # the same, at its slope
    for c, best in zip(C[::8], star[::8], strict=True):
        assert np.log2(found.at(c).value) == pytest.approx(best, abs=0.3)


def test_what_is_dominated_does_not_move_the_winner():
    """An n below the others everywhere is no part of the envelope, wherever in the grid it stands.

    Read where the true winner leads by 0.01 or more, the law's margin; elsewhere two n are level.
    """
    C = np.geomspace(280, END, 30)
    ends = np.sort([reward(np.log2(n), C) for n in NS], axis=0)
    C = C[ends[-1] - ends[-2] > 0.01]
    assert len(C) >= 10 and len(set(law().ns_at(C).tolist())) >= 3
    for worse in (3, 128):
        more = fit_law(pilot(tuple(sorted((*NS, worse))), spoilt=(worse,)), draws=40)
        assert worse not in more.ns_at(C) and more.ns_at(C).tolist() == law().ns_at(C).tolist()
        assert worse not in more.equal_set(END)
        assert isinstance(more.n_star, Growth)
        stars = [[np.log2(x.n_star.at(c).value) for c in C] for x in (more, law())]
        assert stars[0] == pytest.approx(stars[1], abs=0.25 if worse == 128 else 0.5)   # steps of the grid
        # values move a little, through what arms tell each other of how high they may end
        assert more.frontier(C).value == pytest.approx(law().frontier(C).value, abs=0.02)


def test_the_best_value_seen_so_far_is_the_same_without_what_breaks_no_record():
    """The frontier identity, at zero bin width; bins of width w lower it by less than w."""
    R = np.array([0.101, 0.104, 0.1049, 0.1051])
    kept = np.concatenate([[True], R[1:] > np.maximum.accumulate(R)[:-1]])
    assert kept.tolist() == [True] * 4
    bins = np.floor(R / 0.005)
    records = np.concatenate([[True], bins[1:] > np.maximum.accumulate(bins)[:-1]])
    assert records.tolist() == [True, False, False, True]
    after = np.maximum.accumulate(np.where(records, R, -1))
    assert (np.maximum.accumulate(R) - after).max() < 0.005


def test_a_sweep_is_at_equal_compute_and_the_rate_follows_the_batch():
    profile = {"samples": 16, "right": [8] * 200, "parameters": 1e5, "select": 128, "audit": 128, "exact": True,
               "rate": {"rollouts_per_second": 8000.0}, "cost": {"rollouts": 100, "prefill": 600, "decode": 300}}
    runs = plan_pilot(profile, preset="quick").of_purpose("pilot")
    assert len({r.C for r in runs}) == 1 and all(r.n * r.B * r.M == r.C for r in runs)
    rates = {r.n: r.lr(RateRule(1e-3, 256)) for r in runs}
    assert rates[32] / rates[2] == pytest.approx(4.0)
