"""Decode strategies: how attempts at one problem are made.

The engine is called once per group and turn while attempts share their start; it does any further batching. The
environments of dialogues are in `isocost.parts.episode`.

Rollouts are charged where they begin (`isocost.meter` says what one is): by `sample`, and by `fork`, which begins them
with a part of another one. A search that tries five continuations and returns one has begun five. What a method asks of
`world.engine` itself is charged as if it began. Copies are not charged, so the feed refuses a `play` that returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy import ndarray

from isocost import meter
from isocost.gather import together
from isocost.parts.episode import EnvironmentFailed, Episode, Openings
from isocost.seams import Pace, Play
from isocost.traits import exported
from isocost.types import Cost, Message, Place, Problem, Role, Rollout, Said, Segment, Shown, Stop, Turn
from isocost.world import Ask, Start, World, generate_many

View = Callable[[Sequence[Message], Sequence[Turn]], Sequence[Message]]   # what the policy reads before a turn
Pause = Callable[[Sequence[Message], Sequence[Turn]], bool]               # whether a dialogue stops there for now
_OWN = int(Role.OWN)            # a plain int: numpy compares with it ten times faster
_NOTHING = Said.nothing(Stop.DONE)


@exported()
async def sample(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """Talk to the environment until the episode ends; one question and one answer is a dialogue of one turn.

    `start` resumes or forks: the environment replays the turns that it already holds, and an unfinished turn keeps the
    rest of its `max_tokens`; one that ends with an end token is answered first. A rollout is replayed with the luck
    that its turns had; of a segment alone only the words are known, and it is replayed with the luck of each attempt.
    If an environment fails, its rollout has `Stop.ERROR` and no score.

    Each attempt is charged as a rollout, except one that goes on: the only attempt, from a rollout of its own number.
    From a start without a token of the policy, as from a prompt, it is charged when the engine begins it; from any
    other one when it is asked for.
    """
    return await _sampled(problem, attempts, world, pace, place, start, None)


async def fork(
    rollout: Rollout, at: int, attempts: Sequence[int], world: World, pace: Pace, place: Place, *, play: Play = sample
) -> list[Rollout]:
    """New attempts that begin with the first `at` tokens of a rollout's last segment; each is charged as a rollout.

    Their `parent` is the rollout's attempt, and `at`. A schedule passes its `play.play`, so that a method's own play
    continues the start. Tokens before `at` have the credit that they have in `rollout`; see `lent`.
    """
    made = await play(rollout.problem, attempts, world, pace, place, rollout.cut(at))
    return [r.but(parent=(rollout.attempt, at)) for r in made]


def branch(rollout: Rollout, attempts: Sequence[int], world: World) -> list[Rollout]:
    """A rollout under way once more for each of these attempts, which `advance` goes on with: each begins here."""
    begin(world, len(attempts))
    return [rollout.but(attempt=a, parent=(rollout.attempt, len(rollout.segments[-1]))) for a in attempts]


async def advance(
    rollouts: Sequence[Rollout], world: World, pace: Pace, place: Place, *, ends: Sequence[int] = (),
    stop: Sequence[str] = (),
) -> list[Rollout]:
    """One more step of each text under way: up to one of these ids or strings, its end, or the limit of the pace.

    The texts are answers to one question, not dialogues. One without a token of the policy begins with this step. A
    step that ends with an id has `Stop.STEP`; one that ends with a string `Stop.DONE`, as a text that is over.
    """
    made, strings, wrote = list(rollouts), (*pace.stop, *stop), [r.segments[-1].written for r in rollouts]
    for fresh in (True, False):
        same: dict[bytes, list[int]] = {}      # equal texts are read once
        for i, rollout in enumerate(rollouts):
            if (not wrote[i]) is fresh:
                same.setdefault(rollout.segments[-1].tokens.tobytes(), []).append(i)
        starts = [Start(rollouts[own[0]].segments[-1], [rollouts[i].attempt for i in own],
                        max(pace.max_tokens - wrote[own[0]], 1)) for own in same.values()]
        if not starts:
            continue
        with meter.begins(fresh):
            said = await generate_many(world.engine, starts, place=place, turn=starts[0].text.turn_now, stop=strings,
                                       ends=ends)
        for own, each in zip(same.values(), said, strict=True):
            for i, one in zip(own, each, strict=True):
                text = rollouts[i].segments[-1].wrote(one)
                final = world.text.decode(text.reply().tolist())
                made[i] = rollouts[i].but(segments=(text,), final=final, stop=one.stop)
    return made


def begin(world: World, count: int) -> None:
    """Charge rollouts whose first token no engine writes: an expert takes their turns, or an environment failed."""
    world.meter.charge(Cost(), to=replace(meter.payer(), begins=True), started=count)


@exported()
async def viewed(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, view: View,
) -> list[Rollout]:
    """`sample`, with a `view`: what the policy reads before each turn, of the messages and turns so far.

    Where that does not begin with what it has read, the turn has a new segment. In that segment its earlier words are
    part of the prompt, so every token of the policy has credit once. Views are in `isocost.parts.view`.
    """
    return await _sampled(problem, attempts, world, pace, place, start, view)


async def until(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, pause: Pause,
) -> list[Rollout]:
    """`sample`, which stops a dialogue before a turn if `pause` says so, of the messages and turns so far.

    A rollout that was paused has read the environment's last answer, so it is a start to continue from. `paused` tells
    it from one that has ended.
    """
    return await _sampled(problem, attempts, world, pace, place, start, None, pause)


def paused(rollout: Rollout) -> bool:
    """Whether a dialogue was stopped by `until`: what it has read last is an answer of the environment."""
    return rollout.stop is Stop.TURNS and rollout.segments[-1].role[-1] != _OWN


async def _sampled(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None, view: View | None, pause: Pause | None = None,
) -> list[Rollout]:
    if not attempts:
        return []
    before: tuple[Segment, ...] = start.segments[:-1] if isinstance(start, Rollout) else ()
    text = start.segments[-1] if isinstance(start, Rollout) else start
    fresh = text is None or not any(x.written for x in (*before, text))
    if not fresh and not (isinstance(start, Rollout) and list(attempts) == [start.attempt]):
        begin(world, len(attempts))
    if world.env is not Ask:
        turns = start.turns if isinstance(start, Rollout) else ()
        return await _dialogues(problem, attempts, world, pace, place, before, text, turns, view, pause, fresh)
    first = _read(problem, problem.prompt, world, pace) if text is None else text
    turn = first.turn_now
    said = await _say(first, turn, attempts, world, pace, place, fresh=fresh)
    shown, decode = len(first) - len(first.reply()), world.text.decode
    return [
        Rollout(problem, (*before, whole), decode(whole.tokens[shown:].tolist()), s.stop, attempt)
        for attempt, whole, s in zip(attempts, _grown(first, turn, said), said, strict=True)
    ]


async def _dialogues(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, before: tuple[Segment, ...],
    text: Segment | None, turns: Sequence[Turn], view: View | None, pause: Pause | None, fresh: bool,
) -> list[Rollout]:
    """Attempts that environments answer, from the segments and turns of a start, which `fresh` ones begin with."""
    episodes = [Episode(problem, attempt, world, place) for attempt in attempts]
    openings = Openings(() if text is None else (*before, text), turns)

    async def begun(episode: Episode) -> None:
        opened = await openings.batch(episode)
        if not opened:
            return
        first = _read(problem, opened[0].messages, world, pace) if text is None else text
        turn = first.turn_now
        if len(first) and first.own[-1] and int(first.tokens[-1]) in world.text.ends:      # its last turn is over
            said, grown = [_NOTHING] * len(opened), [first] * len(opened)
        else:
            said = await _say(first, turn, [e.attempt for e in opened], world, pace, place, opened[0].shown, fresh)
            grown = _grown(first, turn, said)
        each = zip(opened, grown, said, strict=True)
        await together(*(_converse(e, (*before, whole), turn, s, pace, view, pause) for e, whole, s in each))

    try:
        await together(*map(begun, episodes))
        if text is None:
            text = _read(problem, openings.messages, world, pace)
        if fresh and (missing := len(episodes) - openings.begun):
            begin(world, missing)
        return [e.rollout((*before, text)) for e in episodes]
    finally:
        for episode in episodes:
            await episode.close()


async def _converse(
    episode: Episode, texts: tuple[Segment, ...], turn: int, said: Said, pace: Pace, view: View | None,
    pause: Pause | None,
) -> None:
    """From the end of a turn to the end of the dialogue."""
    world = episode.world
    try:
        while True:
            episode.texts, episode.stop = texts, said.stop
            unfinished = said.stop in (Stop.CANCELLED, Stop.ERROR)
            if unfinished or (pace.in_parts and said.stop is Stop.LENGTH):   # its turn may be continued
                return None
            shown = await episode.step(world.text.decode(texts[-1].reply().tolist()))
            ended = shown.over or (said.stop is Stop.LENGTH and not episode.drives)
            if ended or turn + 1 >= pace.max_turns:
                return await episode.end(said.stop if ended else Stop.TURNS)
            turn += 1
            read = episode.tokens(shown)
            text = _viewed(texts[-1], read, turn) if shown.whole else texts[-1].read(read)
            if pause is not None and pause(episode.messages, episode.turns):
                episode.texts, episode.stop = _with(texts, text), Stop.TURNS
                return None
            if view is not None:
                text = _viewed(text, world.text.prompt(view(episode.messages, episode.turns)), turn)
            (said,) = await _say(text, turn, [episode.attempt], world, pace, episode.place, shown)
            texts = _with(texts, text.wrote(said))
    except EnvironmentFailed:
        return None
    finally:
        await episode.close()


def _with(texts: tuple[Segment, ...], text: Segment) -> tuple[Segment, ...]:
    """The segments with a text that grew from the last of them, or that begins after it."""
    return (*(texts if text.first != texts[-1].first else texts[:-1]), text)


def _viewed(text: Segment, wanted: list[int], turn: int) -> Segment:
    """A text that ends with what the policy wants to read, or a new segment if it does not begin as the text did.

    Nothing that the policy wrote is tokenised again as its own: in a new segment its earlier words are PROMPT.
    """
    own = np.flatnonzero(text.own)
    wrote = int(own[-1]) + 1 if len(own) else len(text)
    if wanted[:wrote] == text.tokens[:wrote].tolist():
        return text.cut(wrote).read(wanted[wrote:])
    return Segment.empty(text.sampling, turn).read(wanted, Role.PROMPT)


async def _say(
    text: Segment, turn: int, attempts: Sequence[int], world: World, pace: Pace, place: Place, shown: Shown = Shown(),
    fresh: bool = False,
) -> list[Said]:
    """A turn of each attempt, within the limits of the pace and of what was shown. `fresh` ones begin with it."""
    most = min(pace.max_tokens, shown.max_tokens or pace.max_tokens)
    room = max(most - int(np.count_nonzero(text.turn == turn)), 1)
    stop = (*pace.stop, *shown.stop)
    with meter.begins(fresh):
        return await world.engine.generate(text, attempts, place=place, turn=turn, max_tokens=room, stop=stop)


async def opening(problem: Problem, world: World, pace: Pace, place: Place) -> Segment | None:
    """The tokens before the first one of the policy; None if the environment does not open, which is counted."""
    if world.env is Ask:
        return _read(problem, problem.prompt, world, pace)
    episode = Episode(problem, 0, world, place)
    await episode.open((), ())
    await episode.close()
    return None if episode.failed else _read(problem, episode.messages, world, pace)


def opened(rollouts: Sequence[Rollout]) -> Segment | None:
    """What attempts at one problem read before their first token: the same for all. None if none wrote any."""
    for text in (r.segments[0] for r in rollouts):
        if text.written:
            return text.cut(int(np.flatnonzero(text.own)[0]))
    return None


def _read(problem: Problem, messages: Sequence[Message], world: World, pace: Pace) -> Segment:
    text = Segment.given(world.text.prompt(messages), Role.PROMPT, pace.sampling)
    return text.read(world.text.encode(problem.prefix), Role.HINT) if problem.prefix else text


def _grown(first: Segment, turn: int, said: Sequence[Said]) -> list[Segment]:
    """What `first.wrote(s)` gives for each s; the segments are views into arrays of the whole group."""
    counts = [len(s.tokens) for s in said]
    role, number = np.full(max(counts), _OWN), np.full(max(counts), turn)
    tokens = _laid(first.tokens, [s.tokens for s in said])
    roles = _laid(first.role, [role[:k] for k in counts])
    logp = _laid(first.logp, [s.logp for s in said])
    turns = _laid(first.turn, [number[:k] for k in counts])
    version = _laid(first.version, [s.version for s in said])
    ends = [0, *accumulate(len(first) + k for k in counts)]
    cuts = map(slice, ends, ends[1:])
    return [
        Segment(tokens[c], roles[c], logp[c], turns[c], version[c], first.sampling, first.kept + tuple(s.kept),
                first.first)
        for c, s in zip(cuts, said, strict=True)
    ]


def _laid(start: ndarray, more: Sequence[ndarray]) -> ndarray:
    """The start, followed by each of these in turn."""
    parts = [start] * (2 * len(more))
    parts[1::2] = more
    return np.concatenate(parts, dtype=start.dtype, casting="same_kind")


def given(text: Segment, upto: int, words: Sequence[int] = ()) -> Segment:
    """A start: the first tokens of an attempt and then `words`, with the role HINT instead of OWN.

    A continuation is an attempt like any other; no credit falls on the tokens of its start.
    """
    start, never = text.cut(upto), np.full(upto, -1)
    role = np.where(start.own, int(Role.HINT), start.role)
    whole = Segment(start.tokens, role, np.zeros_like(start.logp), never, never, start.sampling)
    return whole.read(words, Role.HINT) if len(words) else whole


def lent(rollout: Rollout, upto: int) -> Rollout:
    """The rollout with the role HINT, not OWN, for what the policy wrote in its first tokens: no credit there."""
    *before, text = rollout.segments
    old = text.own & (np.arange(len(text)) < upto)
    never = np.where(old, -1, text.turn), np.where(old, -1, text.version)
    changed = replace(
        text, role=np.where(old, int(Role.HINT), text.role), logp=np.where(old, 0.0, text.logp).astype(np.float32),
        turn=never[0], version=never[1], kept=text.kept[int(old.sum()) :],
    )
    return rollout.but(segments=(*before, changed))


def turn_starts(text: Segment) -> dict[int, int]:
    """The position of the first token of each of the policy's turns in a segment."""
    own = np.flatnonzero(text.own)
    number, first = np.unique(text.turn[own], return_index=True)
    return dict(zip(number.tolist(), own[first].tolist(), strict=True))


def episodes(text: Segment, boundary: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Positions where an episode of a trace ends: before its first token, and after each boundary."""
    own = np.flatnonzero(text.own)
    ends = [t + 1 for t in own[:-1].tolist() if decode(text.tokens[max(own[0], t - 3) : t + 1].tolist())
            .endswith(boundary)]      # four tokens hold any boundary, however it is split
    return [int(own[0]), *ends] if len(own) else [len(text)]
