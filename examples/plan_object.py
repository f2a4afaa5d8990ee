"""A plan as an object: the recorded study of docs/from_runs_to_a_plan.md, its law and its prescription.

    python examples/plan_object.py
"""

import shutil
import tempfile
from pathlib import Path

import isocost

RECORDED = Path(__file__).parents[1] / "experiments" / "results" / "tutorial"

with tempfile.TemporaryDirectory() as folder:
    study = isocost.open(shutil.copytree(RECORDED, Path(folder, "tutorial")))
    law, plan, audit = study.fit(), study.plan(), study.audit()

print(f"train n = {plan.n}, B = {plan.B} for M = {plan.M} updates at learning rate {plan.lr:.2g}")
print(f"as good at C = {plan.C:,}: n = {plan.equal}")
for n in law.ns:
    predicted = law.predict(n=n, C=plan.C).prediction
    print(f"  n = {n:2}: predicted reward {predicted.value:.3f} [{predicted.low:.3f}, {predicted.high:.3f}]")
print(f"forecast {plan.forecast.interval.value:.3f}, outcome {audit.outcome.mean:.3f}: {audit.verdict}")
