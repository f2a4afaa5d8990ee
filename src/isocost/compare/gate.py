"""Is this comparison decidable? A pilot of its arms, trained or read, and the rules of `isocost.stats.decidable`.

A pilot trains every arm with seeds of its own at full length, at the probed learning rate and at half of it, which the
comparison then uses. Its folder, `pilot` in that of the comparison, is like a comparison's:

    compare.json  the design of the comparison that it is for
    rates.json    every arm's probed learning rate
    gate.json     the runs of every arm, and the learning rates for the comparison; written when all runs have ended
    runs/         probe-ARM-xRATE-sINDEX and pilot-ARM-xRATE-sINDEX

A folder with one folder of runs for each arm is read as a pilot too: runs of isocost, driven or imported ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost import methods
from isocost.compare.design import Conditions, Design, arm_recipe, labels_of
from isocost.compare.folders import JUDGED, UNPAIRED, runs_in, seed_unknown
from isocost.compare.judge import FLOOR, MARGIN, QUESTIONS, SHARES
from isocost.compare.many import RATE
from isocost.compare.results import recorded
from isocost.compare.training import Trials, from_pilot, probe_arms, rates, rates_used, recorded_noise
from isocost.disk.jsonfile import finite
from isocost.errors import UserError
from isocost.laws.curves import PASS, curves
from isocost.laws.tracks import Track, tracks
from isocost.planner.budget import worded
from isocost.planner.training.learning_rate import given
from isocost.planner.training.study_runs import run_seed
from isocost.recipe import functions
from isocost.runs import measure
from isocost.runs.files import canonical, find_runs, read_json, read_lines
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, duration
from isocost.seams import Recipe
from isocost.stats import decidable
from isocost.stats.decidable import Ruling, Spread
from isocost.stats.power import pooled_sd
from isocost.steps.events import Noted
from isocost.steps.folder import StudyFolder
from isocost.units import FLOPS, compared
from isocost.worlds.setting import Setting

SEEDS = 4               # of a pilot, unless stated
STEPS = (1.0, 0.5)      # learning rates of a pilot, times the probed one; the comparison uses the last
FIRST = 8               # index of a pilot's first seed; below are those of probes. A comparison's are of another kind
ALIKE = 1.1             # ratio of costs of a run up to which a pilot is of the same length as a comparison
UNDECIDABLE = 6         # exit code


@dataclass(frozen=True, eq=False)
class PilotRun:
    """One run of a pilot: its held-out reward over its cost, learning rate, seed, passes over the training problems
    (None: not recorded) and seconds of work (None likewise)."""

    track: Track
    folder: Path
    lr: float
    epochs: float | None
    seconds: float | None

    @property
    def base(self) -> float | None:
        """The reward before training; None if it was not evaluated."""
        return float(self.track.reward[0]) if self.track.cost[0] == 0 else None


@dataclass(frozen=True, eq=False)
class Pilot:
    """The runs of each arm, in the order given.

    `used` is the learning rate of each arm in the comparison; `probed` are the rewards of its short probe runs by rate,
    empty if there were none; `recipes` are those of methods of this package. Costs are in `unit`. `parents` are those
    of arms that are compared with their parent only.
    """

    arms: Mapping[str, tuple[PilotRun, ...]]
    used: Mapping[str, float]
    probed: Mapping[str, Mapping[float, float]]
    recipes: Mapping[str, Recipe]
    unit: str
    parents: Mapping[str, str] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The arms that are compared, each with its baseline first: its parent, or each arm before it."""
        return [(b, a) for a, b in self.parents.items()] or list(combinations(self.arms, 2))

    @property
    def alpha(self) -> float:
        """The error rate of a difference at equal cost in the comparison (`Design.alpha`)."""
        return (RATE / len(QUESTIONS) if self.parents else SHARES[0]) / len(self.pairs)

    @property
    def cost(self) -> float:
        """The largest cost that every run reached, of those that did not diverge."""
        return min((r.track.end for own in self.arms.values() for r in own if not r.track.diverged),
                   default=max(r.track.end for own in self.arms.values() for r in own))

    def at_rate(self, label: str, rate: float) -> tuple[PilotRun, ...]:
        """The runs of an arm at one learning rate."""
        return tuple(r for r in self.arms[label] if r.lr == rate)

    def rates(self, label: str) -> list[float]:
        """The learning rates of an arm, ascending."""
        return sorted({r.lr for r in self.arms[label]})

    def values(self, label: str, rate: float) -> dict[int, float]:
        """The rewards at `cost` of an arm's runs at one learning rate, by seed."""
        return {r.track.seed: float(r.track.at(self.cost)) for r in self.at_rate(label, rate)}

    def base(self, label: str) -> float | None:
        """The mean reward before training, of the runs that were evaluated then."""
        known = [r.base for r in self.arms[label] if r.base is not None]
        return float(np.mean(known)) if known else None

    def ends(self, label: str) -> ndarray:
        """The rewards (S,) at `cost` of an arm's runs at the learning rate that the comparison uses."""
        return np.array(list(self.values(label, self.used[label]).values()))


