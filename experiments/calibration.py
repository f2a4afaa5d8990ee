"""How far the planner's word can be trusted, on studies whose truth is known: coverage, width, refusals, regret.

    python experiments/calibration.py --studies 500 --out experiments/results/calibration.json

Groups: `inside` (truths of the fitted forms, smooth in n), `rough` (neighbouring n differ besides), `outside` (six
other shapes), `moving` (n* rises and settles within the pilot), `unidentifiable` and `unrelated` (inside, but every n
with numbers of its own, where the law takes neighbours to be alike). Each draws `--studies` truths and
pilots of its own, from a seed that the system draws when the command is run, unless `--seed` is given; it is in the
record either way. Nobody has seen the studies that are reported. Studies are kept beside the record as they finish
(`--out` with `.lines` for `.json`), so a run that was stopped goes on where it was; `--groups` takes some of the
groups, `--workers 2` uses two processes.

What the record holds, for each group under `groups`:

- `studies`, `refused` (share; `reasons` counts them), `n_star_given` (share of studies with an n*(C)).
- `cover`: for the reward at 1, 2, 4 and 8 times the pilot's largest run (`reward@1` ...), every n of the grid, at
  levels 0.5, 0.8, 0.9, 0.95: `confidence` (of the mean curve) and `prediction` (of the mean of three new runs);
  `width` their medians at 90 %, `error` the root mean squared error of the value, `bias` its mean; `by_width` the
  same coverage at 90 % by tenths of the width, narrowest first: [median width, coverage].
- `cover` also for the parameters `A`, `Cmid`, `b` of the arms whose asymptote the law does not leave open (its flag
  `identifiability`), `parameter_arms` their share; and for `n_star` at an eighth, a quarter, a half and the whole of
  the pilot, where given: `at` each of these, `count` studies.
- `oracle`: at 4 times, the coverage of an oracle that knows the curve form and the noise (`truth/oracle.py`), and the
  median ratio of widths.
- `choice`: at 4 and 8 times, of the n that `planner.choice` takes at equal rollouts: `extra`, the share of
  compute beyond C that it needs to reach what the best n has at C (null where it never does); `extra_to_margin`, the
  same to within the margin of 0.01, which counts as equal; `lost`, in reward; each [median, 75th, 90th percentile];
  `held`, the share of studies where the best n is not called worse, and how many n are not (mean `size`). `@4 known`,
  `@8 known`: the same for that oracle, which chooses by the same rule: the best that these runs allow.

`by_kind` and `by_design` hold the same for each kind of truth and each design. `repeats`: the median ratio of width at
4 times when every checkpoint is handed in twice, and when runs are evaluated four times as often. `unidentifiable`:
the share refused of each design that cannot tell (`asymptote`: refused, or the asymptote said to be open).
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import made_with
from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.laws.law import SELECT, Growth, Law
from isocost.planner.training.choice import choose as choose_n
from isocost.planner.training.study_runs import COMMON
from truth import INSIDE, OUTSIDE, Design, Planted, plant
from truth.oracle import choose, oracle

TIMES, LEVELS, MARGIN, NEW = (1, 2, 4, 8), (0.5, 0.8, 0.9, 0.95), 0.01, 3
IDENTIFIABLE = {
    "usual": Design(),
    "five seeds": Design(seeds=5),
    "three n": Design(ns=(4, 8, 16)),
    "long": Design(points=12, span=128.0, seeds=3),
    "some stop early": Design(seeds=4, early=0.15),
    "some crash": Design(seeds=4, crashed=0.1),
    "read on 512 problems": Design(seeds=4, held_out=512),
}
MOVING = Design(seeds=5, points=12, span=256.0)     # n* rises and settles well within the pilot
MOVES: dict[str, Any] = {"middle": (0.01, 0.03), "interference": 0.4}
BLIND: dict[str, tuple[Design, dict[str, Any]]] = {
    "stopped before the knee": (Design(), {"middle": (4.0, 16.0)}),
    "one seed": (Design(seeds=1), {}),
    "never moved": (Design(), {"middle": (1e4, 1e5)}),
    "all crash": (Design(crashed=1.0), {}),
    "three evaluations": (Design(points=3), {}),
    "drowned in noise": (Design(seeds=2, held_out=32), {"middle": (2.0, 4.0)}),
}
GROUPS = ("inside", "rough", "outside", "moving", "unidentifiable", "unrelated")


def truth(group: str, number: int, rng: np.random.Generator) -> tuple[Planted, Design, str]:
    """The truth, design and the design's name of one study of a group: kinds and designs in turn."""
    if group == "unidentifiable":
        name = list(BLIND)[number % len(BLIND)]
        design, how = BLIND[name]
        return plant(INSIDE[number % len(INSIDE)], rng, design.ns, design.end, **how), design, name
    if group == "moving":
        return plant(INSIDE[number % len(INSIDE)], rng, MOVING.ns, MOVING.end, **MOVES), MOVING, "moving"
    kinds, names = (OUTSIDE, ["usual"]) if group == "outside" else (INSIDE, list(IDENTIFIABLE))
    name = names[number % len(names)]
    design = IDENTIFIABLE[name]
    how = {"rough": {"rough": 1.0}, "unrelated": {"related": False}}.get(group, {})
    return plant(kinds[number % len(kinds)], rng, design.ns, design.end, **how), design, name


