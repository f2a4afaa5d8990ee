"""Combinations that conflict are refused with the reason; what is right is not, and the table cannot rot."""

import ast
import importlib
import inspect
import json
import pkgutil
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost import methods, parts, strategies
from isocost.cli.commands import main
from isocost.contract import conflicts
from isocost.contract.check import check
from isocost.contract.conflicts import AT_MOST, CONFLICTS, FACTS, SHARED, refuse
from isocost.errors import UserError
from isocost.methods import (
    april,
    arrol,
    balanced,
    bonrlb,
    brpo,
    dars,
    drgrpo,
    ettrl,
    grpo,
    isoeasy,
    mrt,
    pope,
    scalerl,
    vade,
    vcpo,
)
from isocost.parts import choose, enrich, improve, loss, reward, select
from isocost.recipe import describe, fingerprint, functions, tune
from isocost.seams import SEAMS
from isocost.strategies import beam, best_of, particles
from isocost.traits import TRAITS, declared
from isocost.worlds import toy
from toy import run

ALL = methods.names()
QUICK = partial(april.first_back, keep=0.75)
TWICE = partial(dars.allocate, first=0.5, most=32)


def has(name, **changes):
    return methods.load(name).recipe(**changes)


def tuned(name, path, value, **changes):
    return tune(has(name, **changes), path, value)


