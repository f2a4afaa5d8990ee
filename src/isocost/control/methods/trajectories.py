"""Trajectory weighting: transitions are drawn by how good their whole trajectory was. Any offline method can; here IQL.

    P(row of trajectory i) ∝ exp(w_i / T),  w = (A − min A) / (max A − min A),  A_i = R_i − V(s_0),  V linear

    Hong et al. 2023, arXiv:2306.13085. The authors' public file has a softmax of raw returns; this is the paper's form.
    Every other offline method but those of goals takes `--set sample.weighting=return` or `advantage`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.control.methods import iql
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent
from isocost.found import Card

CARD = Card("Trajectory weighting", "2306.13085", 2023, "iql",
            "Drawing good trajectories more often helps any learner on a set with few of them.")


def agent(**changes: Any) -> Agent:
    return iql.agent(
        name="trajectories", sample=partial(weighted, gamma=0.99, weighting="advantage", temperature=0.1),
    ).but(**changes)
