"""`isocost compare` from end to end on the built-in model: planned, sealed, killed, gone on with, judged, reread."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.compare import compare_methods, plan_comparison
from isocost.compare.design import Conditions, Design, arm_of, design, expected, labels_of
from isocost.compare.steps import PRICED
from isocost.compare.terms import with_parents
from isocost.errors import UserError
from isocost.planner.forecast import digest
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.seams import Recipe
from waiting import until

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
DATA = ("--data", "sums:base=easy,count=120", "--held-out", "0.3")
SIZE = ("-n", "4", "-B", "2", "--seeds", "2", "--evaluations", "4", "--workers", "1")
ASK = ("compare", "grpo", "reinforce", *DATA, *SIZE, "--budget", "800-rollouts")


def said(*args, code=0):
    """What a command printed; its exit code must be this, or one of these."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code in ((code,) if isinstance(code, int) else code), (args, done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def compared(tmp_path_factory, ran, programs_at_once):
    """A comparison that was killed in its third run and gone on with, and what the second command said."""
    out = tmp_path_factory.mktemp("comparisons") / "two"
    note, said = out.parent / "pid", []
    going = subprocess.Popen([programs_at_once / "isocost", *ASK, "--out", str(out)], stdout=subprocess.DEVNULL,
                             env={**ENVIRONMENT, "PID_FILE": str(note)})
    assert until(lambda: going.poll() is not None or list(out.glob("runs/train-*")))
    os.kill(int(note.read_text()), signal.SIGKILL)
    going.wait()
    assert list(out.glob("runs/train-*")) and not (out / "comparison.json").exists()

    def goes_on():      # once workers have found that their parent is gone
        said.append(ran(*ASK, "--out", out, code=(0, 2, 3, 4)))
        return "another process" not in said[-1]

    assert until(goes_on, pause=0.3)
    return out, said[-1]


def test_the_design_is_sealed_and_every_run_carries_the_seal(compared):
    sealed = read_json(compared[0] / "compare.json")
    runs = [read_json(p) for p in sorted(compared[0].glob("runs/*/run.json"))]
    assert sealed["seal"] == digest(sealed["design"]) and {r["seal"] for r in runs} == {sealed["seal"]}


def test_every_arm_has_the_same_probe_the_same_cost_and_the_same_seeds(compared):
    runs = [read_json(p) for p in sorted(compared[0].glob("runs/*/run.json"))]
    for purpose, count in (("probe", 3), ("train", 2)):
        by = {m: [r for r in runs if r["purpose"] == purpose and r["method"] == m] for m in ("grpo", "reinforce")}
        assert {len(own) for own in by.values()} == {count}
        assert len({json.dumps([[r["seed"], r["budget"]] for r in own]) for own in by.values()}) == 1
        if purpose == "probe":
            assert len({json.dumps([r["arm"]["lr"] for r in own]) for own in by.values()}) == 1
    rates = read_json(compared[0] / "comparison.json")["rates"]
    assert {r["method"]: r["arm"]["lr"] for r in runs if r["purpose"] == "train"} == rates


def test_no_more_is_spent_than_the_budget_and_the_bill_says_what_for(compared):
    bill = read_json(compared[0] / "comparison.json")["bill"]
    design = read_json(compared[0] / "compare.json")["design"]
    assert bill["probe"]["rollouts"] + bill["train"]["rollouts"] <= 800
    assert bill["train"] | {"runs": 4, "rollouts": 4 * design["cost"]} == bill["train"]
    pricing = read_json(compared[0] / "compare.json")["pricing"]
    assert pricing["rollouts"] == 16 * PRICED and bill["pricing"]["rollouts"] == pricing["rollouts"]
    assert bill["pricing"]["tokens"] == pricing["decode"] > 0
    assert bill["probe"] | {"runs": 6, "rollouts": 6 * design["probe_cost"]} == bill["probe"]
    ends = [read_json(p)["bill"] for p in sorted(compared[0].glob("runs/*/end.json"))]
    for key, account, kind in (("lost", "lost", "rollouts"), ("scored", "evaluation", "score")):
        assert sum(own[key] for own in bill.values()) == sum(e.get(account, {}).get(kind, 0) for e in ends), key
    assert bill["train"]["scored"] > 0


