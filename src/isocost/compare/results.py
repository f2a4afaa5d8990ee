"""What a comparison returns, and the notices that an observer (`isocost.steps.events`) receives before that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocost.compare.design import Design
from isocost.compare.judge import DIFFERENT, QUESTIONS, SAME, SHARES, Comparison, PairAnswer
from isocost.compare.many import RATE, ChangeSet
from isocost.disk.jsonfile import finite
from isocost.planner.budget import Usage
from isocost.planner.training.study_runs import worded
from isocost.runs import files as records
from isocost.runs.job import method_defaults
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import counted, duration, freedom
from isocost.stats.power import PAIRS, POWER, seeds_for_comparison
from isocost.units import FLOPS, compared
from isocost.worlds.setting import Setting

SCALE = 1.0         # the largest difference of rewards from 0 to 1
ROUGH = 0.05        # between runs: the upper quartile of the spreads of the records in experiments/results/claims
USEFUL = 0.1        # a difference worth the seeds, where none can be detected
VERDICTS = ("better", "worse", "same", "cannot tell")
SHOWN = 8           # rewards of an arm's runs in its row

# results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparisonPlan(Result):
    """What a comparison of methods will do and what it is expected to cost, before anything is trained.

    `design` holds the cost of each run in its `unit`, evaluation points in rollouts, candidate learning rates and
    seeds. `expected` is the cost of all probes and runs in every unit. `workers` runs go side by side. `pricing` is
    what estimating the cost used: rollouts, tokens, seconds; empty in records of earlier versions. `noise` is the
    standard deviation between runs (`sd`, in reward) and its degrees of freedom (`dof`), measured by a pilot or on the
    probes; None until they have ended. `piloted` are the learning rates that a pilot found, empty without one: then
    nothing is probed. `alike` are arms that took identical steps in the toy world.
    """

    design: Design
    expected: Usage
    setting: Setting
    workers: int
    pricing: Mapping[str, Any]
    noise: Mapping[str, float] | None = None
    piloted: Mapping[str, float] = field(default_factory=dict)
    alike: tuple[tuple[str, ...], ...] = ()

    @property
    def heading(self) -> str:
        """What is compared."""
        d, sizes = self.design, list(self.design.alike())
        what = f"comparison of {', '.join(d.labels)}" if not d.parents else "method against its parent" if (
            len(d.parents) == 1) else f"{len(d.parents)} methods against their parents"
        same = f", {worded(sizes[0])}" if len(sizes) == 1 else ""
        return f"{what}: {self.setting.problems.data} with {self.setting.model}{same}"

    def rows(self) -> list[Row | Table]:
        """What will be trained, what it costs and what it can detect."""
        d, b, alike = self.design, self.expected, self.design.alike()
        sizes = {worded(arm): (own, ", ".join(f"{x:.2g}" for x in d.rates_at(d.batch(own[0]))))
                 for arm, own in alike.items()}
        rates = "three learning rates" if len(sizes) > 1 else f"learning rates {next(iter(sizes.values()))[1]}"
        memory = "" if b.memory_mb is None else f"; {b.memory_mb:.0f} MB of memory per run"
        disk = "" if b.disk_mb is None else f", {b.disk_mb:.0f} MB of disk"
        errors = (f"expected share of false differences at most {RATE:.0%}" if d.parents else
                  f"at most {100 * sum(SHARES):g} of 100 comparisons report a false difference")
        notes = ((label, method_defaults(d.arms[label], d.used(label, self.setting))) for label in d.labels)
        uneven = [label for label in d.labels if d.rollouts % d.batch(label)]
        return given(
            *(Row("", f"arms with {named}: {', '.join(own)}; learning rates: {rates}", "command")
              for named, (own, rates) in sizes.items() if len(sizes) > 1),
            Row("each arm", _each(d, self.piloted, rates, ", chosen on the validation split")
                + ", judged on the test split", "command"),
            Row("cost", f"{amount(d.total, d.unit)} of {amount(d.budget['amount'], d.unit)}: about "
                        f"{duration(b.seconds / self.workers)} with {counted(self.workers, 'run')} side by side"
                        f"{memory}{disk}", "command"),
            Row("power", detectable(d, self.noise, bool(self.piloted)), "command"),
            Row("margin", f"{d.margin:g}; {errors}", "command"),
            *(Row(label, note, "command") for label, note in notes if note),
            Row(", ".join(uneven), f"{d.rollouts:,} rollouts are not a whole number of updates; rewards are "
                                   "interpolated between evaluations" if uneven else "", "command"),
            *(Row("", f"{' and '.join(same)} took bit-identical steps in the toy world: they may not differ here "
                      "either", "flag") for same in self.alike),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --dry-run --json` prints it."""
        data = {**self.design.data(), "expected": self.expected.data(), "pricing": self.pricing}
        return dict(finite(data))


