"""n-step SAC: the target is the return of three steps and the value that follows them.

    y = Σ_{i<n} γ^i r_{t+i} + γ^n (min_k Q'_k(s_{t+n}, a') − α log π(a'|s_{t+n})),  n = 3

    The actions in between are those of the replay, without a correction. Hessel et al. 2018, arXiv:1710.02298;
    Park et al. 2025, arXiv:2506.04168
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.control.methods import sac
from isocost.control.replay import uniform
from isocost.control.seams import Agent
from isocost.found import Card

CARD = Card("n-step SAC", "1710.02298", 2018, "sac", "Targets of n steps carry a reward back n times as fast.")


def agent(**changes: Any) -> Agent:
    return sac.agent(name="nstep", sample=partial(uniform, gamma=0.99, steps=3)).but(**changes)