# (what is refused, why, the nearest that is not)
CASES = {
    "spread x shortfall": (has("dars", advantage=grpo.advantage), "already", has("dars")),
    "spread inside another x shortfall": (
        has("ace", allocate=TWICE), "grpo.advantage conflicts with dars.allocate",
        tuned("ace", "allocate.std", True, allocate=TWICE)),
    "parts by spread x shortfall": (
        has("gdpo", allocate=TWICE), "gdpo.advantage", tuned("gdpo", "allocate.std", True, allocate=TWICE)),
    "spread switched on x shortfall": (
        has("darshw", advantage=partial(isoeasy.advantage, std=True)), r"isoeasy.advantage\(std=True\)",
        has("darshw", advantage=isoeasy.advantage)),
    "beliefs x giving up": (
        has("vade", schedule=QUICK), "never marked", has("vade", schedule=partial(QUICK, keep=1.0))),
    "predictions x giving up": (
        has("dots", schedule=QUICK), r"dots.choose conflicts with april.first_back\(keep=0.75\)", has("dots")),
    "beliefs x pruning": (
        has("arrol", choose=vade.choose), "never marked",
        tuned("arrol", "schedule.keep", 1, choose=vade.choose)),
    "retirement x pruning": (
        has("arrol", choose=scalerl.choose), r"scalerl.choose conflicts with arrol.schedule\(keep=0.5\)",
        has("arrol")),
    "dials x giving up": (has("scaler", schedule=QUICK), "scaler.choose", has("grpo", schedule=QUICK)),
    "bins x giving up": (has("rolloutgdro", schedule=QUICK), "rolloutgdro.allocate", has("rolloutgdro")),
    "weights by bin x giving up": (has("promptgdro", schedule=QUICK), "promptgdro.advantage", has("promptgdro")),
    "expectations x giving up": (has("v05", schedule=QUICK), "v05.advantage", has("v05")),
    "forks x one by one": (
        has("mrt", schedule=partial(QUICK, keep=1.0)), "makes in one call", has("mrt")),
    "trackers x agreement": (
        has("vade", reward=ettrl.reward), "not whether it is right", has("grpo", reward=ettrl.reward)),
    "trackers x two rewards": (has("gdpo", choose=vade.choose), "gdpo.reward", has("gdpo")),
    "trackers x forks": (has("mrt", choose=vade.choose), "does not count the policy's pass rate", has("vade")),
    "trackers x summaries": (
        has("rc", choose=vade.choose), "rc.play: .* on the problem as posed", has("rc")),
    "trackers x trees": (
        has("ettrl", choose=vade.choose, reward=reward.verified), "vade.choose conflicts with ettrl.play",
        has("ettrl")),
    "trackers x chosen attempts": (
        has("solrl", choose=vade.choose), "vade.choose conflicts with solrl.play: .* not the pass rate", has("solrl")),
    "chosen attempts x best of N": (
        has("bon", play=has("solrl").play), "bon.advantage conflicts with solrl.play", has("bon")),
    "interruptions x putting by": (
        has("april", play=has("scalerl").play), "one token after it is continued", has("scalerl")),
    "trees x best of N": (has("bon", play=ettrl.play), "ettrl.play conflicts with bon.advantage", has("bon")),
    "search over steps x siblings": (
        has("grpo", play=partial(beam.play, n=4, width=2)), "beam.play conflicts with grpo.advantage: a scorer decided",
        has("grpo", play=partial(best_of.play, n=4))),
    "values of turns not learnt": (has("archer", improve=improve.policy), "archer.improve learns them", has("archer")),
    "critic of turns not taught": (has("vldac", improve=improve.policy), "vldac.improve trains one", has("vldac")),
    "returns not taught": (has("mcawr", improve=improve.policy), "mcawr.improve trains one", has("mcawr")),
    "values not taught": (has("ilql", improve=improve.policy), "ilql.improve trains one", has("ilql")),
    "current policy not asked": (
        has("agentrlvr", enrich=has("agentrlvr").enrich[:1]), "add agentrlvr.enrich", has("agentrlvr")),
    "turns not noted": (has("dart", reward=reward.verified), "which dart.reward notes", has("dart")),
    "critic not asked": (has("ppo", enrich=()), "add ppo.enrich", has("ppo")),
    "critic not taught": (
        has("ppo", improve=improve.policy), "a critic from `improve`, .* ppo.improve trains one",
        has("ppo")),
    "doubt": (has("ettrl", enrich=()), "add ettrl.enrich", has("ettrl")),
    "forks x putting by": (has("brpo", schedule=april.schedule), "brpo.play", has("brpo")),
    "forks x pruning": (
        has("brpo", schedule=partial(arrol.schedule, keep=1.0)), "in parts", has("grpo", schedule=arrol.schedule)),
    "summaries x one by one": (
        has("rc", schedule=QUICK), "rc.play conflicts with april.first_back", has("rc")),
    "trees x one by one": (has("ettrl", schedule=QUICK), "ettrl.play conflicts with april.first_back",
                           has("ettrl")),
    "hints x one by one": (has("adhint", schedule=partial(QUICK, keep=1.0)), "adhint.play", has("adhint")),
    "repairs x one by one": (has("int_", schedule=arrol.schedule), "int_.play", has("int_")),
    "places x one by one": (has("otr", schedule=QUICK), "otr.play", has("otr")),
    "summaries x phases": (
        has("rc", advantage=drgrpo.advantage, allocate=TWICE), "each phase would have its own", has("rc")),
    "putting by x phases": (
        has("april", advantage=drgrpo.advantage, allocate=TWICE), "not in a later phase", has("april")),
    "putting by x twins": (has("april", guide=pope.guide), "guided variant", has("pope")),
    "putting by x waves ahead": (
        has("april", max_age=1), "april.schedule conflicts with max_age 1", has("grpo", max_age=1)),
    "putting by x any choice": (has("april", choose=choose.uniform), "draws it next", has("april")),
    "late groups x any choice": (has("dora", choose=choose.uniform), "a group that is late", has("dora")),
    "windows x any choice": (has("tppo", choose=choose.uniform), "a text that was cut", has("tppo")),
    "windows x no critic": (has("tppo", improve=improve.policy), "tppo.improve trains one", has("tppo")),
    "earlier answers x any choice": (has("exit_", choose=choose.uniform), "exit_.choose draws", has("exit_")),
    **{f"two of {name}": (tuned("gdro", f"improve.{name}", 0.5), "another slope", tune(
        tuned("gdro", f"improve.{name}", 0.5), f"advantage.{name}", 0.5)) for name in ("beta", "tau", "gamma")},
    "two shares of problems as posed": (tuned("exit_", "choose.new", 0.2), r"guide\(new=0.5\)", tune(
        tuned("exit_", "choose.new", 0.2), "guide.new", 0.2)),
    "hints by spread x shortfall": (has("adhint", allocate=TWICE), "adhint.advantage", has("adhint")),
    "batch spread x tiny batch": (has("gdpo", groups=3, rollouts=5), "batch 15", has("gdpo", groups=4, rollouts=4)),
    "batch spread switched off": (
        has("v05", groups=1, rollouts=8), "fewer than 16", tuned("v05", "advantage.whiten", False, groups=1)),
    "batch spread, Lite PPO": (has("liteppo", groups=2, rollouts=4), "fewer than 16", has("drgrpo", groups=1)),
    "least variance x another loss": (has("vcpo", loss=loss.clipped), "importance ratio", has("vcpo")),
    "least variance x credit by token": (
        has("brpo", improve=vcpo.improve, loss=loss.reweighed), "token to token",
        has("grpo", improve=vcpo.improve, loss=loss.reweighed)),
    "reference": (has("ace", enrich=()), "add enrich.reference", has("ace")),
    "reference, by a leash": (
        has("isohard", loss=partial(isoeasy.plus, terms=(loss.clipped, isoeasy.to_reference))), "isoeasy.to_reference",
        has("isohard")),
    "failure rates": (has("bonrlb", reward=reward.verified), "bonrlb.reward", has("bonrlb")),
    "stops": (has("grpo", advantage=mrt.advantage, reward=mrt.reward), "mrt.play", has("mrt")),
    "stops not noted": (has("mrt", reward=reward.verified), "mrt.reward", has("mrt")),
    "answers": (has("grpo", advantage=brpo.advantage), "brpo.play", has("brpo")),
    "corrected from nowhere": (
        has("areal", improve=improve.policy), "`improve`, which is improve.policy: .* areal.improve scores",
        has("areal")),
    "decoupled, not corrected": (
        has("areal", loss=loss.clipped), "inside loss.corrected",
        has("areal", loss=partial(loss.corrected, inner=loss.clipped))),
    **{f"{name} without its critic": (has(name, improve=improve.policy), f"{name}.improve", has(name))
       for name in ("vldac", "archer", "mcawr", "ilql")},
    "successes not noted": (has("vlarl", reward=reward.verified), "vlarl.reward notes", has("vlarl")),
    "turns that a success took": (has("dart", reward=reward.verified), "dart.reward notes", has("dart")),
    "current log-probs": (has("agentrlvr", enrich=(enrich.reference,)), "agentrlvr.enrich", has("agentrlvr")),
    "calls": (has("otc", reward=reward.verified), "notes; without it all have none", has("otc")),
    "faults": (has("roc", reward=reward.verified), "records; without it all have none", has("roc")),
    "best of more than there are": (
        has("bon", rollouts=3), r"bon.advantage\(n=4\) conflicts with rollouts=3", has("bon", rollouts=4)),
    "handed out of more than there are": (
        has("bonrlb", rollouts=3), "bonrlb.select", has("bonrlb", rollouts=4)),
    "two Ns": (
        tuned("bonrlb", "select.n", 2), r"bonrlb.advantage\(n=4\) conflicts with bonrlb.select\(n=2\)",
        tune(tuned("bonrlb", "select.n", 2), "advantage.n", 2)),
    "two Ns, plain groups": (
        has("bon", select=partial(bonrlb.select, n=2)), r"bon.advantage\(n=4\)",
        has("grpo", select=partial(bonrlb.select, n=2))),
    "priors x budgets": (
        has("brpo", advantage=partial(brpo.advantage, prior=(0.5, 0.5))), "one number for each budget",
        has("brpo", advantage=partial(brpo.advantage, prior=(0, 0, 0.5, 0.5)))),
    "credit against siblings x nobody": (
        has("grpo", rollouts=1), "rollouts 1 conflicts with grpo.advantage: it compares", has("grpo", rollouts=2)),
    "two decays": (tuned("mssr", "choose.rho", 0.5), "advantage.rho=0.9", tune(
        tuned("mssr", "choose.rho", 0.5), "advantage.rho", 0.5)),
    "two gammas": (tuned("ppo", "advantage.gamma", 0.9), "gamma=1.0", tune(
        tuned("ppo", "advantage.gamma", 0.9), "improve.gamma", 0.9)),
    "two lambdas": (tuned("ppo", "improve.lam", 1.0), r"advantage\(lam=0.95\) conflicts with", tune(
        tuned("ppo", "improve.lam", 1.0), "advantage.lam", 1.0)),
}
BINARY = (tuned("mcgrpo", "advantage.flat", 0.0), "1/eps", tuned("mcgrpo", "advantage.flat", 1.0))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_conflict_is_refused_with_its_reason_and_what_is_right_is_not(case):
    wrong, why, right = case
    with pytest.raises(UserError, match=why):
        refuse(wrong)
    refuse(right)


