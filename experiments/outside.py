"""How the law forecasts other people's runs: public training logs, in sets that were fixed before any forecast of them.

    python experiments/outside.py collect MIRROR SET            the manifest of a set (results/outside/manifest*.json)
    python experiments/outside.py judge MIRROR SET [--before]   its record; --before without the noise model of logs
    python experiments/outside.py judge MIRROR SET --plain      its record without the law's factor on upper ends

`outside_sources.json` has every source: repository, commit, licence, and of each study its paths (one for each seed),
its reader, the column, and the limits that become 0 and 1. They are those of the reward function where it has some,
else round numbers around all logged values (`around`). No log is part of this repository: put a git repository of each
source into a folder, as MIRROR/OWNER/NAME. A file that differs from the manifest is an error.

Design, fixed before any curve was fitted:

- The first two sets, tuning and reporting, are halves of one list by a hash of a source's name; sources that the noise
  model was designed on are in the tuning half. The third, fourth and fifth set were listed, with their manifests,
  before any forecast of them; the last two have no owner of an earlier set, at least 40 updates of a training reward
  and 20 evaluations of others, at most 16 runs of a source, in the order of their names, and flat and failed runs.
- A case is a study (one setting) with all of its seeds, and, where it has several, also with its first seed alone. The
  last 50 % and 75 % of the updates are hidden. Cases with fewer than 4 points after the base in the part that is shown
  are left out and counted.
- The outcome is the mean reward over the last tenth of the run (at least one point), over seeds. These are the same
  runs, which is easier than new runs.
- The forecast is `Law.curve(..., "prediction", runs=seeds)` at the median C of the outcome, level 90 %. It counts as
  refused if `Law.forecast_refused` says so; the curve is drawn and judged all the same. A case without a curve counts
  as refused, and as missing.
- Naive forecasts see the same points: the mean of the last tenth seen; the gain over the last doubling seen, once per
  hidden doubling; ScaleRL's sigmoid by least squares. Their intervals are the 5 % and 95 % quantiles of their errors
  on the other sources of the tuning half, of the same kind and hidden share; with fewer than 8 of these, of all kinds.
- Score of an interval: width + 20 times the distance by which it misses (Gneiting and Raftery 2007, for 90 %).
- Every source has the same weight within a kind of log, and every case within its source. The ratio is the law's median
  score over that of the naive forecast with the least median score, over the cases in which the law has a curve.
- Targets: 85 to 95 % of the intervals hold, over all and for training rewards; ratio at most 0.9; at most 60 % refused.

`*_judged.json` are the forecasts of the law as it was when each set was judged, once. After the third set the law's
`UPPER` was chosen on the sets so far as 1.4, after the fourth as 1.5; the fifth set is the evidence for it. The law
then stopped to forecast runs that have not risen and runs that are back at their start (`still` and `fell_back`). The
other records are of that law, and have two stronger rivals (`RIVALS`, from `laws.naive`). Commit 21b990aa has the
search for sharper intervals (`forms.json`, `forms_fourth.json`), which found none.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import itertools
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import made_with
from isocost.errors import UserError
from isocost.laws import naive
from isocost.laws.bins import MANY
from isocost.laws.curves import Curve, diverged, ends_of
from isocost.laws.fit import fit_law
from isocost.runs.arm import Arm
from isocost.stats.forms import fit_many, rise
from isocost.trainers.reading import logs

SOURCES = Path(__file__).parent / "outside_sources.json"
RESULTS = Path(__file__).parent / "results" / "outside"
SETS = ("tuning", "reporting", "third", "fourth", "fifth")
TRAINING, HELD_OUT, CONTROL = "LLM training reward", "LLM held-out", "control"
HIDDEN = (0.5, 0.75)
LEVEL, TAIL, LEAST = 0.9, 0.1, 4
NAIVE = ("last tenth", "last doubling", "sigmoid")
RIVALS = ("line", "mixture")    # added after all sets were judged; the ratios to the best naive are without them
FEW = 8     # errors of one kind that a naive interval needs
SIZE = 8    # rollouts counted per update; only ratios of C matter here
Series = list[tuple[float, float]]      # (step, value), in order
Case = dict[str, Any]


# readers: bytes -> series, one for each seed in the file ------------------------------------------------------------

def series_of(data: bytes, reader: Mapping[str, Any]) -> list[Series]:
    """What a reader of the manifest finds: its `format` with settings, of the text that a notebook's cell `printed`, of
    `gzip`, with the `last` value of each step (a resumed run logs some of its steps again)."""
    own = dict(reader)
    if own.pop("gzip", False):
        data = gzip.decompress(data)
    if "printed" in own:
        data = "".join(line for x in _outputs(data, own.pop("printed")) for line in x.get("text", ())).encode()
    last = own.pop("last", False)
    found = FORMATS[own.pop("format")](data, **own)
    return [sorted(dict(x).items()) for x in found] if last else found


def text(data: bytes) -> str:
    """Bytes as text."""
    return data.decode("utf-8", "replace")


def rows(found: Sequence[Mapping[str, Any]], step: str | None, value: str) -> list[Series]:
    """Rows as one series; a training reward of `step` k was earned before update k, so the first is the base's.

    The steps are counted from the first row, whose value is the base's: it covers at most a twentieth of the run.
    """
    has = [(float(r[step]) if step else float(i), float(r[value])) for i, r in enumerate(found)
           if r.get(value) not in (None, "") and (step is None or r.get(step) is not None)]
    return [[(at - has[0][0], x) for at, x in has]]


def jsonl(data: bytes, step: str | None, value: str) -> list[Series]:
    """JSON lines."""
    return rows([json.loads(x) for x in text(data).splitlines() if x.startswith("{")], step, value)


def events(data: bytes, kind: str, step: str, value: str) -> list[Series]:
    """JSON lines of one type."""
    return rows([x for x in map(json.loads, text(data).splitlines()) if x["type"] == kind], step, value)


def last_start(data: bytes, step: str, value: str) -> list[Series]:
    """JSON lines from the last one at which the step falls on."""
    found = [json.loads(line) for line in text(data).splitlines()]
    starts = [i for i, (x, y) in enumerate(itertools.pairwise(found), 1) if y[step] <= x[step]]
    return rows(found[starts[-1] if starts else 0:], step, value)


def in_pairs(data: bytes, skip: int) -> list[Series]:
    """JSON lines with the reward of one rollout each, two an update, after the lines of an earlier start."""
    found = [json.loads(line)["reward"]["total"] for line in text(data).splitlines()][skip:]
    return rows([{"r": (a + b) / 2} for a, b in zip(found[::2], found[1::2], strict=True)], None, "r")


def _below(data: bytes, path: Sequence[str]) -> Any:
    found = json.loads(text(data))
    for key in path:
        found = found[key]
    return found


def table(data: bytes, step: str | None, value: str, path: Sequence[str] = ()) -> list[Series]:
    """A JSON list of objects, below keys if some are given."""
    return rows(_below(data, path), step, value)


def lists(data: bytes, step: str, value: str, path: Sequence[str]) -> list[Series]:
    """Two JSON lists, below keys."""
    found = _below(data, path)
    return _xy(zip(found[step], found[value], strict=True))


def listed(data: bytes, value: str) -> list[Series]:
    """One JSON list, a value for each evaluation."""
    return rows([{value: x} for x in json.loads(text(data))[value]], None, value)


def agent(data: bytes, name: str) -> list[Series]:
    """The rows of one agent in a JSON list."""
    return rows([x for x in json.loads(text(data)) if x["agent"] == name], "env_step", "rew")


def several(data: bytes, step: str, value: str, every: int) -> list[Series]:
    """A JSON list with several rows a step, which are averaged; steps are then averaged in blocks of `every`."""
    by: dict[int, list[float]] = {}
    for row in json.loads(text(data)):
        by.setdefault(int(row[step]) // every, []).append(float(row[value]))
    return [[(float(every * k), float(np.mean(v))) for k, v in sorted(by.items())]]


def scores(data: bytes, task: str, most: int = 5) -> list[Series]:
    """JSON with xs and ys of each task and seed."""
    return [_xy(zip(x["xs"], x["ys"], strict=True))[0] for x in json.loads(data) if x["task"] == task][:most]


def _xy(pairs: Iterable[Sequence[Any]]) -> list[Series]:
    return rows([{"x": x[0], "y": x[1]} for x in pairs], "x", "y")


def pattern(data: bytes, expression: str) -> list[Series]:
    """Text in which an expression finds (step, value), or the value alone."""
    found = re.findall(expression, text(data))
    pairs = [x if isinstance(x, tuple) else (str(i), x) for i, x in enumerate(found)]
    return _xy(dict(pairs).items())


def columns(
    data: bytes, step: str, value: str, seed: str = "", where: Sequence[str] | None = None, most: int = 5,
    also: Sequence[str] | None = None,
) -> list[Series]:
    """CSV, with a column of seeds if one is named; `where` and `also` select rows. The first `most` seeds."""
    by: dict[str, list[dict[str, Any]]] = {}
    for row in csv.DictReader(io.StringIO(text(data))):
        if all(only is None or row[only[0]] == only[1] for only in (where, also)):
            by.setdefault(row[seed] if seed else "", []).append(row)
    return [rows(found, step, value)[0] for _, found in sorted(by.items())[:most]]


def finite(data: bytes, step: str, value: str) -> list[Series]:
    """CSV up to its last whole line, without the rows before an episode ended."""
    found = csv.DictReader(io.StringIO(text(data[:data.rindex(b"\n") + 1])))
    return rows([x for x in found if math.isfinite(float(x[value]))], step, value)


def bare(data: bytes) -> list[Series]:
    """CSV without names: epoch, step, value."""
    return _xy(row[1:] for row in csv.reader(io.StringIO(text(data))))


def pairs(data: bytes) -> list[Series]:
    """Lines of step and value."""
    return _xy(line.split() for line in text(data).splitlines())


def blocks(data: bytes, task: str, most: int = 5) -> list[Series]:
    """Tables below lines "Env: TASK": a time step and the returns of each seed."""
    part = text(data).split(f"Env: {task}\n")[1].split("---")[0]
    lines = [line.split() for line in part.strip().splitlines()[1:]]
    return [_xy((x[0], x[1 + seed]) for x in lines)[0] for seed in range(most)]


def array(data: bytes) -> list[Series]:
    """A one-dimensional array of numpy: one value per evaluation."""
    return [[(float(i), float(x)) for i, x in enumerate(np.load(io.BytesIO(data)))]]


def evaluations(data: bytes) -> list[Series]:
    """Time steps and mean returns of evaluations that Stable-Baselines3 keeps."""
    found = np.load(io.BytesIO(data))
    return _xy(zip(found["timesteps"], found["results"].mean(axis=1), strict=True))


def _outputs(data: bytes, cell: int) -> list[dict[str, Any]]:
    """The outputs of one cell of a notebook, counted from 0."""
    found: list[dict[str, Any]] = json.loads(text(data))["cells"][cell]["outputs"]
    return found


def shown_table(data: bytes, cell: int, value: str) -> list[Series]:
    """The table that a trainer shows in a notebook, by its column Step."""
    html = "".join(line for x in _outputs(data, cell) for line in x.get("data", {}).get("text/html", ()))
    names = re.findall(r"<th[^>]*>(.*?)</th>", html)
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]
    return rows([dict(zip(names, x, strict=True)) for x in cells if x], "Step", value)


FORMATS: Mapping[str, Callable[..., list[Series]]] = {f.__name__: f for f in (
    jsonl, events, last_start, in_pairs, table, lists, listed, agent, several, scores, pattern, columns, finite, bare,
    pairs, blocks, array, evaluations, shown_table)}


# logs ---------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Logged:
    """One study as read: C (K,) and rewards (K,) in [0, 1] of each seed, the base at C = 0 first."""

    source: str
    half: str
    study: str
    kind: str
    runs: tuple[tuple[np.ndarray, np.ndarray], ...]


def sources(half: str) -> list[dict[str, Any]]:
    """The sources of a set, as the manifest of sources has them; the two halves have one list."""
    every = json.loads(SOURCES.read_text(encoding="utf-8"))
    return [x for x in every if x["set"] in (SETS[:2] if half in SETS[:2] else (half,))]


def collected(mirror: Path, half: str) -> tuple[list[dict[str, Any]], list[Logged]]:
    """The manifest of a set and its studies, from a folder of git repositories.

    Raises:
        UserError: for a source or a path that is not there, and for a reward outside its limits.
    """
    manifest, found = [], []
    for source in sources(half):
        place = mirror / source["source"]
        if not place.exists():
            raise UserError(f"{place} is missing: clone {source['source']} into it")
        for study in source["studies"]:
            runs = []
            for path in study["paths"]:
                data = _git(place, "show", f"{source['commit']}:{path}")
                series = series_of(data, study["reader"])
                runs += [_scaled(f"{source['source']}, {study['study']}", study["limits"], x) for x in series]
                manifest.append({
                    "source": source["source"], "half": source["set"], "licence": source["licence"],
                    "what": source["what"], "commit": source["commit"], "study": study["study"], "kind": study["kind"],
                    "path": path, "sha256": hashlib.sha256(data).hexdigest(), "read": study["read"],
                    "limits": study["limits"], "around": study.get("around", False), "runs": len(series),
                    "points": [len(x) for x in series], "imported": _imports(path, data)})
            found.append(Logged(source["source"], source["set"], study["study"], study["kind"], tuple(runs)))
    return manifest, found


def _scaled(name: str, limits: Sequence[float], series: Series) -> tuple[np.ndarray, np.ndarray]:
    at, values = np.array(series).T
    if (np.diff(at) <= 0).any() or at[0] != 0 or len(at) < 10:
        raise UserError(f"{name}: expected 10 or more rising steps, got {len(at)} from {at[0]:g} to {at[-1]:g}")
    reward = (values - limits[0]) / (limits[1] - limits[0])
    if reward.min() < -1e-9 or reward.max() > 1 + 1e-9 or not np.isfinite(reward).all():
        raise UserError(f"{name}: values from {values.min():g} to {values.max():g} are outside {limits}")
    return at * SIZE, np.clip(reward, 0.0, 1.0)


def _imports(path: str, data: bytes) -> str:
    """What `isocost import` makes of a log without any option: the source that reads it, or its message."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / Path(path).name
        place.write_bytes(data)
        try:
            found = logs.logs(place)
        except UserError as e:
            return str(e).replace(folder + "/", "")[:160]
    return ", ".join(f"{x.source}: {len(x.train)} training, {len(x.held)} held-out" for x in found[:1])


