"""What prescriptions give away on real sweeps of n and rate."""

from __future__ import annotations

from typing import Any

from accuracy.pieces import Record, Target, percent
from isocost.screen.words import markdown_table

NAMES = {
    "level1": "sums, one carry", "level2": "sums, two carries", "hard": "hard sums",
    "worked": "worked sums, two carries", "digits4": "additions of 4 digits", "digits6": "additions of 6 digits",
    "desk": "desk",
}
TEXT = """{situations} situations were swept over n and the learning rate, with paired seeds, to four times the length
of a quick pilot. Studies are drawn from these runs: three seeds of each n are its pilot, with the rounds and the rate
check of a user's study, and the law, the choice of n and that of the rate are those of `isocost plan`. {studies}
prescriptions ({cells} situations, budgets and currencies; rollouts and CPU seconds) are compared with others at what
the budget pays for. The truth is the mean of all seeds, which include the pilot's. *Best at the end* is the n with the
highest mean reward at the end of a pilot with equal runs for every n, at about the same cost. The *oracle* is the law's
choice from such pilots of all seeds. Numbers are means, with the 90th percentile in parentheses."""
WHOLE = """What the user gets: the shortfall from the best n and rate of the sweep. isocost prescribes a rate, which the
pilot checks at half and at twice the rule's; the other choices are trained at the rule's rate. A fallen run ends more
than 0.1 below its reward at the pilot's end."""
NS = """The choice of n alone: the shortfall from the best n, all at the prescribed rate."""
MEAN, TENTH, FALLS = 0.01, 0.03, 1 / 40    # largest mean shortfall, that of the worst tenth, and share of fallen runs
SLACK = 0.0005      # means that are equal when they are printed
OTHERS = {"end": "best at the end", "n8": "n = 8", "n16": "n = 16", "oracle": "oracle"}


def section(r: Record) -> str:
    found, every = r["situations"], r["all"]
    text = _line(TEXT).format(situations=len(found), studies=f"{every['studies']:,}",
                              cells=sum(len(x) - 1 for x in found.values()))
    rows = [*((name, x["all"]) for name, x in found.items()), ("all", every)]
    whole = markdown_table(["situation", "isocost", *OTHERS.values(), "rate alone", "fallen runs", "rates chosen"],
                           [_whole(*row) for row in rows])
    ns = markdown_table(["situation", "isocost", *OTHERS.values(), "law identified", "prescribed"],
                        [_alone(*row) for row in rows])
    return (f"## The choice of n on real sweeps\n\n{text}\n\n{_line(WHOLE)}\n\n{whole}\n{_line(NS)}\n\n{ns}\n"
            "`python experiments/sweeps_judge.py`\n")


def _line(text: str) -> str:
    return " ".join(text.split())


def _whole(name: str, x: dict[str, Any]) -> list[str]:
    chosen = ", ".join(f"x{rate} ({k})" for rate, k in x["rates"].items())
    return [NAMES.get(name, name), *(_pair(x[f"{k}_whole"]) for k in ("ours", *OTHERS)), _pair(x["rate_lost"]),
            percent(x["fell"]), chosen]


def _alone(name: str, x: dict[str, Any]) -> list[str]:
    chosen = ", ".join(f"{n} ({k})" for n, k in x["n"].items())
    return [NAMES.get(name, name), *(_pair(x[k]) for k in ("ours", *OTHERS)), percent(x["identified"], 0), chosen]


def _pair(x: list[float]) -> str:
    return f"{x[0]:.3f} ({x[1]:.3f})"


def targets(r: Record) -> list[Target]:
    every = r["all"]
    return [
        ("mean shortfall of the prescribed n, real sweeps", f"at most {MEAN:g}", f"{every['ours'][0]:.4f}",
         every["ours"][0] <= MEAN),
        ("90th percentile of it", f"at most {TENTH:g}", f"{every['ours'][1]:.4f}", every["ours"][1] <= TENTH),
        *_against(r, "n alone", ""), *_against(r, "n and rate", "_whole"),
        ("mean shortfall of the prescribed rate", f"at most {MEAN:g}", f"{every['rate_lost'][0]:.4f}",
         every["rate_lost"][0] <= MEAN),
        ("fallen runs at the prescribed rate", "at most 1 in 40", percent(every["fell"]), every["fell"] <= FALLS),
    ]


def _against(r: Record, what: str, kind: str) -> list[Target]:
    """A shortfall against those of the best n at the pilot's end and of n = 8."""
    ours, end, n8 = (f"{k}{kind}" for k in ("ours", "end", "n8"))
    found = {k: x["all"] for k, x in r["situations"].items()}
    worse = [NAMES.get(k, k) for k, x in found.items() if x[ours][0] > x[end][0] + SLACK]
    mine, default = r["all"][ours][0], r["all"][n8][0]
    return [
        (f"{what}, against the best n at the pilot's end", "no more in any situation",
         f"more in {', '.join(worse)}" if worse else f"no more in {len(found)} of {len(found)}", not worse),
        (f"{what}, against n = 8", "at most half in the mean", f"{mine:.4f} against {default:.4f}",
         mine <= default / 2),
    ]
