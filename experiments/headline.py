"""Headlines: what a method's paper claims, asked in the situation it was made for, at equal cost, however it comes out.

    python experiments/headline.py run pope      trains by `isocost compare` in comparisons/headline-pope, asks, and
                                                 keeps what was found as experiments/results/headlines/pope.json;
                                                 goes on where it stopped
    python experiments/headline.py page          docs/headlines.md and its pictures, from all that is kept

A headline is a file in experiments/headlines/: what is trained, and questions about numbers of its runs. Arms, options,
questions and the code that reads the numbers are sealed before the first run, and so is the comparison's own design.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

from isocost import methods
from isocost.cli.commands import main as command
from isocost.compare.design import arm_of, labels_of
from isocost.contract.catalogue import outcome as outcome_of
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.laws.tracks import tracks
from isocost.planner.forecast import digest
from isocost.planner.training.learning_rate import given
from isocost.report import arm_charts, theme
from isocost.runs import files as records
from isocost.runs import rules
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.screen.words import counted, markdown_table
from isocost.stats.power import difference

HOME = Path(__file__).resolve().parents[1]
FOLDER = HOME / "experiments" / "headlines"                 # what is asked
KEPT = HOME / "experiments" / "results" / "headlines"       # what was found
PAGE, IMAGES = HOME / "docs" / "headlines.md", HOME / "docs" / "images"
WRONG = 0.05            # of a headline's answers, so often one may be reported that is wrong; its questions share it
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"
MISSES = (FAILS, UNKNOWN, HOLDS)        # the order on the page
WORLDS = ("puzzles", "sums")
Numbers = Mapping[str, float]
# What modules and folders are called now, and what they were called when the headlines were sealed.
MOVED = (
    ("isocost.tasks.builtin", "isocost.tasks"),
    ("import bases as make", "from isocost.base import make"), ("make.taught_in_torch(", "make.teach("),
    ("tuple[make.Tensor, make.Tensor]", "make.Batch"), ("import bases\n", "import make_puzzles_base as make\n"),
    ('bases.WHOLE.of["slips"]', "make.Lessons().slips"), ("bases.lessons.SLIPS", "make.SLIPS"),
    ("bases.taught_further(", "make.taught_further("), ("bases.lessons.END", "make.CUT"),
    ("from isocost.tasks import sums as family", "from isocost.problems import family"),
    ("isocost.runs.evaluate", "isocost.evaluate"), ("isocost.runs.files", "isocost.record"),
    ("isocost.runs.run", "isocost.run"), ("isocost.tasks.sums", "isocost.problems.family"),
    ("isocost.worlds.setting", "isocost.setting"), ("isocost.methods.int_ import", "isocost.parts.taught import"),
    ("from isocost.methods import rc as rounds", "from isocost.parts import rounds"),
    ("experiments/headlines/methods/", "records/headlines/methods/"), ('job.arm["n"]', "job.n"),
)
IMPORTS = re.compile(r"(?:^ +(?:from|import) .*\n)+", re.M)

HEAD = """# Headlines

This page tests claims of papers in the situations that the methods were made for, such as problems that are never
solved, stale rollouts, or answers of very different lengths. Each situation is built from the embedded models, their
sums and puzzles, small enough for anyone to run again. `python experiments/headline.py page` writes the page from
`experiments/results/headlines/`. Arms, settings, questions, margins and the function that reads the numbers were
fixed and hashed before the first run (constants that it uses, and words, are not hashed). Learning rates are tuned
alike, within the budget, unless stated. Runs of all arms share their seeds and cost the same. Settings were searched
on other seeds, until the situation was there (plain RL fails in it), not until the claim held.

