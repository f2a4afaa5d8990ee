"""Claims of papers as data: each is piloted, sealed, trained and judged, or listed as not asked, with the reason.

    python -m experiments.claim pilot NAME      trains a pilot in comparisons/claim-NAME/pilot and prints the gate
    python -m experiments.claim seal NAME       seals the row with its pilot and gate; exit code 5 if the gate refuses,
                                                unless --anyway "why"
    python -m experiments.claim run NAME        trains what was sealed by `isocost compare`, judges and keeps it
    python -m experiments.claim page            docs/claims.md, from experiments/results/claims and the rows

A claim is a table of a file in experiments/claims/: NAME is its header.

    title, claim, source            words
    methods, own                    the methods it is about; those whose own claim it is
    arms, options                   of `isocost compare`, without budget and seeds
    cost                            of each run, such as "16384-rollouts"
    seeds, pilot                    runs per arm of the comparison, and of the pilot at each learning rate
    rate                            a learning rate for all arms, for claims of what a given rate does; else it is tuned
    numbers, prepare                MODULE:FUNCTION of experiments/: numbers of a run's folder; what is made before
    exempt                          rules of the gate that are not asked of it, each with the reason
    after                           the claim that it asks again
    questions                       says, arm, metric, comparator, less (its metric, if it is another one), at,
                                    and what is claimed of the difference: above, below, or both

`at` is a share of the run's cost (1 is its last evaluation) or "mean", over the whole run. A bound on the other side of
0 is a margin: `above = -0.05` says "no worse by 0.05". Each question is asked at 95 %, one-sided if its claim is. The
claim holds if all hold; it does not hold if one does not at a level divided by their number.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from isocost.cli.commands import main as command
from isocost.compare.design import MANY, SHARE, Design, labels_of
from isocost.compare.gate import Pilot, common_lines, own_pilot, spread_of, steps_of
from isocost.contract.catalogue import outcome as outcome_of
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.laws.tracks import tracks
from isocost.planner.budget import Budget
from isocost.planner.forecast import digest
from isocost.planner.training.learning_rate import MULTIPLIERS, given
from isocost.runs import files as records
from isocost.runs.files import read_json, read_lines
from isocost.screen.words import counted, markdown_table
from isocost.stats import decidable
from isocost.stats.decidable import Line, Spread
from isocost.stats.power import difference
from isocost.steps.folder import Home

HOME = Path(__file__).resolve().parents[1]
ROWS = HOME / "experiments" / "claims"
KEPT = HOME / "experiments" / "results" / "claims"
WAVES = HOME / "experiments" / "results" / "waves"
PAGE = HOME / "docs" / "claims.md"
WRONG = 0.05            # of a question's "holds" that are wrong; of a claim's "does not hold"
FLOOR = 1e-3            # smallest spread between runs that is believed
REFUSED = 5             # exit code of `seal`
REWARDS = ("pass@", "best@", "worst@")      # beginnings of metrics in [0, 1], of which 1 is best
EVEN = 16               # costs at which the mean over a run is read
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"
FIELDS = {"title", "claim", "source", "methods", "own", "arms", "options", "cost", "seeds", "pilot", "rate", "numbers",
          "prepare", "exempt", "after", "questions"}
NEEDED = {"title", "claim", "source", "methods", "own", "arms", "options", "cost", "seeds", "questions"}
ASKS = {"says", "arm", "metric", "comparator", "less", "at", "above", "below"}
RULES = {"learns", "headroom", "margin", "steady", "rate", "acts", "visits", "points", "seeds"}
Values = dict[str, dict[int, float]]        # arm -> seed -> a number of that run


@dataclass(frozen=True)
class Question:
    """Whether a number of one arm's runs less a number of another's, paired by seed, lies in the claimed range."""

    says: str
    arm: str
    metric: str
    comparator: str
    less: str
    at: float | str = 1.0
    above: float = -inf
    below: float = inf

    @property
    def margin(self) -> float | None:
        """How far the difference may be on the wrong side of 0; None if it has to be on the right one."""
        bounds = [abs(x) for x in (self.above, self.below) if x not in (inf, -inf)]
        return min(bounds) if self.above < 0 < self.below else None

    @property
    def alpha(self) -> float:
        """The error rate of the central interval in which the claim is read at 95 %: one-sided if it has one bound."""
        return WRONG if -inf < self.above and self.below < inf else 2 * WRONG

    def answer(self, of: Mapping[int, float], less: Mapping[int, float], questions: int) -> dict[str, Any]:
        """The answer from values by seed. Raises UserError with too few seeds to know a spread."""
        shared = [s for s in of if s in less]
        found = difference({"": {s: of[s] for s in shared}}, {"": {s: less[s] for s in shared}}, FLOOR)
        if found is None:
            raise UserError(f"{self.says}: two runs of each arm are the least, got {len(shared)}")
        (low, high), (least, most) = found.interval(self.alpha), found.interval(self.alpha / questions)
        holds = self.above <= low and high <= self.below
        fails = most <= self.above or self.below <= least
        return {"says": self.says, "of": float(np.mean([of[s] for s in shared])),
                "less": float(np.mean([less[s] for s in shared])), "value": found.value, "low": low, "high": high,
                "level": 1 - self.alpha, "seeds": len(shared),
                "answer": HOLDS if holds else FAILS if fails else UNKNOWN}


@dataclass(frozen=True)
class Claim:
    """A row of experiments/claims; the fields are those at the top of this file."""

    name: str
    title: str
    claim: str
    source: str
    methods: tuple[str, ...]
    own: tuple[str, ...]
    arms: tuple[str, ...]
    options: tuple[str, ...]
    cost: str
    seeds: int
    questions: tuple[Question, ...]
    pilot: int = 4
    rate: float | None = None
    numbers: str | None = None
    prepare: str | None = None
    exempt: Mapping[str, str] = field(default_factory=dict)
    after: str | None = None

    @staticmethod
    def of(name: str, row: Mapping[str, Any]) -> Claim:
        """The claim that a table of a file states. Raises UserError for one that is not complete or not consistent."""
        where = f"claim {name}"
        if wrong := sorted((set(row) - FIELDS) | (NEEDED - set(row))):
            raise UserError(f"{where}: missing, or not a field of a claim: {', '.join(wrong)}; it has "
                            f"{', '.join(sorted(FIELDS))}")
        if wrong := sorted(set(row.get("exempt", {})) - RULES):
            raise UserError(f"{where}: exempt names no rule of the gate: {', '.join(wrong)}; expected one of "
                            f"{', '.join(sorted(RULES))}")
        labels, questions = labels_of(row["arms"]), []
        for asked in row["questions"]:
            if wrong := sorted((set(asked) - ASKS) | ({"says", "arm", "metric", "comparator"} - set(asked))):
                raise UserError(f"{where}: missing, or not a field of a question: {', '.join(wrong)}; it has "
                                f"{', '.join(sorted(ASKS))}")
            if lost := [x for x in (asked["arm"], asked["comparator"]) if x not in labels]:
                raise UserError(f"{where}: {lost[0]!r} is none of its arms: {', '.join(labels)}")
            if not {"above", "below"} & set(asked):
                raise UserError(f"{where}: {asked['says']!r} claims nothing; give above, below, or both")
            questions.append(Question(**{"less": asked["metric"], **asked}))
        lists = {k: tuple(row[k]) for k in ("methods", "own", "arms", "options")}
        return Claim(name, **{**row, **lists, "questions": tuple(questions)})

    @property
    def home(self) -> Path:
        """Where it is piloted and trained."""
        return Path("comparisons") / f"claim-{self.name}"

    @property
    def budget(self) -> str:
        """The budget of the whole comparison that gives every run its cost, with its share for probes."""
        unit = re.sub(r"^[\d.,]+(e\d+)?", "", self.cost)
        each, probe_seeds = Budget.parse(self.cost).amount / Budget.parse(f"1{unit}").amount, 1 + (self.seeds >= MANY)
        return f"{each * len(self.arms) * (self.seeds + len(MULTIPLIERS) * probe_seeds * SHARE):.12g}{unit}"

    def data(self) -> dict[str, Any]:
        """All that must not be chosen after the fact, as plain data."""
        asked = [{k: str(v) if v in (inf, -inf) else v for k, v in asdict(q).items()} for q in self.questions]
        return dict(json.loads(records.canonical({**asdict(self), "questions": asked})))


def rows(folder: Path = ROWS) -> dict[str, Claim]:
    """Every claim by name, in the order of files and tables.

    Raises:
        UserError: for a file that is no TOML, a row that is not complete, a name that is given twice, and a claim that
            is asked again without `after`.
    """
    found: dict[str, Claim] = {}
    for file in sorted(folder.glob("*.toml")):
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{file}: {error}") from error
        for name, row in tables.items():
            claim = Claim.of(name, row)
            if name in found:
                raise UserError(f"{file}: claim {name} is given twice")
            earlier = [x.name for x in found.values() if set(x.own) & set(claim.own)]
            if earlier and claim.after not in earlier:
                raise UserError(f"{file}: claim {name} asks {', '.join(claim.own)} again; say so: "
                                f'after = "{earlier[-1]}"')
            found[name] = claim
    return found


def claim_of(name: str) -> Claim:
    """The claim of this name. Raises UserError if there is none."""
    found = rows()
    if name not in found:
        raise UserError(f"no claim {name!r}: there are {', '.join(found) or 'none'}")
    return found[name]


# numbers of runs ------------------------------------------------------------------------------------------------------


def called(place: str) -> Callable[[Path], Any]:
    """The function of MODULE:FUNCTION. Raises UserError if there is none."""
    module, _, name = place.partition(":")
    try:
        _files()
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{place}: {error}; expected MODULE:FUNCTION of a file in experiments/") from error


def numbers(claim: Claim, folder: Path, unit: str) -> dict[str, float]:
    """The numbers of a run that the questions read, by "METRIC at SHARE" (`key`)."""
    own = called(claim.numbers)(folder) if claim.numbers else {}
    out = {}
    for metric, at in dict.fromkeys(pair for q in claim.questions for pair in ((q.metric, q.at), (q.less, q.at))):
        out[key(metric, at)] = round(float(own[metric] if metric in own else _evaluated(folder, unit, metric, at)), 6)
    return out


def key(metric: str, at: float | str) -> str:
    """The name of a number in a record."""
    return metric if at == 1.0 else f"{metric} at {at}"


def _evaluated(folder: Path, unit: str, metric: str, at: float | str) -> float:
    """A number of a run's evaluations on the test split. Raises UserError for one that they do not have."""
    name = metric.removesuffix(" before")
    if name.startswith(REWARDS):
        (track,) = tracks([folder], unit, name)
        if metric != name:
            return float(track.reward[0])
        if at == "mean":
            return float(np.mean(track.at(np.linspace(track.end / EVEN, track.end, EVEN))))
        return float(track.reward[-1] if at == 1.0 else track.at(float(at) * track.end))
    lines = [x for x in read_lines(folder / "metrics.jsonl") if f"eval/{name}" in x]
    if not lines or at != 1.0:
        raise UserError(f"{folder}: no number {key(metric, at)!r}: expected pass@1, best@4, worst@4, a number of its "
                        "last evaluation such as length, or one of `numbers`")
    return float(lines[0 if metric != name else -1][f"eval/{name}"])


