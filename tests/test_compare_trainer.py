"""Settings of a user's trainer compared at equal cost: real runs of examples/own_trainer.py."""

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.compare import compare_trainer, plan_trainer_comparison
from isocost.errors import UserError
from isocost.runs.files import read_json
from isocost.steps.outside import drive
from test_drive import command

ARMS = ("group=", "none=--baseline none")
OPTIONS = {"budget": "9k-rollouts", "seeds": 2, "rollouts": 4, "groups": 4, "lr": 0.05, "evaluations": 4,
           "held_out": 64, "samples": 4}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(drive, "TICK", 0.02)


def test_the_design_gives_every_arm_the_same(tmp_path):
    """9,000 rollouts over 2 arms of 2 seeds and 3 probes of a quarter: 9,000 / 5.5 = 1,636 a run, 102 updates of 16."""
    d = plan_trainer_comparison(ARMS, command("{arm}"), **OPTIONS).design
    assert d.labels == ("group", "none") and d.rollouts == 102 * 16 and d.probe_rollouts == 25 * 16
    assert d.total == 2 * (2 * d.rollouts + 3 * d.probe_rollouts) <= 9000
    assert d.rates == pytest.approx((0.0125, 0.05, 0.2)) and len(set(d.seeds)) == 2
    assert d.recipes["none"]["command"].endswith("--baseline none")
    assert len(d.points) <= 5 and d.points[-1] == d.rollouts and all(p % 16 == 0 for p in d.points)


def test_arms_are_trained_alike_and_judged(tmp_path):
    """Each arm's runs have its words, the same rollouts and the same seeds; a second call launches nothing."""
    out = tmp_path / "c"
    found = compare_trainer(ARMS, command("{arm}"), out=out, workers=2, **OPTIONS)
    runs = sorted(p.name for p in (out / "runs").iterdir())
    assert len(runs) == 2 * (3 + 2)
    for k in range(2):
        a, b = (read_json(out / "runs" / f"train-{label}-s{k}" / "run.json") for label in ("group", "none"))
        assert a["seed"] == b["seed"] and a["budget"] == b["budget"] == {"rollouts": 1632}
        assert "--baseline none" in b["trainer"]["command"] and "--baseline" not in a["trainer"]["command"]
        assert a["seal"] == b["seal"] == found.seal
        assert a["arm"]["lr"] == pytest.approx(found.rates["group"])
    assert found.bill["train"]["rollouts"] == 4 * 1632 and found.bill["probe"]["rollouts"] == 6 * 400
    assert found.comparison.cost == 1632 and read_json(out / "comparison.json")["seal"] == found.seal
    again = compare_trainer(ARMS, command("{arm}"), out=out, workers=2, **OPTIONS)
    assert again.to_dict() == found.to_dict()
    assert all(len(list((out / "runs" / r / "attempts").iterdir())) == 1 for r in runs)
    with pytest.raises(UserError, match="different settings"):
        compare_trainer(ARMS, command("{arm}"), out=out, **(OPTIONS | {"seeds": 3}))


@pytest.mark.parametrize(("arms", "text", "more", "what"), [
    (ARMS, command(), {}, r"the command has no \{arm\}"),
    (("a=",), command("{arm}"), {}, "expected at least two arms"),
    (("a=1", "b=1"), command("{arm}"), {}, "'b=1' is given twice"),
    (("a b=1", "b=2"), command("{arm}"), {}, "expected NAME=WORDS"),
    (ARMS, command("{arm}"), {"budget": "1h"}, "settings of a trainer are compared in rollouts"),
    (ARMS, command("{arm}"), {"budget": None}, "needs a --budget"),
    (ARMS, command("{arm}"), {"budget": "1k-rollouts"}, "pays for 11 updates of 16 rollouts a run; the minimum is 16"),
    (ARMS, command("{arm}"), {"seeds": 1}, "needs at least 2 seeds"),
])
def test_what_does_not_fit_is_named_before_anything_runs(arms, text, more, what):
    with pytest.raises(UserError, match=what):
        plan_trainer_comparison(arms, text, **(OPTIONS | more))


def test_the_command_line(tmp_path):
    def said(*words):
        return CliRunner().invoke(main, ["compare", *words])

    asked = ("--budget", "9k-rollouts", "--seeds", "2", "-n", "4", "-B", "4", "--lr", "0.05", "--dry-run")
    shown = said(*ARMS, "--trainer", command("{arm}"), *asked)
    assert shown.exit_code == 0 and "comparison of group, none, settings of your trainer: n = 4, B = 4" in shown.output
    wrong = said(*ARMS, "--trainer", command("{arm}"), *asked, "--to-parents")
    assert wrong.exit_code == 2 and "--to-parents has no use with --trainer" in wrong.output
    alone = said("grpo", "drgrpo", "--metrics", "x.jsonl", "--budget", "1k-rollouts")
    assert alone.exit_code == 2 and "--metrics is for a comparison of settings of your own trainer" in alone.output