@dataclass(frozen=True)
class Gate(Result):
    """Whether a comparison is decidable, and each rule's line.

    `above` says that a difference can be shown, `same` that "the same within the margin" can. `sd` is the standard
    deviation of differences between runs of one seed, in reward, with `dof` degrees of freedom, of the pair of arms
    where it is largest. `rates` are the learning rates for the comparison. `file` is gate.json, None for a pilot that
    was read from folders of runs.
    """

    title: str
    lines: tuple[Ruling, ...]
    above: bool
    same: bool
    answer: str
    sd: float
    dof: int
    seeds: int
    rates: Mapping[str, float]
    file: Path | None = None

    @property
    def heading(self) -> str:
        """The question."""
        return f"is this comparison decidable? {self.title}"

    def rows(self) -> list[Row]:
        """Each rule's line, and the answer."""
        words = {True: "yes", False: "no", None: "-"}
        lines = [(x.name, words[x.passed], x.text) for x in self.lines] + [("answer", "", self.answer)]
        return [*(Row("", f"{name:<9} {word:<4} {text}", "command") for name, word, text in lines),
                *([] if self.file is None else [recorded(self.file)])]

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if a difference, or "the same", can be shown, else 6."""
        return 0 if self.above or self.same else UNDECIDABLE

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --pilot ... --json` prints it."""
        data = {**asdict(self), "file": None if self.file is None else str(self.file), "exit_code": self.exit_code}
        return dict(finite(data))


# training -------------------------------------------------------------------------------------------------------------


def train_pilot(trials: Trials, seed: int, seeds: int) -> None:
    """Probe every arm of a comparison's design, then train it with `seeds` seeds of the pilot at two learning rates.

    `seed` is the comparison's. A pilot that was stopped continues. Raises UserError for fewer than two seeds.
    """
    if seeds < 2:
        raise UserError(f"--pilot {seeds}: the spread between runs needs at least 2 seeds per arm; use {SEEDS}")
    home, d = trials.home, trials.design
    trials.execution.observer.on(Noted(
        f"pilot: each arm probes its learning rate, then has {counted(seeds, 'run')} at that rate and at half of it, "
        f"each of about {d.rollouts:,} rollouts"))
    told = from_pilot(home)      # rates that are to be used as they are (experiments/claim.py)
    rules = rates(home) if told else probe_arms(trials)
    own = [run_seed(seed, "pilot", FIRST + i) for i in range(seeds)]
    runs = trials.jobs("pilot", rules, own, STEPS[:1] if told else STEPS)
    trials.phase("pilot", "pilot", runs)
    home.write("gate.json", {
        "runs": {label: [job.name for job in jobs] for label, jobs in runs.items()},
        "probes": {label: [f.name for f in find_runs(home.runs) if f.name.startswith(f"probe-{label}-x")]
                   for label in d.labels},
        "rates": {label: jobs[-1].arm["lr"] for label, jobs in runs.items()}, "unit": d.unit, "metric": d.metric,
    })


def piloted(home: StudyFolder, d: Design, setting: Setting) -> Pilot | None:
    """The pilot in a comparison's folder, if it is one of these arms there and its runs cost as much; else None."""
    own = StudyFolder(home.path / "pilot")
    if not own.has("gate.json"):
        return None
    other = Design.of(own.record("compare.json", "compare")["design"])
    alike = (canonical([other.recipes, other.unit, other.metric]) == canonical([d.recipes, d.unit, d.metric])
             and max(other.cost, d.cost) <= ALIKE * min(other.cost, d.cost) and own.setting == setting)
    return own_pilot(own, d.labels, d.metric) if alike else None


def rates_of(found: Pilot, d: Design) -> dict[str, Any]:
    """rates.json of a comparison whose learning rates come from its pilot, with the pilot's spread."""
    known = _spread(found)
    return {"rates": {label: given(found.used[label], d.batch(label)).data() for label in d.labels},
            "noise": {"sd": known.sd / sqrt(2), "dof": known.dof}, "pilot": True}