# the gate -------------------------------------------------------------------------------------------------------------


def gate_of(claim: Claim, found: Pilot, values: Mapping[Path, Mapping[str, float]], before: Sequence[str]
            ) -> tuple[list[Line], bool]:
    """The lines of every rule, and whether the claim is decidable. `values` are the numbers of the pilot's runs."""
    said: dict[str, list[Line]] = {}

    def at(label: str, name: str, rate: float) -> dict[int, float]:
        return {r.track.seed: values[r.folder][name] for r in found.at_rate(label, rate)}

    for q in claim.questions:
        of, less = key(q.metric, q.at), key(q.less, q.at)
        known = spread_of(q.arm, q.comparator, [(at(q.arm, of, x), at(q.comparator, less, y))
                                                for x, y in steps_of(found, q.arm, q.comparator)])
        ends = np.array(list(at(q.comparator, less, found.used[q.comparator]).values()))
        for line in _asked(q, known, ends, found, claim.seeds):
            said.setdefault(line.name, []).append(line)
    lines = [decidable.worst(own) for own in said.values()]
    lines += common_lines(found)
    lines.append(decidable.points([q.at for q in claim.questions if q.metric.startswith(REWARDS)] or ["mean"]))
    level = 100 * (1 - WRONG / len(claim.questions))
    lines.append(Line("level", None, f'95 % a question for "holds", {level:.4g} % for "does not hold"; one-sided where '
                      "the claim is"))
    times = f"{counted(len(before), 'time')} before"
    lines.append(Line("asked", None, ": ".join(filter(None, (times, ", ".join(before))))))
    lines = [Line(x.name, None, f"exempt: {claim.exempt[x.name]} ({x.text})") if x.name in claim.exempt else x
             for x in lines]
    return lines, all(x.passed is not False for x in lines)


