"""SIRI on puzzles: answers get shorter while their limit shrinks and grows, at equal accuracy.

The problems are the shortest puzzles and their own base, which nobody taught two lengths. A countdown is answered by a
search, whose dead ends cost tokens; a chain or an addition has one line of steps, so its answers can shrink only by
leaving out steps. An answer has room for 48 tokens (the base's are 23 long in the mean), and at the narrowest for 24,
SIRI's half. A cycle has 12 updates, so that a run has three or so, like the paper's. Every policy is measured with room
for 48 tokens. The schedule is the cosine, SIRI's own choice. No other
setting was tried.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headline import Headline, Question, load
from isocost.report import arm_charts

before = load("siri").numbers       # reads tokens an answer before training, as there
SIRI, PLAIN, BASE = "siri@pace.period=12", "dapo", "before training"
NAMES = {PLAIN: "DAPO", SIRI: "SIRI"}
AGAIN = "siri"          # the headline of the older world that asked this
ALT = "Held-out accuracy over tokens an answer on puzzles, for the base, DAPO and SIRI: small marks are runs"


def numbers(folder: Path) -> Mapping[str, float]:
    """Tokens an answer before training, and the updates of a run."""
    from isocost.runs.files import read_json

    return {**before(folder), "updates": read_json(folder / "end.json")["steps"]}


def picture(record: Mapping[str, Any]) -> dict[str, Any]:
    """Where each run ended."""
    rows = [{"arm": NAMES[label], "x": run["length"], "y": run["pass@1"]}
            for label, runs in record["runs"].items() for run in runs.values()]
    some = next(iter(record["runs"][PLAIN].values()))       # every run began from the same policy
    rows.append({"arm": BASE, "x": some["length before"], "y": some["pass@1 before"]})
    return dict(arm_charts.ends(rows, "tokens an answer", "held-out accuracy", ALT, BASE))


HEADLINE = Headline(
    title="SIRI on puzzles",
    methods={"siri": (0, 1, 2)},
    own=("siri",),
    claim="Squeezed and released in cycles, answers to puzzles grow shorter at equal accuracy.",
    arms=(PLAIN, SIRI),
    options=("--data", "puzzles:length=1,count=900", "--max-tokens", "48", "--held-out", "320",
             "--samples", "3", "--evaluations", "2", "-n", "8", "-B", "16", "--threads", "1",
             "--seeds", "5", "--budget", "6e12flop"),
    questions=(
        # 2 tokens are a twelfth of an answer; 0.02 is the difference that held-out sets are made to show
        Question("left alone, answers grow no shorter", (PLAIN, "length"), (PLAIN, "length before"),
                 (-2.0, float("inf"))),
        Question("tokens an answer: SIRI against DAPO", (SIRI, "length"), (PLAIN, "length"), (float("-inf"), -2.0)),
        Question("accuracy: SIRI against DAPO", (SIRI, "pass@1"), (PLAIN, "pass@1"), (-0.02, float("inf"))),
    ),
    numbers=numbers,
)
