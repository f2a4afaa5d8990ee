"""How often a reader who follows the code in the order of its calls goes back to a file that was left.

    python -m experiments.walk STUDY          # one that `isocost quickstart` made; a copy of it is worked on

A function is read where it is first called. A stay is a run of functions in one file, a return is a stay in a file that
was left. `fit` reads every function that the command calls; `plan` those that receive the budget (its text, a Budget,
or a value that has one), from the command to the planner of the pilot.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

import isocost
from isocost.cli.commands import main
from isocost.planner.budget import Budget

PACKAGE, BUDGET, PLANNER = str(Path(isocost.__file__).parent), "77k-rollouts", "plan_pilot"


def read(words, counts):
    """The files of the functions that a command calls and that count, each function once, in order of first calls."""
    found = {}

    def on(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<" and counts(frame, found):
            found.setdefault((code.co_filename.removeprefix(PACKAGE + "/"), code.co_qualname))

    sys.setprofile(on)
    CliRunner().invoke(main, words, catch_exceptions=False)
    sys.setprofile(None)
    return [file for file, _ in found]


def receives_budget(frame, found):
    values = [x for v in frame.f_locals.values() for x in (v.values() if isinstance(v, dict) else [v])]
    held = [getattr(v, "budget", v) for v in values]
    return not any(f == PLANNER for _, f in found) and any(isinstance(x, Budget) or x is BUDGET for x in held)


def walk(made, name, options, later, counts):
    for _ in range(2):         # the first makes what a process keeps, such as the shapes of records
        with tempfile.TemporaryDirectory() as folder:
            study = shutil.copytree(made, Path(folder, "study"), ignore=lambda _, names: set(later) & set(names))
            files = read([name, str(study), *options], counts)
    stays = [file for i, file in enumerate(files) if not i or files[i - 1] != file]
    back = sum(file in stays[:i] for i, file in enumerate(stays))
    print(f"{name}: {len(stays)} stays in {len(set(stays))} files, {back} returns\n  {' > '.join(stays)}")


if __name__ == "__main__":
    LATER = ["law.json", "plan.json", "forecast.json", "audit.json"]
    walk(sys.argv[1], "fit", [], LATER, lambda frame, found: True)
    walk(sys.argv[1], "plan", ["--budget", BUDGET], [*LATER, "rate.json", "shift.json", "pilot.json", "runs"],
              receives_budget)
