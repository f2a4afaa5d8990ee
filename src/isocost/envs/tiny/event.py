"""Event: when something happens in a video, or what, from a few frames that the policy names. Frames are characters.

    DEFHO>7       the question: when is 7 shown? Before it, the frames of A to P that look likely from afar
    DFHO          a turn: look at 4 different frames
    D7F7H7O2:     what they show
    *DI           the answer, which ends the episode: from frame D to frame I
    CDEG>*        the other question: what does the event show? Answered by a digit, as in *7

The event is an interval in which all frames show its digit, and no other frame does. From afar a frame of the event
looks likely with probability `seen`, another one with probability `mistaken`. The verifier pays 1 for an interval whose
overlap with the event (temporal IoU) is at least `enough`, and for the right digit. `final` is the answer and, after a
space, the frames that were named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tiny.rooms import NAMES
from isocost.options import NamedOptions
from isocost.parts import intervals
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

DIGITS = 10
WHAT = "*"


@dataclass(frozen=True)
class Event(NamedOptions):
    """How long videos and events are, how well they are seen from afar, what is asked, and how many there are."""

    asks: str = "when"      # or "what"
    length: int = 16        # frames of a video
    least: int = 3          # frames of an event, from `least` to `most`
    most: int = 8
    frames: int = 4         # of a look
    seen: float = 0.8       # probability that a frame of the event looks likely
    mistaken: float = 0.15  # the same of another frame
    enough: float = 0.7     # overlap from which on an interval is right
    count: int = 600        # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (self.asks not in ("when", "what"), f"asks is when or what, not {self.asks}"),
            (not 2 <= self.length <= len(NAMES), f"length is 2 to {len(NAMES)}, not {self.length}"),
            (not 1 <= self.least <= self.most <= self.length,
             f"least and most are 1 to length in this order, not {self.least} and {self.most}"),
            (not 1 <= self.frames <= self.length, f"frames is 1 to length, not {self.frames}"),
            (not 0 <= self.seen <= 1, f"seen is 0 to 1, not {self.seen}"),
            (not 0 <= self.mistaken <= 1, f"mistaken is 0 to 1, not {self.mistaken}"),
            (not 0 < self.enough <= 1, f"enough is above 0 and at most 1, not {self.enough}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def problems(which: Event) -> Iterator[Problem]:
    """`count` videos. The level is 1 where the frames that look likely fill the event and nothing else, else 2 or 3.

    It is 3 where the interval from the first to the last of them would be wrong.
    """
    for i in range(which.count):
        rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.length, i)
        size = int(rng.integers(which.least, which.most + 1))
        begin = int(rng.integers(which.length - size + 1))
        digit = int(rng.integers(DIGITS))
        shown = ((digit + rng.integers(1, DIGITS, which.length)) % DIGITS).tolist()
        shown[begin : begin + size] = [digit] * size
        inside = [begin <= k < begin + size for k in range(which.length)]
        likely = "".join(NAMES[k] for k, u in enumerate(rng.random(which.length).tolist())
                         if u < (which.seen if inside[k] else which.mistaken))
        event = NAMES[begin] + NAMES[begin + size - 1]
        answer = event if which.asks == "when" else str(digit)
        span = intervals.parsed(likely[:1] + likely[-1:])
        near = span is not None and intervals.overlap(span, (begin, begin + size)) >= which.enough
        level = 1 if likely == NAMES[begin : begin + size] else 2 if near else 3
        meta = {"video": "".join(map(str, shown)), "event": (begin, begin + size), "likely": likely, "event_set": which,
                "level": level, "source": "event", "exact": False}
        asked = f"{likely}>{digit if which.asks == 'when' else WHAT}"
        yield Problem(f"event-{which.seed}-{i}", (Message("user", asked),), answer, meta=meta)


class Watching(BaseEpisode):
    """One question: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.problem, self.meta, self.said = problem, problem.meta, ""
        self.which: Event = problem.meta["event_set"]
        self.named = self.seen = ""

    async def open(self) -> Shown:
        return Shown(tuple(self.problem.prompt), key="?")

    async def step(self, said: str, luck: Luck) -> Shown:
        if said[:1] == WHAT:
            self.said = said[1:]
            fault = Fault.model("no answer") if self._overlap() is None and self.which.asks == "when" else None
            return Shown((Message("tool", ""),), True, self._paid(), self.named, fault)
        frames = [NAMES.find(x) for x in said]
        if len(set(said)) != self.which.frames or len(said) != self.which.frames or not all(
                0 <= k < self.which.length for k in frames):
            return Shown((Message("tool", "!:"),), False, 0.0, self.named, Fault.model("no such look"))
        self.named += said
        self.seen += "".join(f"{x}{self.meta['video'][k]}" for x, k in zip(said, frames, strict=True))
        return Shown((Message("tool", f"{self.seen[-2 * len(said):]}:"),), False, 0.0, self.named)

    def final(self) -> str:
        return f"{self.said} {self.named}"

    def expert(self) -> str:
        """A turn of one that looks at likely frames, and answers from the first to the last that showed the event.

        The likely frames are evenly spaced among all of them; where there are too few, others from A on are added.
        """
        if not self.seen:
            likely, k = self.meta["likely"], self.which.frames
            some = [likely[(2 * i + 1) * len(likely) // (2 * k)] for i in range(k)] if len(likely) > k else [*likely]
            others = [x for x in NAMES[: self.which.length] if x not in some]
            return "".join(sorted(some + others[: k - len(some)]))
        shown = dict(zip(self.seen[::2], self.seen[1::2], strict=True))
        if self.which.asks == "what":
            return WHAT + Counter(shown.values()).most_common(1)[0][0]
        asked = self.problem.text[-1]
        there = sorted(x for x, digit in shown.items() if digit == asked) or sorted(shown)
        return f"{WHAT}{there[0]}{there[-1]}"

    def _overlap(self) -> float | None:
        interval = intervals.parsed(self.said)
        return None if interval is None else intervals.overlap(interval, self.meta["event"])

    def _paid(self) -> float:
        if self.which.asks == "what":
            return float(self.said == self.problem.answer)
        return float((self._overlap() or 0.0) >= self.which.enough)


def open_set(spec: str) -> EnvironmentSet:
    which = Event.of(spec)
    return EnvironmentSet(spec, Watching, partial(problems, which), max_turns=3, max_tokens=max(which.frames + 2, 6),
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("when something happens in a video, or what, from frames that are named", vars(Event()),
                              open_set)
