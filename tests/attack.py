"""Attacks isocost and prints what came of it; `make attack` runs this.

    python tests/attack.py                        # every attack of tests/attacks, and 50 random kills of kill9.py
    python tests/attack.py --instants 0 tests/attacks/test_data_files.py      # a part of them

An attack is a test of `tests/attacks` that ran: a bad input, a hostile reward, text, folder, client or server. A test
that makes several attempts records how many, as those of escapes.py do for each version of Landlock. Some attacks must
be refused: those whose test requires a one-line error and no traceback. Ends with 1 if an attack got through, if a
resumed run differs from the one that was not killed, or if fewer ran than `LEAST` says.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ATTACKS = HERE / "attacks"
LEAST = {"attacks": 600, "kills": 50, "configurations": 20}
REFUSES = re.compile(r"pytest\.raises\(\s*\(?(UserError|RewardFailed)|\bcode == 2\b")


@dataclass
class Tally:
    """What became of the attacks, as a plugin of pytest."""

    kinds: dict[str, str] = field(default_factory=dict)     # attack: refused, reward, escape or other
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)    # (kind, passed, failed or skipped)

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Function]) -> None:
        for item in items:
            must = set(getattr(item, "fixturenames", ())) & {"refused", "says"}
            refused = must or REFUSES.search(inspect.getsource(item.function))
            of = {"test_verifiers.py": "reward", "test_escapes.py": "escape"}.get(item.path.name, "other")
            self.kinds[item.nodeid] = "refused" if refused and of != "escape" else of

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            attempts = dict(report.user_properties).get("attempts", 1)
            self.ended[self.kinds.get(report.nodeid, "other"), report.outcome] += int(str(attempts))

    def count(self, *outcomes: str, kind: str = "") -> int:
        return sum(v for (k, outcome), v in self.ended.items() if outcome in outcomes and kind in ("", k))


def attacked(asked: Sequence[str]) -> Tally:
    """Run attacks in this process; those that take seconds each too."""
    tally = Tally()
    code = pytest.main([*asked, "-n", "0", "-q", "-m", "slow or not slow", "-p", "no:cacheprovider"], plugins=[tally])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        tally.ended["other", "failed"] += 1      # pytest itself could not go on
    return tally


def killed(instants: int, seed: int) -> dict[str, Any]:
    """What kill9.py found, in a process of its own: it forks, and pytest may have left threads here."""
    words = [sys.executable, str(HERE / "kill9.py"), "--instants", str(instants), "--seed", str(seed)]
    done = subprocess.run(words, capture_output=True, text=True)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        raise SystemExit(f"kill9.py ended with {done.returncode}:\n{done.stderr[-2000:]}") from None


def summary(tally: Tally, kills: dict[str, Any]) -> str:
    """The count, in sentences."""
    tried, stood = (tally.count("passed", "failed"), tally.count("passed"))
    lines = [f"{tried} attacks were tried: {tried - stood} got through."]
    for kind, words in (
        ("refused", "had to be refused: {} were, with one line and no traceback (exit code 2)"),
        ("reward", "were hostile rewards and answers: {} cost at most their own score"),
        ("escape", "were programs in the sandbox, with Landlock 1, 2, 3 and 7: {} reached nothing outside"),
        ("other", "were hostile files, texts, folders, clients and servers: {} changed, ran and held nothing"),
    ):
        lines.append(f"{tally.count('passed', 'failed', kind=kind)} {words.format(tally.count('passed', kind=kind))}.")
    if skipped := tally.count("skipped"):
        lines.append(f"{skipped} were skipped: they need something that is not installed here.")
    if kills:
        lines += [
            f"{kills['killed']} kills with SIGKILL ({kills['at_random_instants']} at random instants over "
            f"{kills['configurations']} configurations, seed {kills['seed']}; the others at named points) of "
            f"{kills['resumed']} runs: {kills['equal']} of {kills['resumed']} resumed runs left equal bytes.",
            f"{kills['stale_killed']} more kills of asynchronous runs: {kills['stale_equal']} runs left equal bytes.",
        ]
    return "\n".join(lines)


def faults(tally: Tally, kills: dict[str, Any], whole: bool) -> list[str]:
    """Why this is no success; nothing if it is. `whole` says that every attack was asked for."""
    failed = tally.count("failed")
    out = [f"{failed} attacks got through"] if failed else []
    out += [] if tally.count("passed") else ["no attack ran"]
    if kills and kills["equal"] != kills["resumed"]:
        out.append(f"{kills['resumed'] - kills['equal']} resumed runs differ from the run that was not killed")
    if whole:
        found = {"attacks": tally.count("passed"), "kills": kills.get("at_random_instants", 0),
                 "configurations": kills.get("configurations", 0)}
        out += [f"{found[k]} {k}, expected at least {least}" for k, least in LEAST.items() if found[k] < least]
    return out


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--instants", type=int, default=LEAST["kills"], help="random kills")
    options.add_argument("--seed", type=int, default=0, help="of the instants")
    asked, words = options.parse_known_args()
    tally = attacked(words or [str(ATTACKS)])
    kills = killed(asked.instants, asked.seed) if asked.instants else {}
    print(f"\n{summary(tally, kills)}")
    wrong = faults(tally, kills, not words)
    for line in wrong:
        print(f"FAILED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