@pytest.mark.parametrize("verifier", conflicts.BINARY)
def test_median_deviations_of_right_and_wrong_where_that_is_known(verifier):
    wrong, why, right = BINARY
    with pytest.raises(UserError, match=why):
        refuse(wrong, verifier=verifier)
    refuse(right, verifier=verifier)
    refuse(wrong, verifier="my.py:graded")
    refuse(wrong)


def reasons():
    """Every reason there is: of the table, of what functions require, and of numbers that they share."""
    needed = {need.why for fn in known_functions() for need in declared(fn).requires}
    return {c.why for c in CONFLICTS} | needed | set(SHARED.values()) | {why for _, why in AT_MOST.values()}


def test_every_reason_is_tried():
    tried = set()
    for wrong, _, _ in (*CASES.values(), BINARY):
        with pytest.raises(UserError) as told:
            refuse(wrong, verifier="exact")
        tried |= {why for why in reasons() if str(told.value).endswith(why)}
    with pytest.raises(UserError) as told:
        refuse(has("gigpo"), turns=1)
    tried |= {why for why in reasons() if str(told.value).endswith(why)}
    for single in (has("reinforce", play=particles.play), has("solrl")):
        refuse(single, turns=1)
        with pytest.raises(UserError, match="conflicts with a dialogue of up to 3 turns") as told:
            refuse(single, turns=3)
        tried |= {why for why in reasons() if str(told.value).endswith(why)}
    assert reasons() - tried == set()


