"""Decode strategies: how attempts at one problem are made.

The engine is called once per group and turn while attempts share their start; it does any further batching.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
from numpy import ndarray

from isocost.columns import WaveColumns
from isocost.seams import Pace
from isocost.traits import by_wave, exported
from isocost.types import Cost, Message, Place, Problem, Role, Rollout, Said, Segment, Stop
from isocost.world import Ask, Env, World

log = logging.getLogger("isocost")

_OWN, _SEEN = int(Role.OWN), int(Role.SEEN)  # plain ints: numpy compares with them ten times faster


def _wave_sampled(
    problems: Sequence[Problem], counts: Sequence[int], world: World, pace: Pace, places: Sequence[Place]
) -> WaveColumns | None:
    """One question and one answer each, if the engine writes whole waves; else None."""
    write = getattr(world.engine, "wave", None)
    if write is None or world.env is not Ask or pace.stop or any(p.prefix for p in problems):
        return None
    prompts = [world.text.prompt(p.prompt) for p in problems]
    attempts = [range(k) for k in counts]
    written = write(prompts, attempts, places=places, sampling=pace.sampling, max_tokens=pace.max_tokens)
    if written is None:
        return None
    decode, lengths = world.text.decode, written.wrote.tolist()
    finals = [decode(row[:k]) for row, k in zip(written.tokens.tolist(), lengths, strict=True)]
    begin = [0, *accumulate(counts)]
    each = [i for k in attempts for i in k]
    return WaveColumns(problems, places, prompts, begin, each, written, pace.sampling, finals)


@by_wave(_wave_sampled)
@exported()
async def sample(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None
) -> list[Rollout]:
    """Talk to the environment until the episode ends; one question and one answer is a dialogue of one turn.

    `start` resumes or forks: the environment replays the turns that it already holds, and an unfinished turn keeps the
    rest of its `max_tokens`. If an environment raises after it is open, the rollout has `Stop.ERROR` and no score.
    Attempts of one group open alike: `Env.open` depends on the problem alone.
    """
    if not attempts:
        return []
    envs = [] if world.env is Ask else [world.env(problem) for _ in attempts]
    opened = [env.open() for env in envs]
    first = opening(problem, world, pace, opened[0] if opened else None) if start is None else start
    turn = _turn(first)
    said = await _say(first, turn, attempts, world, pace, place)
    texts = _grown(first, turn, said)
    if envs:
        each = zip(attempts, envs, texts, said, strict=True)
        return list(await asyncio.gather(*(_converse(problem, a, e, t, s, world, pace, place) for a, e, t, s in each)))
    shown, decode = len(first) - len(first.reply()), world.text.decode
    return [
        Rollout(problem, (text,), decode(text.tokens[shown:].tolist()), s.stop, attempt)
        for attempt, text, s in zip(attempts, texts, said, strict=True)
    ]


async def _converse(
    problem: Problem, attempt: int, env: Env, text: Segment, said: Said, world: World, pace: Pace, place: Place
) -> Rollout:
    """From the end of a turn to the end of the dialogue."""
    try:
        for at in _answered(text):
            await env.step(_words(text.cut(at), world))
    except Exception as error:      # an environment may raise anything: its rollout then has no score
        return _failed(problem, text, attempt, error)
    while True:
        unfinished = said.stop in (Stop.CANCELLED, Stop.ERROR)
        if unfinished or (pace.in_parts and said.stop is Stop.LENGTH):   # its turn may be continued
            return Rollout(problem, (text,), "", said.stop, attempt)
        world.meter.charge(Cost(env_steps=1))      # replayed steps of a resumed dialogue are not charged
        try:
            seen, over = await env.step(_words(text, world))
            ended = over or said.stop is Stop.LENGTH
            if ended or _turn(text) + 1 >= pace.max_turns:
                return Rollout(problem, (text,), env.final(), said.stop if ended else Stop.TURNS, attempt)
        except Exception as error:      # as above
            return _failed(problem, text, attempt, error)
        text = text.read(world.text.answer(seen))
        (said,) = await _say(text, _turn(text), [attempt], world, pace, place)
        text = text.wrote(said)


def _failed(problem: Problem, text: Segment, attempt: int, error: Exception) -> Rollout:
    log.warning("the environment of problem %s failed: %r", problem.id, error)
    return Rollout(problem, (text,), "", Stop.ERROR, attempt)


async def _say(
    text: Segment, turn: int, attempts: Sequence[int], world: World, pace: Pace, place: Place
) -> list[Said]:
    room = pace.max_tokens - int(np.count_nonzero(text.turn == turn))
    return await world.engine.generate(text, attempts, place=place, turn=turn, max_tokens=max(room, 1), stop=pace.stop)


def opening(problem: Problem, world: World, pace: Pace, posed: Sequence[Message] | None = None) -> Segment:
    """The tokens before the first one of the policy; `posed` are the environment's first messages, if known."""
    if posed is None:
        posed = problem.prompt if world.env is Ask else world.env(problem).open()
    text = Segment.empty(pace.sampling).read(world.text.prompt(posed), Role.PROMPT)
    return text.read(world.text.encode(problem.prefix), Role.HINT) if problem.prefix else text