def _asked(q: Question, known: Spread, ends: np.ndarray, found: Pilot, seeds: int) -> list[Line]:
    """The lines that depend on what is claimed: of a reward learns and headroom, or the margin; and of the seeds."""
    lines = [decidable.planned(known, seeds, q.alpha, q.margin or decidable.EFFECT)] if _reward(q) else [
        Line("seeds", seeds >= decidable.PAIRS, f"{counted(seeds, 'seed')}: {q.metric} is known within "
             f"{known.half_width(seeds, q.alpha):.3g}")]
    if q.margin is not None:
        return [decidable.margin(q.margin, known, seeds, q.alpha), *lines]
    if not _reward(q):
        return lines
    room = 1 - float(ends.mean()) if q.above >= 0 else float(ends.mean())
    runs = found.ends(q.comparator)
    return [decidable.learns(q.comparator, found.base(q.comparator), runs),
            decidable.headroom(q.comparator, room, known, seeds, q.alpha), *lines]


def _reward(q: Question) -> bool:
    return q.metric.startswith(REWARDS) and q.less.startswith(REWARDS)


def asked_before(claim: Claim, every: Mapping[str, Claim]) -> list[str]:
    """What asked about one of this claim's own methods before it, by name: parts of waves, headlines, claims."""
    own, names = set(claim.own), list(every)
    waves = {f"wave {f.stem}": set(read_json(f)["design"]["parents"]) for f in sorted(WAVES.glob("*.json"))}
    return [*(name for name, arms in waves.items() if own & {x.partition("@")[0] for x in arms}),
            *(name for name, h in headlines().items() if own & set(h.methods)),
            *(name for name in names[:names.index(claim.name)] if own & set(every[name].methods))]