def known_modules():
    return [*(importlib.import_module(f"{parts.__name__}.{m.name}") for m in pkgutil.iter_modules(parts.__path__)),
            *map(methods.load, ALL), *map(strategies.KIND.load, strategies.names())]


def known_functions():
    """Every function of the parts, the methods and the strategies."""
    every = [(m, f) for m in known_modules() for f in vars(m).values() if inspect.isfunction(f)]
    return [f for m, f in every if f.__module__ == m.__name__]


def test_no_method_holds_a_conflict():
    for name in ALL:
        refuse(has(name), verifier="exact")     # its line names the method's own functions


REFUSALS = json.loads((Path(__file__).parent / "fixtures" / "refusals.json").read_text())


@pytest.mark.parametrize("name", REFUSALS)
def test_of_other_methods_seams_a_method_refuses_these_and_no_others(name):
    """Written down when a table named functions and methods: that declarations took its place changed none of it."""
    recipe, every = has(name), {other: has(other) for other in REFUSALS}
    for seam in SEAMS:
        first = {}
        for other, theirs in every.items():
            first.setdefault(fingerprint(describe(getattr(theirs, seam))), other)
        refused = []
        for other in first.values():
            try:
                refuse(recipe.but(**{seam: getattr(every[other], seam)}), verifier="exact")
            except UserError:
                refused.append(other)
        assert refused == REFUSALS[name].get(seam, []), seam


def test_the_table_names_no_function_and_no_method():
    """It is between traits and facts; a reason may name a setting that helps."""
    for conflict in CONFLICTS:
        assert {conflict.one, conflict.other} <= TRAITS.keys() | FACTS.keys()
    source = Path(conflicts.__file__).read_text()
    named = {f"{f.__module__.rpartition('.')[2]}.{f.__name__}" for f in known_functions()}
    assert not [name for name in named if name in source]
    texts = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
    assert not texts & set(ALL) and "isocost.methods" not in source and "isocost.parts" not in source


def test_every_trait_is_declared_by_some_function_and_in_the_table():
    held = {t.name for fn in known_functions() for t in declared(fn).traits}
    assert held == TRAITS.keys() == {x for c in CONFLICTS for x in (c.one, c.other)} - FACTS.keys()


def test_what_is_required_is_given_and_numbers_that_are_shared_are_shared():
    given = {thing for fn in known_functions() for thing in declared(fn).gives}
    needs = [need for fn in known_functions() for need in declared(fn).requires]
    assert {need.thing for need in needs} <= given and {need.at for need in needs} <= set(SEAMS)
    held = [number for fn in known_functions() for number in declared(fn).shares]
    assert {n for n in held if held.count(n) > 1} == SHARED.keys() >= AT_MOST.keys()


