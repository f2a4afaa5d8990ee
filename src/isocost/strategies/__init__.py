"""Strategies: how one answer is made of several tries. One file each, found by its name.

    one   best-of:n=16,scorer=steps   beam:n=16,width=4,scorer=(steps:wrong=0.15,shared=0.5)   ./mine.py:n=4

A file has a docstring with its equation, `CARD`, and `play`, an `isocost.seams.Play` whose keywords are its settings,
with their bounds and traits. It may have `check(**settings)`, which raises UserError for settings that do not fit each
other, and `SIZE`, the setting that a study varies if that is not n. If the answer is a function of a pool of finished
samples it has `choose(answers, scores, ...)`, whose keywords are settings of `play`. So one value serves everywhere: a
recipe trains with it as `play`, `isocost eval --strategy` measures it, and a server answers with it.

Each attempt gives one rollout, with the number of that attempt: the chosen one. Its notes are `tries` (rollouts that
were begun for it), `depth` (tokens written one after the other: latency without a clock), `score` (by the scorer, if
any), `scoring` (tokens that the scorer took; of them `scoring_read` and `scoring_written` by an engine), `calls`
(verifier calls); of a search `steps`; of a pool `mute` (tries without a vote) and `alike` (1 where all scores are
equal). The others are charged, and their fate is `unchosen`. If no try has a score the rollout has `Stop.ERROR`, and no
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from isocost import scorers
from isocost.errors import UserError
from isocost.found import Card, FileKind, from_file
from isocost.recipe import functions, knobs, with_setting
from isocost.seams import Play

__all__ = ["KIND", "Card", "Pick", "Strategy", "known", "names", "parse"]
KIND = FileKind("isocost.strategies", "strategy", ("CARD", "play"), "docs/strategies.md", dashes=True,
                beside=("paths",))


class Pick(NamedTuple):
    """What a strategy chooses of a pool: the number of a sample, and how many it asked for at once, in order.

    Without one no sample can be chosen, because none has a score or an answer.
    """

    chosen: int | None
    batches: tuple[int, ...]

    @property
    def tries(self) -> int:
        """How many samples were used."""
        return sum(self.batches)

    def depth(self, lengths: Sequence[int]) -> int:
        """Tokens written one after the other, of the samples' lengths in order: the longest of each batch."""
        starts = [sum(self.batches[:i]) for i in range(len(self.batches))]
        return sum(max(lengths[s : s + k], default=0) for s, k in zip(starts, self.batches, strict=True))