def seeds_of(folder: Path, arms: Sequence[str], common: Conditions) -> int:
    """The seeds per arm of a comparison in this folder that states none: those that are sealed there, else as many as
    its pilot needs to show `decidable.EFFECT`, else those of `common`. Raises UserError for a budget that does not pay
    for so many runs as long as the pilot's."""
    home, own = StudyFolder(folder), StudyFolder(folder / "pilot")
    if home.has("compare.json"):
        return len(Design.of(home.record("compare.json", "compare")["design"]).seeds)
    if not own.has("gate.json"):
        return common.seeds
    d = Design.of(own.record("compare.json", "compare")["design"])
    found = own_pilot(own, d.labels, d.metric)
    seeds = _spread(found).needed(decidable.EFFECT, found.alpha) or decidable.MOST
    before = replace(common, budget=own.asked["budget"], seeds=len(d.seeds))
    ratio = before.each(len(arms)) / replace(common, seeds=seeds).each(len(arms))
    if before.spend.unit == common.spend.unit and ratio > ALIKE:
        least = worded(common.spend, common.spend.amount * ratio).replace(" ", "-")
        raise UserError(f"the pilot in {own.path} says that {decidable.EFFECT:g} needs {seeds:,} seeds per arm, and "
                        f"{common.spend} does not pay for so many runs as long as its: give --budget {least}, or "
                        f"--seeds {len(d.seeds)}")
    return seeds


def known_before(
    home: StudyFolder, d: Design, setting: Setting
) -> tuple[Mapping[str, float] | None, Mapping[str, float]]:
    """The spread between runs, if probes or a pilot measured it, and the learning rates of a pilot, empty without."""
    if home.has("rates.json"):
        return recorded_noise(home), rates_used(home, d) if from_pilot(home) else {}
    pilot = piloted(home, d, setting)
    return (None, {}) if pilot is None else (rates_of(pilot, d)["noise"], pilot.used)


# reading --------------------------------------------------------------------------------------------------------------


def read_pilot(folder: str | Path, arms: Sequence[str], *, seeds: int = 5, margin: float = MARGIN, metric: str = PASS,
               unit: str = "rollouts") -> Gate:
    """Whether a comparison of these arms with `seeds` seeds is decidable, by an earlier pilot.

    `folder` is one that `--pilot 4` wrote, or holds a folder of runs for each arm, called like it. `margin` is the
    difference in reward below which two arms count as the same.

    Raises:
        UserError: for fewer than two arms or seeds, a folder without the runs of an arm, runs that are not measured
            alike, or arms with fewer than two runs.
    """
    home, labels = StudyFolder(Path(folder)), labels_of(arms)
    if len(labels) < 2:
        raise UserError(f"expected at least two arms, got {', '.join(labels)}")
    if seeds < 2:
        raise UserError(f"--seeds {seeds}: the spread between runs needs at least 2 seeds per arm; use 5 or more for a "
                        "useful power")
    if not home.path.is_dir():
        raise UserError(f"--pilot {folder}: there is no such folder; give a number of seeds, such as --pilot 4, or the "
                        "folder of an earlier pilot")
    own = home if home.has("gate.json") else StudyFolder(home.path / "pilot")
    if own.has("gate.json"):
        return gate(own_pilot(own, labels, metric), seeds=seeds, margin=margin, file=own.path / "gate.json")
    return gate(_of_folders(home.path, labels, metric, unit), seeds=seeds, margin=margin)


def own_pilot(home: StudyFolder, labels: Sequence[str], metric: str) -> Pilot:
    """A pilot that was trained here."""
    kept, d = read_json(home.path / "gate.json"), Design.of(home.record("compare.json", "compare")["design"])
    if lost := [label for label in labels if label not in kept["runs"]]:
        raise UserError(f"{home.path} has no runs of {', '.join(lost)}: its arms are {', '.join(kept['runs'])}")
    arms = {label: _runs([home.runs / name for name in kept["runs"][label]], kept["unit"], metric) for label in labels}
    probes = {label: curves([home.runs / name for name in kept["probes"][label]], metric) for label in labels}
    rewards = {label: {lr: float(np.mean([c.select[-1] for c in own if c.arm["lr"] == lr]))
                       for lr in {c.arm["lr"] for c in own}} for label, own in probes.items()}
    recipes = {} if "trainer" in str(d.recipes) else {
        label: arm_recipe(d.arms[label], d.sets.get(label, {})) for label in labels}
    return Pilot(arms, kept["rates"], rewards, recipes, kept["unit"],
                 {a: b for a, b in d.parents.items() if a in arms and b in arms})


