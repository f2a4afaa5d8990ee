"""An address that scores texts: it is sent {"problem", "question", "texts", "over"} and answers {"scores": [...]}.

    http://127.0.0.1:9000/score
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence

from isocost.types import Cost, Problem, Rollout
from isocost.world import World

SECONDS = 60.0


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *, url: str
) -> list[float | None]:
    """What the address answers for the texts, in one request. Charged as one verifier call each; what the texts cost
    where they are scored is on no bill here.
    """
    world.meter.charge(Cost(verify=len(texts)))
    body = {"problem": problem.id, "question": problem.text, "texts": [t.final for t in texts], "over": list(over)}
    return list(await asyncio.to_thread(_post, url, json.dumps(body).encode()))


def _post(url: str, body: bytes) -> list[float | None]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return list(json.load(answer)["scores"])
