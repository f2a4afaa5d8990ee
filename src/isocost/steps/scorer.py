"""A scorer that is learned from continuations, and what it gets wrong on problems that it was not fitted on.

    for each text, and each step of it: m continuations  →  the label of the text up to there is their mean mark
    the value function is fitted to these labels by cross-entropy (Wang et al. 2024, "Math-Shepherd", arXiv:2312.08935)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isocost import chance, meter
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.gather import finished, together
from isocost.parts.play import fork, sample
from isocost.parts.reward import marked
from isocost.runs.files import SCHEMA
from isocost.scorers import answer_of, step_of
from isocost.screen.display import Result, Row
from isocost.screen.words import counted
from isocost.seams import Pace
from isocost.stats.ranking import auroc, auroc_within, shared_errors
from isocost.steps.events import SILENT, Observer, Tell
from isocost.steps.look.evaluate import PassRateMean, mean_over
from isocost.strategies.paths import step_ids
from isocost.types import Cost, Group, Place, Problem, Role, Rollout, Score
from isocost.world import Critic, World
from isocost.worlds.setting import Setting, open_setting

BATCH, HALF = 64, 0.5       # texts of an update; the score from which a text is accepted


@dataclass(frozen=True)
class Fitting:
    """How a scorer is learned: `texts` per problem, `per_step` continuations of each step, `epochs` over the labels."""

    texts: int = 4
    per_step: int = 8
    epochs: int = 4
    lr: float = 3e-4
    seed: int = 0


@dataclass(frozen=True)
class ScorerResult(Result):
    """A learned scorer, and what it gets wrong on `problems` problems that it was not fitted on.

    accepts: share of wrong finished texts with a score of 0.5 and more; rejects: share of right ones below it. within:
    AUROC of finished texts within a problem, mean over problems with its interval; across: of all texts together.
    under_way: AUROC within problems of texts cut at a step, against how that text ended. shared: correlation of the
    errors of two texts of one problem with one answer. wrong: share of finished texts that it misjudges. labels: how
    many it was fitted to. cost: of sampling, fitting and measuring.
    """

    out: str
    model: str
    data: str
    problems: int
    texts: int
    labels: int
    wrong: float
    accepts: float
    rejects: float
    within: PassRateMean
    across: float
    under_way: PassRateMean | None
    shared: float
    cost: dict[str, Any]

    def rows(self) -> list[Row]:
        """Its errors, and the dials that stand for them."""
        on = f"{counted(self.texts, 'finished text')} of {counted(self.problems, 'problem')}"
        rows = [
            Row("errors", f"{self.wrong:.3f} of {on} that it was not fitted on: accepts {self.accepts:.3f} of the "
                          f"wrong ones, rejects {self.rejects:.3f} of the right ones"),
            Row("ranks", f"AUROC within problems {_said(self.within)}, across problems {self.across:.3f}"),
        ]
        if self.under_way is not None:
            rows.append(Row("steps", f"AUROC within problems of texts cut at a step {_said(self.under_way)}"))
        rows.append(Row("repeats", f"errors of two texts with one answer correlate at {self.shared:.2f}; the dials "
                                   f"wrong={self.wrong:.2f},shared={max(self.shared, 0.0):.2f} stand for this"))
        if self.within.low <= HALF:
            rows.append(Row("", "it does not rank answers to one problem better than chance: no search can use it",
                            "flag"))
        rows.append(Row("cost", f"{self.labels:,} labels; {self.cost['rollouts']:,} rollouts, {self.cost['decode']:,} "
                                f"tokens written, {self.cost['train']:,} trained on"))
        rows.append(Row("use", f"scorer=learned:file={self.out}", "command"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """scorer.json."""
        out = {"schema": SCHEMA, **vars(self), "within": vars(self.within)}
        return out | {"under_way": vars(self.under_way) if self.under_way else None}


def _said(mean: PassRateMean) -> str:
    return f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]"


def learn_scorer(setting: Setting, out: Path, fitting: Fitting = Fitting(), *, observer: Observer = SILENT
                 ) -> ScorerResult:
    """Fit a value function of the setting's model to continuations on its training problems, and measure it.

    It is measured on the held-out problems. Writes the scorer and scorer.json to the folder `out`, for
    `scorer=learned:file=OUT`.

    Raises UserError for a model that cannot be trained, problems whose texts have no steps, and held-out problems of
    which none has right and wrong texts.
    """
    from safetensors.torch import save_file

    from isocost.scorers import learned

    with observer.counting("scorer") as tell:
        opened = open_setting(setting, check=True)
        world, pace = opened.world, setting.measured
        try:
            if world.new_critic is None or setting.problems.env:
                raise UserError("a scorer is learned of single answers, by a model on this machine: leave out --env")
            critic = world.new_critic()
            with meter.on(meter.PROBE):
                labelled = finished(_labelled(world, opened.sides.train, pace, fitting, tell))
                count = _fit(critic, labelled, fitting, world, tell)
                found = finished(_scored(world, opened.sides.held_out, pace, fitting, critic, tell))
        finally:
            opened.close()
    result = _measured(found, out, setting, count, world.meter.total)
    out.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in critic.state().items() if not k.startswith("adam.")},
              out / learned.WEIGHTS)
    write_json(out / learned.ABOUT, result.to_dict())
    return result


@dataclass(frozen=True)
class Labelled:
    """A finished text, and the label of its first `at` tokens for each of these positions."""

    rollout: Rollout
    labels: dict[int, float]


def step_ends(rollout: Rollout, world: World) -> list[int]:
    """The positions after each step of a text but its last token."""
    text, ends = rollout.segments[-1], step_ids(world, step_of(rollout.problem))
    here = text.own & np.isin(text.tokens, ends)
    return [int(t) + 1 for t in np.flatnonzero(here) if t + 1 < len(text)]


async def _labelled(
    world: World, problems: Sequence[Problem], pace: Pace, fitting: Fitting, tell: Tell
) -> list[Labelled]:
    """Texts of each problem, with the mean mark of `per_step` continuations of each step, and their own mark."""
    done = 0

    async def one(slot: int, problem: Problem) -> list[Labelled]:
        nonlocal done
        place = Place(fitting.seed, 0, slot, int(chance.Purpose.PROFILE))
        texts = await marked(await sample(problem, range(fitting.texts), world, pace, place), problem, place, world)
        out = [await label(t, place) for t in texts if t.mark is not None]
        done += 1
        tell("problems", done, len(problems))
        return out

    async def label(text: Rollout, place: Place) -> Labelled:
        cuts, m = step_ends(text, world), fitting.per_step
        first = fitting.texts + text.attempt * pace.max_tokens * m
        made = await together(*(
            fork(text, at, range(first + k * m, first + (k + 1) * m), world, pace, place) for k, at in enumerate(cuts)))
        marks = [await marked(some, text.problem, place, world) for some in made]
        known = {at: [r.mark.value for r in some if r.mark is not None] for at, some in zip(cuts, marks, strict=True)}
        assert text.mark is not None
        return Labelled(text, {**{at: sum(x) / len(x) for at, x in known.items() if x},
                               len(text.segments[-1]): text.mark.value})

    made = [x for some in await together(*(one(i, p) for i, p in enumerate(problems))) for x in some]
    if all(len(x.labels) == 1 for x in made):
        raise UserError(f"no {step_of(problems[0])!r} in {counted(len(made), 'text')} of "
                        f"{counted(len(problems), 'problem')}: a scorer of steps needs texts with steps")
    return made


def _fit(critic: Critic, labelled: Sequence[Labelled], fitting: Fitting, world: World, tell: Tell) -> int:
    """Fit to all labels, `BATCH` texts at a time in random order; returns how many labels there are."""
    import torch

    from isocost.pack import pack

    updates = range(0, len(labelled), BATCH)
    for epoch in range(fitting.epochs):
        order = chance.generator(fitting.seed, chance.Purpose.FORK, epoch).permutation(len(labelled))
        for k, start in enumerate(updates):
            some = [labelled[i] for i in order[start : start + BATCH]]
            rollouts = tuple(
                x.rollout.but(segments=(x.rollout.segments[-1].read([0], Role.OWN),), attempt=i, score=Score(0.0))
                for i, x in enumerate(some))
            batch = pack([Group(some[0].rollout.problem, rollouts, Place(0, 0, 0))], world.engine.version)
            target, mask = torch.zeros_like(batch.logp), torch.zeros_like(batch.mask)
            for i, x in enumerate(some):
                at = list(x.labels)
                target[i, at], mask[i, at] = torch.tensor(list(x.labels.values())), True
            critic.fit(batch.but(mask=mask), target, lr=fitting.lr)
            tell(f"updates of epoch {epoch + 1} of {fitting.epochs}", k + 1, len(updates))
    return sum(len(x.labels) for x in labelled)


@dataclass(frozen=True)
class HeldOut:
    """Of one problem that the scorer was not fitted on: for each finished text its mark, its score and its answer, and
    the scores of its steps."""

    right: list[bool]
    score: list[float]
    answer: list[str | None]
    steps: list[list[float]]


async def _scored(
    world: World, problems: Sequence[Problem], pace: Pace, fitting: Fitting, critic: Critic, tell: Tell
) -> list[HeldOut]:
    """Twice as many texts of each problem as it was fitted on, with their scores."""
    from isocost.scorers import learned

    async def one(slot: int, problem: Problem) -> HeldOut:
        place = Place(fitting.seed, 1, slot, int(chance.Purpose.PROFILE))
        made = await sample(problem, range(2 * fitting.texts), world, pace, place)
        texts = [t for t in await marked(made, problem, place, world) if t.mark is not None]
        cut = [[t.segments[-1].cut(at) for at in step_ends(t, world)] for t in texts]
        flat = iter(learned.values(critic, [*(t.segments[-1] for t in texts), *(c for own in cut for c in own)],
                                   problem, world) if texts else ())
        score = [next(flat) for _ in texts]
        tell("held-out problems", slot + 1, len(problems))
        return HeldOut([t.mark is not None and t.mark.value >= HALF for t in texts], score,
                       [answer_of(problem, t.final) for t in texts], [[next(flat) for _ in own] for own in cut])

    return await together(*(one(i, p) for i, p in enumerate(problems)))


def _measured(found: Sequence[HeldOut], out: Path, setting: Setting, labels: int, cost: Cost) -> ScorerResult:
    right = np.array([x for f in found for x in f.right])
    score = np.array([x for f in found for x in f.score])
    wrong = (score >= HALF) != right
    if right.all() or not right.any():
        raise UserError(f"of {counted(len(right), 'text')} of {counted(len(found), 'held-out problem')} "
                        f"{'all are' if len(right) and right.all() else 'none is'} right: name problems of which some "
                        "texts are right and some wrong")
    each = auroc_within([(f.score, f.right) for f in found])
    if len(each) < 2:
        raise UserError("fewer than two held-out problems have right and wrong texts: hold out more with --held-out")
    keys = [(i, a) for i, f in enumerate(found) for a in f.answer]
    under_way = [([x for own in f.steps for x in own],
                  [r for r, own in zip(f.right, f.steps, strict=True) for _ in own]) for f in found]
    steps = auroc_within(under_way)
    return ScorerResult(
        str(out), setting.model, setting.problems.data, len(found), len(right), labels, float(wrong.mean()),
        float(wrong[~right].mean()), float(wrong[right].mean()), mean_over(each), auroc(score.tolist(), right.tolist()),
        mean_over(steps) if len(steps) > 1 else None, shared_errors(wrong.tolist(), keys), cost.data(),
    )
