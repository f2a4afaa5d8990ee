"""The terminal's text of `rollouts`: each rollout turn by turn."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from isocost.cli.text import show
from isocost.runs.kept_rollouts import WORDS, KeptRollout, KeptTurn, Outcome, Tokens, end_of
from isocost.screen.terminal import echo
from isocost.screen.words import counted, visible
from isocost.steps.look.kept_rollouts import Rollouts


@show.register
def show_rollouts(found: Rollouts, console: Console) -> None:
    """How many match, then the first of them."""
    outcomes = ", ".join(f"{n} {WORDS[Outcome(k)]}" for k, n in found.outcomes.items())
    where = counted(len(found.runs), "run") if len(found.runs) > 1 else visible(found.runs[0], lines=False)
    echo(f"{found.matching:,} of {counted(found.kept, 'kept rollout')} match{': ' if outcomes else ''}{outcomes}. "
         f"{where} sampled {found.started:,}; docs/records.md says which are kept as text")
    for r in found.found:
        echo("")
        for line in rollout(r):
            echo(line)
    if found.matching > len(found.found):
        echo(f"\n{found.matching - len(found.found):,} more match: --first {found.matching} shows all")


def rollout(r: KeptRollout) -> Iterator[str]:
    """The lines of one rollout."""
    run, problem, variant, part = (visible(x, lines=False) for x in (r.run, r.problem, r.variant, r.part))
    attempt = "" if r.attempt is None else f", attempt {r.attempt}"
    yield (f"{run}, after {counted(r.step, 'update')}{part and f', {part}'}, problem {problem}"
           f"{variant and f' ({variant})'}{attempt}")
    yield f"  {', '.join(_facts(r))}"
    yield from _said("prompt", r.prompt)
    if r.opened:
        yield from _said("shown", r.opened)
    for number, turn in enumerate(r.turns, 1):
        yield f"  turn {number}{''.join(f', {x}' for x in _turn(turn))}"
        yield from _said("policy", turn.said)
        if turn.shown:
            yield from _said("shown", turn.shown)
    if r.left_out:
        yield f"  not kept: {counted(r.left_out, 'more turn')}"
    if not r.turns or r.text not in (r.turns[-1].said, ""):
        yield from _said("answer", r.text)


def _facts(r: KeptRollout) -> Iterator[str]:
    """Its outcome, reward and costs."""
    known = r.stop in ("done", "length", "turns", "cancelled", "error")
    words = WORDS[r.outcome]
    yield words if not known or (end := end_of(r.reward, r.stop)) == words else f"{words} ({end})"
    if r.fault:
        yield f"fault {visible(r.fault, lines=False)}"
    if r.reward is not None:
        yield f"reward {r.reward:g}"
    if r.turns:
        yield counted(r.steps, "environment step")
    yield from _tokens(r.tokens)
    if r.fate:
        yield f"fate: {visible(r.fate, lines=False)}"


def _turn(turn: KeptTurn) -> Iterator[str]:
    if turn.reward:
        yield f"reward {turn.reward:g}"
    if turn.fault:
        yield f"fault {visible(turn.fault, lines=False)}"
    if turn.key:
        yield f"state {visible(turn.key, lines=False)}"
    if (t := turn.tokens) is not None:
        read = "" if t.fresh is None else f", {t.fresh:,} read"
        yield f"tokens: {t.written:,} written{read}{f', {t.reread:,} again' if t.reread else ''}"


def _tokens(tokens: Tokens | None) -> Iterator[str]:
    if tokens is not None:
        yield f"{counted(tokens.written, 'token')} written"
        if tokens.fresh is not None:
            yield f"{tokens.fresh:,} read for the first time"
        if tokens.reread:
            yield f"{tokens.reread:,} read again"


def _said(who: str, text: str) -> Iterator[str]:
    """A text with its source, and its further lines below its first."""
    first, *more = visible(text).split("\n")
    yield f"    {who:<7} {first}"
    yield from (f"{'':12}{line}" for line in more)