def test_what_is_reported_is_the_audit_problems_reward_at_equal_cost(compared):
    found = read_json(compared[0] / "comparison.json")
    for arm in found["arms"]:
        for value, folder in zip(arm["values"], arm["runs"], strict=True):
            last = [x for x in read_lines(compared[0] / "runs" / folder.split("/")[-1] / "metrics.jsonl")
                    if "eval/audit" in x][-1]
            assert last["rollouts"] == found["cost"] and value == pytest.approx(last["eval/audit"])


def test_it_says_what_it_will_cost_and_can_see_before_it_says_the_answer(compared):
    text = compared[1]
    places = [text.index(w) for w in ("cost: ", "power", "margin", "sealed", "equal cost", "efficiency", "asymptote")]
    assert places == sorted(places)


def test_a_run_that_was_killed_went_on_as_if_it_had_not_been(compared, tmp_path):
    killed = compared[0] / "runs" / "train-grpo-s0"
    asyncio.run(run(Job.of(read_json(killed / "run.json")["job"]), tmp_path / "whole"))
    for name in ("metrics.jsonl", "journal.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_done_again_it_does_nothing_again_and_says_the_same(compared):
    before = {p: p.stat().st_mtime_ns for p in compared[0].glob("runs/*/*.json*")}
    again = said(*ASK, "--out", compared[0], "--json", code=(0, 3, 4))
    assert json.loads(again) == read_json(compared[0] / "comparison.json")
    found = compare_methods(["grpo", "reinforce"], budget="800-rollouts", seeds=2, rollouts=4, groups=2, evaluations=4,
                            data="sums:base=easy,count=120", held_out=0.3, workers=1, out=compared[0])
    assert found.to_dict() == json.loads(again) and found.file == compared[0] / "comparison.json"
    assert found.exit_code == found.comparison.exit_code and set(found.rates) == {"grpo", "reinforce"}
    assert before == {p: p.stat().st_mtime_ns for p in compared[0].glob("runs/*/*.json*")}


def test_another_question_in_the_same_folder_is_refused(compared, tmp_path):
    assert "seeds was 2 and is now 3" in said(*ASK, "--out", compared[0], "--seeds", "3", code=2)
    mine = tmp_path / "sealed"
    shutil.copytree(compared[0], mine, ignore=shutil.ignore_patterns("runs"))
    changed = (mine / "compare.json").read_text().replace('"margin": 0.01', '"margin": 0.5')
    (mine / "compare.json").write_text(changed)
    assert "was changed after it was sealed" in said(*ASK, "--out", mine, code=2)


def test_the_same_runs_as_folders_give_the_same_difference(compared, tmp_path):
    for arm in ("grpo", "reinforce"):
        for i in range(2):
            shutil.copytree(compared[0] / "runs" / f"train-{arm}-s{i}", tmp_path / arm / str(i))
    found = json.loads(said("compare", f"{tmp_path}/grpo", f"{tmp_path}/reinforce", "--json", code=(0, 3, 4)))
    there = read_json(compared[0] / "comparison.json")
    found, there = ([(x["value"], x["low"], x["high"]) for x in c["answers"]] for c in (found, there))
    assert found == there
    mixed = said("compare", f"{tmp_path}", f"{tmp_path}/grpo", code=2)
    assert "holds runs of 2 arms" in mixed


def test_a_plan_costs_nothing(tmp_path):
    out = tmp_path / "planned"
    found = json.loads(said(*ASK, "--out", out, "--dry-run", "--json"))
    assert found["pricing"]["rollouts"] == 16 * PRICED
    assert found["cost"] * 4 + found["probe_cost"] * 6 <= 800 and len(found["seeds"]) == 2 and not out.exists()
    plan = plan_comparison(["grpo", "reinforce"], budget="800-rollouts", seeds=2, rollouts=4, groups=2, evaluations=4,
                           data="sums:base=easy,count=120", held_out=0.3, workers=1, out=out)
    assert plan.to_dict().keys() == found.keys() and plan.workers == 1 and not out.exists()
    assert {**plan.to_dict(), "expected": 0, "pricing": 0} == {**found, "expected": 0, "pricing": 0}


def test_a_setting_that_does_not_exist_is_named():
    with pytest.raises(UserError, match="'colour' is not a setting; settings are data, device"):
        compare_methods(["grpo", "dapo"], budget="9k-rollouts", colour="red")


@pytest.mark.parametrize(("args", "words"), [
    (("grpo",), "expected at least two methods"),
    (("grpo", "dapo"), "needs a --budget"),
    (("grpo", "grpo", "--budget", "9k-rollouts"), "grpo is given twice"),
    (("grpo", "nope", "--budget", "9k-rollouts"), "unknown method 'nope'"),
    (("grpo", "dapo", "--budget", "9k-rollouts", "--seeds", "1"), "needs at least 2 seeds"),
    (("grpo", "dapo", "--budget", "500-rollouts"), "the minimum is 16"),
    (("grpo", "dapo", "--budget", "9000"), "has no unit"),
    ((".", ".", "--to-parents"), "is for methods"),
    (("grpo", "dapo", "--budget", "9k-rollouts", "--unit", "tokens"), "is for folders of runs"),
])
def test_a_mistake_is_reported_in_one_line(args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["compare", *args, *DATA])
    assert done.exit_code == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.output
    assert not list(tmp_path.iterdir())


def test_methods_are_compared_with_their_parents_and_no_others(tmp_path, ran):
    """A parent that was not named comes in, and its runs serve every child."""
    ask = ("compare", "drgrpo", "cispo", "--to-parents", *DATA, *SIZE, "--budget", "1100-rollouts")
    shown = ran(*ask, "--out", tmp_path / "w", code=(0, 3, 4))
    found, sealed = read_json(tmp_path / "w" / "wave.json"), read_json(tmp_path / "w" / "compare.json")
    assert sealed["design"]["labels"] == ["grpo", "drgrpo", "cispo"]
    assert [(c["method"], c["parent"]) for c in found["changes"]] == [("drgrpo", "grpo"), ("cispo", "grpo")]
    assert found["asked"] == 6 and found["seal"] == sealed["seal"]
    assert len(list((tmp_path / "w").glob("runs/train-*"))) == 6 and not (tmp_path / "w" / "comparison.json").exists()
    assert "2 methods against their parents" in shown and "of 6 answers significant" in shown
    trained = [read_json(p) for p in (tmp_path / "w").glob("runs/train-*/run.json")]
    assert {r["method"]: r["arm"]["lr"] for r in trained} == found["rates"]
    said(*ask, "--out", tmp_path / "w", code=(0, 3, 4))
    assert read_json(tmp_path / "w" / "wave.json") == found       # done again it does nothing again
    assert "reinforce has no parent" in said("compare", "reinforce", "--to-parents", *DATA, "--budget", "1000-rollouts",
                                             "--out", tmp_path / "no", code=2)


def test_an_arm_may_be_a_method_with_settings(tmp_path, ran):
    """The shared ones first, then its own; sealed with the design; carried into the arm's runs, and no other's."""
    out = tmp_path / "settings"
    arms = ("grpo", "grpo@loss.high=0.28,max_age=1")
    small = (*DATA, *SIZE, "--budget", "800-rollouts", "--set", "loss.low=0.1")
    printed = ran("compare", *arms, *small, "--out", out, code=(0, 3, 4))
    assert "grpo@loss.high=0.28,max_age=1 " in printed
    design = read_json(out / "compare.json")["design"]
    assert design["arms"] == {"grpo": "grpo", arms[1]: "grpo"}
    assert design["sets"] == {"grpo": {"loss.low": "0.1"},
                              arms[1]: {"loss.low": "0.1", "loss.high": "0.28", "max_age": "1"}}
    for arm, high, age in ((arms[0], 0.2, 0), (arms[1], 0.28, 1)):
        runs = [f for purpose in ("probe", "train") for f in out.glob(f"runs/{purpose}-{arm}-*")]
        recipes = [read_json(f / "run.json")["recipe"] for f in runs]
        assert len(recipes) == 5
        assert {(r["loss"]["low"], r["loss"]["high"], r["max_age"]) for r in recipes} == {(0.1, high, age)}
        assert design["recipes"][arm]["loss"]["high"] == high
        assert {(f / "final").is_dir() for f in runs} == {True, False}      # trained runs keep their policy
    assert {(f / "final").is_dir() for f in out.glob("runs/train-*")} == {True}
    again = said("compare", *arms, *small[:-2], "--set", "loss.low=0.2", "--out", out, code=2)
    assert "sets.loss.low was" in again and "choose another --out" in again


@pytest.mark.parametrize(("arm", "words"), [
    ("grpo@loss.hihg=0.28", "loss is isocost.parts.loss:clipped, which takes low, high"),
    ("grpo@loss.high", "arm grpo@loss.high: 'loss.high' has no value"),
    ("grpo@advantage.ks=[1,2]", "a list, or what else has commas in it, goes through --set"),
    ("grpo@pace.lr=1e-3", "arm grpo@pace.lr=1e-3: pace.lr=1e-3: write --lr 1e-3"),
    ("grpo@rollouts=4", "grpo and grpo@rollouts=4 are the same recipe"),
    ("grpo@rollouts=0", "rollouts=0: expected a value in [1, inf)"),
    ("grpo@rollouts=1", "rollouts 1 conflicts with grpo.advantage: it compares siblings"),
    ("brpo", "brpo does not run: a step of it in the toy world (n = 4)"),
    ("grpo@improve.minibatches=0", "improve.minibatches=0: isocost.parts.improve:policy expects a value in [1, inf)"),
    ("grop@loss.high=0.28", "grop"),
    ("grpo@loss.high=0.20", "grpo and grpo@loss.high=0.20 are the same recipe"),
    ("april@max_age=2", "conflicts with"),
    ("grpo@improve.minibatches=2.5", "expected an integer"),
    ("grpo@max_age=-1", "max_age=-1: expected a value in [0, inf)"),
    ("grpo@max_age=1.5", "max_age is 0; expected an integer, got '1.5'"),
    ("grpo@max_age=null", "max_age is 0; got 'null', which has another type"),
    ("grpo@max_age.x=1", "max_age is a size, 0, and has no setting 'x'"),
])
def test_a_wrong_setting_of_an_arm_is_reported_before_anything_is_sampled(arm, words, tmp_path, monkeypatch):
    monkeypatch.setattr("isocost.compare.steps._priced", lambda opened: pytest.fail("answers were sampled"))
    printed = said("compare", "grpo", arm, *DATA, *SIZE, "--budget", "800-rollouts", "--out", tmp_path / "c", code=2)
    assert words in printed and not (tmp_path / "c").exists()


KNOWN = {"select": 10, "audit": 10, "exact": True, "parameters": 1000, "lengths": {"mean": 3.0},
         "rate": {"rollouts_per_second": 1000.0}, "cost": {"rollouts": 100, "prefill": 400, "decode": 300}}


def designed(*arms, budget, **changes):
    return design(arms, KNOWN, Conditions(budget, seeds=2, evaluations=4), samples=4, **changes)


def test_an_arm_that_reads_a_reference_is_priced_with_it():
    """7 tokens a rollout at 8 x 7 x 1000 FLOP for GRPO; isoeasy's reference reads them once more, at 2 x 7 x 1000."""
    d = designed("grpo", "isoeasy", budget="1e10flop")
    each = 1e10 / (2 * (2 + 3 / 4))
    assert d.cost == each and d.rollouts == 128 * int(each / (128 * 70_000)) < 128 * int(each / (128 * 56_000))
    of = {label: len(d.seeds) * d.rollouts + 3 * d.probe_rollouts for label in d.labels}
    assert expected(d, KNOWN, 4).flops == of["grpo"] * 56_000 + of["isoeasy"] * 70_000


def test_arms_of_other_sizes_cost_and_are_evaluated_at_what_is_whole_for_all():
    """8 x 16 and 9 x 16 are both whole at multiples of 1152 = 9 x 128 = 8 x 144; rates go by the root of n B."""
    d = designed("grpo", "mcgrpo@rollouts=9", budget="110k-rollouts")     # 110000 / (2 (2 + 3/4)) = 20000 a run
    assert d.sizes == {"mcgrpo@rollouts=9": Arm(n=9, B=16)} and d.batch("grpo") == 128
    assert d.cost == d.rollouts == 17 * 1152 == d.points[-1] and d.probe_cost == 4 * 1152 == d.probe_points[-1]
    assert all(x % 1152 == 0 for x in (*d.points, *d.probe_points))
    assert d.rates_at(144)[1] == pytest.approx(d.rates_at(128)[1] * 144**0.5 / 128**0.5)
    assert d.rates == d.rates_at(128) and d.recipes["mcgrpo@rollouts=9"]["rollouts"] == 9
    data = d.data()
    assert Design.of(data).data() == data and data["sizes"] == {"mcgrpo@rollouts=9": {"n": 9, "B": 16}}
    old = {**data, "n": 8, "B": 16, "sizes": {"mcgrpo@rollouts=9": [9, 16]}}      # as format 1 has it
    assert Design.of({k: v for k, v in old.items() if k != "arm"}).data() == data
    few = designed("grpo", "mcgrpo@rollouts=9", budget="55k-rollouts")    # 10000 hold 8 times 1152, and 69 times 144
    assert few.cost == 69 * 144 and few.points[-1] == few.cost and few.batch("grpo") == 128
    one = designed("grpo", "dapo", budget="55k-rollouts")
    assert one.sizes == {} and one.cost == 78 * 128
    with pytest.raises(UserError, match="pays for 13 updates of 768 rollouts a run; the minimum is 16"):
        designed("grpo", "scalerl", budget="55k-rollouts", own_sizes=True)


def test_with_own_sizes_every_arm_is_its_methods_own(tmp_path):
    arms = ("compare", "mcgrpo", "dots", "--to-parents", *DATA, "--seeds", "2", "--budget", "200k-rollouts")
    d = json.loads(said(*arms, "--own-sizes", "--dry-run", "--json", "--out", tmp_path / "c"))
    own = {k: methods.load(k).recipe() for k in ("grpo", "mcgrpo", "dots")}
    assert {k: (r["rollouts"], r["groups"]) for k, r in d["recipes"].items()} == {
        k: (r.rollouts, r.groups) for k, r in own.items()} == {"grpo": (8, 16), "mcgrpo": (9, 16), "dots": (8, 8)}
    assert d["arm"] == {"n": Recipe.rollouts, "B": Recipe.groups}
    assert d["sizes"] == {"mcgrpo": {"n": 9, "B": 16}, "dots": {"n": 8, "B": 8}}
    text = said(*arms, "--own-sizes", "--dry-run", "--out", tmp_path / "c")
    assert "rollouts, with the same seeds, which are too few to pair, judged on the test split" in text
    assert "rollouts, paired by seed, judged" in said(*["5" if x == "2" else x for x in arms], "--dry-run", "--out",
                                                      tmp_path / "five")
    assert "arms with n = 9, B = 16: mcgrpo; learning rates: " in text and "mcgrpo: method defaults: n = 9\n" in text
    shared = said(*arms[:2], *arms[3:], "--dry-run", "--out", tmp_path / "c")
    assert "1 method against" not in text and "\nmethod against its parent: " in shared
    assert "mcgrpo: overridden here: n = 8 (default 9)\n" in shared and ", n = 8, B = 16\n" in shared
    assert "leave -n and -B out" in said(*arms, "--own-sizes", "-n", "4", code=2)


def test_arms_of_other_sizes_are_trained_evaluated_and_billed_at_their_own(tmp_path, ran):
    """4 and 6 rollouts an update are both whole at 12: the same cost, and evaluations where the other has its own."""
    out = tmp_path / "sizes"
    ask = ("compare", "grpo", "grpo@rollouts=3", *DATA, "-n", "2", "-B", "2", "--seeds", "2", "--evaluations", "4",
           "--workers", "1", "--budget", "1100-rollouts", "--out", out)
    ran(*ask, code=(0, 3, 4))
    met = {}
    for n, label in ((2, "grpo"), (3, "grpo@rollouts=3")):
        for folder in out.glob(f"runs/*-{label}-*"):
            arm, purpose = read_json(folder / "run.json")["arm"], folder.name.partition("-")[0]
            assert (arm["n"], arm["B"]) == (n, 2)
            lines = [x["rollouts"] for x in read_lines(folder / "metrics.jsonl") if "eval/audit" in x]
            met.setdefault(purpose, set()).add(tuple(lines))
            assert read_json(folder / "end.json")["bill"]["train"]["rollouts"] == lines[-1]
            assert read_json(folder / "end.json")["steps"] == lines[-1] / (2 * n)
    assert met == {"probe": {(0, 24, 48)}, "train": {(0, 24, 48, 96, 192)}}
    judged, rates = read_json(out / "comparison.json"), read_json(out / "rates.json")["rates"]
    assert judged["cost"] == 192 and {k: r["reference"] for k, r in rates.items()} == {"grpo": 4, "grpo@rollouts=3": 6}
    trained = {f.name: read_json(f / "run.json")["arm"]["lr"] for f in out.glob("runs/train-*")}
    assert {trained["train-grpo-s0"], trained["train-grpo@rollouts=3-s0"]} == set(judged["rates"].values())


def test_arms_that_take_the_same_steps_are_named_before_anything_is_sealed(tmp_path):
    """One update on fresh rollouts: every ratio is 1, and the clip is never met."""
    ask = ("compare", "grpo", "grpo@loss.high=0.28", "grpo@max_age=1", "rloo", *DATA, *SIZE)
    text = said(*ask, "--budget", "4k-rollouts", "--dry-run", "--out", tmp_path / "c")
    assert "! grpo and grpo@loss.high=0.28 took bit-identical steps in the toy world" in text
    assert text.count("took bit-identical") == 1


def test_seeds_that_can_detect_no_difference_are_too_few_and_the_plan_names_enough(tmp_path):
    ask = ("compare", "grpo", "rloo", "dapo", "drgrpo", *DATA, *SIZE, "--budget", "20k-rollouts", "--dry-run")
    few = said(*ask, "--seeds", "2", "--out", tmp_path / "c")
    found = re.search(r"no difference can be detected: .* is (\d\.\d+) \(80% power\), and rewards from 0 to 1 "
                      r"differ by 1 at most\. 2 seeds per arm are too few .*: a difference of 0\.1 needs "
                      r"--seeds (\d+)", few)
    assert found and float(found[1]) >= 1
    enough = said(*ask, "--seeds", found[2], "--out", tmp_path / "c")
    assert float(re.search(r"minimum detectable difference between two arms (\d\.\d+)", enough)[1]) <= 0.1


def test_a_comparison_begun_by_an_earlier_version_goes_on(compared):
    """What it did not know of was not asked of it."""
    out, first = compared
    study = read_json(out / "study.json")
    older = {k: v for k, v in study.items() if k not in ("sets", "to_parents")}
    (out / "study.json").write_text(json.dumps(older))
    try:
        assert said(*ASK, "--out", out, code=(0, 3, 4)).split("record:")[0][-80:] == first.split("record:")[0][-80:]
    finally:
        (out / "study.json").write_text(json.dumps(study))


def test_an_arms_own_setting_comes_after_the_shared_one_and_paths_keep_their_ats():
    assert arm_of("grpo@loss.high=0.3", {"loss.high": "0.2", "loss.low": "0.1"}) == (
        "grpo", {"loss.high": "0.3", "loss.low": "0.1"})
    assert arm_of("/home/me@work/mine.py") == ("/home/me@work/mine.py", {})
    assert arm_of("/home/me@work/mine.py@loss.high=0.3") == ("/home/me@work/mine.py", {"loss.high": "0.3"})
    assert labels_of(["a/grpo.py@enrich.x=b/c", "runs@1/rloo"]) == ["grpo@enrich.x=b_c", "rloo"]


def test_a_method_with_settings_has_the_parent_of_the_method():
    assert with_parents(["dapo@loss.high=0.3"]) == (("grpo", "dapo@loss.high=0.3"), {"dapo@loss.high=0.3": "grpo"})
