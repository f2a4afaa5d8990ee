"""Claims about test-time strategies: rows of TOML whose arms are strategies, under the gate of `experiments.claim`.

    python -m experiments.strategy_claims pilot NAME    answers with other seeds in comparisons/strategies-NAME
    python -m experiments.strategy_claims seal NAME     seals row, pilot and gate; exit code 5 if the gate refuses
    python -m experiments.strategy_claims run NAME      answers what was sealed, judges and keeps it

A claim is a table of a file in experiments/claims/strategies, with the fields of `experiments.claim` and

    problems, env                   the built-in problems or the environment, without seed and count
    arms                            label -> strategy, and its model, if not the problems': one of isocost, or a row of
                                    experiments/bases.py, which is made in bases/ if it is not there. Or `forecast`:
                                    "each", "none" or "set": `_forecast`, to N = `at` from `few` of `samples`
    base                            what an arm has to gain over; by default one sample
    cost                            of a run, such as "48-problems"
    groups                          name -> [low, high): problems whose pass rate in samples that nothing else uses lies
                                    there

A seed is a draw of problems and of all random numbers; arms share both. Metrics are "solved" (the share of right
answers), "tokens" (those of the policy and of the scorer), "flop", a note of the strategy such as "frames_read", each
of an answer; these of a group as "solved GROUP", and "ln METRIC"; "error" of a forecast of pass@N, and "nothing". The
rules `steady`, `rate`, `visits` and `points` are of training. One more is asked, of each question about "solved":

    cost    the two arms cost the same within a tenth in the pilot, in tokens or, with several models, in FLOP
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from experiments import made_with
from experiments.claim import HOME, Claim, ended, gate_of, key
from experiments.claim_kinds import Record, answered, entered, keep, refuse_changed, rows_of
from isocost import meter, scorers, strategies
from isocost.chance import Purpose
from isocost.compare.gate import Pilot, PilotRun
from isocost.gather import finished
from isocost.laws.papers.inference import fit_saturation
from isocost.laws.tracks import Track
from isocost.local.embedded import EMBEDDED
from isocost.parts.play import sample
from isocost.recipe import knobs
from isocost.runs.files import read_json, read_lines
from isocost.stats import decidable
from isocost.stats.decidable import Ruling
from isocost.stats.passk import pass_at
from isocost.steps.settings import setting_with
from isocost.steps.test_time.sampling import PoolSampler, once, played
from isocost.strategies import Strategy
from isocost.strategies.paths import numbers, voted, written
from isocost.types import Cost, Place, Problem, Rollout, Stop
from isocost.worlds.setting import Opened, open_setting

ROWS, KEPT = HOME / "experiments" / "claims" / "strategies", HOME / "experiments" / "results" / "claims" / "strategies"
PARTS = ("strategies", "scorers", "tasks/builtin", "envs/tiny/signal.py", "steps/test_time/sampling.py")
OWN = ("problems", "env", "base", "groups")
FIRST = 500             # first seed of a pilot
PROBES, APART = 16, 10**6       # samples of a problem that tell its group, and what is added to the seed for them
WITHIN = 0.1            # how far the costs of two arms may be apart
NOT_ASKED = ("steady", "rate", "visits", "points")
BASE = "base"
Answers = dict[str, ndarray]        # (P,) a number of each problem's answer, by name
Texts = dict[str, tuple[list[Rollout], float]]      # by problem: its first samples, and the tokens read for each
Runs = dict[str, dict[int, dict[str, float]]]       # label -> seed -> the means that are read, by name


@dataclass(frozen=True)
class StrategyClaim:
    """A claim with what is of strategies."""

    claim: Claim
    arms: Mapping[str, Mapping[str, Any]]
    problems: str = "puzzles"
    env: str = ""
    base: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "one"})
    groups: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def data(self) -> Record:
        """What must not be chosen after the fact."""
        return {**self.claim.data(), "arms": {k: dict(v) for k, v in self.arms.items()},
                **{k: getattr(self, k) for k in OWN}}

    @property
    def unit(self) -> str:
        """In what arms cost the same."""
        return "flop" if len({arm.get("model") for arm in self.arms.values()}) > 1 else "tokens"


def rows(folder: Path = ROWS) -> dict[str, StrategyClaim]:
    """Every claim by name. Raises UserError as `experiments.claim` does."""
    return rows_of(folder, OWN, StrategyClaim)


# answers --------------------------------------------------------------------------------------------------------------


def answered_by(of: StrategyClaim, seeds: Sequence[int]) -> Runs:
    """The numbers of every arm and of the base for these seeds."""
    out: Runs = {label: {} for label in (*of.arms, BASE)}
    every = {**of.arms, BASE: of.base}
    tried = {label: (str(arm.get("model", "")), strategies.parse(arm["strategy"]))
             for label, arm in every.items() if "strategy" in arm}
    for seed in seeds:
        home = Path("comparisons") / f"strategies-{of.claim.name}" / str(seed)
        home.mkdir(parents=True, exist_ok=True)
        opened, texts = dict[str, Opened](), dict[str, Texts]()
        groups = {"": slice(None)}
        for label, arm in every.items():
            model = str(arm.get("model", ""))
            if model not in opened:
                opened[model] = _open(of, model, seed)
            if of.groups and len(groups) == 1:
                rates = _pool(opened[model], seed + APART, home / "rates.jsonl", PROBES).mean(1)
                groups |= {name: (low <= rates) & (rates < high) for name, (low, high) in of.groups.items()}
            if "forecast" in arm:
                found = _forecast(arm, _pool(opened[model], seed, home / "pool.jsonl", arm["samples"]))
            else:
                most = max((x.most for name, x in tried.values() if name == model and x.of_pool), default=0)
                found = _answers(tried[label][1], opened[model], seed, home / f"{label}.jsonl", most,
                                 texts.setdefault(model, {}))
            out[label][seed] = _means(of, found, groups)
        for each in opened.values():
            each.close()
    return out


def _open(of: StrategyClaim, model: str, seed: int) -> Opened:
    spec = of.env or of.problems
    drawn = f"{spec}{',' if ':' in spec else ':'}count={of.claim.cost.partition('-')[0]},seed={seed}"
    if model and model not in EMBEDDED:
        folder = Path("bases") / model
        if not (folder / "config.json").exists():
            subprocess.run([sys.executable, HOME / "experiments" / "bases.py", "make", model, "--out", folder],
                           check=True)
        model = str(folder)
    asked = {"env" if of.env else "data": drawn, **({"model": model} if model else {})}
    return open_setting(setting_with(**asked), learn=False, whole=True)


def _pool(opened: Opened, seed: int, file: Path, samples: int) -> ndarray:
    """(P, samples) rewards."""
    sampler = PoolSampler(opened, opened.sides.train, seed, lambda *_: None)
    return np.array([x["right"] for x in finished(sampler.pool(file, samples, scorers.parse("outcome")))])


def _answers(strategy: Strategy, opened: Opened, seed: int, file: Path, most: int, texts: Texts) -> Answers:
    """One answer to each problem; lines that are in the file are used again. Strategies of a pool share their `texts`,
    the first `most` samples of each problem with what those cost."""
    world, pace = opened.world, opened.setting.measured

    async def chosen(problem: Problem, place: Place) -> tuple[Rollout, Record]:
        if problem.id not in texts:
            with meter.tab() as tab, meter.begins(True):
                some = await sample(problem, numbers(0, most), world, pace, place)
            texts[problem.id] = some, tab.cost.fresh / most
        some, read = texts[problem.id]
        some = some[: strategy.most]
        scores: Sequence[float | None] = [None] * len(some)
        with meter.tab() as judged:
            if scorer := knobs(strategy.play).get("scorer"):
                scores = (await scorers.scores(scorer, problem, some, [True] * len(some), world)).scores
        pick = strategy.choose([voted(t) for t in some], scores)
        cost = Cost(decode=sum(map(written, some[: pick.tries])), prefill=round(read * pick.tries))
        return (some[pick.chosen or 0].but(stop=Stop.ERROR) if pick.chosen is None else some[pick.chosen]).but(
            notes={"scoring": float(judged.cost.prefill + judged.cost.decode + judged.cost.score),
                   "scoring_read": float(judged.cost.prefill)}), {"cost": (cost + judged.cost).data()}

    async def one(slot: int, problem: Problem) -> Record:
        with meter.on(meter.PROBE):
            place = Place(seed, 0, slot, int(Purpose.PROFILE))
            text, line = (await chosen(problem, place) if strategy.of_pool and most
                          else await played(strategy, problem, opened, pace, place))
            (mark,) = [None] if text.stop is Stop.ERROR else await world.grade([text])
        cost, notes = Cost.of(line["cost"]), text.numbers
        return {**notes, "solved": 0.0 if mark is None else float(mark.value), "scorer": notes.get("scoring", 0.0),
                "tokens": cost.decode + cost.score + notes.get("scoring_read", 0.0),
                "flop": cost.flops(world.learner.parameters)}

    lines = finished(once(read_lines(file), file, opened.sides.train, one, lambda *_: None))
    names = dict.fromkeys(k for x in lines for k in x if k != "id")
    return {k: np.array([x.get(k, 0.0) for x in lines]) for k in names}


def _forecast(arm: Mapping[str, Any], right: ndarray) -> Answers:
    """How far F (1 - (1 - p)^N), fitted to few samples, is from what all say. "each": of each problem of which some of
    the few are right and some are not; "none": of each of which none is; "set": of the mean over problems."""
    few, at, whole = arm["few"], arm["at"], right.shape[1]
    seen = right[:, :few].sum(1).astype(int)
    truth = np.array([pass_at(np.array([h]), whole, at) for h in right.sum(1).astype(int)])
    if arm["forecast"] != "set":
        mine = (seen > 0) & (seen < few) if arm["forecast"] == "each" else seen == 0
        error = np.where(mine, np.abs(1 - (1 - seen / few) ** at - truth), np.nan)
    else:
        k = np.arange(1, few + 1)
        whole_set = fit_saturation(k, np.array([pass_at(seen, few, int(n)) for n in k]))
        error = np.full(len(right), abs(whole_set(at) - truth.mean()))
    samples = np.full(len(right), float(few))
    return {"error": error, "solved": 1 - error, "tokens": samples, "scorer": 0 * samples, "flop": samples}


def _means(of: StrategyClaim, found: Answers, groups: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a run that the questions and the gate read."""
    def number(metric: str) -> float:
        if metric == "nothing":
            return 0.0
        if metric.startswith("ln "):
            return log(number(metric[3:]))
        name, _, group = metric.partition(" ")
        return float(np.nanmean(found[name][groups[group]])) if name in found else np.nan

    names = [m for q in of.claim.questions for m in (q.metric, q.less)]
    names += [f"{k} {g}".strip() for k in ("solved", "tokens", "scorer", "flop") for g in groups]
    return {key(m, 1.0): round(number(m), 6) for m in dict.fromkeys(names)}