@dataclass(frozen=True)
class TrainerComparisonPlan(Result):
    """What a comparison of settings of a user's trainer will do: its design, in rollouts. `noise` and `piloted` are as
    in `ComparisonPlan`."""

    design: Design
    noise: Mapping[str, float] | None = None
    piloted: Mapping[str, float] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """What is compared."""
        return f"comparison of {', '.join(self.design.labels)}, settings of your trainer: {worded(self.design.arm)}"

    def rows(self) -> list[Row]:
        """What will be launched, and what it can detect."""
        d = self.design
        rates = f"learning rates {', '.join(f'{x:.2g}' for x in d.rates)}"
        return [
            *(Row(label, str(d.recipes[label]["command"]), "command") for label in d.labels),
            Row("each arm", _each(d, self.piloted, rates), "command"),
            Row("cost", f"{amount(d.total, d.unit)} of {amount(d.budget['amount'], d.unit)}", "command"),
            Row("power", detectable(d, self.noise, bool(self.piloted)), "command"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --trainer ... --dry-run --json` prints it."""
        return dict(finite(self.design.data()))


@dataclass(frozen=True)
class MethodComparison(Result):
    """Methods that were trained and judged at equal cost.

    `comparison` holds the answers: rewards in [0, 1] on the test split, at a cost in `comparison.unit`. `rates` is the
    learning rate of each arm. `bill` is what was paid for pricing, probes and runs: rollouts, tokens, seconds. `seal`
    is the hash of the design, `metric` what rewards are (pass@1, ...), `file` the one that keeps all this.
    """

    comparison: Comparison
    rates: Mapping[str, float]
    bill: Mapping[str, Mapping[str, float]]
    seal: str
    metric: str
    file: Path

    @property
    def heading(self) -> str:
        """The answer."""
        return headline(self.comparison)

    def rows(self) -> list[Row | Table]:
        """The arms, the answers and the record."""
        return [*judged(self.comparison, self.rates), recorded(self.file)]

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all are the same within the margin, else 4."""
        return self.comparison.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: comparison.json, and what `isocost compare --json` prints."""
        data = {**self.comparison.data(), "seal": self.seal, "metric": self.metric, "rates": self.rates,
                "bill": self.bill}
        return dict(finite(data))


@dataclass(frozen=True)
class ParentComparison(Result):
    """Methods that were trained and judged each against its parent, with a controlled false discovery rate.

    `wave` holds the verdicts: rewards in [0, 1] on the test split, at costs in `wave.unit`. `ended` are notes on runs
    that did not spend their budget. The other fields are those of `MethodComparison`.
    """

    wave: ChangeSet
    rates: Mapping[str, float]
    bill: Mapping[str, Mapping[str, float]]
    seal: str
    metric: str
    ended: tuple[str, ...]
    file: Path

    @property
    def heading(self) -> str:
        """The methods by verdict."""
        by = {x: [c.method for c in self.wave.changes if c.verdict == x] for x in VERDICTS}
        return "; ".join(f"{'the same' if x == 'same' else x}: {', '.join(names)}" for x, names in by.items() if names)

    def rows(self) -> list[Row | Table]:
        """One row per method, differences first, then how errors were controlled, cautions and the record."""
        w = self.wave
        cells = [(c.method, c.parent, ("the same" if c.verdict == "same" else c.verdict)
                  + (f" ({c.by})" if c.verdict in VERDICTS[:2] else ""), f"{self.rates[c.method]:.2g}",
                  *(f"{x:.3f}" for x in c.means), *(_bounds(c.answer(q)) for q in QUESTIONS))
                 for c in sorted(w.changes, key=lambda c: VERDICTS.index(c.verdict))]
        return [
            Table(("method", "parent", "verdict", "lr", "mean", "parent's", *QUESTIONS), cells, (0, 1, 2, 6, 7, 8)),
            Row("", f"{w.called} of {counted(w.asked, 'answer')} significant (Benjamini and Hochberg, false discovery "
                    f"rate {w.rate:.0%}); intervals of {100 * (1 - w.alpha):.3g} %; margin {w.margin:g}", "command"),
            *(Row("", note, "flag") for c in w.changes for note in c.notes),
            recorded(self.file),
        ]

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if a method differs from its parent, 3 if all are the same within the margin, else 4."""
        return self.wave.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: wave.json, and what `isocost compare --to-parents --json` prints."""
        data = {"schema": records.SCHEMA, **self.wave.data(), "seal": self.seal, "metric": self.metric,
                "rates": self.rates, "bill": self.bill, "ended": self.ended}
        return dict(finite(data))


@dataclass(frozen=True)
class FolderComparison(Result):
    """Recorded runs that were judged at equal cost, one folder per arm.

    `comparison` holds the answers, at a cost in `comparison.unit`; `counted_in` is that unit's name in text. `file`
    is the file that keeps them, None if no folder for it was given.
    """

    comparison: Comparison
    counted_in: str
    file: Path | None = None

    @property
    def heading(self) -> str:
        """The answer."""
        return headline(self.comparison, self.counted_in)

    def rows(self) -> list[Row | Table]:
        """The arms, the answers, and the record if there is one."""
        return given(*judged(self.comparison), recorded(self.file))

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all are the same within the margin, else 4."""
        return self.comparison.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --json` prints it."""
        return dict(finite(self.comparison.data()))


# notices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sealed:
    """The design was sealed: its hash, and the file that holds both."""

    seal: str
    file: Path

    def rows(self) -> list[Row]:
        """The seal, and its file."""
        return [Row("", f"sealed {self.seal[:12]} in {self.file}")]


@dataclass(frozen=True)
class Probed:
    """The probes have ended. `rates` is the learning rate of each arm; `flags` are (arms, what to know of their
    rates); `noise` is as in `ComparisonPlan`."""

    design: Design
    rates: Mapping[str, float]
    flags: tuple[tuple[tuple[str, ...], str], ...]
    noise: Mapping[str, float] | None

    def rows(self) -> list[Row | Table]:
        """The power by the measured noise, the learning rates, and cautions."""
        return given(
            Row("power", detectable(self.design, self.noise) if self.noise else "", "command"),
            Row("rates", ", ".join(f"{label} {rate:.2g}" for label, rate in self.rates.items())),
            *(Row("", f"{', '.join(labels)}: {note}", "flag") for labels, note in self.flags),
        )


# words --------------------------------------------------------------------------------------------------------


def headline(c: Comparison, counted_in: str | None = None) -> str:
    """One line: the best arm, and the cost at which it is better."""
    where = f"at {amount(c.cost, c.unit, counted_in)} per run"
    if c.best is not None:
        return f"{c.best} is better ({', '.join(sorted({v.by for v in c.verdicts if v.better == c.best}))}), {where}"
    if c.exit_code == DIFFERENT:
        beaten = [f"{v.better} over {v.b if v.better == v.a else v.a}" for v in c.verdicts if v.better in (v.a, v.b)]
        return f"no arm is better than all others {where}; differences: {', '.join(beaten)}"
    return f"the same within {c.margin:g}, {where}" if c.exit_code == SAME else f"cannot tell which is better {where}"


def judged(c: Comparison, rates: Mapping[str, float] | None = None) -> Iterator[Row | Table]:
    """The arms, with their learning rates if known, the answers of every pair, and notes."""
    cells = []
    for a in c.arms:
        bounds = "" if a.low is None or a.high is None else f" [{a.low:.3f}, {a.high:.3f}]"
        each = " ".join(f"{v:.3f}" for v in a.values[:SHOWN]) + " ..." * (len(a.values) > SHOWN)
        cells.append((a.name, *([f"{rates[a.name]:.2g}"] if rates else []), f"{a.mean:.3f}{bounds}", f"{a.iqm:.3f}",
                      str(len(a.runs)), each))
    heads = ("arm", *(["lr"] if rates else []), "mean [90 %]", "middle half", "runs", "each")
    yield Table(heads, cells, left=(0, len(heads) - 1))
    for v in c.verdicts:
        same = "the same within the margin" if v.better == "same" else f"{v.better} is better"
        yield Row(f"{v.a} minus {v.b}", "cannot tell" if v.better not in (v.a, v.b, "same") else f"{same} ({v.by})")
        for question in QUESTIONS:
            yield Row("", f"  {question:<11} {_answer(c.answer(question, v.a, v.b))}", "command")
    for a in c.arms:
        for names, fate in ((a.diverged, "diverged; counted with the last reward"), (a.short, "ended early; left out")):
            if names:
                yield Row("", f"{a.name}: {', '.join(Path(n).name for n in names)} {fate}", "flag")
    for note in c.missing:
        yield Row("", note, "flag")


def recorded(file: Path | None) -> Row:
    """The file of a record; of no text without one."""
    return Row("record", "" if file is None else str(file), "command")


def detectable(d: Design, noise: Mapping[str, float] | None, piloted: bool = False) -> str:
    """The minimum detectable difference, by the measured or assumed spread, and the seeds that half of it needs."""
    sd = d.sd if noise is None else noise["sd"]
    if noise is not None:
        source = f"measured {'by the pilot' if piloted else 'on the probes'}, {freedom(noise['dof'])}"
    elif len(d.probe_seeds) > 1:
        source = "assumed until the probes end"
    else:
        source = "assumed; probes with one seed do not measure it"
    least = d.detectable(sd)
    if least >= SCALE:
        needed = seeds_for_comparison(USEFUL, sd, d.alpha)
        more = "a larger budget, more evaluation problems or fewer arms" if needed is None else \
            f"a difference of {USEFUL:g} needs --seeds {needed}, or fewer with fewer arms"
        return (f"no difference can be detected: the minimum detectable difference between two arms is {least:.3f} "
                f"({POWER:.0%} power), and rewards from 0 to 1 differ by {SCALE:g} at most. "
                f"{counted(len(d.seeds), 'seed')} per arm are too few with a standard deviation of {sd:.3f} between "
                f"runs ({source}): {more}")
    needed = seeds_for_comparison(least / 2, sd, d.alpha)
    more = "" if needed is None else f"; {least / 2:.3f} needs {needed} seeds"
    return (f"minimum detectable difference between two arms {least:.3f} ({POWER:.0%} power) with a standard deviation "
            f"of {sd:.3f} between runs ({source}){more}" + ("" if noise is not None else (
                f". In one of four claims of the docs it was {ROUGH:g} or more: {counted(len(d.seeds), 'seed')} then "
                f"detect nothing below {d.detectable(ROUGH):.2g}; --pilot 4 measures it")))


def amount(x: float, unit: str, counted_in: str | None = None) -> str:
    """A cost with its unit in words (`counted_in` if given), small amounts to three digits."""
    words = counted_in or compared(unit)
    return f"{x:,.0f} {words}" if x >= 100 and unit != FLOPS else f"{x:.{2 if unit == FLOPS else 3}g} {words}"


def _each(d: Design, piloted: Mapping[str, float], rates: str, chosen: str = "") -> str:
    """What every arm runs: its probes, or the learning rates of its pilot, then its seeds."""
    told = f"the pilot's learning rate: {', '.join(f'{k} {v:.2g}' for k, v in piloted.items())}"
    probes = f"{rates} in {counted(len(d.rates) * len(d.probe_seeds), 'probe run')} of {amount(d.probe_cost, d.unit)}"
    seeds = len(d.seeds)
    paired = "paired by seed" if seeds >= PAIRS else "with the same seeds, which are too few to pair"
    return f"{told if piloted else probes + chosen}, then {counted(seeds, 'run')} of {amount(d.cost, d.unit)}, {paired}"


def _answer(x: PairAnswer) -> str:
    """One answer as a line: the arm, the difference with its interval, and the minimum detectable difference."""
    if x.value is None or x.low is None or x.high is None:
        return f"{x.answer}: {x.why}"
    level = f"{100 * x.level:.3g} %"
    if x.question == "efficiency":
        value, low, high, first, other = x.value, x.low, x.high, x.a, x.b
        if x.answer == x.b or (x.winner is None and value < 1):
            value, low, high, first, other = 1 / value, 1 / high, 1 / low, x.b, x.a
        return (f"{x.answer}: {other} takes {value:.2f}x [{low:.2f}, {high:.2f}] the cost of {first} ({level}), "
                f"{x.why.removeprefix('cost ')}")
    line = f"{x.answer}: {x.value:+.3f} [{x.low:+.3f}, {x.high:+.3f}] ({level})"
    if x.detectable is None:
        return line
    more = f"; the observed difference needs {x.seeds} seeds" if x.answer == "cannot tell" and x.seeds else ""
    return f"{line}; minimum detectable difference {x.detectable:.3f}{more}"


def _bounds(x: PairAnswer) -> str:
    if x.value is None or x.low is None or x.high is None:
        return "not known"
    if x.question == "efficiency":
        return f"x{x.value:.2f} [{x.low:.2f}, {x.high:.2f}]"
    return f"{x.value:+.3f} [{x.low:+.3f}, {x.high:+.3f}]"
