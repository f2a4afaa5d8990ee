"""What holds of the record of every claim whose arms are mappings."""

import json

import pytest

from experiments.claim import answers_of, outcome_of
from experiments.claim_kinds import SEALED, refuse_changed


def follows(of, record):
    """It is that of its row; only what passed its gate was asked, after its seal; answers follow from the numbers."""
    assert record["row"] == json.loads(json.dumps(of.data()))
    assert record["decidable"] == all(x["passed"] is not False for x in record["gate"])
    assert "outcome" not in record or (record["decidable"] and {*SEALED, "seal"} <= {*record})
    if "outcome" in record:
        refuse_changed(of, record)
        for again, answer in zip(answers_of(of.claim, record["runs"]), record["answers"], strict=True):
            assert again == {**answer, **{k: pytest.approx(answer[k]) for k in ("of", "less", "value", "low", "high")}}
        assert outcome_of([a["answer"] for a in record["answers"]]) == record["outcome"]
        assert {len(own) for own in record["runs"].values()} == {of.claim.seeds}
