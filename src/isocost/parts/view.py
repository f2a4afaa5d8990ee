"""What the policy reads of a long dialogue before its next turn: a value of `play.viewed`'s setting `view`.

A view gets all messages, those of the opening first and then for each turn the policy's and the environment's, and the
turns. It returns the messages that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from isocost.parts.play import View
from isocost.types import Message, Turn


def _last_turns(messages: Sequence[Message], turns: Sequence[Turn], *, keep: int) -> Sequence[Message]:
    opening, each = _by_turn(messages)
    return [*opening, *(m for turn in each[len(each) - min(keep, len(each)) :] for m in turn)]


def last_turns(keep: int = 4) -> View:
    """The opening and the last `keep` turns."""
    return partial(_last_turns, keep=keep)


def _placeholders(messages: Sequence[Message], turns: Sequence[Turn], *, keep: int, words: str) -> Sequence[Message]:
    opening, each = _by_turn(messages)
    old = len(each) - min(keep, len(each))
    return [*opening, *(
        Message(m.role, words) if i < old and m.role != "assistant" else m for i, turn in enumerate(each) for m in turn
    )]


def placeholders(keep: int = 1, words: str = "[earlier result]") -> View:
    """All that the policy said, and of what it was shown the last `keep` answers; `words` replace the earlier ones."""
    return partial(_placeholders, keep=keep, words=words)


def _keyframes(messages: Sequence[Message], turns: Sequence[Turn], *, keep: int) -> Sequence[Message]:
    opening, each = _by_turn(messages)
    first = [i for i, turn in enumerate(turns) if turn.key not in {t.key for t in turns[:i]}]
    chosen = sorted({*first, *range(max(len(each) - keep, 0), len(each))})
    return [*opening, *(m for i in chosen for m in each[i])]


def keyframes(keep: int = 1) -> View:
    """The opening, the turns taken in a state that was not met before, by its key, and the last `keep` turns."""
    return partial(_keyframes, keep=keep)


def _by_turn(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """The messages before the policy's first, and those of each turn."""
    begins = [i for i, m in enumerate(messages) if m.role == "assistant"]
    return list(messages[: begins[0] if begins else len(messages)]), list(_cut(messages, begins))


def _cut(messages: Sequence[Message], begins: Sequence[int]) -> Iterator[list[Message]]:
    for a, b in zip(begins, [*begins[1:], len(messages)], strict=False):
        yield list(messages[a:b])
