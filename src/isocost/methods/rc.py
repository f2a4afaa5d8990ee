"""RC: train to go on from a summary of what was thought before, and thinking outlasts any one answer's length.

    s_t ~ π(x, s_{t−1}, z_t),  z_t ~ π(x, s_{t−1});   max E_{t, s_t} E_{z ~ π(x, s_t)} r(z),  s_0 empty
    A_i = (r_i − mean r) / std r among those who share (x, s_t); none for s, nor for the z that led to it
    Wu et al. 2026, "Reasoning Cache", arXiv:2602.03773
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import loss, rounds
from isocost.seams import Recipe

CARD = Card("Reasoning Cache", "2602.03773", 2026, "grpo", "Accuracy rises with rounds to four times those trained on.")


def recipe(**changes: Any) -> Recipe:
    # Three rounds, two states, the empty one among them as in the released code; 8 attempts at each and what three
    # rounds take make 22. A chat model needs words around the summary, which the small worlds here cannot spell:
    # play.reason and play.condense. The KL of 0.001 is left out. Evaluations sample plainly, without summaries; what
    # rounds are worth, beyond those trained on too, rounds.walked measures.
    play = partial(rounds.continued, rounds=3, states=2)
    clip = partial(loss.clipped, low=0.2, high=0.28)
    return grpo.recipe(name="rc", play=play, loss=clip, rollouts=22).but(**changes)