@dataclass(frozen=True)
class Strategy:
    """A strategy with its settings, of which `settings` has each, as text where it is a scorer or a strategy."""

    name: str
    settings: Mapping[str, Any]
    play: Play
    card: Card
    pool: Callable[[Sequence[str | None], Sequence[float | None]], Pick] | None = None
    size: str = "n"         # the setting that a study varies; empty: none

    def __str__(self) -> str:
        """As `parse` reads it back, without what is as by default."""
        default = parse(self.name).settings
        said = (f"{k}={f'({v})' if ',' in str(v) else v}" for k, v in self.settings.items() if v != default[k])
        return self.name + "".join(f"{':' if i == 0 else ','}{x}" for i, x in enumerate(said))

    @property
    def of_pool(self) -> bool:
        """Whether the answer is a function of a pool of finished samples, with their scores."""
        return self.pool is not None

    @property
    def most(self) -> int:
        """How many samples of a pool it uses at most; 1 where the strategy has no n."""
        return int(self.settings.get("n", 1))

    def choose(self, answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
        """The choice among the first samples of a pool, of which each has an answer, or None, and a score, or None.

        Samples beyond `most` are not used. Raises UserError for a strategy that is not of a pool.
        """
        if self.pool is None:
            raise UserError(f"{self} searches step by step, so it is no function of finished samples: it needs a model")
        if len(answers) < self.most or len(scores) != len(answers):
            raise UserError(f"{self} needs {self.most} samples with scores, and the pool has {len(answers)}")
        return self.pool(answers, scores)

    @property
    def scorer(self) -> str:
        """The scorer that it chooses by, as text; empty for none."""
        return str(self.settings.get("scorer") or "")

    @property
    def models(self) -> list[str]:
        """Other models that it, a strategy in it or a scorer asks, as in --model.

        Raises UserError for the scorer `prompts` without its folder, which names the model that it reads prompts by.
        """
        from isocost.scorers import prompts

        files = [re.search(r"\bfile=([^,]+)", x) for x in re.findall(r"\bscorer=\(*prompts\b([^()]*)", str(self))]
        return [*re.findall(r"\b(?:strong|model)=([^,()]+)", str(self)),
                *(prompts.opened(found[1] if found else "scorer").model for found in files)]

    @property
    def traits(self) -> frozenset[str]:
        """Of its play, at these settings (`isocost.traits.TRAITS`): they decide what may be trained on it."""
        return frozenset(t.name for x in functions(self.play) for t in x.declared.traits if t.holds(x.settings))


def names() -> list[str]:
    """The names of all strategies: those of this package and of installed plug-ins, sorted."""
    return KIND.names()


def known(spec: str) -> bool:
    """Whether a specification names a strategy: one of `names`, or a .py file with a `play` that is no method."""
    name = spec.strip().partition(":")[0]
    if not name.endswith(".py"):
        return name in names()
    return Path(name).is_file() and hasattr(module := from_file(Path(name)), "play") and not hasattr(module, "recipe")


def parse(spec: str) -> Strategy:
    """The strategy that a specification names: `NAME`, or `NAME:SETTING=VALUE,...` with a value in brackets if it has
    a comma.

    Raises UserError for an unknown name or setting, with the nearest, and for a value that does not fit.
    """
    name, _, options = spec.strip().partition(":")
    module = KIND.load(name)
    play, said = module.play, dict[str, str]()
    for option in _parted(options):
        setting, equals, value = (x.strip() for x in option.partition("="))
        there = knobs(play)
        if not equals or setting not in there:
            close = " or ".join(map(repr, get_close_matches(setting, there)))
            close = f" (did you mean {close}?)" if close else ""
            raise UserError(f"strategy {spec!r} has no setting {setting!r}{close}; {name} has "
                            f"{', '.join(there) or 'none'}")
        value = value[1:-1] if value.startswith("(") and value.endswith(")") else value
        try:
            if setting == "scorer":
                play = partial(play, scorer=None if value == "none" else scorers.parse(value))
                said[setting] = "" if value == "none" else value
            elif callable(there[setting]):
                play = partial(play, **{setting: parse(value).play})
                said[setting] = value
            else:
                play = with_setting(play, setting, value, name)
        except KeyError as error:
            raise UserError(f"strategy {spec!r}: {setting}={value}: {error.args[0]}") from None
    values = knobs(play)
    if check := getattr(module, "check", None):
        check(**{k: v for k, v in values.items() if k in knobs(check)})
    choose = getattr(module, "choose", None)
    pool = choose and partial(choose, **{k: v for k, v in values.items() if k in knobs(choose)})
    size = getattr(module, "SIZE", "n")
    return Strategy(name, {k: said.get(k, plain_text(v)) for k, v in values.items()}, play, module.CARD, pool,
                    size if size in values else "")


def _parted(options: str) -> list[str]:
    """The options of a specification, parted at the commas outside of brackets."""
    out, depth = [""], 0
    for c in options:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            out.append("")
        else:
            out[-1] += c
    return [x for x in out if x.strip()]


def plain_text(value: Any) -> Any:
    """A setting as it is written: a function by the name of its file."""
    if not callable(value):
        return "" if value is None else value
    own = ",".join(f"{k}={plain_text(v)}" for k, v in getattr(value, "keywords", {}).items())
    return getattr(value, "func", value).__module__.rpartition(".")[2].replace("_", "-") + (own and f":{own}")