def _turn(text: Segment) -> int:
    """The policy turn that the next token belongs to, or the last one did when it is not over."""
    last = int(text.turn.max()) if len(text) else -1
    return last if len(text) and text.role[-1] == _OWN else last + 1


def _answered(text: Segment) -> list[int]:
    """Where the environment's answers begin."""
    seen = text.role == _SEEN
    return np.flatnonzero(seen & ~np.concatenate([[False], seen[:-1]])).tolist()


def _words(text: Segment, world: World) -> str:
    return world.text.decode(text.reply().tolist())


def _grown(first: Segment, turn: int, said: Sequence[Said]) -> list[Segment]:
    """What `first.wrote(s)` gives for each s; the segments are views into arrays of the whole group."""
    counts = [len(s.tokens) for s in said]
    role, number = np.full(max(counts), _OWN), np.full(max(counts), turn)
    tokens = _laid(first.tokens, [s.tokens for s in said])
    roles = _laid(first.role, [role[:k] for k in counts])
    logp = _laid(first.logp, [s.logp for s in said])
    turns = _laid(first.turn, [number[:k] for k in counts])
    version = _laid(first.version, [s.version for s in said])
    ends = list(accumulate(len(first) + k for k in counts))
    cuts = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
    return [
        Segment(tokens[c], roles[c], logp[c], turns[c], version[c], first.sampling, first.kept + tuple(s.kept))
        for c, s in zip(cuts, said, strict=True)
    ]


def _laid(start: ndarray, more: Sequence[ndarray]) -> ndarray:
    return np.concatenate([part for m in more for part in (start, m)], dtype=start.dtype, casting="same_kind")


def given(text: Segment, upto: int, words: Sequence[int] = ()) -> Segment:
    """A start: the first tokens of an attempt and then `words`, with the role HINT instead of OWN.

    A continuation is an attempt like any other, counted and charged; no credit falls on the tokens of its start.
    """
    start, never = text.cut(upto), np.full(upto, -1)
    role = np.where(start.own, int(Role.HINT), start.role)
    whole = Segment(start.tokens, role, np.zeros_like(start.logp), never, never, start.sampling)
    return whole.read(words, Role.HINT) if len(words) else whole


def episodes(text: Segment, boundary: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Positions where an episode of a trace ends: before its first token, and after each boundary."""
    own = np.flatnonzero(text.own)
    ends = [t + 1 for t in own[:-1].tolist() if decode(text.tokens[max(own[0], t - 3) : t + 1].tolist())
            .endswith(boundary)]      # four tokens hold any boundary, however it is split
    return [int(own[0]), *ends] if len(own) else [len(text)]