def study(task: tuple[int, str, int]) -> dict[str, Any]:
    """One study, fitted and held against its truth: a flat line of results."""
    seed, group, number = task
    rng = np.random.default_rng([seed, GROUPS.index(group), number])
    planted, design, name = truth(group, number, rng)
    curves = planted.pilot(design, rng)
    law = fit_law(curves, seed=number)
    out: dict[str, Any] = {
        "group": group, "number": number, "kind": planted.kind, "design": name,
        "refused": law.refused.reason.split(":")[0] if law.refused else "",
        "open": bool(law.refused) or any(f.name == "identifiability" for f in law.flags),
    }
    if law.refused or group == "unidentifiable":
        return out
    out |= {"reward": rewards(law, planted, design, rng), "parameters": parameters(law, planted),
            "choice": {str(t): choice(law, planted, t * design.end) for t in TIMES[2:]}}
    if isinstance(law.n_star, Growth):
        out["n_star"] = [held([replace(law, level=q).n_star.at(C) for q in LEVELS[2:3]], float(planted.n_star(C)))
                         for C in design.end / np.array([8.0, 4.0, 2.0, 1.0])]
    if planted.kind in INSIDE:
        known = oracle(planted, curves, 4 * design.end, rng, held_out=design.held_out)
        out["oracle"] = [[known[n][0].holds(float(planted.reward(n, 4 * design.end))), known[n][0].width,
                          law.predict(n, 4 * design.end)[0].width, known[n][1].width,
                          law.predict(n, 4 * design.end)[1].width] for n in law.ns if n in known]
        for t in TIMES[2:]:
            n = choose(planted, curves, t * design.end, rng, held_out=design.held_out)
            out["choice"][f"{t} known"] = cost(planted, n, t * design.end)
    if group == "inside" and number % 10 == 0:
        out["repeats"] = repeats(law, planted, design, number)
    return out


def held(intervals: Iterable[Any], value: float) -> list[float]:
    """Whether each interval holds a value, as 0 or 1."""
    return [float(i.holds(value)) for i in intervals]


def rewards(law: Law, planted: Planted, design: Design, rng: np.random.Generator) -> list[list[Any]]:
    """For each n and time: held by the confidence and the prediction at each level, their 90 % widths, error."""
    C, rows = design.end * np.array(TIMES, dtype=float), []
    for n in law.ns:
        new = np.mean([planted.run(n, C, rng) for _ in range(NEW)], axis=0)
        seen = {"confidence": planted.reward(n, C), "prediction": new}
        bands = {k: [replace(law, level=q).curve(n, C, k, NEW) for q in LEVELS] for k in seen}
        for i, t in enumerate(TIMES):
            inside = [[float(b.low[i] <= seen[k][i] <= b.high[i]) for b in bands[k]] for k in seen]
            width = [float(bands[k][2].high[i] - bands[k][2].low[i]) for k in seen]
            rows.append([t, n, *inside, *width, float(bands["confidence"][2].value[i] - planted.reward(n, C[i]))])
    return rows


def parameters(law: Law, planted: Planted) -> list[list[Any]]:
    """For each arm whose asymptote is not left open: name, held at each level, width; arms left out have no row."""
    if planted.parameters is None:
        return []
    vague = " ".join(f.text.split(":")[0] for f in law.flags if f.name == "identifiability").split()
    rows: list[list[Any]] = [["arms", len(law.ns)]]
    for n in law.ns:
        if f"n={n}" in vague:
            continue
        for name in ("A", "Cmid", "b"):
            every = [replace(law, level=q).parameter(n, name) for q in LEVELS]
            rows.append([name, held(every, planted.parameters[n][name]), every[2].width])
    return rows


