"""RLPD: SAC from the first sample on, with half of each batch from a set, ten critics with LayerNorm, many updates.

    batch: half of the set, half of the run's own samples,  y = r + γ (min_{k ∈ M} Q'_k(s', a') − α log π),  M: 2 of 10
    L_π = mean (α log π − (1/10) Σ_k Q_k(s, a)),  in every 20th update

    Ball et al. 2023, arXiv:2302.02948. The paper makes 20 updates per sample: `--updates-per-sample 20`. SERL
    (arXiv:2401.16013), HIL-SERL (2410.21845; a person's corrections go into both halves) and FastRLAP (2304.09831) use
    this learner. Left out, without robots and pixels: their image encoders and augmentation, learned rewards, resets,
    interventions, the gripper's DQN, and asynchronous actors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.control.methods import redq, wsrl
from isocost.control.parts import tempo
from isocost.control.parts.mix import beside
from isocost.control.seams import Agent
from isocost.found import Card

CARD = Card("RLPD", "2302.02948", 2023, "redq", "Half a batch of old data speeds learning, without a phase on it.")


def agent(**changes: Any) -> Agent:
    return redq.agent(
        name="rlpd", networks=wsrl.networks, sample=partial(beside, gamma=0.99, old=0.5),
        tempo=partial(tempo.from_set, warmup=200, actor_every=20, random=True, keeps=True),
    ).but(**changes)
