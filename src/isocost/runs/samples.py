"""Some of the rollouts as text, for samples.jsonl and the examples of a profile. `kept_rollouts` reads them.

Which ones: of an update, `PER_UPDATE` groups, or as many as its job says; of an evaluation, `PER_EVALUATION`;
`ATTEMPTS` of each. Besides, rollouts that show that something is broken (no score, a fault of a tool or of the
environment): `FAULTY` of each update or evaluation, while the file has less than `ROOM` bytes. A text has at most
`MOST` characters and a rollout `TURNS` turns. All of it follows from the rollouts and the size of the file, so a
resumed run writes the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from isocost.ledger import JournalLine
from isocost.runs.kept_rollouts import FAULTY as KEPT_AS_FAULTY
from isocost.runs.kept_rollouts import HELD_OUT, TRAINING
from isocost.screen.words import shortened
from isocost.types import Fate, FaultSource, Group, Role, Rollout, Segment
from isocost.world import Text

PER_UPDATE = 2
PER_EVALUATION = 4
ATTEMPTS = 8
FAULTY = 4
ROOM = 8 << 20      # bytes
MOST = 16_384       # characters
TURNS = 256
_OWN, _SEEN, _PROMPT = int(Role.OWN), int(Role.SEEN), int(Role.PROMPT)


def keeps(number: int, trained: Sequence[Group], least: int, *, evaluated: bool) -> Sequence[Group]:
    """Which groups of an update are kept as text: `PER_UPDATE` of the updates 1, 2, 4, 8, ..., so that the file stays
    small, and of those before an evaluation; of all others the `least` that the job says."""
    return trained[: max(least, PER_UPDATE if number & (number - 1) == 0 or evaluated else 0)]


def of_update(
    lines: Sequence[JournalLine], whole: Sequence[Group], step: int, text: Text, used: Callable[[], int]
) -> list[dict[str, Any]]:
    """Rollouts of update `step`, of `whole` groups and faulty ones of all that `lines` settled; `used`: bytes."""
    chosen = {id(g): g for g in whole}
    fates = {id(line.group): line.fates for line in lines if id(line.group) in chosen} if chosen else {}
    kept = [_line(g, _first(g), step, text, TRAINING, fates.get(name)) for name, g in chosen.items()]
    others = ((line.group, line.fates) for line in lines if id(line.group) not in chosen)
    return kept + _faulty(others, step, text, used, TRAINING)


def of_evaluation(
    groups: Sequence[Group], step: int, text: Text, used: Callable[[], int]
) -> list[dict[str, Any]]:
    """Rollouts of an evaluation after `step` updates: of the first groups, and faulty ones of the others."""
    kept = samples(groups[:PER_EVALUATION], step, text, part=HELD_OUT)
    return kept + _faulty([(g, None) for g in groups[PER_EVALUATION:]], step, text, used, HELD_OUT)


def samples(groups: Sequence[Group], step: int, text: Text, *, part: str = "") -> list[dict[str, Any]]:
    """A few attempts of each group; those of dialogues turn by turn."""
    return [_line(g, _first(g), step, text, part, None) for g in groups]


def faulty_samples(groups: Sequence[Group], step: int, text: Text, *, part: str = "") -> list[dict[str, Any]]:
    """`FAULTY` attempts of these groups, at most: those that show that something is broken."""
    return _faulty([(g, None) for g in groups], step, text, lambda: 0, part)


def _first(group: Group) -> range:
    return range(min(group.size, ATTEMPTS))


def faulty(group: Group) -> list[int]:
    """Which of a group's rollouts have no score, or a turn with a fault of a tool or of the environment."""
    broken = {i for i, r in enumerate(group.noted) if any(f.source is not FaultSource.MODEL for f in r.faults)}
    if not broken and group.scored is group:
        return []
    return [i for i, score in enumerate(group.scores) if score is None or i in broken]