A claim *holds* if the whole interval lies in the claimed range. It *does not hold* if no part of the interval does.
Otherwise the answer is *cannot tell*. Each record's bill contains the cost of training, probes and evaluations. It
excludes reading the ends afterwards (pass@k on either half, InT's trial repairs) and making the bases of RC and SIRI,
but includes RC's rounds, which its runs count themselves. Intervals are Student's, over seeds, of 95 % for all
questions of a headline together. That a claim holds here means that the mechanism works as described. That it does
not hold means only that this tiny world does not show it.
"""

NOT_ASKED = (
    "Two claims could not be asked on puzzles:\n",
    "- TTI grows the number of turns of a dialogue, and a puzzle is one question and one answer. On the sums, where "
    "the same holds, TTI equals its parent to the last digit ([An earlier wave](wave_earlier.md)).",
    "- MinPRO and VCPO are for the situation in which old rollouts break a ratio for each token while fresh ones "
    "bear the same learning rate. On the shortest puzzles, with updates of 16 and 32 rollouts, four learning "
    "rates from 6e-5 to 1.5e-4 and one seed that is in no record, old rollouts lost 0.02 to 0.04 more than fresh "
    "ones where these learned at all, and where old ones failed (0.14 at 1.5e-4, from 0.54) fresh ones fell as "
    "well (0.42). Both are compared with their parents on rollouts eight updates old, at tuned rates, in [A wave "
    "of methods](wave.md).\n",
)


@dataclass(frozen=True)
class Question:
    """Whether a number of one arm's runs less a number of another's lies in what is `claimed`, an open interval.

    `of` and `less` are (arm, number), paired by seed. `floor` is the smallest spread between runs that is believed.
    """

    says: str
    of: tuple[str, str]
    less: tuple[str, str]
    claimed: tuple[float, float] = (0.0, inf)
    floor: float = 1e-3

    def asked(self, runs: Mapping[str, Mapping[int, Numbers]], alpha: float) -> dict[str, Any]:
        """The answer, from every arm's runs by seed. Raises UserError with too few seeds to know a spread."""
        shared = [seed for seed in runs[self.of[0]] if seed in runs[self.less[0]]]
        sides = [{"": {seed: runs[arm][seed][number] for seed in shared}} for arm, number in (self.of, self.less)]
        found = difference(*sides, self.floor)
        if found is None:
            raise UserError(f"{self.says}: two runs of each arm are the least")
        low, high = found.interval(alpha)
        least, most = self.claimed
        answer = HOLDS if least <= low and high <= most else FAILS if high <= least or low >= most else UNKNOWN
        means = [sum(s[""].values()) / len(s[""]) for s in sides]
        return {"says": self.says, "of": means[0], "less": means[1], "value": found.value, "low": low, "high": high,
                "level": 1 - alpha, "seeds": len(shared), "answer": answer}


@dataclass(frozen=True)
class Headline:
    """A claim of one or more methods, how it is brought about, and what is asked of the runs.

    `methods` are those that are tried, each with the numbers of the questions that are about it, from 0; a question
    about the situation is about all. `own` are those whose own claim, as their card has it, these questions ask: for a
    method that is not among them a headline that holds shows something else, or less.
    `arms` and `options` are those of `isocost compare`. `numbers` reads a run's folder, beside the held-out numbers of
    its last evaluation (and of its first, as "pass@1 before"). With `rate` that is every arm's learning rate, and the
    probes decide nothing: for claims of what a given rate does. `prepare` makes what the comparison is of, in its
    folder, where it is not there yet: problems, or a base that the embedded one cannot stand for.
    """

    title: str
    methods: Mapping[str, tuple[int, ...]]
    own: tuple[str, ...]
    claim: str
    arms: tuple[str, ...]
    options: tuple[str, ...]
    questions: tuple[Question, ...]
    numbers: Callable[[Path], Numbers] | None = None
    rate: float | None = None
    prepare: Callable[[Path], None] | None = None

    def sealed(self) -> dict[str, Any]:
        """All that must not be chosen after the fact, as plain data."""
        source = "" if self.numbers is None else _as_sealed(inspect.getsource(self.numbers))
        asks = [{k: str(v) if k == "claimed" else v for k, v in asdict(q).items()} for q in self.questions]
        data = {"claim": self.claim, "arms": [_as_sealed(arm) for arm in self.arms], "options": self.options,
                "questions": asks, "numbers": source}
        more = {} if self.rate is None else {"rate": self.rate}
        more |= {} if self.prepare is None else {"prepare": _as_sealed(inspect.getsource(self.prepare))}
        return dict(json.loads(records.canonical(data | more)))


def _as_sealed(text: str) -> str:
    """A text with the names that modules and folders had when the headlines were sealed: a move changes no question."""
    for now, then in MOVED:
        text = text.replace(now, then)
    return IMPORTS.sub(lambda block: "".join(sorted(block[0].splitlines(keepends=True))), text)


def load(name: str) -> ModuleType:
    """The headline of this name. Raises UserError if there is none."""
    file = FOLDER / f"{name}.py"
    if not file.exists():
        raise UserError(f"no headline {name!r}: there are {', '.join(sorted(f.stem for f in FOLDER.glob('*.py')))}")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# asking ---------------------------------------------------------------------------------------------------------------


def run(name: str) -> dict[str, Any]:
    """Train what is not trained yet, under the seal; ask; keep. Raises UserError if the seal is another by now."""
    module = load(name)
    headline: Headline = module.HEADLINE
    home = Path("comparisons") / f"headline-{name}"
    seal, file = digest(headline.sealed()), home / "headline.json"
    if file.exists() and read_json(file)["seal"] != seal:
        raise UserError(f"{home} was begun under another seal: its arms, options, questions or numbers were changed")
    if not file.exists():
        if (home / "compare.json").exists():
            raise UserError(f"{home} was begun without a seal: what it holds cannot be asked after the fact")
        home.mkdir(parents=True, exist_ok=True)
        write_json(file, {"schema": records.SCHEMA, **headline.sealed(), "seal": seal})
    if headline.prepare is not None:
        headline.prepare(home)
    if headline.rate is not None:       # a comparison keeps the rates that are there
        rule = given(headline.rate, 1, 0.0).data()
        rates = {"schema": records.SCHEMA, "rates": dict.fromkeys(labels_of(headline.arms), rule), "noise": None}
        write_json(home / "rates.json", rates)
    try:
        command(args=["compare", *headline.arms, *headline.options, "--out", str(home)])
    except SystemExit as end:           # which is how the command tells: 0 a difference, 3 none, 4 cannot tell
        if end.code not in (0, 3, 4):
            raise
    found = asked(headline, home, seal)
    (KEPT / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def asked(headline: Headline, home: Path, seal: str) -> dict[str, Any]:
    """The record of a comparison's runs, and what they say."""
    sealed, judged = read_json(home / "compare.json"), read_json(home / "comparison.json")
    design = sealed["design"]
    runs: dict[str, dict[int, Numbers]] = {label: {} for label in design["labels"]}
    curves, ended = [], list(judged["missing"])
    code = {purpose: sorted({read_json(f)["code"]["sources"] for f in (home / "runs").glob(f"{purpose}-*/run.json")})
            for purpose in ("probe", "train")}
    for label in design["labels"]:
        for folder in sorted((home / "runs").glob(f"train-{label}-s*"), key=lambda f: int(f.name.rpartition("-s")[2])):
            runs[label][read_json(folder / "run.json")["seed"]] = numbers(headline, folder)
            (track,) = tracks([folder], design["unit"])
            curves += [{"arm": label, "run": folder.name, "C": round(float(c)), "reward": round(float(y), 5)}
                       for c, y in zip(track.cost, track.reward, strict=True) if c > 0]
    alpha = WRONG / len(headline.questions)
    answers = [q.asked(runs, alpha) for q in headline.questions]
    outcome = outcome_of([a["answer"] for a in answers])
    return {
        "claim": headline.claim, "outcome": outcome, "answers": answers, "seal": seal,
        "comparison_seal": sealed["seal"],
        "command": f"isocost compare {' '.join(headline.arms)} {' '.join(headline.options)}",
        "age": "exact", "code": code,
        "unit": design["unit"], "cost": design["cost"], **Arm.of(design),
        "rates": judged["rates"], "bill": judged["bill"], "ended": ended,
        "runs": {label: {str(seed): dict(n) for seed, n in own.items()} for label, own in runs.items()},
        "curves": curves,
        **({"reproduces": shown} if (shown := reproduced(headline, outcome)) else {}),
        **({"rules": ruled} if (ruled := rules_of(design)) else {}),
    }


def reproduced(headline: Headline, outcome: str) -> dict[str, str]:
    """The methods whose own claim it is, each with where that was seen, if it holds."""
    return dict.fromkeys(headline.own, headline.title) if outcome == HOLDS else {}


def numbers(headline: Headline, folder: Path) -> Numbers:
    """What a run's last evaluation says of the test split, its first, and what the headline reads."""
    lines = [x for x in read_lines(folder / "metrics.jsonl") if "eval/audit" in x]
    last = {"pass@1": lines[-1]["eval/audit"], "pass@1 before": lines[0]["eval/audit"]}
    last |= {k: lines[-1][f"eval/audit/{k}"] for k in ("best@4", "worst@4") if f"eval/audit/{k}" in lines[-1]}
    last |= {k: lines[-1][f"eval/{k}"] for k in ("length",) if f"eval/{k}" in lines[-1]}
    own = headline.numbers(folder) if headline.numbers else {}
    return {k: round(float(v), 5) for k, v in {**last, **own}.items()}


# the page -------------------------------------------------------------------------------------------------------------


def kept() -> dict[str, dict[str, Any]]:
    """Every record there is, by name."""
    return {f.stem: json.loads(f.read_text(encoding="utf-8")) for f in sorted(KEPT.glob("*.json"))}


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page; the same records give the same text."""
    found = dict(sorted(found.items(), key=lambda x: MISSES.index(x[1]["outcome"])))
    again = {load(name).AGAIN: name for name in found if hasattr(load(name), "AGAIN")}
    rows = [(_linked(name), _world(name, again), r["claim"], " ".join((f"**{r['outcome']}**", *_marked(r))))
            for name, r in found.items()]
    head = "\n\n".join(" ".join(part.split()) for part in HEAD.split("\n\n"))
    parts = [head + "\n", markdown_table(("headline", "world", "claim", "here"), rows), *NOT_ASKED]
    parts += [_part(name, load(name), record, again.get(name)) for name, record in found.items()]
    lines = "\n".join(parts).rstrip("\n").split("\n")
    return "\n".join(line if line[:1] in ("|", "<", " ") or line.startswith(("isocost ", "python "))
                     else textwrap.fill(line, 120, break_on_hyphens=False, break_long_words=False)
                     for line in lines) + "\n"


def rules_of(design: Mapping[str, Any]) -> dict[str, int]:
    """The rules of a design's methods that are not 1."""
    return {name: rule for recipe in design.get("recipes", {}).values()
            for name, rule in recipe.get("rules", {}).items()}


def other_rules(record: Mapping[str, Any]) -> str:
    """Which of a record's methods have another rule now: "rule 1 of roc (2 in this version)"; empty if none has."""
    named = {arm_of(label)[0] for label in record["rates"]} & {*methods.shipped()}
    now = {name: rule for name in named if (rule := rules.of_file(name)) != 1}
    return rules.differences(record.get("rules", {}), now)


def _marked(record: Mapping[str, Any]) -> list[str]:
    return [f"({other})"] if (other := other_rules(record)) else []


def _world(name: str, again: Mapping[str, str]) -> str:
    return str(getattr(load(name), "WORLD", WORLDS[name not in again.values()]))


def _linked(name: str) -> str:
    title = load(name).HEADLINE.title
    return f"[{title}](#{_anchor(title)})"


def _part(name: str, module: ModuleType, record: Mapping[str, Any], again: str | None = None) -> str:
    """One headline: the claim, the situation, the picture, the numbers; `again` is the later one on puzzles."""
    headline: Headline = module.HEADLINE
    bill = record["bill"]
    runs, seconds = (sum(part[k] for part in bill.values()) for k in ("runs", "seconds"))
    amount = f"{record['cost']:.2g} FLOP" if record["unit"] == "flops" else f"{record['cost']:,.0f} {record['unit']}"
    situation = " ".join((inspect.getdoc(module) or "").partition("\n\n")[2].split())
    seeds = counted(record["answers"][0]["seeds"], "seed")
    rates = "learning rates " + ", ".join(f"{label} {rate:.2g}" for label, rate in record["rates"].items())
    if headline.rate is not None:
        rates = f"learning rate {headline.rate:g}, not tuned"
    notes = "".join(f"- {n}\n" for n in record["ended"])
    if record["code"]["probe"] != record["code"]["train"]:
        notes += "- The package's sources changed between the learning-rate probes and the runs.\n"
    if len(record["code"]["train"]) > 1:
        notes += "- The package's sources changed during the runs.\n"
    if any("max_age" in label for label in record["rates"]) and record.get("age") != "exact":
        notes += ("- Made by a version in which rollouts were at most as old as `max_age`; now they are exactly that "
                  "old ([Sample and learn at the same time](overlap.md)).\n")
    if other := other_rules(record):
        notes += f"- Made under {other}: it is not evidence for the method as it is now.\n"
    older = again and f"This record is of the older world, the sums. It was asked again on puzzles: {_linked(again)}.\n"
    return "\n".join([
        f"## {headline.title}\n",
        *([older] if older else []),
        f"{record['claim']} **{record['outcome'].capitalize()}**. {_whose(headline)}\n",
        situation + "\n",
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/headline-{name}-dark.svg">\n'
        f'  <img alt="{module.ALT}" src="images/headline-{name}-light.svg">\n</picture>\n',
        markdown_table(("question", "", "baseline", "difference", "claimed", "answer"), [
            (a["says"], _short(a["of"]), _short(a["less"]),
             f"{_signed(a['value'])} [{_signed(a['low'])}, {_signed(a['high'])}]", _claimed(q.claimed), a["answer"])
            for a, q in zip(record["answers"], headline.questions, strict=True)]),
        f"{seeds} an arm, {amount} a run, n = {record['n']}, B = {record['B']}; {rates}. "
        f"{counted(runs, 'run')} including probes, {seconds / 60:.0f} minutes of run time.\n",
        *([notes] if notes else []),
        "```sh", f"python experiments/headline.py run {name}", "```\n",
    ])


def _whose(headline: Headline) -> str:
    """Of which methods this is their own claim, and which claim something else."""
    others = [name for name in headline.methods if name not in headline.own]
    said = [f"This is the claim of {_listed(headline.own)}."] if headline.own else []
    differ = "has a different claim" if len(others) == 1 else "have different claims"
    said += [f"{_listed(others)} {differ} ([Methods](methods.md))."] if others else []
    return " ".join(said)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _short(x: float) -> str:
    return f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"


def _signed(x: float) -> str:
    return f"{x:+.3f}" if abs(x) < 10 else f"{x:+.1f}"


def _claimed(bounds: tuple[float, float]) -> str:
    low, high = bounds
    if high == inf:
        return f"above {low:g}"
    return f"below {high:g}" if low == -inf else f"from {low:g} to {high:g}"


def pictures(found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every picture by file name: the headline's own, or each arm's held-out reward over what it had cost."""
    out = {}
    for name, record in found.items():
        module = load(name)
        spec = module.picture(record) if hasattr(module, "picture") else curves_of(record, module.ALT)
        out |= {f"headline-{name}-{'dark' if dark else 'light'}.svg": theme.svg(spec, dark=dark)
                for dark in (False, True)}
    return out


def curves_of(record: Mapping[str, Any], text: str) -> theme.Spec:
    """A thin line for each run, a thick one for each arm."""
    rows = record["curves"]
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    means = []
    for arm in arms:
        own = [[r for r in rows if r["run"] == run] for run in dict.fromkeys(r["run"] for r in rows if r["arm"] == arm)]
        for points in zip(*own, strict=False):      # runs of an arm are evaluated at the same rollouts
            C, y = (sum(p[k] for p in points) / len(points) for k in ("C", "reward"))
            means.append({"arm": arm, "C": C, "reward": y})
    unit = {"flops": "FLOP", "tokens": "tokens sampled"}.get(record["unit"], record["unit"])
    return arm_charts.arm_curves(rows, means, text, unit)


def main(arguments: Sequence[str]) -> None:
    """`run NAME` or `page`. Raises UserError for anything else."""
    match arguments:
        case ["run", name]:
            found = run(name)
            print(f"{found['outcome']}: {found['claim']}")
            for a in found["answers"]:
                print(f"  {a['says']}: {a['of']:.4g} against {a['less']:.4g}, {a['value']:+.4g} "
                      f"[{a['low']:+.4g}, {a['high']:+.4g}]: {a['answer']}")
        case ["page"]:
            found = kept()
            PAGE.write_text(page(found), encoding="utf-8")
            for file, text in pictures(found).items():
                (IMAGES / file).write_text(text, encoding="utf-8")
        case _:
            raise UserError("say `run NAME` or `page`")


if __name__ == "__main__":
    main(sys.argv[1:])
