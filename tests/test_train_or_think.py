"""Train or think: a plan for many answers whose training is counted, with policies of several runs, end to end."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from isocost import report
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.local.weights import read_tensors
from isocost.planner.frontier import Pair, PolicyFrontier
from isocost.planner.test_time.estimates import Measured
from isocost.planner.test_time.foretold import Foretold
from isocost.planner.test_time.policies import PolicyCost, SharedGoal, frontier_table, rivals
from isocost.planner.test_time.pool import Pool, halves, parts
from isocost.planner.test_time.prescribe import prescribe, seal
from isocost.planner.test_time.profile import StrategyTable
from isocost.runs.schema import Costs
from isocost.screen.display import Row
from isocost.stats.intervals import Interval
from isocost.steps import kinds
from isocost.steps.settings import setting_of
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.answer import answer
from isocost.steps.test_time.checkpoints import checkpoints, foretold, stored
from isocost.steps.test_time.plan import StrategyPlanResult, frontier_rows
from isocost.steps.test_time.profile import Compared, profile_live
from isocost.steps.training.single import train_one
from test_frontier import BASE as PAIRS
from test_frontier import TRAINED

P = 1000                        # parameters: a token read or written is 2,000 FLOP
TRAINING = Costs(prefill=140, reread=40, decode=900, train=1000, seconds=50)    # 2 P x 1000 + 6 P x 1000 = 8e6 FLOP


def pool(rate, seed, problems=200, samples=8):
    """Half of the problems are never solved; the others with this rate."""
    rng = np.random.default_rng(seed)
    hard = np.arange(problems) % 2 == 0
    right = (rng.random((problems, samples)) < np.where(hard, 0.0, rate)[:, None]).astype(float)
    return Pool(tuple(map(str, range(problems))), right, right, None, np.full(right.shape, 9), np.ones(problems),
                exact=True)


@pytest.fixture(scope="module")
def split():
    arms = {"grpo": [pool(0.9, 1), pool(0.9, 2)]}
    return replace(parts(pool(0.5, 0), probe=0, bands=1, least=10, seed=0, arms=arms), policies=frozenset(arms))


def goal(answers, budget=None, accuracy=None, price=None, **more):
    of = {"parameters": P, "learned": 0.0, "rate": 0.1, **more}
    policies = [PolicyCost("", (), Costs(), **of), PolicyCost("grpo", ("grpo-0", "grpo-1"), TRAINING, **of)]
    return SharedGoal.shared(answers, budget, accuracy, price, policies)


def test_an_answer_bears_its_share_of_the_training_in_every_unit(split):
    def costs(ask):
        plan = prescribe(split, ["best-of"], ask, 0)
        return {(c.label): c.cost for c in plan.candidates}

    flop = costs(goal(1000))
    assert flop["one"] == pytest.approx(2 * P * 10)                             # 9 written, 1 read
    assert flop["best-of-4"] == pytest.approx(2 * P * 40)
    assert flop["one@grpo"] == pytest.approx(2 * P * 10 + 8e6 / 1000)
    time = costs(goal(1000, "1h"))
    assert (time["one"], time["one@grpo"]) == (pytest.approx(0.9), pytest.approx(0.9 + 0.05))
    money = costs(goal(1000, price="3600usd/device-hour"))
    assert money["one@grpo"] == pytest.approx(0.95)
    tokens = costs(goal(1000, price="1usd/M-input,10usd/M-output,100usd/M-train"))
    assert tokens["one@grpo"] == pytest.approx((1 + 90 + (140 + 9000 + 100_000) / 1000) / 1e6)


def test_few_answers_think_and_many_are_trained_for(split):
    few, many = (prescribe(split, ["best-of"], goal(q, accuracy=0.4), 0) for q in (100, 1_000_000))
    assert (few.label, many.label) == ("best of 3", "one sample of grpo")
    assert few.one.label == many.one.label == "one", "the gain is over a sample of the study's own model"
    table = frontier_table(split, ["best-of"], goal(1_000_000, accuracy=0.4), 0, ())
    (pays,) = table.pays
    assert pays.answers == pytest.approx(8e6 / (2 * P * 10 * 2))                # 8e6 FLOP; an answer saves two samples
    assert table.shares["grpo"] > 0.9
    assert [s.answers for s in table.staircases] == [1e4, 1e6, 1e8]
    first = table.steps[0]
    assert (first.policy, first.strategy, first.total["flops"]) == ("base", "one", pytest.approx(1e6 * 2 * P * 10))


def test_what_nothing_that_was_trained_less_reaches_does_not_break_even(split):
    table = frontier_table(split, ["best-of"], goal(1_000_000, accuracy=0.4), 0, ())
    alone = replace(table, pays=(replace(table.pays[0], answers=0.0, low=0.0, high=0.0),))
    even, none = (next(r.text for r in frontier_rows(t, "grpo", 1.0) if isinstance(r, Row) and "grpo" in r.name)
                  for t in (table, alone))
    assert even.startswith("pays: breaks even at 200 answers")
    assert none.startswith("pays: no policy that was trained less reaches it")


def test_without_a_goal_the_most_accurate_is_chosen_and_each_policy_has_its_rival(split):
    ask = goal(1000)
    plan = prescribe(split, ["best-of"], ask, 0)
    assert plan.each[0].arm == "grpo" and plan.asked == "1,000 answers"
    (other,) = rivals(plan, split, ask)
    assert other.arm == "" and other.size > 4
    sealed = seal(plan, split, 0, {}, [other])
    assert sealed.seal != seal(plan, split, 0, {}).seal and "others" not in seal(plan, split, 0, {}).data()


def test_a_policy_s_accuracy_is_the_mean_over_its_runs(split):
    one = next(c for c in prescribe(split, ["best-of"], goal(10), 0).candidates if c.label == "one@grpo")
    first, _ = halves(200, 0)
    assert one.accuracy == pytest.approx(np.mean([pool(0.9, s).right[first].mean() for s in (1, 2)]))


def test_a_training_of_which_only_rollouts_or_time_are_known_is_not_free():
    for took in (Costs(rollouts=512), Costs(seconds=50)):
        assert PolicyCost("grpo", ("grpo-0",), took, P, 0.0, 0.1).worth("flops", None) is None
    assert PolicyCost("", (), Costs(), P, 0.0, 0.1).worth("flops", None)


@pytest.mark.parametrize("ask, why", [
    ({"budget": "1h", "accuracy": 0.5}, "name one of --budget and --accuracy, or neither"),
    ({"budget": "1k-tokens/answer"}, "with --answers it is of training and all answers, such as 1e15flop"),
    ({"budget": "1k-tokens"}, "counted together in FLOP, time or money"),
    ({"parameters": 0.0}, "cost of base, grpo in flops is not known: the number of parameters, or of tokens"),
    ({"budget": "1h", "rate": 0.0}, "in seconds is not known: no time was measured"),
    ({"price": "1usd/M-input,2usd/M-output"}, "cost of grpo in usd is not known: .* with 0.40usd/M-train"),
    ({"price": "2.5usd/device-hour", "rate": 0.0}, "in usd is not known: .*, and it takes a price of tokens with"),
])
def test_a_cost_that_is_not_known_says_what_to_name(ask, why):
    with pytest.raises(UserError, match=why):
        goal(1000, **ask)


def test_a_budget_below_one_untrained_sample_says_what_all_take(split):
    with pytest.raises(UserError, match=r"is below one untrained sample for each, which takes 20,000,000 flops in all"):
        prescribe(split, ["best-of"], goal(1000, "1e7flop"), 0)


# the frontier ------------------------------------------------------------------------------------------------------


def test_what_a_policy_reaches_is_wanted_as_it_is_in_each_draw():
    made = PolicyFrontier([*PAIRS, *TRAINED])
    one = TRAINED[0]
    found = made.break_even(["base"], "trained", one)
    assert (found.accuracy, found.answers) == (0.6, 600 / (4 - 1))
    assert found.interval == (200, 200)     # base's best-of-4 is right on the same problems, in every draw


def test_training_longer_pays_against_all_that_was_trained_less():
    more = [type(p)(policy="longer", strategy=p.strategy, training=900, answer=0.5, right=p.right) for p in TRAINED[:1]]
    made = PolicyFrontier([*PAIRS, *TRAINED, *more])
    assert made.break_even(["base", "trained"], "longer", 0.6).answers == 300 / 0.5     # against `trained`, not `base`
    assert made.break_even(["base", "trained"], "longer", more[0]).interval == (600, 600)


def test_a_step_is_decided_by_the_draws_in_which_nothing_cheaper_is_as_accurate():
    made = PolicyFrontier([*PAIRS, *TRAINED])
    assert made.better(PAIRS[2], 1000) > 0.99
    assert made.better(TRAINED[0], 10) == 0.0           # base's best-of-4 is cheaper, and the same
    shares = made.chosen(lambda accuracy, cost: int(accuracy.argmax()), 10)
    assert shares == {"base": 1.0, "trained": 0.0}
    assert len(made.staircase(1000, 0.15)) < len(made.staircase(1000))


# of runs -----------------------------------------------------------------------------------------------------------


def run(*words, code=0):
    ended = CliRunner().invoke(main, list(map(str, words)))
    assert ended.exit_code == code, ended.output
    return ended.output


SETTING = {"data": "puzzles", "limit": 110, "held_out": 0.25, "max_tokens": 32}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    here = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        train_one("grpo", setting_of(SETTING), seed=seed, out=here / f"grpo-{seed}", budget="64-rollouts", rollouts=4,
                  groups=4, evaluations=1, lr=1e-4, save_every=1, checkpoints=3)
    return here


@pytest.fixture(scope="module")
def study(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("think") / "s"
    profile_live(out, setting_of(SETTING), Compared(["best-of", "particles"], samples=4, sizes=(2,),
                                                    checkpoints=[runs]))
    return out


def test_runs_that_differ_in_their_seed_are_one_policy(runs, study, tmp_path):
    found = checkpoints([runs / "grpo-0", runs / "grpo-1"])
    assert [(c.name, c.policy) for c in found] == [("grpo-0", "grpo"), ("grpo-1", "grpo")]
    assert checkpoints([runs / "grpo-1"])[0].policy == "grpo-1"
    shutil.copytree(runs / "grpo-1", tmp_path / "base")
    with pytest.raises(UserError, match="a run is named base, as the study's own model is"):
        checkpoints([tmp_path / "base"])
    table = StrategyTable.of(StudyRecord.read(study).record("profile.json", "profile"))
    assert [p.name for p in table.policies] == ["", "grpo"]
    base, grpo = table.policies
    bills = [json.loads((runs / f"grpo-{s}" / "end.json").read_text())["bill"]["train"] for s in (0, 1)]
    assert grpo.training.decode == (bills[0]["decode"] + bills[1]["decode"]) / 2
    assert base.parameters == grpo.parameters == 279_072
    assert {(r.arm, r.strategy) for r in table.arms} == {("grpo", s) for s in ("one", "best-of", "particles")}
    lines = [json.loads(x) for file in study.glob("*.jsonl") for x in file.read_text().splitlines()]
    assert table.cost.rollouts == sum(x["cost"]["rollouts"] for x in lines)     # what the checkpoints sample is counted
    assert {p.name for p in study.iterdir()} >= {"pool@grpo-0.jsonl", "live@grpo-1.jsonl"}


def test_a_study_with_checkpoints_is_planned_sealed_audited_reported_and_answers_by_the_policy(study, tmp_path):
    there = Path(shutil.copytree(study, tmp_path / "s"))
    said = run("plan", there, "--answers", "100k", "--accuracy", "0.3")
    assert said.startswith("\n100,000 answers, accuracy 0.3: ")
    assert "train or think" in said and "FLOP in all" in said and "training grpo" in said
    shown = StrategyPlanResult.written(*(json.loads((there / f"{x}.json").read_text()) for x in ("plan", "forecast")))
    assert shown.rows() == kinds.plan(StudyRecord.read(there), {}).rows()
    judged = json.loads(CliRunner().invoke(main, ["audit", str(there), "--json"]).output)
    assert judged["outcomes"][0]["asked"] == "100,000 answers, accuracy 0.3" and judged["outcomes"][0]["against"]
    page = report.write(there).read_text()
    assert page.count('id="plot-frontier"') == 1
    plan = json.loads((there / "plan.json").read_text())
    plan["each"] = [{**plan["each"][0], "strategy": "one", "size": 1, "arm": "grpo"}]
    (there / "plan.json").write_text(json.dumps(plan))
    made = answer(StudyRecord.read(there), "puzzles:count=3", tmp_path / "a.jsonl")
    assert made.planned == "one sample of grpo" and made.answers == 3
    pools = [json.loads(x) for x in (there / "pool@grpo-0.jsonl").read_text().splitlines()]
    changed = [{**x, "right": x["right"][::-1]} for x in pools]
    (there / "pool@grpo-0.jsonl").write_text("".join(json.dumps(x) + "\n" for x in changed))
    assert kinds.audit(StudyRecord.read(there)).verdict == "cannot tell"


def test_a_step_inside_a_run_is_a_policy_with_what_it_took_up_to_there(runs, tmp_path):
    kept = sorted(x.name for x in (runs / "grpo-0" / "checkpoints").iterdir())
    assert kept == ["step-000002", "step-000003", "step-000004"]
    out = tmp_path / "s"
    names = [runs / "grpo-0@2", runs / "grpo-1@2", runs / "grpo-0@4", runs / "grpo-0"]
    found = checkpoints(names, out)
    assert [(c.name, c.policy) for c in found] == [
        ("grpo-0@2", "grpo@2"), ("grpo-1@2", "grpo@2"), ("grpo-0@4", "grpo-0@4"), ("grpo-0", "grpo-0")]
    half, _, last, end = found
    assert half.training.rollouts == 32 and last.training == end.training and half.training.updates == 2
    out.mkdir()
    for c in (half, last):
        c.write()
    weights = [read_tensors(Path(c.model) / "model.safetensors") for c in (half, last, end)]
    assert all(torch.equal(x, weights[2][k]) for k, x in weights[1].items())
    assert not all(torch.equal(x, weights[2][k]) for k, x in weights[0].items())
    broken = shutil.copytree(runs / "grpo-0", tmp_path / "broken")
    (broken / "checkpoints" / "step-000003" / "learner.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match=r"learner\.safetensors is damaged"):
        checkpoints([tmp_path / "broken@3"], out)[0].write()
    with pytest.raises(UserError, match=r"grpo-0@1: .*grpo-0 has kept step 2, 3, 4. Name one .* --keep-checkpoints 8"):
        checkpoints([runs / "grpo-0@1"], out)


def completions(file, rate, seed, problems=60, samples=8, **more):
    made = pool(rate, seed, problems, samples)
    rows = [{"problem": name, "reward": float(r), "score": float(r), "tokens": 9, "prompt_tokens": 1, **more}
            for name, row in zip(made.ids, made.right, strict=True) for r in row]
    file.write_text("".join(json.dumps(x) + "\n" for x in rows))
    return file


def test_stored_completions_of_policies_are_planned_with_what_their_training_took(runs, tmp_path):
    base, other = completions(tmp_path / "base.jsonl", 0.5, 0), completions(tmp_path / "other.jsonl", 0.9, 1)
    (one, run_, two) = stored([
        f"grpo:6e9flop={other}", f"{runs / 'grpo-0'}={other}", f"{runs / 'grpo-1@2'}={base}"], 1e6)
    assert one.training == Costs(train=1000) and (one.name, one.policy, one.parameters) == ("grpo", "grpo", 1e6)
    assert run_.training == checkpoints([runs / "grpo-0"])[0].training and run_.parameters == 279_072
    assert two.name == "grpo-1@2" and two.model == str(base)
    out = tmp_path / "s"
    shown = run("profile", "--completions", base, "--strategies", "best-of", "--scorer", "verifier", "--checkpoints",
                f"grpo:8e6flop={other}", "--parameters", P, "--out", out)
    assert "the problems are taken as unseen" in shown
    said = {q: run("plan", out, "--answers", q, "--accuracy", 0.35) for q in ("10", "1M")}
    assert "of grpo" not in said["10"].splitlines()[1] and "one sample of grpo" in said["1M"]
    split = [json.loads(x) for x in (out / "pool@grpo.jsonl").read_text().splitlines()]
    assert np.mean([x["right"] for x in split]) == pool(0.9, 1, 60, 8).right.mean()
    assert [o.asked for o in kinds.audit(StudyRecord.read(out)).audit.outcomes] == [
        "10 answers, accuracy 0.35", "1,000,000 answers, accuracy 0.35"]


@pytest.mark.parametrize("asked, more, why", [
    ("grpo=FILE", (), "grpo is no run, so name what its training took, such as grpo:3e18flop="),
    ("=FILE", (), "each is RUN=FILE, or NAME:COST=FILE"),
    ("grpo:3e18flop=FILE", (), "with the --parameters of the model, such as 7B"),
    ("grpo:3usd=FILE", ("--parameters", "1M"), "took 3usd: expected FLOP such as 3e18flop"),
    ("grpo:40h=FILE", ("--parameters", "1M"), "took 40h: expected FLOP such as 3e18flop"),
    ("grpo:1flop=OTHER", ("--parameters", "1M"), "the files need the same problems, named alike"),
    ("base:1flop=FILE", ("--parameters", "1M"), "a run is named base"),
    ("grpo:1flop=FILE,grpo:2flop=FILE", ("--parameters", "1M"), "two runs are named grpo"),
    ("{run}@1=FILE", (), "grpo-0 has kept step 2, 3, 4. Name one of them"),
])
def test_stored_completions_that_cannot_be_compared_say_why(runs, tmp_path, asked, more, why):
    file, other = completions(tmp_path / "a.jsonl", 0.5, 0), tmp_path / "other.jsonl"
    other.write_text(file.read_text().replace('"problem": "', '"problem": "x'))
    said = run("profile", "--completions", file, "--strategies", "best-of", "--scorer", "verifier", "--checkpoints",
               asked.format(run=runs / "grpo-0").replace("FILE", str(file)).replace("OTHER", str(other)), *more,
               "--out", tmp_path / "s", code=2)
    assert why in said.replace("\n", " ")
    assert not (tmp_path / "s" / "study.json").exists()


# foretold ----------------------------------------------------------------------------------------------------------


def measured(arm, one, two, problems=40):
    return [Measured(name, size, np.full(problems, x), np.full(problems, float(size)), np.full(problems, size * 10.0),
                     10.0, arm=arm, runs=np.full((2, problems), x) if arm else None)
            for name, size, x in (("one", 1, one), ("best-of", 2, two))]


THREE = [*measured("", 0.2, 0.4), *measured("short", 0.35, 0.5), *measured("long", 0.4, 0.7)]


def law(value, reach=1e-9, base=0.2):
    return Foretold("s (foretold)", Interval(value, value - reach, value + reach, 0.9, "prediction", 10), base, 100,
                    ("short", "long"))


def test_a_foretold_policy_follows_the_three_lines_through_the_measured_ones_to_the_law_s_accuracy():
    (one, two), said = law(0.45).measured(THREE, 0)
    assert said.startswith("s (foretold) is not prescribed: it has to be trained")
    assert np.allclose(one.runs, 0.45) and (one.arm, one.how) == ("s (foretold)", "foretold")
    # base to short: 0.4 + (0.25 / 0.15) 0.1; base to long: 0.4 + (0.25 / 0.2) 0.3; short to long: 0.5 + 2 x 0.2
    assert np.allclose(np.unique(two.runs.round(6)), [0.566667, 0.775, 0.9])
    assert two.accuracy == pytest.approx(np.full(40, np.mean([0.4 + 1 / 6, 0.775, 0.9])))
    assert one.tokens[0] == 10 and two.samples[0] == 2
    assert np.allclose(law(0.55, base=0.3).measured(THREE, 0)[0][0].runs, 0.45), "a gain over the law's own base"


def test_a_line_is_not_followed_beyond_three_times_its_length_and_the_law_s_interval_is_in_the_draws():
    (_, two), _ = law(0.6).measured(THREE, 0)
    assert np.allclose(np.unique(two.runs.round(6)), [0.666667, 1.0]), "short to long would be 5 times its length"
    none, why = law(0.7).measured(THREE, 0)
    assert not none and "one sample gains +0.500 by the law and +0.200 with long, and a line" in why
    high = measured("", 0.2, 0.7), measured("short", 0.35, 0.9), measured("long", 0.4, 0.95)
    (_, most), _ = law(0.5).measured([m for own in high for m in own], 0)
    assert most.runs.max() == pytest.approx(1), "no accuracy is above 1"
    wide = law(0.4, 0.1).measured(THREE, 0)[0][0].runs[:, 0]
    assert np.quantile(wide, [0.05, 0.95]) == pytest.approx([0.3, 0.5], abs=0.02)


def test_draws_of_a_foretold_policy_are_not_averaged_as_seeds_are():
    rows = np.repeat([[0.4], [0.6]], 50, axis=0) * np.ones(30)
    pairs = [Pair(policy="a", strategy="one", training=1, answer=1, right=rows, foretold=x) for x in (True, False)]
    drawn, mean = (PolicyFrontier([p]).interval(p) for p in pairs)
    assert drawn == pytest.approx((0.4, 0.6)) and mean == pytest.approx((0.5, 0.5), abs=0.03)


@pytest.fixture
def planned(tmp_path):
    """A study whose plan was not trained; its law gives +0.27 to one sample after 89,344 rollouts."""
    there = tmp_path / "ahead"
    there.mkdir()
    for name in ("study", "profile", "plan", "law"):
        shutil.copy(Path(__file__).parents[1] / "experiments" / "results" / "tutorial" / f"{name}.json", there)
    record = json.loads((there / "study.json").read_text())
    (there / "study.json").write_text(json.dumps(record | {"method": "grpo"}))
    return there


def test_a_plan_has_the_foretold_policy_on_its_staircase_and_does_not_prescribe_it(runs, planned, tmp_path):
    files = [completions(tmp_path / f"{rate}.jsonl", rate, seed) for seed, rate in enumerate((0.3, 0.6, 0.7))]
    out = tmp_path / "s"
    shown = run("profile", "--completions", files[0], "--strategies", "best-of", "--scorer", "verifier",
                "--checkpoints", f"{runs / 'grpo-0@2'}={files[1]},{runs / 'grpo-0'}={files[2]},{planned}", "--out", out)
    assert "ahead (foretold)" in shown and "a run would take 89,344 rollouts" in shown
    _, _, long, ahead = StrategyTable.of(json.loads((out / "profile.json").read_text())).policies
    assert ahead.training.decode == pytest.approx(long.training.decode * 89_344 / 64) and not ahead.runs
    said = run("plan", out, "--answers", "10000M")
    assert "ahead (foretold) is not prescribed: it has to be trained" in said and "of ahead" not in said
    table = json.loads((out / "plan.json").read_text())["frontier"]
    rows = [s for each in table["staircases"] for s in each["steps"] if s["policy"] == "ahead (foretold)"]
    assert {s["strategy"] for s in rows} >= {"one"} and all(s["low"] < s["accuracy"] < s["high"] for s in rows)
    assert "ahead (foretold)" in table["shares"] and "training ahead (foretold)" in said
    assert kinds.audit(StudyRecord.read(out)).audit.outcomes


@pytest.mark.parametrize("named, why", [
    ("{planned}", r"89,344 rollouts are not foretold, because the law gives one sample 0\.945 \[0\.905, 0\.985\], and "
                  r"other strategies need two policies of grpo .* `isocost train --plan"),
    ("{planned}@999999", "999,999 rollouts are not foretold, because a law reaches 98,304, 8 times its pilot"),
])
def test_what_a_law_does_not_foretell_says_what_would_identify_it(planned, tmp_path, named, why):
    file = completions(tmp_path / "a.jsonl", 0.5, 0)
    said = run("profile", "--completions", file, "--strategies", "best-of", "--scorer", "verifier", "--checkpoints",
               named.format(planned=planned), "--out", tmp_path / "s", code=2)
    assert re.search(why, said.replace("\n", " "))


def test_a_law_of_another_model_is_not_that_of_a_profile(runs, planned):
    with pytest.raises(UserError, match="because the law is of --model tiny --data sums:level=1 --max-tokens 4"):
        foretold([planned], checkpoints([runs, planned]), setting_of(SETTING))


@pytest.mark.parametrize("many", ["0.5", "1e400", "many"])
def test_a_number_of_answers_that_is_none_is_named(study, many):
    assert f"'{many}' is not a number of answers, such as 100k or 1M" in run("plan", study, "--answers", many, code=2)


def test_without_answers_training_is_not_counted_and_the_plan_says_so(study, tmp_path):
    there = Path(shutil.copytree(study, tmp_path / "s"))
    assert "the training of a checkpoint is not counted: --answers Q counts it" in run(
        "plan", there, "--budget", "100-tokens/answer")


@pytest.mark.parametrize("words, why", [
    (("--checkpoints", "nowhere"), "--checkpoints nowhere: no run there has a final policy"),
    (("--checkpoints", "{runs}", "--held-out", "0.9"), "that are sampled trained grpo-0, such as .* --held-out 0.25"),
])
def test_runs_that_cannot_be_compared_say_why(runs, tmp_path, words, why):
    said = run("profile", "--data", "puzzles", "--limit", "110", "--held-out", "0.25", "--strategies", "best-of",
               "--out", tmp_path / "s", *(w.format(runs=runs) for w in words), code=2)
    assert re.search(why, said)
    assert not (tmp_path / "s" / "study.json").exists()