def _files() -> None:
    """The modules of experiments/ import each other by their names alone."""
    folder = str(HOME / "experiments")
    if folder not in sys.path:
        sys.path.append(folder)


def headlines() -> dict[str, Any]:
    """The older claims, which are scripts, by name."""
    _files()
    module = importlib.import_module("headline")
    return {name: module.load(name).HEADLINE for name in module.kept()}


# commands -------------------------------------------------------------------------------------------------------------


def pilot(name: str) -> dict[str, Any]:
    """Train a claim's pilot, apply the gate and keep both. Raises UserError for one that is sealed already."""
    claim = claim_of(name)
    if "seal" in kept().get(name, {}):
        raise UserError(f"{name} is sealed: a claim is asked again as a new row with after = {name!r}")
    if claim.prepare:
        claim.home.mkdir(parents=True, exist_ok=True)
        called(claim.prepare)(claim.home)
    if claim.rate is not None:
        rule = given(claim.rate, 1, 0.0).data()
        (claim.home / "pilot").mkdir(parents=True, exist_ok=True)
        rates = {"rates": dict.fromkeys(labels_of(claim.arms), rule), "noise": None, "pilot": True}
        write_json(claim.home / "pilot" / "rates.json", {"schema": records.SCHEMA, **rates})
    _compare(claim, "--pilot", str(claim.pilot))
    return keep(claim.name, judged(claim))


def judged(claim: Claim) -> dict[str, Any]:
    """The record of a claim's pilot and gate."""
    home = Home(claim.home / "pilot")
    found = own_pilot(home, labels_of(claim.arms), "pass@1")
    values = {r.folder: numbers(claim, r.folder, found.unit) for own in found.arms.values() for r in own}
    before = asked_before(claim, rows())
    lines, passed = gate_of(claim, found, values, before)
    runs = {label: [{"seed": r.track.seed, "lr": r.lr, "before": r.base, **values[r.folder]} for r in own]
            for label, own in found.arms.items()}
    code = sorted({read_json(r.folder / "run.json")["code"]["sources"] for own in found.arms.values() for r in own})
    return {"row": claim.data(), "asked": before, "decidable": passed, "gate": [asdict(x) for x in lines],
            "pilot": {"runs": runs, "rates": found.used, "unit": found.unit, "code": code}}


