"""ScalingInter-RL: allow few turns at first and more in later stages, so that short tasks are learnt before long ones.

    at step s a dialogue has at most h_j turns,  j = min(⌊s / Δ⌋, last),  h_1 < h_2 < ..
    AgentGym-RL: Xi et al. 2025, arXiv:2509.08755
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, gigpo, grpo
from isocost.parts.pace import PLANNED, warmed
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("ScalingInter-RL", "2509.08755", 2025, "grpo", "A horizon that grows beats short and long fixed ones.")

needs = gigpo.needs


@trait("needs_turns")
@bounds(stages="[1, inf)", each="[1, inf)", **PLANNED)
def pace(
    ledger: Ledger, *, stages: tuple[int, ...] = (10, 20, 30), each: int = 100, lr: float = 1e-6, warmup: int = 10,
    max_tokens: int = 1024, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, max_turns: int = 30,
    stop: tuple[str, ...] = (),
) -> Pace:
    """`pace.warmed` with a number of turns by stages of `each` steps, at most `max_turns` (arXiv:2509.08755).

    Evaluations always have `max_turns`, because success under the current limit is not success.
    """
    now = warmed(
        ledger, lr=lr, warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
        max_turns=max_turns, stop=stop,
    )
    turns = stages[min(ledger.step // each, len(stages) - 1)]
    return replace(now, max_turns=min(turns, max_turns), eval_turns=max_turns)


def recipe(**changes: Any) -> Recipe:
    # The released configurations have 6, 13, 20 turns for BabyAI, 10, 20, 30 for SciWorld and TextCraft, 5, 8, 10 for
    # search and 8, 12, 15 for WebArena, of 100 steps each (80 there). The KL term of 0.001 is left out.
    stages = partial(pace, stages=(10, 20, 30), each=100, max_turns=30)
    return grpo.recipe(name="scalinginter", pace=stages).but(**changes)