# the gate -------------------------------------------------------------------------------------------------------------


def pilot(of: StrategyClaim) -> Record:
    """Answer with seeds of its own, apply the gate and keep both."""
    found = answered_by(of, range(FIRST, FIRST + of.claim.pilot))
    arms, values = {}, {}
    for label in of.arms:
        tracks = [Track(label, seed, np.array([0.0, x["tokens"]]), np.array([found[BASE][seed]["solved"], x["solved"]]),
                        False) for seed, x in found[label].items()]
        arms[label] = tuple(PilotRun(t, Path(label, str(t.seed)), 0.0, None, None) for t in tracks)
        values |= {r.folder: found[label][r.track.seed] for r in arms[label]}
    lines, _ = gate_of(of.claim, Pilot(arms, dict.fromkeys(arms, 0.0), {}, {}, "tokens"), values, asked_before(of))
    lines = [*(x for x in lines if x.name not in NOT_ASKED), cost(of, found)]
    passed = all(x.passed is not False for x in lines)
    runs = {label: {str(seed): x for seed, x in own.items()} for label, own in found.items()}
    return keep(KEPT, of, {"row": of.data(), "decidable": passed, "gate": [asdict(x) for x in lines], "pilot": runs})


def cost(of: StrategyClaim, found: Runs) -> Ruling:
    """Whether the arms of each question about right answers cost the same."""
    lines = []
    for q in of.claim.questions:
        name, _, group = q.metric.partition(" ")
        if name != "solved" or q.arm == q.comparator:
            continue
        a, b = (float(np.mean([x[f"{of.unit} {group}".strip()] for x in found[label].values()]))
                for label in (q.arm, q.comparator))
        said = f"{q.arm} takes {a:.4g} {of.unit} an answer{group and ' of ' + group}, {q.comparator} {b:.4g}"
        near = abs(a / b - 1) <= WITHIN
        lines.append(Ruling("cost", near, said if near else f"{said}: change the size of one of them"))
    line = decidable.worst(lines or [Ruling("cost", None, "no question is about right answers")])
    why = of.claim.exempt.get("cost")
    return Ruling("cost", None, f"exempt: {why} ({line.text})") if why else line


