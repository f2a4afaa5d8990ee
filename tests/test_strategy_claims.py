"""Claims about strategies: rows are complete, equal cost is asked, answers follow from the numbers, pools agree."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from claim_records import follows
from experiments import strategy_claims as claims
from experiments.claim import REFUSED
from experiments.claim_kinds import SEALED, entered, keep, refuse_changed
from experiments.claim_page import strategies_table
from isocost import strategies
from isocost.errors import UserError
from isocost.steps.settings import setting_with
from isocost.types import Cost, Problem
from isocost.worlds.setting import open_setting

KEPT = sorted(claims.KEPT.glob("*.json"))


@pytest.mark.parametrize("file", KEPT, ids=lambda f: f.stem)
def test_a_record_is_that_of_its_row_and_its_answers_follow(file):
    of, record = claims.rows()[file.stem], json.loads(file.read_text())
    follows(of, record)
    found = {label: {int(s): x for s, x in own.items()} for label, own in record["pilot"].items()}
    assert claims.cost(of, found).text == next(x["text"] for x in record["gate"] if x["name"] == "cost")
    assert not any({*record["pilot"][label]} & {*own} for label, own in record.get("runs", {}).items())


def test_each_claim_of_the_rows_was_asked_and_is_shown():
    assert {*claims.rows()} == {f.stem for f in KEPT} and len(KEPT) >= 10
    assert all(of.claim.title in strategies_table() for of in claims.rows().values())


def test_arms_of_unequal_cost_are_refused_unless_the_row_says_why():
    of = claims.rows()["particles_beam"]

    def asked(of, beam, flop=1.0):
        runs = {"beam": {500: {"tokens": beam, "flop": flop}}, "particles": {500: {"tokens": 100.0, "flop": 1.0}}}
        return claims.cost(of, runs)

    assert asked(of, 109.0).passed and asked(of, 92.0).passed
    assert asked(of, 115.0).passed is False and "change the size" in asked(of, 115.0).text
    why = replace(of, claim=replace(of.claim, exempt={"cost": "it is the claim"}))
    assert asked(why, 200.0).passed is None and "it is the claim" in asked(why, 200.0).text
    two = replace(of, arms={k: {**v, "model": k} for k, v in of.arms.items()})
    assert two.unit == "flop" and asked(two, 200.0).passed and asked(two, 100.0, 2.0).passed is False


def test_groups_are_told_by_samples_that_answer_nothing_and_an_edge_is_in_the_upper_one(monkeypatch, tmp_path):
    rates, asked = np.array([0.0, 0.125, 0.25, 1.0]), []

    def pool(opened, seed, file, samples):
        asked.append((seed, samples))
        return (np.arange(samples) < samples * rates[:, None]).astype(float)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(claims, "_pool", pool)
    monkeypatch.setattr(claims, "_open", lambda *_: SimpleNamespace(close=lambda: None))
    numbers = {"solved": np.array([0.0, 0.5, 1.0, 1.0]), "tokens": np.array([9.0, 7.0, 3.0, 1.0])}
    monkeypatch.setattr(claims, "_answers", lambda *_: numbers)
    of = replace(claims.rows()["snell_bins"], groups={"hard": [0.0, 0.25], "easy": [0.25, 1.01]})
    found = claims.answered_by(of, [3])["beam"][3]
    assert asked == [(3 + claims.APART, claims.PROBES)] and 3 + claims.APART not in range(claims.FIRST + of.claim.pilot)
    assert (found["solved hard"], found["solved easy"], found["tokens hard"], found["tokens easy"]) == (0.25, 1, 8, 2)


def test_tokens_are_those_of_the_policy_and_of_its_scorer(monkeypatch, tmp_path):
    async def played(*_):
        return SimpleNamespace(stop=None, numbers={"scoring_read": 3.0}), {"cost": Cost(decode=5, score=7).data()}

    async def grade(texts):
        return [SimpleNamespace(value=1.0)]

    monkeypatch.setattr(claims, "played", played)
    world = SimpleNamespace(grade=grade, learner=SimpleNamespace(parameters=2))
    opened = SimpleNamespace(world=world, setting=SimpleNamespace(measured=None),
                             sides=SimpleNamespace(train=[Problem("p", ())]))
    found = claims._answers(strategies.parse("beam"), opened, 0, tmp_path / "a.jsonl", 0, {})
    assert (found["tokens"], found["flop"], found["solved"]) == (5 + 7 + 3, 2 * 2 * (5 + 7), 1)


def test_saturation_holds_for_a_problem_and_not_for_a_mixture():
    few, at, whole = 4, 8, 16
    right = np.zeros((4, whole))
    right[0, ::2] = right[1, ::2] = 1        # 2 of the first 4, 8 of 16
    right[2, 8:] = 1                         # none of the first 4, 8 of 16
    right[3] = 1                             # all
    arm = {"few": few, "at": at, "samples": whole}
    each, none, mean = (claims._forecast({**arm, "forecast": x}, right)["error"] for x in ("each", "none", "set"))
    truth = 1 - 1 / 12870                    # C(8, 8) of C(16, 8) subsets of 8 have none of the 8 that are right
    assert np.isnan(each[2:]).all() and each[:2] == pytest.approx(2 * [abs(1 - 0.5**8 - truth)])
    assert np.isnan(none[[0, 1, 3]]).all() and none[2] == pytest.approx(truth)
    assert mean == pytest.approx(4 * [mean[0]]) and mean[0] > 0.2        # its plateau is near 3 of 4, not 1


@pytest.mark.parametrize("spec", ["vote:n=6", "best-of:n=6,scorer=(steps:wrong=0.3)", "until-sure:n=6,by=2"])
def test_a_pool_that_is_shared_gives_the_answers_of_a_strategy_that_is_run(spec, tmp_path):
    opened = open_setting(setting_with(data="sums:work=1,level=2,count=5"), learn=False, whole=True)
    shared, run = (claims._answers(strategies.parse(spec), opened, 3, tmp_path / f"{most}.jsonl", most, {})
                   for most in (6, 0))
    opened.close()
    assert shared["solved"].tolist() == run["solved"].tolist() and shared["tokens"].tolist() == run["tokens"].tolist()
    assert shared["tokens"].min() > 0


def test_what_was_changed_after_its_seal_is_not_run():
    of, record = claims.rows()["particles_beam"], json.loads((claims.KEPT / "particles_beam.json").read_text())
    refuse_changed(of, record)
    for other, kept in ((replace(of, claim=replace(of.claim, seeds=40)), record), (of, {**record, "pilot": {}}),
                        (of, {k: v for k, v in record.items() if k != "seal"})):
        with pytest.raises(UserError, match="not sealed, or was changed after"):
            refuse_changed(other, kept)


def test_a_claim_is_sealed_once_where_its_gate_passed_and_its_row_is_that_of_its_pilot(tmp_path):
    of = claims.rows()["particles_beam"]
    whole = json.loads((claims.KEPT / "particles_beam.json").read_text())
    piloted, file = {k: whole[k] for k in SEALED}, tmp_path / "particles_beam.json"

    def asked(command, of=of):
        return entered([command, "particles_beam"], {"particles_beam": of}, tmp_path, None, None)

    for record, told in (({}, "has no pilot"), ({**piloted, "row": {}}, "its row was changed since")):
        keep(tmp_path, of, record)
        for command in ("seal", "run"):
            with pytest.raises(UserError, match=told):
                asked(command)
    keep(tmp_path, of, {**piloted, "decidable": False})
    assert asked("seal") == REFUSED and "seal" not in json.loads(file.read_text())
    keep(tmp_path, of, piloted)
    assert asked("seal") == 0
    refuse_changed(of, json.loads(file.read_text()))
    for command in ("pilot", "seal"):
        with pytest.raises(UserError, match="is sealed: a claim is asked again as a new row"):
            asked(command)


def test_the_evidence_counts_them_as_their_records_do():
    found = [json.loads(f.read_text()).get("outcome", "refused") for f in KEPT]
    text = " ".join((claims.HOME / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    holds, fails, unknown = (found.count(x) for x in ("holds", "does not hold", "cannot tell"))
    assert f"{len(found)} claims about test-time strategies: {holds} hold, {fails} do not, {unknown} undecided" in text
