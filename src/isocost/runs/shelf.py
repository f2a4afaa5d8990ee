"""Groups of the ledger as plain data in a checkpoint: kept to be trained on again or continued, or not yet trained on.

It is JSON like the rest of a checkpoint's state: fit for thousands of short rollouts, not for millions of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isocost.ledger import Ahead, Played
from isocost.types import Fault, Group, Message, Place, Problem, Rollout, Sampling, Score, Segment, Stop, Turn, plain

_COLUMNS = {"tokens": np.int64, "role": np.int64, "logp": np.float32, "turn": np.int64, "version": np.int64}


def data(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Groups as JSON data, in the order they were kept. Problems are named by id, not stored."""
    return [
        {
            "id": g.problem.id, "variant": g.problem.variant, "place": plain(g.place),
            "rollouts": [_rollout(r) for r in g.rollouts],
        }
        for g in groups
    ]


def ahead_data(ahead: Ahead) -> dict[str, Any]:
    """What is not yet trained on as JSON data: each group as it was posed, and its cancelled rollouts."""
    return {"waves": [_played(wave) for wave in ahead.waves], "held": _played(ahead.held)}


def ahead(state: Mapping[str, Any], problems: Sequence[Problem]) -> Ahead:
    """What `ahead_data` wrote to a checkpoint's state; empty for one without."""
    stored = state.get("ahead") or {"waves": [], "held": []}
    return Ahead([_played_of(wave, problems) for wave in stored["waves"]], _played_of(stored["held"], problems))


def _played(some: Iterable[Played]) -> list[dict[str, Any]]:
    return [
        {
            **data([x.group])[0], "cancelled": x.cancelled, **({"unchosen": x.unchosen} if x.unchosen else {}),
            "prefix": x.group.problem.prefix,
            "prompt": [[m.role, m.content] for m in x.group.problem.prompt],
        }
        for x in some
    ]


def _played_of(stored: Sequence[Mapping[str, Any]], problems: Sequence[Problem]) -> list[Played]:
    out = []
    for x, group in zip(stored, groups(stored, problems), strict=True):
        problem = replace(group.problem, prompt=tuple(Message(*m) for m in x["prompt"]), prefix=x["prefix"])
        rollouts = [r.but(problem=problem) for r in group.rollouts]
        out.append(Played(Group(problem, tuple(rollouts), group.place), x["cancelled"], x.get("unchosen", 0)))
    return out


def kept(state: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, list[Group]]:
    """The groups that a checkpoint's state keeps, by name. In earlier versions each name is a key of the state."""
    stored = state.get("kept") or {name: state[name] for name in ("shelf", "unfinished") if name in state}
    return {name: groups(each, problems) for name, each in stored.items()}


def groups(stored: Sequence[Mapping[str, Any]], problems: Sequence[Problem]) -> list[Group]:
    """The groups that `data` wrote; `problems` has their problems. Log-probs are exact to the last bit."""
    known = {p.id: p for p in problems}
    out = []
    for x in stored:
        problem = replace(known[x["id"]], variant=x["variant"])
        rollouts = tuple(_rollout_of(r, problem) for r in x["rollouts"])
        out.append(Group(problem, rollouts, Place(**x["place"])))
    return out


def _rollout(r: Rollout) -> dict[str, Any]:
    return {
        "final": r.final, "stop": str(r.stop), "attempt": r.attempt, "cohort": r.cohort, "origin": r.origin,
        "parent": r.parent, "score": _score(r.score), "mark": _score(r.mark),
        "segments": [
            {
                **{c: _numbers(getattr(s, c)) for c in _COLUMNS}, "sampling": s.sampling.trained,
                "kept": [k.tolist() for k in s.kept], **({"first": s.first} if s.first else {}),
            }
            for s in r.segments
        ],
        "notes": {k: [_numbers(x) for x in v] if isinstance(v, tuple) else v for k, v in r.notes.items()},
        **({"turns": [[t.key, t.reward, str(t.fault or ""), t.luck, t.seconds] for t in r.turns]} if r.turns else {}),
        **({"fault": str(r.fault)} if r.fault else {}),
    }


def _numbers(x: np.ndarray) -> list[Any]:
    """An array for JSON, which has no infinities: they become text that numpy reads back."""
    return [v if np.isfinite(v) else str(v) for v in x.tolist()] if not np.isfinite(x).all() else x.tolist()


def _rollout_of(x: Mapping[str, Any], problem: Problem) -> Rollout:
    segments = tuple(map(_segment_of, x["segments"]))
    notes = {
        name: tuple(np.array(n, dtype=np.float32) for n in each) if isinstance(each, list) else each
        for name, each in x["notes"].items()
    }
    if x.get("outlook") is not None:        # a separate key in earlier versions
        notes["outlooks"] = x["outlook"]
    parent = tuple(x["parent"]) if x["parent"] else None
    turns = tuple(
        Turn(key, reward, Fault.of(fault), tuple(luck), *more) for key, reward, fault, luck, *more in x.get("turns", ())
    )
    return Rollout(
        problem, segments, x["final"], Stop(x["stop"]), x["attempt"], _score_of(x["score"]), x["cohort"], x["origin"],
        parent, notes, _score_of(x["mark"]), turns, Fault.of(x.get("fault", "")),
    )


def _segment_of(x: Mapping[str, Any]) -> Segment:
    tokens, role, logp, turn, version = (np.array(x[c], dtype=kind) for c, kind in _COLUMNS.items())
    kept = tuple(np.array(k, dtype=np.int64) for k in x["kept"])
    return Segment(tokens, role, logp, turn, version, Sampling(**x["sampling"]), kept, x.get("first", 0))


def _score(score: Score | None) -> dict[str, Any] | None:
    return None if score is None else {**plain(score), "parts": dict(score.parts)}


def _score_of(x: Mapping[str, Any] | None) -> Score | None:
    return None if x is None else Score(x["value"], dict(x["parts"]), tuple(x["turns"]))
