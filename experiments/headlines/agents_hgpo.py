"""HGPO where states look alike: turns with the same history should be compared with less bias than turns in one state.

Rooms show one of four colours and numbered doors, so that four rooms of a house of 16 have one key: GiGPO compares
turns that were taken in different rooms. HGPO compares them too, and gives more weight to turns that also came by the
same two colours. Dialogues have up to 16 turns; the base solves two in five. The rates are tuned alike. No run of
either method in this house was looked at before this design.
"""

from collections.abc import Mapping
from pathlib import Path

from agents_costs import at_tokens
from headline import Headline, Question

WORLD = "rooms"
TOKENS = 40_000
ALT = "Held-out success over environment steps of GRPO, GiGPO and HGPO where rooms look alike, five runs each"


def numbers(folder: Path) -> Mapping[str, float]:
    """Held-out success at equal tokens."""
    return {"pass@1 at tokens": at_tokens(folder, TOKENS)}


HEADLINE = Headline(
    title="HGPO where states look alike",
    methods={"hgpo": (0, 1), "gigpo": (2,)},
    own=("hgpo",),
    claim="Where rooms look alike HGPO solves more than GiGPO, at equal environment steps and at equal tokens.",
    arms=("grpo", "gigpo", "hgpo"),
    options=("--env", "rooms:keys=0,alias=4", "--max-turns", "16", "--samples", "4", "-n", "8", "-B", "8",
             "--lr", "3e-4", "--evaluations", "3", "--seeds", "5", "--budget", "450k-env-steps", "--workers", "1"),
    questions=(
        Question("HGPO over GiGPO at equal environment steps", ("hgpo", "pass@1"), ("gigpo", "pass@1")),
        Question("HGPO over GiGPO at equal tokens", ("hgpo", "pass@1 at tokens"), ("gigpo", "pass@1 at tokens")),
        Question("GiGPO over GRPO at equal environment steps", ("gigpo", "pass@1"), ("grpo", "pass@1")),
    ),
    numbers=numbers,
)