def asked_before(of: StrategyClaim) -> list[str]:
    """The claims with an answer that are about one of its own strategies."""
    return [n for n, x in rows().items() if n != of.claim.name and set(x.claim.own) & set(of.claim.own)
            and (KEPT / f"{n}.json").exists() and "outcome" in read_json(KEPT / f"{n}.json")]


def run(of: StrategyClaim, record: Record) -> Record:
    """Answer what was sealed, judge it and keep the answer. Raises UserError if it was changed since."""
    refuse_changed(of, record)
    found = answered_by(of, range(of.claim.seeds))
    runs = {label: {str(s): x for s, x in own.items()} for label, own in found.items()}
    paid = {label: {k: float(np.mean([x[k] for x in own.values()])) for k in ("solved", "tokens", "scorer", "flop")}
            for label, own in found.items()}
    made = keep(KEPT, of, {**record, **answered(of, runs), "unit": of.unit, "cost": paid})
    made_with.note(KEPT / f"{of.claim.name}.json", PARTS)
    return made


def main(arguments: Sequence[str]) -> int:
    """`pilot`, `seal` or `run` NAME; returns the exit code. Raises UserError for anything else."""
    return entered(arguments, rows(), KEPT, pilot, run)


if __name__ == "__main__":
    sys.exit(ended(main))
