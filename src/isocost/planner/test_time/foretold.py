"""Strategies of a policy that was not trained, from a law's accuracy of one sample and three measured policies.

A strategy's accuracy on a problem is taken as linear in the mean accuracy of one sample: from V at the mean v, of a
policy, to W at w, of one that was trained for longer, V + t (W - V) with t = (a - v) / (w - v), at the law's a.

Three policies, the study's own model and two of the law's method, give three such lines, each a third of the draws:
how much they disagree is part of the interval. Draws are over the law's interval and seeds; `PolicyFrontier` adds
problems. docs/train_or_infer.md compares the rule with measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from isocost.chance import Purpose, generator
from isocost.disk.shape import Plain
from isocost.planner.test_time.estimates import Measured
from isocost.stats.intervals import Interval, student

FORETOLD = "foretold"
EACH = 100          # draws of each line
FURTHEST = 3.0      # times its measured length that a line is followed


@dataclass(frozen=True)
class Foretold(Plain):
    """What a law says of a policy: the accuracy `one` of one sample after `rollouts` of training; `base` is that of the
    untrained model on the same problems. `along`: two trained policies, of which the second was trained for longer."""

    name: str
    one: Interval
    base: float
    rollouts: float
    along: tuple[str, str]

    def measured(self, found: Sequence[Measured], seed: int) -> tuple[list[Measured], str]:
        """Every strategy and size of pools, at the cost that an answer of the longer trained policy has, whose `runs`
        are draws, (draws, problems); none where fewer than two lines reach the law's accuracy. And what to do next."""
        three, draws = ("", *self.along), np.arange(3 * EACH)
        by = {(m.arm, m.strategy, m.size): m for m in found if m.how == "pool"}
        runs = {k: m.accuracy[None] if m.runs is None else m.runs for k, m in by.items()}
        rng, law = generator(seed, Purpose.BOOTSTRAP, EACH, 3), self.one
        z = rng.standard_t(law.dof, len(draws)) / student(law.level, law.dof)
        gain = law.value + z * np.where(z > 0, law.high - law.value, law.value - law.low) - self.base
        ones = [runs[arm, "one", 1] for arm in three]
        shares = [rng.multinomial(k := len(x), np.full(k, 1 / k), len(draws)) / k for x in ones]
        mean = np.array([share @ x.mean(1) for x, share in zip(ones, shares, strict=True)])
        first, second = np.repeat(list(combinations(range(3), 2)), EACH, axis=0).T
        v, w = mean[first, draws], mean[second, draws]
        t = (np.clip(mean[0] + gain, 0, 1) - v) / np.maximum(w - v, 1e-9)
        near, of = np.abs(t) <= FURTHEST, np.zeros((len(draws), 3))
        if near.mean() < 0.5:
            return [], (f"{self.name} is not identified: one sample gains {law.value - self.base:+.3f} by the law and "
                        f"{mean[2].mean() - mean[0].mean():+.3f} with {self.along[1]}, and a line between policies is "
                        f"followed {FURTHEST:g} times its length: profile one that was trained for longer too")
        of[draws, first], of[draws, second] = 1 - t, t
        mix = np.concatenate([of[:, [i]] * share for i, share in enumerate(shares)], 1)[near]
        out = []
        for s, k in ((s, k) for arm, s, k in by if not arm):
            x = mix @ np.concatenate([runs[name, s, k] for name in three])
            x -= (level := x.mean(1, keepdims=True)) - np.clip(level, 0, 1)     # a line may leave the range
            out.append(replace(by[self.along[1], s, k], accuracy=x.mean(0), how=FORETOLD, arm=self.name, runs=x))
        return out, f"{self.name} is not prescribed: it has to be trained, and profiled; searches are not foretold"
