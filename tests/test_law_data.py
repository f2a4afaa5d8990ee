"""The records of laws on runs of our own follow from the losses that they hold."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from isocost.laws.papers.size import SizeRun, fit_size

KEPT = Path(__file__).parents[1] / "experiments" / "results" / "law_data"


def test_the_largest_size_was_foretold_by_the_others_and_its_first_points_alone():
    record = json.loads((KEPT / "size.json").read_text())
    known = [SizeRun(float(n), np.array(x["rollouts"]), np.array(x["loss"])) for n, x in record["sizes"].items()]
    known.sort(key=lambda r: r.parameters)
    whole, seal = record["largest"], record["forecast"]
    first = slice(whole["points_before"])
    part = SizeRun(seal["of"], np.array(whole["rollouts"][first]), np.array(whole["loss"][first]))
    assert part.x.max() <= 0.25 * 32_768 < whole["rollouts"][first.stop] and seal["of"] > known[-1].parameters
    loss = float(fit_size(known).placed(part)(seal["of"], known[0].x[-1]))
    assert loss == pytest.approx(seal["loss"], rel=1e-4)      # the search ends at 1e-9 of its own variable
    reach = 2.131847 * math.sqrt(np.mean(np.square(seal["errors"])) * 5 / 4)     # Student's t of 4, 0.95
    assert seal["interval"] == pytest.approx([loss * math.exp(-reach), loss * math.exp(reach)], rel=1e-6)
    low, high = seal["interval"]
    assert record["outcome"] == whole["loss"][-1] and record["hit"] == (low <= record["outcome"] <= high)
