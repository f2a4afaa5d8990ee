"""TTI: let dialogues grow longer during training, so that acting is learned before exploring.

    h_i = min(h_min · i, h_max), i = 1, 2, ..;   with rule "plus" h_i = min(h_min + c · i, h_max)
    Shen et al. 2025, "Thinking vs. doing", arXiv:2506.07976
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.errors import UserError
from isocost.methods import Card, fbc, gigpo
from isocost.parts.pace import PLANNED, warmed
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("TTI", "2506.07976", 2025, "fbc", "A growing horizon beats short and long fixed ones.")

needs = gigpo.needs     # dialogues of several turns, and siblings that differ


@trait("needs_turns")
@bounds(first="[1, inf)", by="[0, inf)", each="[1, inf)", listed="[1, inf)", **PLANNED)
def pace(
    ledger: Ledger, *, rule: str = "times", first: int = 10, by: int = 1, each: int = 1, listed: tuple[int, ...] = (),
    lr: float = 1e-6, warmup: int = 10, max_tokens: int = 1024, temperature: float = 1.0, top_p: float = 1.0,
    top_k: int = 0, max_turns: int = 30, stop: tuple[str, ...] = (),
) -> Pace:
    """`pace.warmed`, with a number of turns that grows to `max_turns` (TTI, arXiv:2506.07976).

    In the i-th iteration of `each` steps, i from 1, a dialogue has `first` · i turns with the rule "times", and `first`
    + `by` · i with "plus"; or the i-th of `listed`, and its last from then on. Raises UserError for another rule.
    """
    if rule not in ("times", "plus"):
        raise UserError(f"pace.rule is {rule!r}; expected times or plus")
    now = warmed(
        ledger, lr=lr, warmup=warmup, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k,
        max_turns=max_turns, stop=stop,
    )
    i = 1 + ledger.step // each
    turns = first * i if rule == "times" else first + by * i
    if listed:
        turns = listed[min(i, len(listed)) - 1]
    return replace(now, max_turns=min(turns, max_turns), eval_turns=max_turns)


def recipe(**changes: Any) -> Recipe:
    # 10, 20, 30, 30 is the paper's better rule; its script has listed=(10, 20, 20, 30). An iteration of the paper is
    # 512 trajectories, here `each` steps. This pace over GRPO, listed=(10, 20, 30), each=100, is ScalingInter-RL.
    # Evaluations always have max_turns, because success under the current limit is not success. Left out: the forced
    # re-check, by which an answer ends an episode only when it is given again, and that attempts which answer "not
    # available" are dropped.
    return fbc.recipe(name="tti", pace=partial(pace, rule="times", first=10, max_turns=30)).but(**changes)
