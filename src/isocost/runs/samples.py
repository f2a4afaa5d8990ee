"""Some of the completions as text, for samples.jsonl and the examples of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from isocost.types import Group, Role, Rollout
from isocost.world import Text


def samples(groups: Sequence[Group], step: int, text: Text) -> list[dict[str, Any]]:
    """Example completions: a few attempts of each group, those of dialogues turn by turn."""
    return [
        {
            "step": step,
            "id": g.problem.id,
            "variant": g.problem.variant,
            "prompt": g.problem.text,
            "attempts": [
                {
                    "text": r.final, "reward": None if r.score is None else r.score.value, "stop": str(r.stop),
                    **({"turns": list(_turns(r, text))} if r.turns else {}),
                }
                for r in g.rollouts[:8]
            ],
        }
        for g in groups
    ]


def _turns(rollout: Rollout, text: Text) -> Iterator[dict[str, Any]]:
    """What was said and shown in each turn; what an environment shows at the end is not read, and so not here."""
    there = {int(turn): s for s in rollout.segments for turn in np.unique(s.turn[s.own])}
    for number, turn in enumerate(rollout.turns):
        said = shown = ""
        if (s := there.get(number)) is not None:
            own = np.flatnonzero(s.turn == number)
            rest = s.role[own[-1] + 1 :] == int(Role.SEEN)
            end = own[-1] + 1 + (len(rest) if rest.all() else int(np.argmin(rest)))
            said, shown = (text.decode(t.tolist()) for t in (s.tokens[own], s.tokens[own[-1] + 1 : end]))
        yield {"said": said, "shown": shown, "reward": turn.reward, "fault": str(turn.fault or ""), "key": turn.key}