def test_what_is_declared_names_settings_that_the_function_has():
    for fn in known_functions():
        known = declared(fn)
        (used,) = list(functions(fn))[:1]
        named = {k for t in known.traits for k in t.when} | set(known.shares.values()) | known.bounds.keys()
        assert named <= used.settings.keys(), fn


def test_it_is_refused_where_a_run_is_put_together_and_told_by_the_contract(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "both.py").write_text('''"""DARS on GRPO's credit.  Nobody 2026, arXiv:0000.00000"""
from isocost.methods import Card, dars, grpo

CARD = Card("Both", "0000.00000", 2026, "dars", "It is better than either.")


def recipe(**changes):
    return dars.recipe(name="both", advantage=grpo.advantage).but(**changes)
''')
    train = ["train", "--data", "sums:base=easy,count=40", "--budget", "64-rollouts", "--dry-run", "-n", "4", "-B", "4"]
    for asked in (["./both.py"], ["mcgrpo", "--set", "advantage.flat=0"], ["gdpo", "-B", "3"]):
        done = CliRunner().invoke(main, [*train, *asked])
        assert done.exit_code == 2 and "conflicts with" in done.output and done.output.count("\n") == 1, done.output
    assert {p.name for p in tmp_path.iterdir()} <= {"both.py", "__pycache__"}
    (why,) = [f.why for f in check("both.py") if not f.kept]
    assert "conflicts with dars.allocate" in why


def test_groups_of_one_are_refused_where_nothing_earns_credit_and_nowhere_else():
    """What the code of a credit shows is what it does: of the methods that play alone, those that learn are let be.

    Of the methods that are refused, one runs for each credit.
    """
    refused, barren = {}, set()
    for name in methods.shipped():
        recipe = has(name, rollouts=1, groups=16)
        try:
            refuse(recipe)
        except UserError:
            credit = fingerprint(describe(recipe.advantage))
            refused.setdefault(credit, name)
            if refused[credit] != name:
                continue
        try:
            ledger, _ = run(recipe, toy.world(), 2 * recipe.groups)
        except UserError:       # its play or its credit says itself that one is too few
            continue
        if not ledger.fates["trained"]:
            barren.add(name)
    tried = set(refused.values())
    assert barren <= tried and tried - barren <= {"bon", "brpo"} and "v05" not in tried and len(barren) > 20


def own_loss(out, batch):
    return loss.corrected(out, batch, inner=loss.clipped)


def test_a_loss_of_ones_own_may_correct_inside():
    """What is lacking is looked for in the package's own functions; nobody can see into another's."""
    refuse(has("areal", loss=own_loss))
    with pytest.raises(UserError, match=r"areal.improve requires a correction from `loss`, which is loss.clipped"):
        refuse(has("areal", loss=loss.clipped))


# what cannot come about, and so is not in the table -----------------------------------------------------------

def test_pass_rates_are_counted_before_anything_is_selected():
    """Any selector beside any tracker: the ledger has seen the group before either."""
    seen = []
    for pick in (select.everything, select.mixed, partial(balanced.select, low=0.4, high=0.6), bonrlb.select):
        ledger, _ = run(has("grpo", groups=10, rollouts=8, select=pick), toy.world(), 80)
        seen.append({k: (t.tries, t.total) for k, t in ledger.tallies.items()})
    assert seen[0] == seen[1] == seen[2] == seen[3] and len(seen[0]) == 10


def test_a_scaled_rate_comes_after_the_clip():
    """VCPO's shorter step stays shorter when the gradient is clipped."""
    moved = []
    for full in (1.0, 4.0):       # ρ is 1 on fresh rollouts: the rate as it is, and a half of it
        world = toy.world()
        before = world.learner.weights()
        recipe = has("vcpo", groups=10, rollouts=8, improve=partial(vcpo.improve, full=full))
        recipe = tune(tune(recipe, "pace.lr", 0.1), "pace.warmup", 0)
        _, steps = run(recipe, world, 80)
        after = world.learner.weights()
        moved.append(max(float((after[k] - before[k]).abs().max()) for k in before))
    assert moved[1] == pytest.approx(moved[0] / 2, rel=1e-3)
    assert len(steps) == 1
