"""The forecast bill against what was billed, by part of the bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import expm1
from statistics import median

from accuracy.pieces import Record, Target, covers, percent
from isocost.planner.bill import ALL, PARTS, UNITS
from isocost.screen.words import markdown_table
from isocost.units import CPU, ENV_STEPS, FLOPS, SECONDS, TOKENS, words

LEAST = 100         # runs: of fewer there is no verdict
MOST = {TOKENS: 0.05, FLOPS: 0.05, ENV_STEPS: 0.05, CPU: 0.10, SECONDS: 0.10}
QUIET = 1.25        # load average over the number of runs side by side, up to which a machine is idle
SIDE_BY_SIDE = 2

Line = tuple[float, float]      # log of billed / forecast, half the width of its interval


def judged(r: Record, names: Iterable[str] | None = None) -> dict[tuple[str, str], list[Line]]:
    """(part, unit) -> the lines of the runs that calibrated nothing. What no clock measures is counted once where the
    same run was made again."""
    found: dict[tuple[str, str], dict[object, Line]] = defaultdict(dict)
    for name, study in r["studies"].items():
        if study["calibrates"] or (names is not None and name not in names):
            continue
        for run, lines in study["runs"].items():
            for key, (error, half, *billed) in lines.items():
                part, unit = key.split(" / ")
                again = (study["problems"], run, *billed) if billed else (name, run)
                found[part, unit][again] = error, half
    return {key: list(found[key].values()) for key in sorted(
        found, key=lambda k: (UNITS.index(k[1]), PARTS.index(k[0])))}


def _error(lines: list[Line]) -> float:
    return median(abs(expm1(error)) for error, _ in lines)


def _held(lines: list[Line]) -> float:
    return sum(abs(error) <= half + 1e-9 for error, half in lines) / len(lines)


def section(r: Record) -> str:
    lines = judged(r)
    runs = sum(len(s["runs"]) for s in r["studies"].values() if not s["calibrates"])
    body = [(words(unit), part, len(of), percent(_error(of)), percent(_held(of)),
             percent(median(expm1(half) for _, half in of)), _verdict(unit, of))
            for (part, unit), of in lines.items() if part == "all" or unit == UNITS[0]]
    head = ["unit", "part", "runs", "error, median", "90 % intervals hold", "half their width, median", ""]
    sessions = [(name, len(studies), _load(r, studies), *_of_session(r, studies)) for name, studies in
                _sessions(r).items()]
    fitted = sum(s["calibrates"] for s in r["studies"].values())
    return (
        "## The bill\n\n"
        f"Each of {runs:,} runs is billed and compared with its [forecast](bill.md), which is made from the shorter"
        f" runs of its study's pilot. {fitted} other studies calibrated how much trained runs spread more than the"
        " pilot's; one of them is a set of agents, whose answers grow: trends were added to the intervals after it."
        " The studies are quickstarts, studies of 100,000 rollouts on the built-in sums, and two sets of agents; tokens"
        " and FLOP of a run that several versions made alike are counted once. CPU time and environment steps are also"
        " those of the [sweeps](#the-choice-of-n-on-real-sweeps), where seeds 0 and 1 forecast the runs of the other"
        " seeds, which are as long.\n\n"
        + markdown_table(head, body)
        + f"\nParts with fewer than {LEAST} runs have no verdict; the record has the parts of other units. Run time"
        " depends on what else the machine does. By session, for runs that calibrated nothing:\n\n"
        + markdown_table(["session", "studies", "load average, at most", "runs", "run time: error, median",
                          "90 % intervals hold"], sessions)
        + "\nNo session was made on an idle machine with its load recorded: one was quiet by its even times, but its"
        " version of isocost did not record the load, and the others shared two cores with other programs.\n\n"
        f"`python experiments/bills.py {' '.join(r['folders'])} --sweeps --out experiments/results/bills.json`"
        " of commit 4088ddf0, where each folder holds the studies of a session; they are not in the repository\n"
    )


def _verdict(unit: str, lines: list[Line]) -> str:
    if len(lines) < LEAST:
        return "no verdict"
    error, inside = _error(lines) <= MOST[unit], covers(_held(lines))
    missed = [] if error else ["error"]
    missed += [] if inside is True else [str(inside)]
    return f"**missed**: {', '.join(missed)}" if missed else "met"


def _sessions(r: Record) -> dict[str, list[str]]:
    """Session -> its studies that calibrated nothing."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, study in r["studies"].items():
        if "/" in name and not study["calibrates"]:
            found[name.partition("/")[0]].append(name)
    return found


def _load(r: Record, studies: list[str]) -> str:
    loads = [load for name in studies if (load := r["studies"][name]["load"]) is not None]
    return f"{max(loads):.1f}" if len(loads) == len(studies) else "not recorded"


def _of_session(r: Record, studies: list[str]) -> tuple[int, str, str]:
    lines = judged(r, studies)[ALL, SECONDS]
    return len(lines), percent(_error(lines)), percent(_held(lines))


def targets(r: Record) -> list[Target]:
    lines, out = judged(r), []
    for unit in (TOKENS, FLOPS, ENV_STEPS, CPU):
        of, most = lines.get((ALL, unit), []), percent(MOST[unit], 0)
        if len(of) >= LEAST:
            out.append((f"bill: {words(unit)}, median error of {len(of)} runs", f"at most {most}",
                        percent(_error(of)), _error(of) <= MOST[unit]))
            out.append((f"bill: {words(unit)}, 90 % interval covers", "85 to 95 %", percent(_held(of)),
                        covers(_held(of))))
        else:
            out.append((f"bill: {words(unit)}, median error of {len(of)} runs (too few)", f"at most {most}",
                        percent(_error(of)) if of else "–", None))
    times = lines[ALL, SECONDS]
    out.append(("bill: run time, 90 % interval covers", "85 to 95 %", percent(_held(times)), covers(_held(times))))
    quiet = [name for studies in _sessions(r).values() for name in studies
             if (r["studies"][name]["load"] or 99) <= QUIET * SIDE_BY_SIDE]
    idle = judged(r, quiet).get((ALL, SECONDS), [])
    holds: bool | str = "no idle machine was available" if len(idle) < LEAST else _error(idle) <= MOST[SECONDS]
    out.append(("bill: run time on an idle machine with its load recorded, median error", "at most 10 %",
                percent(_error(idle)) if len(idle) >= LEAST else f"{percent(_error(times))} on all machines", holds))
    return out
