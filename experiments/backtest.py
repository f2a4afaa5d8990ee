"""The law on real runs: fitted to their first part, held against the rest.

    python experiments/backtest.py --out experiments/results/backtest.json

The runs are those of `nstar_easy.json` and `nstar_hard.json`: five n on the built-in problems, three and five seeds.
At every cut the law sees evaluations up to it and no others, and predicts the mean of the same runs at two, four and
eight times the cut, as far as they go. Cuts of one set of runs are not independent, so shares here describe, and test
nothing.

Each row holds, by n: whether the 90 % prediction interval `held` the mean reward on the audit problems, by how much
that lay `above` the value predicted, and the interval's `width`; and whether the law `refused`. `summary` holds means
by times, `together` the share held and medians over everything.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import made_with
from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.runs.arm import Arm

HERE = Path(__file__).parent / "results"
CUTS, TIMES = (2048, 4096, 8192, 16384), (2, 4, 8)


def runs(name: str) -> list[Curve]:
    """The pilot's curves of a record of n*."""
    told = json.loads((HERE / f"nstar_{name}.json").read_text())["curves"]
    return [
        Curve(c["run"], Arm(n=c["n"], B=c["B"], lr=c["lr"]), c["seed"], np.array(c["C"]), np.array(c["select"]),
              np.array(c["audit"]), np.full(len(c["C"]), np.nan), np.full(len(c["C"]), np.nan))
        for c in told if c["purpose"] == "pilot"
    ]


def until(c: Curve, cut: float) -> Curve:
    """A run as it was known by then."""
    return replace(c, **{k: getattr(c, k)[cut >= c.C] for k in ("C", "select", "audit", "seconds", "epochs")})


def rows(name: str) -> list[dict[str, Any]]:
    """Every cut and every time, as far as the runs go."""
    every, out = runs(name), []
    for cut in CUTS:
        if cut * min(TIMES) > min(c.C[-1] for c in every):
            continue
        law = fit_law([until(c, cut) for c in every])
        for times in TIMES:
            C = float(cut * times)
            if min(c.C[-1] for c in every) < C:
                continue
            found = {}
            for n in law.ns:
                own = [c for c in every if c.arm["n"] == n]
                mean = float(np.mean([np.interp(np.log(C), np.log(c.C[1:]), c.audit[1:]) for c in own]))
                told = law.predict(n, C, len(own))[1]
                found[str(n)] = {"held": told.holds(mean), "above": round(mean - told.value, 4),
                                 "width": round(told.width, 4)}
            out.append({"problems": name, "cut": cut, "times": times, "refused": law.refused is not None, "n": found})
    return out


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By times, and by whether the law spoke: share held, mean distance above the value predicted, mean width."""
    out = []
    for times in TIMES:
        for refused in (False, True):
            own = [x for r in found if r["times"] == times and r["refused"] == refused for x in r["n"].values()]
            if own:
                out.append({"times": times, "refused": refused, "predictions": len(own),
                            **{k: round(float(np.mean([x[k] for x in own])), 4) for k in ("held", "above", "width")}})
    return out


def together(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of all predictions, and of those of an identified law: share held, median distance above, median width."""
    out = {}
    for name, own in (("all", found), ("identified", [r for r in found if not r["refused"]])):
        every = [x for r in own for x in r["n"].values()]
        if every:
            out[name] = {"predictions": len(every), "held": round(float(np.mean([x["held"] for x in every])), 4),
                         **{k: round(float(np.median([x[k] for x in every])), 4) for k in ("above", "width")}}
    return out


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--out", type=Path, default=HERE / "backtest.json")
    out = ask.parse_args().out
    found = rows("easy") + rows("hard")
    told = {"level": 0.9, "summary": summary(found), "together": together(found), "rows": found}
    out.write_text(json.dumps(told, indent=1) + "\n")
    made_with.note(out)
    for row in told["summary"]:
        print(row)


if __name__ == "__main__":
    main()
