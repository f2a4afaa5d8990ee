"""What prescriptions give away on real sweeps of n and rate."""

from __future__ import annotations

from typing import Any

from accuracy.pieces import Record, Target, percent
from isocost.words import markdown_table

NAMES = {
    "level1": "sums, one carry", "level2": "sums, two carries", "hard": "hard sums",
    "worked": "worked sums, two carries", "digits4": "additions of 4 digits", "digits6": "additions of 6 digits",
    "desk": "desk",
}
TEXT = """{situations} situations were swept over n and the learning rate, with paired seeds, to four times the length
of a quick pilot. Studies are drawn from these runs: three seeds of each n are its pilot, with the rounds and the rate
check of a user's study, and the law, the choice of n and that of the rate are those of `isocost plan`. {studies}
prescriptions ({cells} situations, budgets and currencies; rollouts and CPU seconds) are compared with the best n of the
sweep at what the budget pays for. The truth is the mean of all seeds, which include the pilot's."""
NS = """Shortfall of the chosen n from the best n, at the rule's rate: mean (90th percentile). *Best at the
end* is the n with the highest mean reward at the end of a pilot with equal runs for every n, at about the same cost.
The *oracle* is the law's choice from such pilots of all seeds."""
RATES = """The learning rate: shortfall of the prescribed rate from the best rate of the sweep at the prescribed n; that
of n and rate together from the best of both; and that of the best n at the end, at the rule's rate. A fallen run ends
more than 0.1 below its reward at the pilot's end."""
MEAN, TENTH, FALLS = 0.01, 0.03, 1 / 40    # largest mean shortfall, that of the worst tenth, and share of fallen runs
SLACK = 0.0005      # means that are equal when they are printed


def section(r: Record) -> str:
    found, every = r["situations"], r["all"]
    text = " ".join(TEXT.split()).format(situations=len(found), studies=f"{every['studies']:,}",
                                         cells=sum(len(x) - 1 for x in found.values()))
    head = ["situation", "isocost", "best at the end", "n = 8", "n = 16", "oracle", "law identified", "prescribed"]
    choices = markdown_table(head, [*(_row(name, x["all"]) for name, x in found.items()), _row("all", every)])
    head = ["situation", "rate", "n and rate", "best at the end, rule's rate", "fallen runs", "rates chosen"]
    rates = markdown_table(head, [*(_rates(name, x["all"]) for name, x in found.items()), _rates("all", every)])
    return (f"## The choice of n on real sweeps\n\n{text}\n\n{' '.join(NS.split())}\n\n{choices}\n"
            f"{' '.join(RATES.split())}\n\n{rates}\n"
            "`python experiments/sweeps.py run && python experiments/sweeps_judge.py`\n")


def _row(name: str, x: dict[str, Any]) -> list[str]:
    oracle = f"{x['oracle']:.3f}" if "oracle" in x else ""
    chosen = ", ".join(f"{n} ({k})" for n, k in x["n"].items())
    return [NAMES.get(name, name), *(_pair(x[k]) for k in ("ours", "end", "n8", "n16")), oracle,
            percent(x["identified"], 0), chosen]


def _rates(name: str, x: dict[str, Any]) -> list[str]:
    chosen = ", ".join(f"x{rate} ({k})" for rate, k in x["rates"].items())
    lost = (_pair(x[k]) for k in ("rate_lost", "whole", "end_whole"))
    return [NAMES.get(name, name), *lost, percent(x["fell"]), chosen]


def _pair(x: list[float]) -> str:
    return f"{x[0]:.3f} ({x[1]:.3f})"


def targets(r: Record) -> list[Target]:
    every, found = r["all"], {k: x["all"] for k, x in r["situations"].items()}
    worse = [NAMES.get(k, k) for k, x in found.items() if x["ours"][0] > x["end"][0] + SLACK]
    return [
        ("mean shortfall of the prescribed n, real sweeps", f"at most {MEAN:g}", f"{every['ours'][0]:.4f}",
         every["ours"][0] <= MEAN),
        ("90th percentile of it", f"at most {TENTH:g}", f"{every['ours'][1]:.4f}", every["ours"][1] <= TENTH),
        ("against the best n at the pilot's end", "no more in any situation",
         f"more in {', '.join(worse)}" if worse else f"no more in {len(found)} of {len(found)}", not worse),
        ("against n = 8", "at most half in the mean", f"{every['ours'][0]:.4f} against {every['n8'][0]:.4f}",
         every["ours"][0] <= every["n8"][0] / 2),
        ("mean shortfall of the prescribed rate", f"at most {MEAN:g}", f"{every['rate_lost'][0]:.4f}",
         every["rate_lost"][0] <= MEAN),
        ("fallen runs at the prescribed rate", "at most 1 in 40", percent(every["fell"]), every["fell"] <= FALLS),
    ]
