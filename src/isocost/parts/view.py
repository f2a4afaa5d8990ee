"""What the policy reads before a turn: values of `view` in `play.sample`, for dialogues longer than its context.

A view chooses among the messages of a dialogue so far. The opening, what was shown before the first turn, always
stays. A round is a turn of the policy and what answered it. Where the chosen messages do not begin with what the policy
has read, the turn gets a segment of its own, so a view that forgets makes up to one row per turn: each row is trained
with exactly the context that its turn was taken in.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.traits import bounds, trait
from isocost.types import Message, Turn

Round = tuple[Message, ...]     # the policy's message, and those that answered it


def in_rounds(messages: Sequence[Message]) -> tuple[tuple[Message, ...], list[Round]]:
    """The opening and the rounds of a dialogue."""
    begins = [i for i, m in enumerate(messages) if m.role == "assistant"]
    ends = [*begins[1:], len(messages)] if begins else []
    opening = messages[: begins[0]] if begins else messages
    return tuple(opening), [tuple(messages[a:b]) for a, b in zip(begins, ends, strict=True)]


@trait("needs_turns")
@bounds(keep="[0, inf)")
def last_results(messages: Sequence[Message], turns: Sequence[Turn], *, keep: int = 5) -> list[Message]:
    """All turns of the policy, and the results of the last `keep` (MiroThinker, arXiv:2511.11793)."""
    opening, past = in_rounds(messages)
    old = max(len(past) - keep, 0)
    return [*opening, *(m for said, *_ in past[:old] for m in (said,)), *(m for r in past[old:] for m in r)]


@trait("needs_turns")
@bounds(keep="[0, inf)")
def placeholders(
    messages: Sequence[Message], turns: Sequence[Turn], *, keep: int = 1, words: str = "[earlier page]"
) -> list[Message]:
    """All turns of the policy; results but the last `keep` are replaced by `words` (WebAgent-R1, arXiv:2505.16421)."""
    opening, past = in_rounds(messages)
    old = max(len(past) - keep, 0)
    short = (m for said, *shown in past[:old] for m in (said, *(Message(x.role, words) for x in shown)))
    return [*opening, *short, *(m for r in past[old:] for m in r)]


@trait("needs_turns")
def workspace(messages: Sequence[Message], turns: Sequence[Turn]) -> list[Message]:
    """The opening, and the last turn with its result (IterResearch, arXiv:2511.07327).

    What the policy wants to know later it has to write down in every turn: its report. The length does not grow.
    """
    opening, past = in_rounds(messages)
    return [*opening, *(m for r in past[-1:] for m in r)]


@trait("needs_turns")
@bounds(most="[0, inf)", delay="[0, inf)")
def keyframes(
    messages: Sequence[Message], turns: Sequence[Turn], *, mark: str = "=", most: int = 4, delay: int = 0
) -> list[Message]:
    """The opening, the results at which an event was just seen, and the last round (BPP, arXiv:2602.15010).

    An event is seen in states whose key has `mark`, and a keyframe is the first of them in a row: a rising edge. The
    latest `most` are shown, each as its result alone, and of them only those at least `delay` turns old: what detects
    events may need that long.
    """
    opening, past = in_rounds(messages)
    seen = edges([mark in t.key for t in turns])    # turn t was taken in the state that the result before it showed
    shown = [past[t - 1][1:] for t in seen if 0 < t < len(past) and len(past) - t >= delay]
    return [*opening, *(m for r in shown[max(len(shown) - most, 0) :] for m in r), *(m for r in past[-1:] for m in r)]


def edges(seen: Sequence[bool]) -> list[int]:
    """Where a sequence becomes true: t with seen[t] and not seen[t - 1]."""
    return [t for t, now in enumerate(seen) if now and not (t and seen[t - 1])]


@trait("needs_turns")
@bounds(rounds="[1, inf)")
def window(messages: Sequence[Message], turns: Sequence[Turn], *, rounds: int = 4) -> list[Message]:
    """The opening and the last rounds (WebGym, arXiv:2601.02439)."""
    opening, past = in_rounds(messages)
    return [*opening, *(m for r in past[-rounds:] for m in r)]