def _faulty(
    groups: Iterable[tuple[Group, Sequence[Fate] | None]], step: int, text: Text, used: Callable[[], int], part: str
) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    left = FAULTY
    for group, fates in groups:
        if left and (found := faulty(group)[:left]):
            if not kept and used() >= ROOM:     # the size is asked for where there is something to keep: seldom
                break
            kept.append({**_line(group, found, step, text, part, fates), "kept": KEPT_AS_FAULTY})
            left -= len(found)
    return kept


def _line(
    group: Group, which: Sequence[int], step: int, text: Text, part: str, fates: Sequence[Fate] | None
) -> dict[str, Any]:
    prompt = shortened(group.problem.text, MOST)
    opened = next((x for i in which if (x := _opened(group.rollouts[i], text))), "")
    return {
        "step": step,
        **({"part": part} if part else {}),
        "id": group.problem.id,
        "variant": group.problem.variant,
        "prompt": prompt,
        **({"opened": opened} if opened and opened != prompt else {}),
        "attempts": [_attempt(group.rollouts[i], text, str(fates[i]) if fates else "", part == HELD_OUT)
                     for i in which],
    }


def _attempt(r: Rollout, text: Text, fate: str, held_out: bool) -> dict[str, Any]:
    turns = list(_turns(r, text)) if r.turns else []
    return {
        "attempt": r.attempt,
        "text": shortened(r.final, MOST),
        "reward": None if r.score is None else r.score.value,
        **({"mark": r.mark.value} if held_out and r.mark is not None else {}),
        "stop": str(r.stop),
        **({"fate": fate} if fate else {}),
        **({"fault": str(r.fault)} if r.fault else {}),
        "tokens": tokens(r, text),
        **({"turns": turns} if turns else {}),
        **({"left_out": len(r.turns) - TURNS} if len(r.turns) > TURNS else {}),
    }


def tokens(rollout: Rollout, text: Text) -> dict[str, int]:
    """Tokens of a rollout as its engine charged them: `fresh` were read for the first time, `reread` again under the
    same weights, `written` by the policy. Of a model behind a server only `written`: it alone knows what it read."""
    total = Counter({"written": 0})
    for segment in rollout.segments:
        for turn in np.unique(segment.turn[segment.own]).tolist():
            total.update(_tokens(segment, turn, text))
    return dict(total)


def _tokens(segment: Segment, turn: int, text: Text) -> dict[str, int]:
    own = np.flatnonzero(segment.turn == turn)
    if not getattr(text, "tokenized", True):
        return {"written": len(own)}
    read = int(own[0])
    known = segment.cut(read).known(int(segment.version[read]))
    return {"fresh": read - known, "reread": known, "written": len(own)}


def _opened(rollout: Rollout, text: Text) -> str:
    """What the policy read first of a dialogue."""
    if not rollout.turns or not rollout.segments:
        return ""
    first = rollout.segments[0]
    given = first.role != _PROMPT
    return shortened(text.decode(first.tokens[: int(np.argmax(given)) if given.any() else len(first)].tolist()), MOST)


def _turns(rollout: Rollout, text: Text) -> Iterator[dict[str, Any]]:
    """What was said and shown in each turn; what an environment shows at the end is not read, and so not here."""
    there = {int(turn): s for s in rollout.segments for turn in np.unique(s.turn[s.own])}
    for number, turn in enumerate(rollout.turns[:TURNS]):
        said = shown = ""
        spent: dict[str, Any] = {}
        if (s := there.get(number)) is not None:
            own = np.flatnonzero(s.turn == number)
            rest = s.role[own[-1] + 1 :] == _SEEN
            end = own[-1] + 1 + (len(rest) if rest.all() else int(np.argmin(rest)))
            parts = (s.tokens[own], s.tokens[own[-1] + 1 : end])
            said, shown = (shortened(text.decode(t.tolist()), MOST) for t in parts)
            spent = {"tokens": _tokens(s, number, text)}
        yield {"said": said, "shown": shown, "reward": turn.reward, "fault": str(turn.fault or ""), "key": turn.key,
               **spent}