def _of_folders(folder: Path, labels: Sequence[str], metric: str, unit: str) -> Pilot:
    """A pilot of runs that were made elsewhere, one folder for each arm."""
    found, recorded, unpaired = {}, [], 0
    for label in labels:
        own = _runs(runs_in(folder / label), unit, metric)
        records = [read_json(r.folder / "run.json") for r in own]
        recorded += [(label, measure.of(r)) for r in records]
        if any(map(seed_unknown, records)):
            own = tuple(replace(r, track=replace(r.track, seed=UNPAIRED + unpaired + i)) for i, r in enumerate(own))
            unpaired += len(own)
        if len({(r.lr, r.track.seed) for r in own}) < len(own):
            raise UserError(f"{folder / label} holds two runs of one seed at one learning rate; a seed counts once: "
                            "remove one of them")
        found[label] = own
    measure.one(recorded, JUDGED)
    used = {}
    for label, own in found.items():
        by = {lr: np.mean([r.track.reward[-1] for r in own if r.lr == lr]) for lr in sorted({r.lr for r in own})}
        best = list(by).index(max(by, key=lambda lr: by[lr]))
        used[label] = list(by)[max(best - 1, 0)]
    return Pilot(found, used, {}, {}, unit)


def _runs(folders: Sequence[Path], unit: str, metric: str) -> tuple[PilotRun, ...]:
    """Runs in these folders, in order; those without an evaluation are left out."""
    out = []
    for folder in folders:
        for track, curve in zip(tracks([folder], unit, metric), curves([folder], metric), strict=True):
            end = read_json(folder / "end.json") if (folder / "end.json").exists() else {}
            passes, seconds = float(curve.epochs[-1]), end.get("seconds")
            out.append(PilotRun(track, folder, curve.arm["lr"], passes if isfinite(passes) else None, seconds))
    return tuple(out)


# the gate -------------------------------------------------------------------------------------------------------------


def gate(found: Pilot, *, seeds: int, margin: float = MARGIN, file: Path | None = None) -> Gate:
    """The lines of every rule for a comparison with `seeds` seeds of each arm.

    Intervals have the level of `isocost compare`, 96 % for two arms. Raises UserError for an arm with fewer than two
    runs at the learning rate that is used, whose spread is not known.
    """
    for label in found.arms:
        if len(found.ends(label)) < 2:
            raise UserError(f"{label} has {counted(len(found.ends(label)), 'run')} at the learning rate "
                            f"{found.used[label]:.2g}: the spread between runs needs at least 2, better {SEEDS}")
    alpha, known = found.alpha, _spread(found)
    rooms = {a: 1 - float(found.ends(a).mean()) for a, _ in found.pairs}
    rules = [
        decidable.worst([decidable.learns(a, found.base(a), found.ends(a)) for a in rooms]),
        decidable.worst([decidable.headroom(a, room, known, seeds, alpha)
                         for a, room in sorted(rooms.items(), key=lambda x: x[1])]),
        decidable.margin(margin, known, seeds, alpha),
        *common_lines(found),
        Ruling("points", None, "at equal cost: the end; a claim's points are in its row"),
        Ruling("level", None, f"intervals of {100 * (1 - alpha):.3g} %, two-sided"),
        decidable.planned(known, seeds, alpha),
    ]
    by = {x.name: x.passed is not False for x in rules}
    # Arms that do not learn are the same, whatever the methods do: so learning is asked of "the same" as well.
    sound = all(by[name] for name in ("learns", "steady", "rate", "acts", "visits", "seeds"))
    above, same = sound and by["headroom"], sound and by["margin"]
    more = known.to_show(margin, alpha)
    within = f'"same within {margin:g}"'
    wanted = f"that needs {f'about {more:,}' if more else 'too many'} seeds"
    answer = {
        (True, True): f"decidable above 0, and as {within}",
        (True, False): f"decidable above 0; as {within} not: {wanted}",
        (False, True): f"decidable as {within}; above 0 not",
        (False, False): "not decidable as planned: change what the lines with `no` name",
    }[above, same]
    few = len(found.pairs) < 3
    what = "; ".join(f"{a} against {b}" for b, a in found.pairs) if few else ", ".join(found.arms)
    length = f"{found.cost:.3g}" if found.unit == FLOPS else f"{found.cost:,.0f}"
    title = f"{what}, {length} {compared(found.unit)} a run, {counted(seeds, 'seed')}"
    lines = (*rules, *_cost(found, seeds))
    return Gate(title, lines, above, same, answer, known.sd, known.dof, seeds, found.used, file)