def _git(place: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"git {' '.join(arguments)} in {place}: {done.stderr.decode().strip()}")
    return done.stdout


# judging ------------------------------------------------------------------------------------------------------------

def cases(found: Sequence[Logged], half: str) -> list[tuple[Logged, int, float]]:
    """(study, seeds used, share hidden) of one half."""
    return [(one, seeds, hidden) for one in found if one.half == half
            for seeds in sorted({1, len(one.runs)}) for hidden in HIDDEN]


def shown(run: tuple[np.ndarray, np.ndarray], hidden: float) -> tuple[np.ndarray, np.ndarray]:
    """The part of a run (C, reward) up to this share of its updates."""
    C, reward = run
    keep = (1 - hidden) * C[-1] >= C
    return C[keep], reward[keep]


def outcome(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """(C, mean reward over seeds) of the last tenth of runs."""
    ends = [(C[(1 - TAIL) * C[-1] < C], r[(1 - TAIL) * C[-1] < C]) for C, r in runs]
    return float(np.median(np.concatenate([C for C, _ in ends]))), float(np.mean([r.mean() for _, r in ends]))


def curve(name: str, seed: int, C: np.ndarray, reward: np.ndarray, marked: bool, training: bool) -> Curve:
    """A run as `isocost fit` sees it; `marked` as read from the log of another trainer."""
    nan = np.full(len(C), math.nan)
    own = {"noisy": True, "training": training} if marked else {}
    found = Curve(f"{name}-s{seed}", Arm(n=SIZE, B=1, lr=1e-6), seed, C, reward, reward, nan, nan, samples=1, **own)
    object.__setattr__(found, "diverged", diverged(found))
    return found


def forecast(one: Logged, seeds: int, hidden: float, marked: bool, plain: bool = False) -> dict[str, Any]:
    """One case: what was forecast by the law (`plain`: without `UPPER`), by the naive forecasts, and the outcome."""
    runs = one.runs[:seeds]
    parts = [shown(run, hidden) for run in runs]
    at, true = outcome(runs)
    case: dict[str, Any] = {"source": one.source, "study": one.study, "kind": one.kind, "seeds": seeds,
                            "hidden": hidden, "outcome": round(true, 4), "points": len(parts[0][0])}
    if min(len(C) for C, _ in parts) < LEAST + 1:
        return {**case, "left_out": "fewer than 4 points after the base"}
    case["naive"] = {name: round(float(np.mean([NAIVES[name](C, r, at) for C, r in parts])), 4) for name in NAIVE}
    case["seen"] = case["naive"]["last tenth"]
    logged = [curve(one.study, i, C, r, marked, one.kind == TRAINING) for i, (C, r) in enumerate(parts)]
    law = fit_law(logged)
    case["refused"] = law.forecast_refused.reason if law.forecast_refused else ""
    case["flags"] = [flag.name for flag in law.flags if flag.name != "few_evaluations"]     # not of this forecast
    case["risen"] = any(ends_of(x, x.problems).risen for x in logged) if min(len(C) for C, _ in parts) >= MANY else None
    case["still"], case["fell_back"] = bool(law.arms and law.still(SIZE)), "collapsed" in case["flags"]
    lines = [naive.line_interval(C[C > 0], r[C > 0], at, LEVEL) for C, r in parts]
    case["line"] = [round(float(x), 4) for x in np.mean(lines, axis=0)]
    if law.arms:
        law = replace(law, upper=1.0) if plain else law
        band = law.curve(SIZE, at, "prediction", seeds)
        case["law"] = [round(float(x[0]), 4) for x in (band.value, band.low, band.high)]
        case["naive"]["mixture"] = round(naive.mixture(float(band.value[0]), case["seen"]), 4)
    return case


def last_tenth(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """The mean of the last tenth seen."""
    return float(reward[(1 - TAIL) * C[-1] <= C].mean())


def last_doubling(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """The last tenth's mean, and the gain over the last doubling for each hidden doubling."""
    end = last_tenth(C, reward, at)
    half = reward[((0.5 - TAIL / 2) * C[-1] <= C) & ((0.5 + TAIL / 2) * C[-1] >= C)]
    before = float(half.mean()) if len(half) else float(np.interp(C[-1] / 2, C, reward))
    return float(np.clip(end + (end - before) * math.log2(at / C[-1]), 0, 1))


def sigmoid(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """ScaleRL's sigmoid from the first reward, by least squares."""
    form = rise(1.0)
    found = fit_many(form, C[1:], reward[None, 1:], np.ones(len(C) - 1), {"R0": float(reward[0])})[0]
    return float(np.clip(form.f(np.array([at]), *(found[0, i] for i in range(found.shape[1])))[0], 0, 1))


NAIVES: dict[str, Callable[[np.ndarray, np.ndarray, float], float]] = {
    "last tenth": last_tenth, "last doubling": last_doubling, "sigmoid": sigmoid}


def interval(case: dict[str, Any], name: str, tuning: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """A naive forecast's interval from its errors on the other sources of the tuning half; a line's is its own."""
    if name == "line":
        return case["line"][1], case["line"][2]
    others = [x for x in tuning if x["source"] != case["source"] and name in x.get("naive", ())
              and x["hidden"] == case["hidden"]]
    same = [x for x in others if x["kind"] == case["kind"]]
    used = same if len(same) >= FEW else others
    errors = np.array([x["outcome"] - x["naive"][name] for x in used])
    weights = weigh(used, per_kind=False)
    order = np.argsort(errors)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = (errors[order][min(int(np.searchsorted(share, q)), len(used) - 1)] for q in (0.05, 0.95))
    value = case["naive"][name]
    return float(np.clip(value + low, 0, 1)), float(np.clip(value + high, 0, 1))


def score(low: float, high: float, true: float) -> float:
    """The interval score at 90 %: width, and 20 times the distance of a miss."""
    return high - low + 2 / (1 - LEVEL) * (max(low - true, 0.0) + max(true - high, 0.0))


def weigh(found: Sequence[dict[str, Any]], per_kind: bool = True) -> np.ndarray:
    """Weights: every source alike (within its kind), every case alike in its source."""
    keys = [(x["source"], x["kind"] if per_kind else "") for x in found]
    return np.array([1 / keys.count(key) for key in keys])


def median(values: np.ndarray, weights: np.ndarray) -> float:
    """The weighted median."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][int(np.searchsorted(share, 0.5))])


def summary(found: Sequence[dict[str, Any]], tuning: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, median error, score against the naive forecasts, and share refused, of some cases."""
    every = [x for x in found if "left_out" not in x]
    drawn = [x for x in every if "law" in x]
    if not drawn:
        return {"cases": len(every), "drawn": 0}
    weights, all_weights = weigh(drawn, False), weigh(every, False)
    true = np.array([x["outcome"] for x in drawn])
    value, low, high = np.array([x["law"] for x in drawn]).T
    holds = (low <= true) & (true <= high)
    scores = {name: np.array([score(*interval(x, name, tuning), x["outcome"]) for x in drawn]) for name in NAIVE}
    held = {name: np.average([a <= x["outcome"] <= b for x in drawn for a, b in [interval(x, name, tuning)]],
                             weights=weights) for name in NAIVE}
    naive = {name: median(values, weights) for name, values in scores.items()}
    own = median(np.array([score(a, b, t) for a, b, t in zip(low, high, true, strict=True)]), weights)
    best = min(naive, key=lambda name: naive[name])
    clear = np.array([not x["refused"] for x in drawn])
    out = {
        "sources": len({x["source"] for x in every}), "cases": len(every), "drawn": len(drawn),
        "held": float(np.average(holds, weights=weights)), "error": median(true - value, weights),
        "absolute": median(np.abs(true - value), weights), "width": median(high - low, weights),
        "score": own, "naive": naive, "naive_held": {k: float(v) for k, v in held.items()}, "best": best,
        "ratio": own / naive[best],
        "refused": float(np.average([bool(x["refused"]) or "law" not in x for x in every], weights=all_weights)),
        "below": float(np.average(true < low, weights=weights)),
        "above": float(np.average(true > high, weights=weights)),
        "clear": int(clear.sum()),
        "clear_held": float(np.average(holds[clear], weights=weights[clear])) if clear.any() else None,
    }
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}


def groups(found: Sequence[dict[str, Any]], tuning: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries that the page shows."""
    kinds = list(dict.fromkeys(x["kind"] for x in found))
    out = {"all": summary(found, tuning)}
    out |= {kind: summary([x for x in found if x["kind"] == kind], tuning) for kind in kinds}
    for kind in kinds:
        for name, few in (("one run", True), ("several runs", False)):
            part = [x for x in found if x["kind"] == kind and (x["seeds"] == 1) == few]
            if part:
                out[f"{kind}, {name}"] = summary(part, tuning)
    return out


def judge(mirror: Path, half: str, before: bool, plain: bool = False) -> dict[str, Any]:
    """All cases of a set, with their summaries; naive intervals are learned on the tuning half."""
    found = checked(mirror, half)
    done = [forecast(one, seeds, hidden, not before, plain) for one, seeds, hidden in cases(found, half)]
    tuning = done if half == "tuning" else read("tuning_before.json")["cases"]
    return {"half": half, "before": before, "groups": groups(done, tuning), "cases": done}


def manifest_of(half: str) -> str:
    """The file with the manifest of a set; the two halves have one."""
    return "manifest.json" if half in SETS[:2] else f"manifest_{half}.json"


def checked(mirror: Path, half: str) -> list[Logged]:
    """The studies of a mirror. Raises UserError if a log differs from the manifest."""
    manifest, found = collected(mirror, half)
    kept = {(x["source"], x["study"], x["path"]): x["sha256"] for x in read(manifest_of(half))["logs"]}
    for x in manifest:
        if kept.get((x["source"], x["study"], x["path"])) != x["sha256"]:
            raise UserError(f"{x['source']}, {x['path']} differs from the manifest, of commit {x['commit']}")
    return found


def read(name: str) -> Any:
    """A recorded result."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def write(name: str, data: Any) -> None:
    """Record a result, one line for each log or case; a manifest does not depend on the law."""
    lines = []
    for key, value in data.items():
        inside = ",\n".join(json.dumps(x) for x in value) if isinstance(value, list) else ""
        lines.append(json.dumps(key) + ": " + (f"[\n{inside}\n]" if inside else json.dumps(value)))
    (RESULTS / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    if not name.startswith("manifest"):
        made_with.note(RESULTS / name)


def main() -> None:
    """The command line of the first lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("collect", "judge"))
    parser.add_argument("mirror", type=Path)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--plain", action="store_true")
    asked = parser.parse_args()
    if asked.step == "collect":
        write(manifest_of(asked.set), {"logs": collected(asked.mirror, asked.set)[0]})
        return
    done = judge(asked.mirror, asked.set, asked.before, asked.plain)
    write(f"{asked.set}{'_before' if asked.before else '_plain' if asked.plain else ''}.json", done)


if __name__ == "__main__":
    main()