def choice(law: Law, planted: Planted, C: float) -> dict[str, float | None]:
    """What the n that a plan takes at C costs at equal rollouts, and the n that it does not call worse."""
    unknown = law.unknown(C)
    known = [n for n in law.ns if n not in unknown] or law.ns
    draws = {n: law.paths(n, np.array([C]), SELECT)[:, 0] for n in known}
    made = choose_n(draws, margin=MARGIN, common=COMMON)
    left = {*made.equal, *made.undecided, *unknown}
    return {**cost(planted, made.n, C), "held": planted.best(C) in left, "size": len(left)}


def cost(planted: Planted, n: int, C: float) -> dict[str, float | None]:
    """The compute beyond C, as a share, and the reward that taking this n costs; None where it never gets there."""
    top, own = float(planted.reward(planted.best(C), C)), float(planted.reward(n, C))
    extra = planted.extra(n, C)
    near = max(planted.reach(n, top - MARGIN) / C - 1, 0.0) if own < top - MARGIN else 0.0
    return {"extra": extra if np.isfinite(extra) else None, "margin": near if np.isfinite(near) else None,
            "lost": top - own}


def repeats(law: Law, planted: Planted, design: Design, number: int) -> list[float]:
    """Width at 4 times the pilot with each checkpoint twice, and with four times as many of them, over the usual."""
    usual = np.mean([law.predict(n, 4 * design.end)[1].width for n in law.ns])
    out = []
    for dense in (False, True):
        rng = np.random.default_rng([number, 9])
        curves = planted.pilot(replace(design, points=4 * design.points - 3) if dense else design, rng)
        if not dense:
            curves = [twice(c) for c in curves]
            reference = np.mean([w.width for w in _widths(fit_law(planted.pilot(design, np.random.default_rng(
                [number, 9])), seed=number), design)])
        widths = [w.width for w in _widths(fit_law(curves, seed=number), design)]
        out.append(float(np.mean(widths) / (usual if dense else reference)))
    return out


def _widths(law: Law, design: Design) -> list[Any]:
    return [law.predict(n, 4 * design.end)[1] for n in law.ns]


def twice(curve: Curve) -> Curve:
    """The curve with every checkpoint handed in twice."""
    names = ("C", "select", "audit", "seconds", "epochs")
    return replace(curve, **{k: np.repeat(getattr(curve, k), 2) for k in names})


