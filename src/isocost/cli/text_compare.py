"""The terminal's text of `isocost compare`: the design and its cost, then the answer, then the reasons for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from isocost.cli import text
from isocost.cli.text import show
from isocost.compare.design import Design
from isocost.compare.gate import Gate
from isocost.compare.judge import DIFFERENT, QUESTIONS, SAME, SHARES, Comparison, PairAnswer, Verdict
from isocost.compare.many import RATE, Change, ChangeSet
from isocost.compare.results import (
    ComparisonPlan,
    FolderComparison,
    MethodComparison,
    ParentComparison,
    Probed,
    Sealed,
    TrainerComparisonPlan,
)
from isocost.planner.training.study_runs import worded
from isocost.runs.job import method_defaults
from isocost.screen.words import counted, duration, freedom
from isocost.stats.power import PAIRS, POWER, seeds_for_comparison
from isocost.units import FLOPS, compared

SCALE = 1.0         # the largest difference of rewards from 0 to 1
USEFUL = 0.1        # a difference worth the seeds, where none can be detected
WORDS = {"better": "better", "worse": "[bold]worse[/]", "same": "the same", "cannot tell": "cannot tell"}


# before anything is trained -----------------------------------------------------------------------------------


@show.register
def show_plan(plan: ComparisonPlan, console: Console) -> None:
    """What will be trained, what it costs and what it can detect."""
    d, setting, b = plan.design, plan.setting, plan.expected
    where = f"{setting.problems.data} with {setting.model}"
    against = "method against its parent" if len(d.parents) == 1 else f"{len(d.parents)} methods against their parents"
    what = against if d.parents else f"comparison of {', '.join(d.labels)}"
    sizes = [(worded(arm), ", ".join(f"{x:.2g}" for x in d.rates_at(d.batch(own[0]))), own)
             for arm, own in d.alike().items()]
    text.head(console, f"{what}: {where}" + (f", {sizes[0][0]}" if len(sizes) == 1 else ""))
    seeds, probes = len(d.seeds), len(d.rates) * len(d.probe_seeds)
    for named, rates, labels in sizes if len(sizes) > 1 else ():
        console.print(f"  arms with {named}: {', '.join(labels)}; learning rates: {rates}", soft_wrap=True)
    rates = f"learning rates {sizes[0][1]}" if len(sizes) == 1 else "three learning rates"
    probed = (f"{rates} in {counted(probes, 'probe run')} of {_amount(d.probe_cost, d.unit)}, chosen on the validation "
              "split")
    console.print(f"  each arm  {_piloted(plan.piloted) or probed}", soft_wrap=True)
    console.print(f"            then {counted(seeds, 'run')} of {_amount(d.cost, d.unit)}, {_seeded(seeds)}, "
                  "judged on the test split", soft_wrap=True)
    memory = "" if b.memory_mb is None else f"; {b.memory_mb:.0f} MB of memory per run"
    disk = "" if b.disk_mb is None else f", {b.disk_mb:.0f} MB of disk"
    wall = duration(b.seconds / plan.workers)
    console.print(f"  cost      {_amount(d.total, d.unit)} of {_amount(d.budget['amount'], d.unit)}: about {wall} "
                  f"with {counted(plan.workers, 'run')} side by side{memory}{disk}", soft_wrap=True)
    console.print(f"  power     {detectable(d, plan.noise, bool(plan.piloted))}", soft_wrap=True)
    errors = (f"expected share of false differences at most {RATE:.0%}" if d.parents else
              f"at most {100 * sum(SHARES):g} of 100 comparisons report a false difference")
    console.print(f"  margin    {d.margin:g}; {errors}", soft_wrap=True)
    for label in d.labels:
        if note := method_defaults(d.arms[label], d.used(label, setting)):
            console.print(f"  {label}: {note}", soft_wrap=True)
    if uneven := [label for label in d.labels if d.rollouts % d.batch(label)]:
        console.print(f"  {', '.join(uneven)}: {d.rollouts:,} rollouts are not a whole number of updates; rewards "
                      "are interpolated between evaluations", soft_wrap=True)
    for same in plan.alike:
        console.print(f"  [yellow]! {' and '.join(same)} took bit-identical steps in the toy world: they may not "
                      "differ here either[/]", soft_wrap=True)


def _piloted(rates: Mapping[str, float]) -> str:
    """The learning rates of a pilot, empty without one."""
    return f"the pilot's learning rate: {', '.join(f'{k} {v:.2g}' for k, v in rates.items())}" if rates else ""


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
            f"of {sd:.3f} between runs ({source}){more}")


@show.register
def show_trainer_plan(plan: TrainerComparisonPlan, console: Console) -> None:
    """What will be launched, and what it can detect."""
    d = plan.design
    text.head(console, f"comparison of {', '.join(d.labels)}, settings of your trainer: {worded(d.arm)}")
    for label in d.labels:
        console.print(f"  {label}: {d.recipes[label]['command']}", markup=False, soft_wrap=True)
    probes = len(d.rates) * len(d.probe_seeds)
    rates = ", ".join(f"{x:.2g}" for x in d.rates)
    probed = f"learning rates {rates} in {counted(probes, 'probe run')} of {_amount(d.probe_cost, d.unit)}"
    console.print(f"  each arm  {_piloted(plan.piloted) or probed}, then {counted(len(d.seeds), 'run')} of "
                  f"{_amount(d.cost, d.unit)}, {_seeded(len(d.seeds))}", soft_wrap=True)
    console.print(f"  cost      {_amount(d.total, d.unit)} of {_amount(d.budget['amount'], d.unit)}", soft_wrap=True)
    console.print(f"  power     {detectable(d, plan.noise, bool(plan.piloted))}", soft_wrap=True)


@show.register
def show_gate(gate: Gate, console: Console) -> None:
    """Each rule's line, and the answer."""
    text.head(console, f"is this comparison decidable? {gate.title}")
    words = {True: "yes", False: "no", None: "-"}
    for line in gate.lines:
        console.print(f"  {line.name:<9} {words[line.passed]:<4} {line.text}", markup=False, soft_wrap=True)
    console.print(f"  {'answer':<9}      {gate.answer}", markup=False, soft_wrap=True)
    if gate.file is not None:
        show_record(gate.file, console)


