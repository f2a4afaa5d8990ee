"""docs/strategies.md and docs/scorers.md: what these are, with tables generated from their files.

    python -m docs.build.strategies docs
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from experiments.claim import HOLDS, KEPT, kept
from isocost import scorers, strategies
from isocost.found import FileKind
from isocost.recipe import knobs

TEXT = """# Strategies

A **strategy** makes one answer from several tries. Many choose by a [scorer](scorers.md). Measure one:

```sh
isocost eval --model tiny-puzzles --data puzzles --limit 40 --samples 2 --strategy best-of:n=4,scorer=steps
```

It prints the accuracy, the tokens of an answer, its depth (tokens written one after the other), and the cost.

A specification is `NAME:SETTING=VALUE,...`. A value with a comma stands in brackets:
`beam:n=16,width=4,scorer=(steps:wrong=0.15,shared=0.5)`.

{strategies}

*pool* strategies choose among finished samples, so one pool gives their accuracy at any size. The others need a model,
and one question with one answer. Strategies with the same n share their random
numbers, so differences between them are paired.

`revise`, `nested`, `rounds` and `force` lower the accuracy of a model that was not trained to continue its own answer.
A model whose vocabulary lacks their words is an error; name others with `show=` and `word=`. `route` passes doubted
steps, or with `rule=prompt` whole prompts, to `strong=MODEL`, which has its own account. `sparse-to-dense` needs
frames, such as those of `--env signal`.

{measured}

A [study](test_time.md) varies n, of `force` the waits and of `rounds` the rounds; `route` and `by-band` have no size
and are measured once. It prices `route` as one model, so its FLOP and money are right only if both models have one size
and price.

**Training.** `play=partial(best_of.play, n=4)` in a recipe trains on the chosen answers; other tries have the
fate `unchosen`. Searches over steps (`beam`, `dvts`, `particles`, `backtrack`, `bfs`, `tree`) conflict with
baselines over siblings. `route` and `rounds` cannot be trained with.

**Your own.** `./my_strategy.py` is a strategy if it has `CARD` and `play`; `isocost methods check ./my_strategy.py`
checks its contract: one rollout per attempt, every try billed, the same result whichever attempts run beside it.
"""
SCORERS = """# Scorers

A **scorer** says how likely each text, finished or not, is to be right, in [0, 1]. [Strategies](strategies.md) choose
by one: `best-of:n=8,scorer=steps`. `--reward scored:steps:misses=0.3` trains on one, and `--truth`
[reports](reward_hacking.md) beside it; scoring is billed. With `--truth` the scorer `outcome` is the truth.

{scorers}

`steps` and `outcome` of the built-in problems are exact; yours will not be. Dials add errors to any scorer:
`wrong=q` misjudges a share q of the texts, always the same ones; `misses` and `flags` do so for bad or good texts
alone; `shared=s` is the correlation of the errors of texts with one answer; `votes=k` is the mean of k readings with
independent errors; `by=min`, `mean` or `prod` scores a text by its steps.

A score outside [0, 1], NaN, a wrong number of scores, an exception, or more than 60 seconds is no score. A try without
one is billed and not chosen. If no try has one, the answer counts as missing.

## Learn a scorer

```sh
isocost scorer tiny-puzzles --data puzzles --limit 40 --texts 2 --per-step 2 --epochs 1 --out scorer
```

continues each step of sampled texts `--per-step` times, and fits a value function to the mean marks. Use it
with `scorer=learned:file=scorer`. On the puzzles it tells hard problems from easy ones, and hardly a right answer from
a wrong one ([evidence](evidence.md#a-learned-scorer)).

`--of prompts` learns a value of prompts before any text (V_0), from pass rates of the model and of `--others`.
`isocost train v0 --set guide.file=scorer` allocates rollouts by it. `route:rule=prompt,strong=MODEL,below=0.45` with
`scorer=(prompts:file=scorer,against=MODEL)` passes a prompt to MODEL, one of `--others`, where its value is more than
0.1 higher there ([evidence](evidence.md#a-value-of-prompts)).

## Your own

A function `my_scorer.py:function` gets `(problem, texts)` and returns a number for each text.
"""


def pages() -> dict[str, str]:
    """The pages in Markdown, by name."""
    return {"strategies": TEXT.format(strategies=table(strategies.KIND), measured=measured()),
            "scorers": SCORERS.format(scorers=table(scorers.KIND))}


def measured() -> str:
    """The claims about strategies that hold: of the first question the two strategies and the difference."""
    lines = []
    for row, answers in ((r["row"], r["answers"]) for r in kept(KEPT / "strategies").values()
                         if r.get("outcome") == HOLDS):
        arm, other = (row["arms"][row["questions"][0][x]] for x in ("arm", "comparator"))
        models = " (larger model)" if arm.get("model") != other.get("model") else ""
        lines.append(f"- `{arm['strategy']}` over `{other['strategy']}`{models} {answers[0]['value']:+.2f}")
    return "\n".join(["**Measured**: [claims](claims.md#test-time-strategies) that hold, with the difference in the "
                      "share solved at equal cost.\n", *lines])


def table(kind: FileKind) -> str:
    """A row for each file: its name, the first sentence of its docstring, and its settings."""
    if kind is strategies.KIND:
        rows = [("strategy", "answer", "settings", "pool")]
        rows += [(f"`{n}`", _first(kind, n), _settings(kind.load(n).play), "yes" if strategies.parse(n).of_pool else "")
                 for n in kind.shipped()]
    else:
        rows = [("scorer", "score", "settings")]
        rows += [(f"`{NAMED.get(n, n)}`", _first(kind, n), _settings(kind.load(n).score)) for n in kind.shipped()]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


NAMED = {"python": "FILE.py:FUNCTION", "endpoint": "http://..."}


def _first(kind: FileKind, name: str) -> str:
    said = " ".join((inspect.getdoc(kind.load(name)) or "").split("\n\n")[0].split())
    said = said.split(". ")[0].removesuffix(".").removesuffix(":")
    return said.split(": ", 1)[-1] if kind is strategies.KIND else said


def _settings(play: object) -> str:
    return ", ".join(f"`{x}`" for x in _each(play))


def _each(play: object) -> Iterator[str]:
    for name, value in knobs(play).items():
        if name in ("function", "url", "prefer", "ask", "reason", "condense", "easy", "medium", "hard", "show"):
            yield name
        else:
            shown = strategies.plain_text(value)
            yield f"{name}={shown}" if shown != "" else name


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / f"{name}.md").write_text(text, encoding="utf-8")
