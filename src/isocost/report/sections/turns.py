"""Rollouts turn by turn: a bounded sample of those that records keep as text. It follows from the records alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate

from isocost.envs.tools import MalformedCall, read_calls
from isocost.report.html import Safe, count, details, esc, join, names, p, tag
from isocost.report.records import ReportRecords, as_dict, as_list, number
from isocost.report.section import Section, empty
from isocost.runs.kept_rollouts import PROFILE, WORDS, KeptRollout, KeptTurn, Outcome, end_of, read
from isocost.screen.words import counted, shortened, visible, word
from isocost.types import Stop

RUNS = 6            # whose rollouts are in the page; trained runs come first
EACH = 4            # of the first and the last update of each part of a run, and of those kept for their faults
OF_PROFILE = 12
TURNS = 40          # of a rollout
MOST = 4_000        # characters of a text
WHOLE = 24_000      # characters of all turns of a rollout
SHORT = 48          # characters of the name of a call
PURPOSES = ("train", "run", "pilot", "edge", "probe")
CALL = re.compile(r"(<tool_call>.*?</tool_call>)", re.S)
MARKS = {Outcome.SUCCESS: "✓", Outcome.FAILURE: "✕", Outcome.LIMIT: "◷", Outcome.STOPPED: "⊘", Outcome.FAULT: "!"}
RULE = (
    f"They are chosen by a fixed rule: {OF_PROFILE} of the profile; of each of at most {RUNS} runs, trained runs first,"
    f" {EACH} of the first and {EACH} of the last update of training, the same of evaluation, and {EACH} that were kept"
    " because of a fault. Among these come first one of every outcome, then one of every problem. A text has at most"
    f" {MOST:,} characters, and a rollout {TURNS} turns with {WHOLE:,} characters."
)


def rollouts(study: ReportRecords) -> Section:
    """Kept rollouts of the profile and of some runs, turn by turn, escaped and unedited."""
    title = "Rollouts"
    profile = read(as_list(study["profile"].get("examples")), PROFILE)
    kept, others = {PROFILE: profile} if profile else {}, 0
    order = {name: i for i, name in enumerate(PURPOSES)}
    # Rollouts of runs that are not shown are counted, and not kept in memory.
    for run in sorted(study.runs, key=lambda r: (order.get(r.purpose, len(order)), r.name)):
        found = read(run.samples(), run.name)
        if found and len(kept) - bool(profile) < RUNS:
            kept[run.name] = found
        else:
            others += len(found)
    if not kept:
        return Section("rollouts", title, empty(study, "No rollout has been recorded as text yet.", "isocost profile"))
    shown = chosen(kept)
    profiled = number(as_dict(study["profile"].get("cost")).get("rollouts"))
    sampled = sum(run.metered for run in study.runs) + int(profiled or 0)
    every = others + sum(map(len, kept.values()))
    lead = f"{count(len(shown))} of {counted(every, 'rollout')} that the records keep as text"
    lead += f"; {count(sampled)} were sampled." if sampled else "."
    command = tag("code", f"isocost rollouts {word(study.name)}")
    options = join(*(tag("code", x) for x in ("--run", "--update", "--outcome", "--fault")), by=", ")
    more = p("Every other one that was kept: ", command, " with ", options, ".", cls="soft")
    rule = details("How the rollouts of this page were chosen", p(RULE, cls="soft"))
    rows = [tag("li", _rollout(r, i, study)) for i, r in enumerate(shown)]
    viewer = tag("div", tag("ol", *rows, cls="rollouts"), cls="viewer")
    return Section("rollouts", title, join(p(lead, cls="lead"), more, rule, viewer))


def chosen(kept: Mapping[str, Sequence[KeptRollout]]) -> list[KeptRollout]:
    """The rollouts in the page, of kept ones by run: see `RULE`. Runs are in order; `profile` is one of them."""
    out = _varied(kept.get(PROFILE, ()), OF_PROFILE)
    for name in [n for n in kept if n != PROFILE][:RUNS]:
        whole = [r for r in kept[name] if not r.chosen_for]
        for part in dict.fromkeys(r.part for r in whole):
            steps = sorted({r.step for r in whole if r.part == part})
            for step in dict.fromkeys((steps[0], steps[-1])):
                out += _varied([r for r in whole if (r.part, r.step) == (part, step)], EACH)
        out += _varied([r for r in kept[name] if r.chosen_for], EACH)
    return out


def _varied(some: Sequence[KeptRollout], most: int) -> list[KeptRollout]:
    """At most so many of them: the first of every outcome, then the first of every problem, the second of every problem
    and so on; in their order."""
    first = set({r.outcome: i for i, r in reversed(list(enumerate(some)))}.values())
    seen, rank = Counter[str](), {}
    for i in sorted(range(len(some)), key=lambda i: (i not in first, i)):
        seen[some[i].problem] += 1
        rank[i] = (i not in first, seen[some[i].problem], i)
    return [some[i] for i in sorted(sorted(rank, key=rank.__getitem__)[:most])]


def _rollout(r: KeptRollout, index: int, study: ReportRecords) -> Safe:
    where = f"{visible(r.run, lines=False)} · {_when(r)}"
    numbers = [f"{counted(r.steps, 'turn')}"] if r.turns else []
    numbers += [f"{counted(r.tokens.written, 'token')}"] if r.tokens else []
    numbers += ["no reward" if r.reward is None else f"reward {r.reward:g}"]
    mark = tag("span", MARKS[r.outcome], cls="mark", aria_hidden="true")
    head = tag(
        "summary", tag("span", mark, WORDS[r.outcome], cls=f"outcome {r.outcome}"),
        tag("span", visible(r.problem, lines=False), cls="problem", title=visible(r.problem, lines=False)),
        tag("span", where, cls="where"), tag("span", " · ".join(numbers), cls="numbers"),
    )
    body = tag("div", *_body(r, study), cls="body")
    return tag("details", head, body, cls="rollout", id=f"rollout-{index}")


def _when(r: KeptRollout) -> str:
    part = f"{visible(r.part, lines=False)} · " if r.part else ""
    return "before training" if r.run == PROFILE else f"{part}update {count(r.step)}"


def _body(r: KeptRollout, study: ReportRecords) -> Iterator[Safe]:
    yield tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in _facts(r)), cls="facts")
    yield _said("prompt", r.prompt, "shown")
    if r.opened:
        yield details(f"All that it read first ({count(len(r.opened))} characters)",
                      _said("shown first", r.opened, "shown"))
    if r.turns:
        turns = list(enumerate(_fitting(r.turns[:TURNS]), 1))
        yield tag("ol", *(_turn(number, t) for number, t in turns), cls="turns")
        left = r.steps - len(turns)
        if left:
            yield p(f"{counted(left, 'more turn')} not in this page.", cls="soft")
    if not r.turns or r.text not in ("", r.turns[-1].said):
        yield _said("answer" if r.turns else "policy", r.text, "policy")
    title = f"The command that prints it, in the folder that contains {visible(study.name, lines=False)}"
    yield details(title, tag("pre", _command(r, study), cls="command"))


def _fitting(turns: Sequence[KeptTurn]) -> list[KeptTurn]:
    """The first turns, as many as have `WHOLE` characters."""
    sizes = accumulate(min(len(t.said), MOST) + min(len(t.shown), MOST) for t in turns)
    return [t for t, size in zip(turns, sizes, strict=True) if size <= WHOLE]


def _facts(r: KeptRollout) -> Iterator[tuple[str, str]]:
    if r.outcome in (Outcome.LIMIT, Outcome.FAULT) and r.stop in list(Stop):
        yield "ended", end_of(r.reward, r.stop)
    if r.fault:
        yield "fault", visible(r.fault, lines=False)
    if r.turns:
        yield "environment steps", count(r.steps)
    if r.tokens is not None:
        yield "tokens written", count(r.tokens.written)
        if r.tokens.fresh is not None:
            yield "read first", count(r.tokens.fresh)
            yield "read again", count(r.tokens.reread)
    if r.fate:
        yield "fate", visible(r.fate, lines=False)
    if r.variant:
        yield "variant", visible(r.variant, lines=False)
    if r.attempt is not None:
        yield "attempt", count(r.attempt)
    if r.chosen_for:
        yield "kept for", "its fault"


def _command(r: KeptRollout, study: ReportRecords) -> str:
    attempt = "" if r.attempt is None else f" --attempt {r.attempt}"
    part = f" --part {r.part}" if r.part in ("training", "held-out") else ""
    return (f"isocost rollouts {word(visible(study.name, lines=False))} --run {word(visible(r.run, lines=False))} "
            f"--update {r.step}{part} --problem {word(visible(r.problem, lines=False))}{attempt}")


def _fault(t: KeptTurn) -> Safe:
    return tag("span", visible(t.fault, lines=False), cls="wrong") if t.fault else Safe("")


def _turn(number_: int, t: KeptTurn) -> Safe:
    """One turn: what the policy wrote, then what it was shown."""
    tokens = t.tokens
    read_ = tokens is not None and tokens.fresh is not None
    facts = [
        f"reward {t.reward:g}" if t.reward else "", f"calls {names(_calls(t.said))}" if _calls(t.said) else "",
        tag("span", "state ", tag("code", t.key)) if t.key else "",
        f"{counted(tokens.written, 'token')} written" if tokens else "",
        f"{count(tokens.fresh)} read first, {count(tokens.reread)} again" if tokens and read_ else "",
    ]
    head = tag("p", tag("b", f"Turn {number_}"), _fault(t), *(tag("span", x) for x in facts if x), cls="turn")
    shown = _said("result" if _calls(t.said) else "shown", t.shown, "shown") if t.shown else Safe("")
    return tag("li", head, _said("policy", t.said, "policy"), shown)


def _calls(text: str) -> list[str]:
    with suppress(MalformedCall, RecursionError):
        return [visible(c.name, lines=False)[:SHORT] for c in read_calls(text)]
    return []


def _said(who: str, text: str, cls: str) -> Safe:
    """A text and its source; calls of tools are marked in it."""
    whole = shortened(text, MOST)
    parts = CALL.split(whole) if cls == "policy" else [whole]
    marked = Safe("".join(tag("span", x, cls="call") if i % 2 else esc(x) for i, x in enumerate(parts)))
    inner = marked if whole else tag("i", "nothing")
    return tag("div", tag("span", who, cls="who"), tag("pre", inner, dir="auto", tabindex="-1"), cls=f"said {cls}")