def seal(name: str, anyway: str | None = None) -> dict[str, Any]:
    """Seal a claim with its pilot and gate. Raises UserError without a pilot, or if the row was changed since."""
    claim, record = claim_of(name), kept().get(name, {})
    if "seal" in record:
        raise UserError(f"{name} is sealed already, as {record['seal'][:12]}")
    if not record:
        raise UserError(f"{name} has no pilot yet: python -m experiments.claim pilot {name}")
    if record["row"] != claim.data():
        raise UserError(f"the row of {name} was changed after its pilot: python -m experiments.claim pilot {name}")
    if not record["decidable"] and anyway is None:
        return record
    if anyway:
        record |= {"anyway": anyway}
    return keep(name, record | {"seal": digest(record)})


def run(name: str) -> dict[str, Any]:
    """Train what was sealed, judge it and keep the answer. Raises UserError without a seal, or with another one."""
    claim, record = claim_of(name), kept().get(name, {})
    if "seal" not in record:
        raise UserError(f"{name} is not sealed: python -m experiments.claim seal {name}")
    sealed = {k: record[k] for k in ("row", "asked", "decidable", "gate", "pilot", "anyway") if k in record}
    if digest(sealed) != record["seal"] or record["row"] != claim.data():
        raise UserError(f"{name} was changed after it was sealed: ask again as a new row with after = {name!r}")
    _compare(claim)
    home = Home(claim.home)
    made, answered = read_json(home.path / "compare.json"), read_json(home.path / "comparison.json")
    d = Design.of(made["design"])
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for label in d.labels:
        folders = sorted(home.runs.glob(f"train-{label}-s*"), key=lambda f: int(f.name.rpartition("-s")[2]))
        runs[label] = {read_json(f / "run.json")["seed"]: numbers(claim, f, d.unit) for f in folders}
    answers = answers_of(claim, runs)
    return keep(name, record | {
        "outcome": outcome_of([a["answer"] for a in answers]), "answers": answers, "comparison_seal": made["seal"],
        "unit": d.unit, "cost": d.cost, **d.arm.only("n", "B"), "rates": answered["rates"], "bill": answered["bill"],
        "code": sorted({read_json(f)["code"]["sources"] for f in home.runs.glob("train-*/run.json")}),
        "runs": {label: {str(s): n for s, n in own.items()} for label, own in runs.items()}})


