"""Claims of control: rows are complete, the gate comes before the seal, and answers follow from the kept numbers."""

import json

import pytest

from experiments import control_claims as claims
from experiments.claim import answers_of, outcome_of
from isocost.planner.forecast import digest

KEPT = sorted(claims.KEPT.glob("*.json"))


@pytest.mark.parametrize("file", KEPT, ids=lambda f: f.stem)
def test_a_record_is_that_of_its_row_and_its_answers_follow(file):
    of, record = claims.rows()[file.stem], json.loads(file.read_text())
    assert record["row"] == json.loads(json.dumps(of.data()))
    assert record["decidable"] == all(x["passed"] is not False for x in record["gate"])
    assert record["decidable"] or "outcome" not in record
    if "outcome" in record:
        assert record["seal"] == digest({k: record[k] for k in ("row", "decidable", "gate", "pilot")})
        answers = answers_of(of.claim, record["runs"])
        assert [a["answer"] for a in answers] == [a["answer"] for a in record["answers"]]
        assert outcome_of([a["answer"] for a in answers]) == record["outcome"]
        assert {len(own) for own in record["runs"].values()} == {of.claim.seeds}