def digest(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record of one group of studies."""
    told = [line for line in lines if not line["refused"] and "reward" in line]
    out: dict[str, Any] = {
        "studies": len(lines), "refused": share([bool(line["refused"]) for line in lines]),
        "reasons": dict(Counter(line["refused"] for line in lines if line["refused"]).most_common()),
    }
    if not told:
        return out
    out |= {"n_star_given": share(["n_star" in line for line in told]), "cover": _cover(told)}
    rows = [r for line in told for r in line.get("oracle", ()) if r[1] > 0]
    if rows:
        known = np.array(rows, dtype=float)
        out["oracle"] = {"confidence_covers": share(known[:, 0]), "width": _short(np.median(known[:, 1])),
                         "ratio_of_confidence": _short(np.median(known[:, 2] / known[:, 1])),
                         "ratio_of_prediction": _short(np.median(known[:, 4] / known[:, 3]))}
    out["choice"] = {f"@{t}": _choices([line["choice"][str(t)] for line in told]) for t in TIMES[2:]}
    if rows:
        out["choice"] |= {f"@{t} known": _choices([line["choice"][f"{t} known"] for line in told]) for t in TIMES[2:]}
    repeated = [line["repeats"] for line in told if "repeats" in line]
    if repeated:
        out["repeats"] = dict(zip(("twice", "four_times_as_often"), _round(np.median(repeated, 0)), strict=True))
    return out


def _cover(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for t in TIMES:
        rows = [r for line in told for r in line["reward"] if r[0] == t]
        widths = np.array([r[4:6] for r in rows])
        held_90 = np.array([[r[2][2], r[3][2]] for r in rows])
        error = np.array([r[6] for r in rows])
        out[f"reward@{t}"] = {
            "confidence": _round(np.mean([r[2] for r in rows], 0)),
            "prediction": _round(np.mean([r[3] for r in rows], 0)), "width": _round(np.median(widths, 0)),
            "error": _short(np.sqrt((error**2).mean())), "bias": _short(error.mean()),
            "by_width": [[_short(np.median(widths[i, 1])), _short(held_90[i, 1].mean())]
                         for i in np.array_split(np.argsort(widths[:, 1]), 10) if len(i)],
        }
    every = [r for line in told for r in line["parameters"]]
    arms = sum(r[1] for r in every if r[0] == "arms")
    for name in ("A", "Cmid", "b"):
        rows = [r for r in every if r[0] == name]
        if rows:
            out[name] = {"confidence": _round(np.mean([r[1] for r in rows], 0)),
                         "width": _short(np.median([r[2] for r in rows]))}
            out["parameter_arms"] = _short(len(rows) / arms)
    stars = np.array([[h[0] for h in line["n_star"]] for line in told if "n_star" in line])
    if len(stars):
        out["n_star"] = {"confidence_90": share(stars.ravel()), "count": len(stars), "at": _round(stars.mean(0))}
    return out


def _choices(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def spread(name: str) -> list[float | None]:
        values = np.array([np.inf if r[name] is None else r[name] for r in rows])
        found = np.quantile(values, (0.5, 0.75, 0.9), method="higher")
        return [_short(v) if np.isfinite(v) else None for v in found]
    out: dict[str, Any] = {"extra": spread("extra"), "extra_to_margin": spread("margin"), "lost": spread("lost")}
    if "held" in rows[0]:
        out |= {"held": share([r["held"] for r in rows]), "size": _short(np.mean([r["size"] for r in rows]))}
    return out


def share(values: Sequence[Any]) -> float:
    """The share that is true, to four digits."""
    return _short(np.mean([float(v) for v in values]))


def _short(value: Any) -> float:
    return round(float(value), 4)


def _round(values: Any) -> list[float]:
    return [_short(v) for v in values]


def by(lines: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """The digest of every kind or design."""
    names = list(dict.fromkeys(line[key] for line in lines))
    return {name: digest([line for line in lines if line[key] == name]) for name in names}


def record(seed: int, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Everything that is kept of all studies."""
    groups = {group: [line for line in lines if line["group"] == group] for group in GROUPS}
    blind = groups.pop("unidentifiable")
    out: dict[str, Any] = {
        "seed": seed, "studies": len(lines), "times": TIMES, "levels": LEVELS,
        "designs": {k: vars(v) for k, v in IDENTIFIABLE.items()},
        "unidentifiable_designs": {k: {**vars(v), **how} for k, (v, how) in BLIND.items()},
        "groups": {group: {**digest(own), "by_kind": by(own, "kind"), "by_design": by(own, "design")}
                   for group, own in groups.items() if own},
    }
    if blind:
        out["unidentifiable"] = {
            "studies": len(blind), "refused": share([bool(line["refused"]) for line in blind]),
            "asymptote": share([line["open"] for line in blind]),
            "by_design": {name: {"studies": len(own), "refused": share([bool(line["refused"]) for line in own]),
                                 "asymptote": share([line["open"] for line in own])}
                          for name in BLIND if (own := [line for line in blind if line["design"] == name])},
        }
    return out


def main() -> None:
    """Runs what is missing, then writes the record."""
    ask = argparse.ArgumentParser(description="Calibration of the law on simulated studies.")
    ask.add_argument("--studies", type=int, default=500, help="of each group")
    ask.add_argument("--out", type=Path, default=Path("experiments/results/calibration.json"))
    ask.add_argument("--seed", type=int, help="drawn by the system if not given")
    ask.add_argument("--workers", type=int, default=1)
    ask.add_argument("--groups", nargs="*", default=list(GROUPS), choices=GROUPS)
    asked = ask.parse_args()
    kept = asked.out.with_suffix(".lines")
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    seed = lines[0]["seed"] if lines else secrets.randbits(32) if asked.seed is None else asked.seed
    if asked.seed not in (None, seed):
        raise UserError(f"{kept} holds studies of seed {seed}, not {asked.seed}: remove it, or leave --seed out")
    done = {(line["group"], line["number"]) for line in lines}
    tasks = [(seed, g, i) for i in range(asked.studies) for g in asked.groups if (g, i) not in done]
    with kept.open("a") as file, ProcessPoolExecutor(asked.workers) as pool:
        for found in pool.map(study, tasks, chunksize=4):
            line = {"seed": seed, **found}
            file.write(json.dumps(line) + "\n")
            file.flush()
            lines.append(line)
    told = record(seed, sorted(lines, key=lambda line: (line["group"], line["number"])))
    asked.out.write_text(json.dumps(told, indent=1) + "\n")
    made_with.note(asked.out)


if __name__ == "__main__":
    main()