@show.register
def show_sealed(event: Sealed, console: Console) -> None:
    """The seal, and its file."""
    console.print(f"  sealed {event.seal[:12]} in {event.file}")


@show.register
def show_probed(event: Probed, console: Console) -> None:
    """The learning rate of each arm, and the power by the noise that the probes measured."""
    if event.noise:
        console.print(f"  power     {detectable(event.design, event.noise)}", soft_wrap=True)
    console.print("  rates     " + ", ".join(f"{label} {rate:.2g}" for label, rate in event.rates.items()))
    for labels, note in event.flags:
        console.print(f"  [yellow]! {', '.join(labels)}: {note}[/]", soft_wrap=True)


# answers ------------------------------------------------------------------------------------------------------


@show.register
def show_methods(found: MethodComparison, console: Console) -> None:
    """The answer of a comparison of methods, and its record."""
    show_comparison(found.comparison, console, found.rates)
    show_record(found.file, console)


@show.register
def show_folders(found: FolderComparison, console: Console) -> None:
    """The answer of a comparison of folders, and its record if there is one."""
    show_comparison(found.comparison, console, {}, found.counted_in)
    if found.file is not None:
        show_record(found.file, console)


@show.register
def show_parents(found: ParentComparison, console: Console) -> None:
    """The verdicts on methods against their parents, and their record."""
    show_wave(found.wave, console, found.rates)
    show_record(found.file, console)


def show_record(path: Path, console: Console) -> None:
    """The file of the record."""
    console.print(f"\nrecord: {path}")


