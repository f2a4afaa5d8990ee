"""CJ-GRPO: optimise a masked-diffusion policy along the trajectory that it decoded, pass by pass.

    ρ_t = Π_{places filled in pass t} π(y_p | x_t) / π_old(y_p | x_t),   x_t the state that the sampler was in
    L = (1/R) Σ_i (1/T) Σ_t max(−A_i ρ_t, −A_i clip(ρ_t, 1 ± ε)) + β KL(π ‖ π_0),   A_i of GRPO, KL by k3
    Yang et al. 2025, "Taming masked diffusion language models", arXiv:2509.23924
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo, isoeasy
from isocost.parts import enrich
from isocost.parts.loss import clipped
from isocost.seams import Recipe

CARD = Card("CJ-GRPO", "2509.23924", 2025, "grpo", "Log-probs along the trajectory teach more than those of one pass.")


def recipe(**changes: Any) -> Recipe:
    # A pass is a token of the world `masked`, so the clip and the mean over passes are GRPO's; here is the KL, whose β
    # the paper does not state. How places are filled is the world's: --end-factor 0.4 is EOSER, --doubling ASS; the
    # released code has factors from .01 with ASS, here both are linear. --one-pass is what the paper compares with. In
    # a world of text a token is a pass. Left out: blocks, which limit the places that a pass may fill.
    leash = partial(isoeasy.to_reference, scale=0.01, estimate="k3")
    return grpo.recipe(
        name="cjgrpo", enrich=(enrich.reference,),
        loss=partial(isoeasy.plus, terms=(partial(clipped, low=0.2, high=0.2), leash)),
    ).but(**changes)
