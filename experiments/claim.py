"""Claims of papers as data: each is piloted, sealed, trained and judged, or listed as not asked, with the reason.

    python -m experiments.claim pilot NAME      trains a pilot in comparisons/claim-NAME/pilot and prints the gate
    python -m experiments.claim seal NAME       seals the row with its pilot and gate; exit code 5 if the gate refuses,
                                                unless --anyway "why"
    python -m experiments.claim run NAME        trains what was sealed by `isocost compare`, judges and keeps it
    python -m experiments.claim repeat NAME     trains a claim that has an answer again and prints what comes out; keeps
                                                nothing. `all`: every claim that has a gate, cheapest first
    python -m experiments.claim page            docs/claims.md and its picture, from all records and
                                                rows; details: python -m docs.build.catalogue docs

A claim is a table of a file in experiments/claims/: NAME is its header.

    title, claim, source            words
    note                            the situation, and what is known of it
    methods, own                    the methods it is about; those whose own claim it is
    arms, options                   of `isocost compare`, without budget and seeds
    cost                            of each run, such as "16384-rollouts"
    seeds, pilot                    runs per arm of the comparison, and of the pilot at each learning rate
    rate                            a learning rate for all arms, for claims of what a given rate does; else it is tuned
    numbers                         functions of experiments/measures.py that read a run's folder, with their settings
    exempt                          rules of the gate that are not asked of it, each with the reason
    after                           the claim that it asks again
    sealed                          of a claim that was asked before there was a gate: the commit that holds the script
                                    experiments/headlines/NAME.py, of which the record's seal is the digest
    not_repeatable                  of such a claim, why it cannot be trained again
    questions                       says, arm, metric, comparator, less (its metric, if it is another one), at,
                                    what is claimed of the difference: above, below, or both, and the methods that it
                                    is about, if not all

`at` is a share of the run's cost (1 is its last evaluation) or "mean", over the whole run. A bound on the other side of
0 is a margin: `above = -0.05` says "no worse by 0.05". Each question is asked at 95 %, one-sided if its claim is. The
claim holds if all hold; it does not hold if one does not at a level divided by their number. Claims of before the gate
were asked by two-sided intervals of 95 % for all questions together.
"""

from __future__ import annotations

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

from experiments.measures import MEASURES
from isocost.cli.commands import main as command
from isocost.compare.design import MANY, SHARE, Design, labels_of
from isocost.compare.gate import Pilot, common_lines, own_pilot, spread_of, steps_of
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.laws.tracks import tracks
from isocost.planner.budget import Budget
from isocost.planner.forecast import digest
from isocost.planner.training.learning_rate import MULTIPLIERS, given
from isocost.runs import files as records
from isocost.runs.files import read_json, read_lines
from isocost.screen.words import counted
from isocost.stats import decidable
from isocost.stats.decidable import Ruling, Spread
from isocost.stats.power import difference
from isocost.steps.folder import StudyFolder

HOME = Path(__file__).resolve().parents[1]
ROWS = HOME / "experiments" / "claims"
KEPT = HOME / "experiments" / "results" / "claims"
WAVES = HOME / "experiments" / "results" / "waves.json"       # methods against their parents
WRONG = 0.05            # of a question's "holds" that are wrong; of a claim's "does not hold"
FLOOR = 1e-3            # smallest spread between runs that is believed
REFUSED = 5             # exit code of `seal`
REWARDS = ("pass@", "best@", "worst@", "return", "solved")     # beginnings of metrics in [0, 1], of which 1 is best
EVEN = 16               # costs at which the mean over a run is read
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"
FIELDS = {"title", "claim", "source", "methods", "own", "arms", "options", "cost", "seeds", "pilot", "rate", "numbers",
          "exempt", "after", "questions", "note", "sealed", "not_repeatable"}
