"""Many methods against their parents: false calls are counted over all of them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from isocost import methods
from isocost.cli.commands import main as command
from isocost.compare.judge import QUESTIONS, compare
from isocost.compare.many import RATE, Wave, accepted, wave
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
    assert Wave("rollouts", 0.01, RATE, 0, 0, RATE, changes).exit_code == code


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


def load_record(name="wave"):
    file = Path(__file__).parents[1] / "experiments" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_record", file)
    record = sys.modules[f"{name}_record"] = importlib.util.module_from_spec(spec)     # where dataclasses look it up
    spec.loader.exec_module(record)
    return record


def a_part(label: str, gain: float, rng: np.random.Generator, parent: str = "grpo") -> dict:
    """A record of a part, with one method and its parent, from runs whose gains are known."""
    runs = {name: [{"run": x.run, "seed": x.seed, "cost": x.cost.tolist(), "reward": x.reward.tolist(),
                    "diverged": False, "family": "", "resolution": 0.0} for x in arm(own, rng)]
            for name, own in ((parent, 0.5), (label, gain))}
    return {"runs": runs, "design": {"parents": {label: parent}, "sizes": {}, "n": 8, "B": 16, "seeds": [0, 1, 2, 3]},
            "rates": dict.fromkeys(runs, 1e-4), "bill": {"train": {"runs": 8, "seconds": 3600.0}}, "ended": [],
            "setting": {"data": "puzzles"}}


def test_parts_of_a_world_are_judged_together_each_with_its_own_parent():
    record, rng = load_record(), np.random.default_rng(3)
    parts = {"stale": a_part("minpro", 0.7, rng, "cispo"), "grpo": a_part("arrol@schedule.at=10", 0.5, rng),
             "large": a_part("roc", 0.3, rng)}
    found = record.judged(parts)
    assert {record._name(c.method): c.verdict for c in found.changes} | {"arrol": ""} == {
        "minpro": "better", "arrol": "", "roc": "worse"}
    assert found.asked == 9 and [c.parent for c in found.changes] == ["stale cispo", "grpo grpo", "large grpo"]
    assert record.judged({}) is None


def test_the_page_begins_with_the_hypothesis_and_lists_misses_first():
    record, rng = load_record(), np.random.default_rng(3)
    page = record.page({"puzzles": {"stale": a_part("minpro", 0.7, rng, "cispo"), "large": a_part("roc", 0.3, rng)}})
    assert "**1 of 4 do**: `minpro` better on puzzles; `arrol` not run" in " ".join(page.split())
    assert page.index("| `roc`") < page.index("| `minpro`, `max_age=8` | 8, 16 | `cispo` | better (equal cost)")
    assert "Not run here for lack of time on the machine: siri, dars," in " ".join(page.split())


def test_every_method_of_the_earlier_wave_is_in_one_part_but_tti():
    record = load_record()
    tried = [arm for part in record.PARTS.values() for arm in part.arms]
    earlier = json.loads(record.EARLIER.read_text(encoding="utf-8"))["design"]["parents"]
    assert sorted(tried) == sorted(set(earlier) - {"tti"}) and len(set(tried)) == len(tried)
    for part in record.PARTS.values():
        named = {methods.load(arm).CARD.parent for arm in part.arms} - set(part.arms)
        assert len(named) == part.parents


@pytest.mark.parametrize("file", sorted(load_record().RESULTS.glob("*.json")), ids=lambda f: f.stem)
def test_a_parts_record_is_of_its_design(file):
    """The command is the script's, every arm has every seed, and all cost the same."""
    record = load_record()
    world, _, name = file.stem.partition("-")
    part = json.loads(file.read_text(encoding="utf-8"))
    assert part["command"] == " ".join(["isocost", "compare", *record.words_of(world, name)])
    design = part["design"]
    assert set(part["runs"]) == set(design["labels"])
    for label, runs in part["runs"].items():
        assert [r["seed"] for r in runs] == design["seeds"], label
        assert all(0.8 * design["cost"] < max(r["cost"]) <= 1.05 * design["cost"] for r in runs), label


def test_the_page_is_that_of_the_records():
    """Every number of docs/wave.md and its pictures is one of experiments/results/waves."""
    record = load_record()
    found = record.kept()
    assert record.PAGE.read_text(encoding="utf-8") == record.page(found), "python experiments/wave.py page"
    for name, picture in record.pictures(found).items():
        assert (record.IMAGES / name).read_text(encoding="utf-8") == picture, "python experiments/wave.py page"


def test_a_methods_own_sizes_stand_beside_the_waves_where_they_are_others():
    record = load_record("wave_earlier")
    assert [record.own_sizes(name, 8, 16) for name in ("grpo", "mcgrpo", "dots", "scalerl")] == [
        "", "n = 9", "B = 8", "n = 16, B = 48",
    ]
    assert record.own_sizes("mcgrpo", 9, 8) == "B = 16"
    assert "| `brpo` | n = 36 | `grpo` | worse" in record.PAGE.read_text(encoding="utf-8")


def test_a_wave_at_own_sizes_says_so_and_the_sizes():
    record = load_record("wave_earlier")
    data = json.loads(record.KEPT.read_text(encoding="utf-8"))
    data["design"]["sizes"] = {"brpo": [36, 16]}
    page = record.page(data)
    assert "| `brpo` | n = 36, B = 16 | `grpo` |" in page and "| `ppo` | n = 8, B = 16 | `reinforce` |" in page
    assert "--to-parents --own-sizes --data" in page and "All arms ran at one n and B" not in page


def test_the_page_names_the_methods_whose_needs_fail_on_its_problems(tmp_path):
    """Those of the wave that `isocost profile` lists, by the titles of their cards, and no others."""
    record = load_record("wave_earlier")
    data = json.loads(record.KEPT.read_text(encoding="utf-8"))
    with pytest.raises(SystemExit) as end:
        command(args=["profile", "--data", data["setting"]["data"], "--out", str(tmp_path)])
    assert end.value.code in (0, None)
    told = json.loads((tmp_path / "profile.json").read_text(encoding="utf-8"))["methods"]
    fail = {m["name"] for m in told if m["state"] == "fails"} & set(data["design"]["parents"])
    (names,) = re.findall(
        r"the preconditions of (\w+(?:, \w+)* and \w+) fail on these problems", " ".join(record.CARE.split())
    )
    fail -= {"tti"}     # its needs were stated later
    assert set(re.split(", | and ", names)) == {methods.load(name).CARD.title for name in fail}


def test_the_earlier_page_is_that_of_its_record():
    """Every number of docs/wave_earlier.md and its pictures is one of experiments/results/wave.json."""
    record = load_record("wave_earlier")
    data = json.loads(record.KEPT.read_text(encoding="utf-8"))
    assert record.PAGE.read_text(encoding="utf-8") == record.page(data), "python experiments/wave_earlier.py"
    for name, picture in record.pictures(data).items():
        assert (record.IMAGES / name).read_text(encoding="utf-8") == picture, "python experiments/wave_earlier.py"


def test_the_record_is_what_its_runs_said():
    """The answers of the earlier record are those of its p-values: as many believed as the rule keeps."""
    home = Path(__file__).parents[1]
    found = json.loads((home / "experiments" / "results" / "wave.json").read_text(encoding="utf-8"))["found"]
    p = [a["p"] for c in found["changes"] for a in c["answers"]]
    assert (found["asked"], found["called"]) == (len(p), accepted(p, found["rate"]))
    assert found["alpha"] == pytest.approx(found["rate"] * max(found["called"], 1) / len(p))
