"""Mark and truth: the reward that trains beside the one that is wanted, of runs with a truth."""

from __future__ import annotations

from typing import NamedTuple

from isocost.errors import UserError
from isocost.report import charts
from isocost.report.html import brief, figure, join, p, sentence, share
from isocost.report.records import Data, ReportRecords
from isocost.report.section import Section
from isocost.report.sections.contest import means
from isocost.report.sections.outcome import prescribed_n
from isocost.report.theme import Spec
from isocost.runs.files import RunFiles
from isocost.runs.parted import Parting, of_arms
from isocost.screen.words import counted

KEYS = {"mark": "eval/audit/mark", "truth": "eval/audit"}


class Plot(NamedTuple):
    """Mark and truth against rollouts, of the trained runs, or of the pilot's: at the prescribed n, if there is one."""

    spec: Spec
    alt_text: str
    rows: list[Data]
    said: list[str]     # whether they have parted: of one run, else by arm


def plot(study: ReportRecords) -> Plot | None:
    """Both on the test split; None where no run has a truth."""
    own = study.of("train", "run") or study.of("pilot")
    chosen = [r for r in own if r.size("n") == prescribed_n(study)] or own
    rows, arms, found = list[Data](), dict[str, list[RunFiles]](), list[Parting]()
    for run in chosen:
        files = RunFiles(run.folder)
        try:
            lines, parting = files.lines("metrics.jsonl"), Parting.of(files)
        except (UserError, LookupError, TypeError, ValueError):     # a broken record: a flag names it
            continue
        if parting is not None:
            found.append(parting)
            arms.setdefault(f"{run.about.get('method')}, n = {run.size('n')}", []).append(files)
            rows += [{"arm": name, "run": f"{run.name}, {name}", "C": x["rollouts"], "reward": round(x[key], 6)}
                     for x in lines for name, key in KEYS.items() if x["rollouts"] and x.get(key) is not None]
    if not rows:
        return None
    ends = {a: max((r for r in rows if r["arm"] == a), key=lambda r: r["C"]) for a in KEYS}
    alt_text = "Held-out mark and truth against training rollouts: " + "; ".join(
        f"{a} {share(r['reward'])} at {brief(r['C'])}" for a, r in ends.items())
    said = [found[0].said()] if len(found) == 1 else of_arms(arms)
    return Plot(charts.arm_curves(rows, means(rows), alt_text), alt_text, rows, said)


def parted(study: ReportRecords) -> Section | None:
    """The plot and what it says; None where no run has a truth."""
    drawn = plot(study)
    if drawn is None:
        return None
    caption = ("The mark is by the verifier that trains, the truth by the one that reports, of the same attempts on the"
               " test split. Where the truth falls and the mark does not, the policy is hacking the reward.")
    runs = counted(len({r["run"] for r in drawn.rows}) // len(KEYS), "run")
    return Section("parted", f"Mark and truth of {runs}", join(
        *(p(sentence(x), cls="lead") for x in drawn.said),
        figure("parted", drawn.spec, drawn.alt_text, caption, drawn.rows)))