def show_comparison(c: Comparison, console: Console, rates: Mapping[str, float], counted_in: str | None = None) -> None:
    """The headline, the arms, the answers of every pair, and notes. `rates` are learning rates, empty if unknown."""
    text.head(console, headline(c, counted_in))
    table = Table(box=None, pad_edge=False)
    table.add_column("  arm")
    for name in ("lr", "mean [90 %]", "middle half", "runs", "each")[not rates :]:
        table.add_column(name, justify="left" if name == "each" else "right")
    for a in c.arms:
        bounds = "" if a.low is None or a.high is None else f" [{a.low:.3f}, {a.high:.3f}]"
        values = " ".join(f"{v:.3f}" for v in a.values[:8]) + (" ..." if len(a.values) > 8 else "")
        rate = [f"{rates[a.name]:.2g}"] if rates else []
        table.add_row(f"  {a.name}", *rate, f"{a.mean:.3f}{bounds}", f"{a.iqm:.3f}", str(len(a.runs)), values)
    console.print(table, markup=False)
    for v in c.verdicts:
        console.print(f"\n  {v.a} minus {v.b}: {_verdict(v)}", markup=False)
        for question in QUESTIONS:
            console.print(f"    {question:<11} {_answer(c.answer(question, v.a, v.b))}", markup=False, soft_wrap=True)
    for a in c.arms:
        for names, fate in ((a.diverged, "diverged; counted with the last reward"), (a.short, "ended early; left out")):
            if names:
                text.flags(console, (f"{a.name}: {', '.join(Path(n).name for n in names)} {fate}",))
    for note in c.missing:
        console.print(f"  [yellow]! {note}[/]", soft_wrap=True)


def headline(c: Comparison, counted_in: str | None = None) -> str:
    """One line: the best arm, and the cost at which it is better."""
    where = f"at {_amount(c.cost, c.unit, counted_in)} per run"
    if c.best is not None:
        return f"{c.best} is better ({', '.join(sorted({v.by for v in c.verdicts if v.better == c.best}))}), {where}"
    if c.exit_code == DIFFERENT:
        beaten = [f"{v.better} over {v.b if v.better == v.a else v.a}" for v in c.verdicts if v.better in (v.a, v.b)]
        return f"no arm is better than all others {where}; differences: {', '.join(beaten)}"
    if c.exit_code == SAME:
        return f"the same within {c.margin:g}, {where}"
    return f"cannot tell which is better {where}"


def show_wave(found: ChangeSet, console: Console, rates: Mapping[str, float]) -> None:
    """One row per method, differences first, then how errors were controlled."""
    by = {x: [c.method for c in found.changes if c.verdict == x] for x in WORDS}
    text.head(console, "; ".join(f"{x}: {', '.join(names)}" for x, names in by.items() if names))
    table = Table(box=None, pad_edge=False)
    for name in ("  method", "parent", "verdict", "lr", "mean", "parent's", *QUESTIONS):
        table.add_column(name, justify="right" if name in ("lr", "mean", "parent's") else "left")
    for c in sorted(found.changes, key=lambda c: list(WORDS).index(c.verdict)):
        table.add_row(f"  {c.method}", c.parent, _change(c), f"{rates[c.method]:.2g}", f"{c.means[0]:.3f}",
                      f"{c.means[1]:.3f}", *(_bounds(c.answer(q)) for q in QUESTIONS))
    console.print(table, soft_wrap=True)
    console.print(f"  {found.called} of {counted(found.asked, 'answer')} significant (Benjamini and Hochberg, false "
                  f"discovery rate {found.rate:.0%}); intervals of {100 * (1 - found.alpha):.3g} %; margin "
                  f"{found.margin:g}", soft_wrap=True)
    for c in found.changes:
        for note in c.notes:
            console.print(f"  [yellow]! {note}[/]", soft_wrap=True)


# words --------------------------------------------------------------------------------------------------------


def _seeded(seeds: int) -> str:
    """How runs of different arms are compared."""
    return "paired by seed" if seeds >= PAIRS else "with the same seeds, which are too few to pair"


def _amount(x: float, unit: str, counted_in: str | None = None) -> str:
    """A cost with its unit in words (`counted_in` if given), small amounts to three digits."""
    words = counted_in or compared(unit)
    if unit == FLOPS:
        return f"{x:.2g} {words}"
    return f"{x:,.0f} {words}" if x >= 100 else f"{x:.3g} {words}"


def _verdict(v: Verdict) -> str:
    if v.better in (v.a, v.b):
        return f"{v.better} is better ({v.by})"
    return f"the same within the margin ({v.by})" if v.better == "same" else "cannot tell"


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


def _change(c: Change) -> str:
    return WORDS[c.verdict] + (f" ({c.by})" if c.verdict in ("better", "worse") else "")


def _bounds(x: PairAnswer) -> str:
    if x.value is None or x.low is None or x.high is None:
        return "not known"
    if x.question == "efficiency":
        return f"x{x.value:.2f} [{x.low:.2f}, {x.high:.2f}]"
    return f"{x.value:+.3f} [{x.low:+.3f}, {x.high:+.3f}]"