def answers_of(claim: Claim, runs: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """The answers to a claim's questions, from the numbers of every arm's runs by seed."""
    return [q.answer({s: n[key(q.metric, q.at)] for s, n in runs[q.arm].items()},
                     {s: n[key(q.less, q.at)] for s, n in runs[q.comparator].items()}, len(claim.questions))
            for q in claim.questions]


def _compare(claim: Claim, *more: str) -> None:
    """Run `isocost compare` for a claim; its exit codes say what it found."""
    try:
        command(args=["compare", *claim.arms, *claim.options, "--budget", claim.budget, "--seeds", str(claim.seeds),
                      "--out", str(claim.home), *more])
    except SystemExit as end:
        if end.code not in (0, 3, 4, 6):
            raise


def kept() -> dict[str, dict[str, Any]]:
    """Every record by name."""
    return {f.stem: json.loads(f.read_text(encoding="utf-8")) for f in sorted(KEPT.glob("*.json"))}


def keep(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record; returns it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


# the page -------------------------------------------------------------------------------------------------------------

HEAD = """# Claims

This page tests claims of papers with a gate in front: a pilot says whether a claim is decidable before it is sealed and
paid for. `python -m experiments.claim page` writes it from `experiments/claims/` and `experiments/results/claims/`.
[Headlines](headlines.md) has the older claims, which had no gate.

A claim is a row of a TOML file. Its pilot trains every arm at full length with seeds of its own, at the probed learning
rate and at half of it. The gate applies ten rules to the pilot ([Compare](compare.md) describes them). The row, the
pilot and the gate are sealed before the first run of the comparison, which uses the lower rate. A question *holds* if
its 95 % interval lies in the claimed range, one-sided where the claim is. A claim holds if all its questions do. It
does not hold if the interval of one of them lies outside, at an error rate that is divided by their number. That a
claim does not hold means only that these small worlds do not show it.
"""
BACK = """## What the gate would have done

The older claims were asked without a gate. This table applies four of its rules to the first question of each about
held-out reward of two arms, with the record's first four seeds as the pilot. It is a check in hindsight: pilot and
answer share runs. Half-widths are those of the record's own level and seeds. A claim is refused if a run fell or all
pairs are equal; "more than" also if the baseline gains less than 0.15 or has too few half-widths of headroom; "no worse
by a margin" also if the half-width exceeds the margin. The gate uses a headroom of 3.
"""


def back_test(found: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """What the gate would have said of each older claim, of its first question about pass@1 of two arms.

    A row has the name, the kind (more, margin), the question's answer, and by the first four seeds `ratio`: headroom,
    or the margin, over the predicted half-width; the baseline's `gain`; whether a run `fell`, all pairs are `equal`.
    """
    _files()
    module = importlib.import_module("headline")
    out = []
    for name, record in (found or module.kept()).items():
        for q, answer in zip(module.load(name).HEADLINE.questions, record["answers"], strict=True):
            (arm, metric), (other, less), (low, high) = q.of, q.less, q.claimed
            if arm == other or metric != less or metric != "pass@1" or high != inf:
                continue
            a, b = ({s: n[metric] for s, n in list(record["runs"][x].items())[:4]} for x in (arm, other))
            ends, base = [np.array(list(x.values())) for x in (a, b)], next(iter(record["runs"][other].values()))
            known = decidable.spread([np.array([a[s] - b[s] for s in a if s in b])], FLOOR)
            assert known is not None
            half = known.half_width(answer["seeds"], 1 - answer["level"])
            room = -low if low < 0 else 1 - float(ends[1].mean())
            fell = any(decidable.fell(base["pass@1 before"], x).any() for x in ends)
            out.append({"name": name, "kind": "margin" if low < 0 else "more", "answer": answer["answer"],
                        "ratio": room / half, "gain": float(ends[1].mean()) - base["pass@1 before"], "fell": bool(fell),
                        "equal": all(a[s] == b[s] for s in a if s in b)})
            break
    return out


def back_table(found: Sequence[Mapping[str, Any]]) -> str:
    """The back test as a table: how many of each answer a rule refuses or passes."""
    def cell(kind: str, answer: str, refused: Callable[[Mapping[str, Any]], bool]) -> str:
        own = [x for x in found if x["kind"] == kind and x["answer"] == answer]
        down = sum(map(refused, own))
        return f"{down} of {len(own)} refused" if answer == UNKNOWN else f"{len(own) - down} of {len(own)} passed"

    def more(k: float) -> Callable[[Mapping[str, Any]], bool]:
        return lambda x: x["ratio"] < k or x["gain"] < decidable.GAIN or x["fell"] or x["equal"]

    rules: list[tuple[str, str, Callable[[Mapping[str, Any]], bool]]] = [
        *((f'"more than", headroom of {k:g}', "more", more(k)) for k in (2.0, decidable.HALVES, 4.0)),
        ('"no worse", half-width below the margin', "margin", lambda x: x["ratio"] < 1 or x["fell"] or x["equal"]),
    ]
    answers = (UNKNOWN, HOLDS, FAILS)
    return markdown_table(("claim", *answers),
                          [(says, *(cell(kind, a, rule) for a in answers)) for says, kind, rule in rules])


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page; the same records give the same text."""
    order = {FAILS: 0, UNKNOWN: 1, HOLDS: 2}
    done = sorted((r for r in found.values() if "outcome" in r), key=lambda r: order[r["outcome"]])
    begun = [r for r in found.values() if "seal" in r and "outcome" not in r]
    refused = [r for r in found.values() if "seal" not in r and not r["decidable"]]
    asked = markdown_table(("claim", "answer", "gate", "asked before"), [
        (f"[{r['row']['title']}](#{_anchor(r['row']['title'])}): {r['row']['claim']}", f"**{r['outcome']}**",
         _failed(r) or "passed", len(r["asked"])) for r in done])
    parts = [HEAD, asked if done else "No claim has been asked yet.\n"]
    if begun:
        parts.append("Sealed and not yet run: " + ", ".join(r["row"]["title"] for r in begun) + ".\n")
    parts.append("## Not asked, because\n\n" + (markdown_table(("claim", "because"), [
        (f"{r['row']['title']}: {r['row']['claim']}", _failed(r)) for r in refused])
        if refused else "No claim was refused by the gate yet.\n"))
    parts += [BACK, back_table(back_test()), *(_section(r) for r in done)]
    return "\n".join(parts)


def _failed(record: Mapping[str, Any]) -> str:
    """The lines of the gate that failed, and why it was sealed anyway."""
    said = "; ".join(f"{x['name']}: {x['text']}" for x in record["gate"] if x["passed"] is False)
    return f"{said}. Asked anyway: {record['anyway']}" if "anyway" in record else said


def _section(record: Mapping[str, Any]) -> str:
    """One claim: its gate, and its answers."""
    row = record["row"]
    runs, seconds = (sum(part[k] for part in record["bill"].values()) for k in ("runs", "seconds"))
    rates = ", ".join(f"{k} {v:.2g}" for k, v in record["rates"].items())
    return "\n".join([
        f"## {row['title']}\n",
        f"{row['claim']} **{record['outcome'].capitalize()}**. Source: {row['source']}.\n",
        "```text", gate_text(record), "```\n",
        markdown_table(("question", row["questions"][0]["arm"] if len(row["arms"]) == 2 else "arm", "baseline",
                        "difference", "claimed", "answer"), [
            (a["says"], f"{a['of']:.3f}", f"{a['less']:.3f}",
             f"{a['value']:+.3f} [{a['low']:+.3f}, {a['high']:+.3f}]", _claimed(q), a["answer"])
            for a, q in zip(record["answers"], row["questions"], strict=True)]),
        f"{counted(row['seeds'], 'seed')} per arm, {record['cost']:,.6g} {record['unit']} a run; learning rates: "
        f"{rates}. {counted(runs, 'run')} with the pilot, {seconds / 60:.0f} minutes of run time. Seal: "
        f"{record['seal'][:12]}.\n",
        "```sh", *(f"python -m experiments.claim {x} {row['name']}" for x in ("pilot", "seal", "run")), "```\n"])


def gate_text(record: Mapping[str, Any]) -> str:
    """The gate of a record, as `pilot` prints it."""
    words = {True: "yes", False: "no", None: "-"}
    return "\n".join([*(f"{x['name']:<9} {words[x['passed']]:<4} {x['text']}" for x in record["gate"]),
                      f"answer         {'decidable' if record['decidable'] else 'not decidable as planned'}"])


def _claimed(q: Mapping[str, Any]) -> str:
    low, high = float(q["above"]), float(q["below"])
    if high == inf:
        return f"above {low:g}"
    return f"below {high:g}" if low == -inf else f"from {low:g} to {high:g}"


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def main(arguments: Sequence[str]) -> int:
    """`pilot`, `seal`, `run` NAME, or `page`; returns the exit code. Raises UserError for anything else."""
    match arguments:
        case ["pilot", name]:
            record = pilot(name)
            print(f"\nclaim {name}: {record['row']['claim']}\n{gate_text(record)}")
        case ["seal", name, *more] if not more or (len(more) == 2 and more[0] == "--anyway" and more[1]):
            record = seal(name, more[1] if more else None)
            if "seal" not in record:
                print(f"refused by the gate: {_failed(record)}; to seal it anyway: --anyway 'why'", file=sys.stderr)
                return REFUSED
            print(f"sealed {record['seal'][:12]}")
        case ["run", name]:
            record = run(name)
            print(f"{record['outcome']}: {record['row']['claim']}")
            for a in record["answers"]:
                print(f"  {a['says']}: {a['of']:.4g} against {a['less']:.4g}, {a['value']:+.4g} [{a['low']:+.4g}, "
                      f"{a['high']:+.4g}]: {a['answer']}")
        case ["page"]:
            PAGE.write_text(page(kept()), encoding="utf-8")
        case _:
            raise UserError('say `pilot NAME`, `seal NAME [--anyway "why"]`, `run NAME` or `page`')
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"claim: {error}", file=sys.stderr)
        sys.exit(2)