NEEDED = {"title", "claim", "source", "methods", "own", "arms", "options", "cost", "seeds", "questions"}
ASKS = {"says", "arm", "metric", "comparator", "less", "at", "above", "below", "about"}
RULES = {"learns", "headroom", "margin", "steady", "rate", "acts", "visits", "points", "seeds", "cost"}
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
    about: Sequence[str] = ()       # methods; empty if it is about all of the claim's

    @property
    def margin(self) -> float | None:
        """How far the difference may be on the wrong side of 0; None if it has to be on the right one."""
        bounds = [abs(x) for x in (self.above, self.below) if x not in (inf, -inf)]
        return min(bounds) if self.above < 0 < self.below else None

    @property
    def alpha(self) -> float:
        """The error rate of the central interval in which the claim is read at 95 %: one-sided if it has one bound."""
        return WRONG if -inf < self.above and self.below < inf else 2 * WRONG

    def answer(self, of: Mapping[int, float], less: Mapping[int, float], alphas: tuple[float, float]
               ) -> dict[str, Any]:
        """The answer from values by seed, with the error rates of "holds" and of "does not hold".

        Raises UserError with too few seeds to know a spread.
        """
        shared = [s for s in of if s in less]
        found = difference({"": {s: of[s] for s in shared}}, {"": {s: less[s] for s in shared}}, FLOOR)
        if found is None:
            raise UserError(f"{self.says}: two runs of each arm are the least, got {len(shared)}")
        (low, high), (least, most) = (found.interval(alpha) for alpha in alphas)
        holds = self.above <= low and high <= self.below
        fails = most <= self.above or self.below <= least
        return {"says": self.says, "of": float(np.mean([of[s] for s in shared])),
                "less": float(np.mean([less[s] for s in shared])), "value": found.value, "low": low, "high": high,
                "level": 1 - alphas[0], "seeds": len(shared),
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
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exempt: Mapping[str, str] = field(default_factory=dict)
    after: str | None = None
    note: str = ""
    sealed: str | None = None
    not_repeatable: str | None = None

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
        if wrong := sorted(set(row.get("numbers", {})) - set(MEASURES)):
            raise UserError(f"{where}: numbers names no function of experiments/measures.py: {', '.join(wrong)}; "
                            f"expected one of {', '.join(MEASURES)}")
        labels, questions = labels_of(row["arms"]), []
        for asked in row["questions"]:
            if wrong := sorted((set(asked) - ASKS) | ({"says", "arm", "metric", "comparator"} - set(asked))):
                raise UserError(f"{where}: missing, or not a field of a question: {', '.join(wrong)}; it has "
                                f"{', '.join(sorted(ASKS))}")
            if lost := [x for x in (asked["arm"], asked["comparator"]) if x not in labels]:
                raise UserError(f"{where}: {lost[0]!r} is none of its arms: {', '.join(labels)}")
            if not {"above", "below"} & set(asked):
                raise UserError(f"{where}: {asked['says']!r} claims nothing; give above, below, or both")
            if wrong := sorted(set(asked.get("about", ())) - set(row["methods"])):
                raise UserError(f"{where}: {asked['says']!r} is about {wrong[0]!r}, which is none of its methods: "
                                f"{', '.join(row['methods'])}")
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
        """All that must not be chosen after the fact, as plain data; fields that are empty are left out."""
        return stated({**asdict(self), "questions": [asdict(q) for q in self.questions]})

    def alphas(self, question: Question) -> tuple[float, float]:
        """The error rates of "holds" and of "does not hold"."""
        shared = WRONG / len(self.questions)
        return (shared, shared) if self.sealed else (question.alpha, question.alpha / len(self.questions))

    def of_method(self, name: str) -> list[int]:
        """The numbers of the questions that are about a method."""
        return [i for i, q in enumerate(self.questions) if name in (q.about or self.methods)]


def stated(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as plain data without its empty fields, so that records of before a field was there compare equal."""
    asked = [{k: str(v) if v in (inf, -inf) else v for k, v in q.items() if k != "about" or v}
             for q in row["questions"]]
    there = {k: v for k, v in row.items() if v not in (None, "") and v != {} and (k in NEEDED or v)}
    return dict(json.loads(records.canonical({**there, "questions": asked})))


def rows(folder: Path = ROWS) -> dict[str, Claim]:
    """Every claim by name, in the order of files and tables.

    Raises:
        UserError: for a file that is no TOML, a row that is not complete, a name that is given twice, an `after` that
            names no claim, and a claim that is asked again without it.
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
            found[name] = claim
    for claim in found.values():
        if claim.after is not None and claim.after not in found:
            raise UserError(f"claim {claim.name} is after {claim.after!r}, which is none: {', '.join(found)}")
        earlier(claim, found)
    for method in dict.fromkeys(m for claim in found.values() for m in claim.own):
        first, *more = [c.name for c in found.values() if method in c.own and c.after is None] or [""]
        if more:
            raise UserError(f'claim {more[0]} asks {method} again; say so: after = "{first}"')
    return found


def earlier(claim: Claim, every: Mapping[str, Claim]) -> list[str]:
    """The claims that a claim asks again, the latest first. Raises UserError if they are a circle."""
    names: list[str] = []
    while (after := (every[names[-1]] if names else claim).after) is not None:
        if after in names:
            raise UserError(f"claim {claim.name} comes after itself: {', '.join(names)}")
        names.append(after)
    return names


def claim_of(name: str) -> Claim:
    """The claim of this name. Raises UserError if there is none."""
    found = rows()
    if name not in found:
        raise UserError(f"no claim {name!r}: there are {', '.join(found) or 'none'}")
    return found[name]


# numbers of runs ------------------------------------------------------------------------------------------------------


def numbers(claim: Claim, folder: Path, unit: str) -> dict[str, float]:
    """The numbers of a run that the questions read, by "METRIC at SHARE" (`key`)."""
    own: dict[str, float] = {}
    for name, settings in claim.numbers.items():
        own |= MEASURES[name](folder, **settings)
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
            ) -> tuple[list[Ruling], bool]:
    """The lines of every rule, and whether the claim is decidable. `values` are the numbers of the pilot's runs."""
    said: dict[str, list[Ruling]] = {}

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
    lines.append(Ruling("level", None, f'95 % a question for "holds", {level:.4g} % for "does not hold"; '
                        "one-sided where the claim is"))
    times = f"{counted(len(before), 'time')} before"
    lines.append(Ruling("asked", None, ": ".join(filter(None, (times, ", ".join(before))))))
    lines = [Ruling(x.name, None, f"exempt: {claim.exempt[x.name]} ({x.text})") if x.name in claim.exempt else x
             for x in lines]
    return lines, all(x.passed is not False for x in lines)


def _asked(q: Question, known: Spread, ends: np.ndarray, found: Pilot, seeds: int) -> list[Ruling]:
    """The lines that depend on what is claimed: learns, of a reward headroom, or the margin; and of the seeds.

    Of a margin one of the two arms has to learn: where neither does they are alike, whatever the method does.
    """
    lines = [decidable.planned(known, seeds, q.alpha, q.margin or decidable.EFFECT)] if _reward(q) else [
        Ruling("seeds", seeds >= decidable.PAIRS, f"{counted(seeds, 'seed')}: {q.metric} is known within "
               f"{known.half_width(seeds, q.alpha):.3g}")]
    if q.margin is not None:
        both = [decidable.learns(x, found.base(x), found.ends(x)) for x in dict.fromkeys((q.comparator, q.arm))]
        return [decidable.best(both), decidable.margin(q.margin, known, seeds, q.alpha), *lines]
    if not _reward(q):
        return lines
    room = 1 - float(ends.mean()) if q.above >= 0 else float(ends.mean())
    runs = found.ends(q.comparator)
    return [decidable.learns(q.comparator, found.base(q.comparator), runs),
            decidable.headroom(q.comparator, room, known, seeds, q.alpha), *lines]


def _reward(q: Question) -> bool:
    return q.metric.startswith(REWARDS) and q.less.startswith(REWARDS)


def asked_before(claim: Claim, every: Mapping[str, Claim]) -> list[str]:
    """What asked about one of this claim's own methods before it: parts of waves, and claims with an answer."""
    own, done = set(claim.own), kept()
    waves = [f"wave {x['world']}-{x['part']}" for x in json.loads(WAVES.read_text(encoding="utf-8"))["rows"]
             if x["method"] in own]
    return [*dict.fromkeys(waves), *(name for name, other in every.items() if name != claim.name
                                     and own & set(other.methods) and "outcome" in done.get(name, {}))]


# commands -------------------------------------------------------------------------------------------------------------


def pilot(name: str) -> dict[str, Any]:
    """Train a claim's pilot, apply the gate and keep both. Raises UserError for one that is sealed already."""
    claim = claim_of(name)
    if claim.sealed or "seal" in kept().get(name, {}):
        raise UserError(f"{name} is sealed: a claim is asked again as a new row with after = {name!r}")
    _given_rate(claim, claim.home / "pilot", pilot=True)
    _compare(claim, "--pilot", str(claim.pilot))
    return keep(claim.name, judged(claim))


def _given_rate(claim: Claim, home: Path, **more: Any) -> None:
    """Write the claim's learning rate, if it states one, where a comparison keeps the rates that are there."""
    if claim.rate is not None:
        rule = given(claim.rate, 1, 0.0).data()
        home.mkdir(parents=True, exist_ok=True)
        rates = {"rates": dict.fromkeys(labels_of(claim.arms), rule), "noise": None, **more}
        write_json(home / "rates.json", {"schema": records.SCHEMA, **rates})


def judged(claim: Claim) -> dict[str, Any]:
    """The record of a claim's pilot and gate."""
    home = StudyFolder(claim.home / "pilot")
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
    if stated(record["row"]) != claim.data():
        raise UserError(f"the row of {name} was changed after its pilot: python -m experiments.claim pilot {name}")
    if not record["decidable"] and anyway is None:
        return record
    if anyway:
        record |= {"anyway": anyway}
    return keep(name, record | {"seal": digest(record)})


def run(name: str) -> dict[str, Any]:
    """Train what was sealed, judge it and keep the answer. Raises UserError without a seal, or with another one."""
    claim, record = claim_of(name), kept().get(name, {})
    if claim.sealed:
        raise UserError(f"{name} has its answer: python -m experiments.claim repeat {name}, or ask again as a new row "
                        f"with after = {name!r}")
    if "seal" not in record:
        raise UserError(f"{name} is not sealed: python -m experiments.claim seal {name}")
    sealed = {k: record[k] for k in ("row", "asked", "decidable", "gate", "pilot", "anyway") if k in record}
    if digest(sealed) != record["seal"] or stated(record["row"]) != claim.data():
        raise UserError(f"{name} was changed after it was sealed: ask again as a new row with after = {name!r}")
    return keep(name, record | _trained(claim, claim.home))


def repeat(name: str) -> list[dict[str, Any]]:
    """Train a claim that has an answer again, in comparisons/claim-NAME-again, and judge it; nothing is kept.

    Raises UserError for a claim without an answer, and for one that cannot be trained again, with the reason.
    """
    claim = claim_of(name)
    if "outcome" not in kept().get(name, {}):
        raise UserError(f"{name} has no answer yet: python -m experiments.claim run {name}")
    if claim.not_repeatable:
        raise UserError(f"{name} cannot be trained again: {claim.not_repeatable} ({claim.sealed})")
    home = claim.home.with_name(f"{claim.home.name}-again")
    _given_rate(claim, home)
    answers: list[dict[str, Any]] = _trained(claim, home)["answers"]
    return answers


def repeatable(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The records of training with a gate and an answer, and the seconds that their runs took, cheapest first."""
    took = {name: seconds_of(record) for name, record in found.items() if {"gate", "bill"} <= record.keys()}
    return dict(sorted(took.items(), key=lambda item: item[1]))


def seconds_of(record: Mapping[str, Any]) -> float:
    """What the runs of an answered claim took, without those of its pilot, in seconds."""
    return float(sum(step["seconds"] for name, step in record["bill"].items() if name != "pilot"))


def repeat_all() -> int:
    """Train every claim of `repeatable` again, print each answer that differs, and return 1 if one does."""
    found = kept()
    names, differ = repeatable(found), 0
    for name in names:
        before, again = found[name]["answers"], repeat(name)
        same = [a["answer"] for a in before] == [a["answer"] for a in again]
        print(f"{name}: {'as kept' if same else 'differs'}", flush=True)
        if not same:
            differ += 1
            print(f"kept:\n{answers_text(before)}\nagain:\n{answers_text(again)}", flush=True)
    print(f"{len(names) - differ} of {len(names)} claims have the answers that were kept")
    return 1 if differ else 0


def _trained(claim: Claim, home: Path) -> dict[str, Any]:
    """What a claim's comparison says, which is trained in `home` as far as it is not there yet."""
    _compare(claim, home=home)
    made, answered = read_json(home / "compare.json"), read_json(home / "comparison.json")
    d = Design.of(made["design"])
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for label in d.labels:
        folders = sorted(
            StudyFolder(home).runs.glob(f"train-{label}-s*"), key=lambda f: int(f.name.rpartition("-s")[2]))
        runs[label] = {read_json(f / "run.json")["seed"]: numbers(claim, f, d.unit) for f in folders}
    answers = answers_of(claim, runs)
    return {
        "outcome": outcome_of([a["answer"] for a in answers]), "answers": answers, "comparison_seal": made["seal"],
        "unit": d.unit, "cost": d.cost, **d.arm.only("n", "B"), "rates": answered["rates"], "bill": answered["bill"],
        "code": sorted({read_json(f)["code"]["sources"] for f in StudyFolder(home).runs.glob("train-*/run.json")}),
        "runs": {label: {str(s): n for s, n in own.items()} for label, own in runs.items()}}


def answers_of(claim: Claim, runs: Mapping[str, Mapping[Any, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """The answers to a claim's questions, from the numbers of every arm's runs by seed."""
    return [q.answer({int(s): n[key(q.metric, q.at)] for s, n in runs[q.arm].items()},
                     {int(s): n[key(q.less, q.at)] for s, n in runs[q.comparator].items()}, claim.alphas(q))
            for q in claim.questions]


def outcome_of(answers: Sequence[str]) -> str:
    """What becomes of a claim: it holds where the answers to all of its questions do, and not where one does not."""
    return HOLDS if set(answers) == {HOLDS} else FAILS if FAILS in answers else UNKNOWN


def _compare(claim: Claim, *more: str, home: Path | None = None) -> None:
    """Run `isocost compare` for a claim; its exit codes say what it found."""
    try:
        command(args=["compare", *claim.arms, *claim.options, "--budget", claim.budget, "--seeds", str(claim.seeds),
                      "--out", str(home or claim.home), *more])
    except SystemExit as end:
        if end.code not in (0, 3, 4, 6):
            raise


def kept(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Every record by name."""
    return {f.stem: json.loads(f.read_text(encoding="utf-8")) for f in sorted((folder or KEPT).glob("*.json"))}


def keep(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record; returns it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


# what is said --------------------------------------------------------------------------------------------------------


def failed(record: Mapping[str, Any]) -> str:
    """The lines of the gate that failed, and why it was sealed anyway."""
    said = "; ".join(f"{x['name']}: {x['text']}" for x in record["gate"] if x["passed"] is False)
    return f"{said}. Asked anyway: {record['anyway']}" if "anyway" in record else said


def gate_text(record: Mapping[str, Any]) -> str:
    """The gate of a record, as `pilot` prints it."""
    words = {True: "yes", False: "no", None: "-"}
    return "\n".join([*(f"{x['name']:<9} {words[x['passed']]:<4} {x['text']}" for x in record["gate"]),
                      f"answer         {'decidable' if record['decidable'] else 'not decidable as planned'}"])


def answers_text(answers: Sequence[Mapping[str, Any]]) -> str:
    """A line for each answer."""
    return "\n".join(f"  {a['says']}: {a['of']:.4g} against {a['less']:.4g}, {a['value']:+.4g} [{a['low']:+.4g}, "
                     f"{a['high']:+.4g}]: {a['answer']}" for a in answers)


def main(arguments: Sequence[str]) -> int:
    """`pilot`, `seal`, `run`, `repeat` NAME or `all`, or `page`; returns the exit code. Raises UserError else."""
    match arguments:
        case ["pilot", name]:
            record = pilot(name)
            print(f"\nclaim {name}: {record['row']['claim']}\n{gate_text(record)}")
        case ["seal", name, *more] if not more or (len(more) == 2 and more[0] == "--anyway" and more[1]):
            record = seal(name, more[1] if more else None)
            if "seal" not in record:
                print(f"refused by the gate: {failed(record)}; to seal it anyway: --anyway 'why'", file=sys.stderr)
                return REFUSED
            print(f"sealed {record['seal'][:12]}")
        case ["run", name]:
            record = run(name)
            print(f"{record['outcome']}: {record['row']['claim']}")
            print(answers_text(record["answers"]))
        case ["repeat", "all"]:
            return repeat_all()
        case ["repeat", name]:
            again = repeat(name)
            print(f"kept:\n{answers_text(kept()[name]['answers'])}\nagain:\n{answers_text(again)}")
        case ["page"]:
            from experiments import claim_page

            claim_page.write(claim_page.records())
        case _:
            raise UserError('say `pilot NAME`, `seal NAME [--anyway "why"]`, `run NAME`, `repeat NAME` or `page`')
    return 0


def ended(entered: Callable[[Sequence[str]], int]) -> int:
    """The exit code of a `main` with the arguments of the command line; 2 after the line of a UserError."""
    try:
        return entered(sys.argv[1:])
    except UserError as error:
        print(f"claim: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(ended(main))