def common_lines(found: Pilot) -> list[Ruling]:
    """The lines that do not depend on what is asked: steady, rate, acts and visits."""
    arms = found.arms
    full = {a: {lr: np.array(list(found.values(a, lr).values())) for lr in found.rates(a)} for a in arms}
    memory = {a: _uses_history(found.recipes.get(a)) for a in arms}
    passes = {a: [r.epochs for r in own if r.epochs is not None] for a, own in arms.items()}
    lower = f"a lower learning rate (--lr {min(found.used.values()):.2g})"
    return [
        decidable.steady({a: (found.base(a), found.ends(a)) for a in arms}, lower),
        decidable.worst([decidable.rate(a, found.probed.get(a, {}), full[a], found.used[a]) for a in arms]),
        decidable.worst([decidable.acts(a, b, *_equal(found, a, b), _acted(found, b)) for a, b in found.pairs]),
        decidable.worst([decidable.visits(a, float(np.mean(passes[a])) if passes[a] else None, memory[a])
                         for a in sorted(arms, key=lambda a: not memory[a])]),
    ]


def _spread(found: Pilot) -> Spread:
    """The spread of differences between runs of one seed, in the pair of arms where it is largest."""
    return max((spread_of(a, b, [(found.values(a, x), found.values(b, y))
                                 for x, y in steps_of(found, a, b)])
                for a, b in found.pairs), key=lambda s: s.sd)


def spread_of(a: str, b: str, values: Iterable[tuple[Mapping[int, float], Mapping[int, float]]]) -> Spread:
    """The spread of differences of two arms, from values by seed at one learning rate or more, which are pooled.

    Runs without a common seed count as independent. Raises UserError if no arm has two runs.
    """
    values = list(values)
    shared = [sorted(set(x) & set(y)) for x, y in values]
    if max(map(len, shared)) > 1:
        known = decidable.spread([np.array([x[s] - y[s] for s in own])
                                  for own, (x, y) in zip(shared, values, strict=True)], FLOOR)
        assert known is not None
        return known
    single = pooled_sd([np.array(list(x.values())) for own in values for x in own])
    if single is None:
        raise UserError(f"{a} and {b}: no spread between runs was measured; a pilot needs at least 2 runs of each arm "
                        f"that differ, better {SEEDS}")
    return Spread(sqrt(2) * max(single[0], FLOOR), single[1])


def steps_of(found: Pilot, a: str, b: str) -> list[tuple[float, float]]:
    """Learning rates of two arms at which their runs are compared: those that are used, and the others by order if no
    run fell there."""
    def sound(label: str, rate: float) -> bool:
        return not decidable.fell(found.base(label), np.array(list(found.values(label, rate).values()))).any()

    x, y = found.rates(a), found.rates(b)
    others = list(zip(x, y, strict=True)) if len(x) == len(y) else []
    used = (found.used[a], found.used[b])
    return [used, *(p for p in others if p[0] != used[0] and p[1] != used[1] and sound(a, p[0]) and sound(b, p[1]))]


def _equal(found: Pilot, a: str, b: str) -> tuple[int, int]:
    """Of how many pairs of runs of one seed, at the rates that are used, all rewards are equal; and the pairs."""
    first, second = ({r.track.seed: r.track for r in found.at_rate(x, found.used[x])} for x in (a, b))
    pairs = [(first[s], second[s]) for s in first if s in second]
    return sum(np.array_equal(x.cost, y.cost) and np.array_equal(x.reward, y.reward) for x, y in pairs), len(pairs)


def _acted(found: Pilot, label: str) -> dict[str, tuple[int, int]]:
    """Of the arm's runs at its rate, the groups in which its method acted, and all; empty if it counts nothing."""
    recipe = found.recipes.get(label)
    note = methods.load(recipe.name).CARD.acts if recipe is not None and recipe.name in methods.names() else ""
    if not note:
        return {}
    lines = [x for r in found.at_rate(label, found.used[label]) for x in read_lines(r.folder / "journal.jsonl")]
    return {label: (sum(any(x.get(note) or ()) for x in lines), len(lines))}


def _uses_history(recipe: Recipe | None) -> bool:
    """Whether a part of a recipe uses the pass rates of a problem's earlier rollouts."""
    seams = () if recipe is None else vars(recipe).values()
    return any(used.declared.has("tracks_pass_rate", used.settings) for seam in seams for used in functions(seam))


def _cost(found: Pilot, seeds: int) -> list[Ruling]:
    """What the comparison's runs take, by the seconds of the pilot's; nothing if they are not recorded, or 0."""
    took = {a: [r.seconds for r in found.at_rate(a, found.used[a]) if r.seconds] for a in found.arms}
    if not all(took.values()):
        return []
    total = sum(seeds * float(np.mean(x)) for x in took.values())
    return [Ruling("cost", None, f"{duration(total)} for {counted(seeds * len(took), 'run')}, one after the other")]
