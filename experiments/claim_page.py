"""The pages about claims: docs/claims.md and its picture, and the part of a method's page that is about its claims.

`python -m experiments.claim page` writes the first, `python -m docs.build.catalogue docs` the second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import inf
from typing import Any

import altair as alt
import numpy as np

from experiments import control_claims, pages, strategy_claims
from experiments.claim import (
    FAILS,
    FLOOR,
    HOLDS,
    HOME,
    KEPT,
    REWARDS,
    UNKNOWN,
    WAVES,
    Claim,
    Question,
    earlier,
    failed,
    gate_text,
    kept,
    outcome_of,
    repeatable,
    rows,
)
from experiments.pages import wrapped
from isocost import methods
from isocost.compare.design import arm_of
from isocost.control import methods as control
from isocost.report import theme
from isocost.runs import rules
from isocost.screen.words import counted, markdown_table
from isocost.stats import decidable

PAGE, IMAGES, PICTURE = HOME / "docs" / "claims.md", HOME / "docs" / "images", "claims"
Records = Mapping[str, Mapping[str, Any]]
ORDER = (FAILS, UNKNOWN, HOLDS)                 # misses first
SHORT = {FAILS: "no", UNKNOWN: "?", HOLDS: "yes"}
COLOURS = {FAILS: "alarm", UNKNOWN: "soft", HOLDS: "accent"}
SHARES = (*REWARDS, "trained on", "after ", "vote", "one")      # metrics that are shares of attempts, on one axis
GAINS = f" (at least {decidable.GAIN:g})"
STANDINGS = ("worse", "cannot tell", "same", "better")
ALT = ("Difference in the share of right attempts between the arm and its baseline, with its interval, for each claim "
       "that has one: most intervals of claims that hold lie right of 0")

HEAD = """# Claims

This page tests claims of papers in small worlds that suit the methods. `python -m experiments.claim page` writes it.

A claim is a row of a TOML file. A *gate* decides from a pilot whether it is decidable: every arm is trained at full
length with other seeds, at the probed learning rate and at half of it, and [ten
rules](compare.md) are applied. Row, pilot and gate are sealed before the first run of the comparison, which
uses the lower rate. A question *holds* if its 95 % interval lies in the claimed range, one-sided where the claim is. A
claim holds if all its questions do, and does not if the interval of one lies outside, at an error rate divided by their
number.

For claims about [control](control_methods.md) a pilot has three learning rates, of which the middle one must be best,
and the rules use the mean return over a run where the question does. After a refusal, rates, lengths and datasets were
changed and piloted again; `dqn_target`, `weighting` and `wsrl_dip` then asked less.

{older} claims are older than the gate. They were sealed as source text: the files `NAME.py` in the headlines folder of
experiments, commit {commit}. Their intervals are two-sided, 95 % for all questions of a claim together.
Settings were searched on other seeds until plain RL failed, not until the claim held.

That a claim does not hold means only that this small world does not show it. Runs of all arms share their seeds and
cost the same; in control, in samples or updates, and the effect at equal FLOP is shown where FLOP differ.
"""
SHOWN = """The table shows the first question with the claim's answer: arm less baseline, its interval, and the claimed
range. A claim asked again shows its last answer; *tries* counts them.
"""
NOT_ASKED = (
    "MinPRO and VCPO on puzzles: where stale rollouts failed, fresh ones did too.",
    "DRPO, Apriel, GDPO's second reward and SIRI again: the bases write all answers to a sum in one length.",
    "BroRL continues a policy that no longer rises; on hard sums GRPO still rises after 512 updates.",
    "BRPO: a worked sum that is cut short has no answer to read.",
    "OTR: its baseline, imitation of equally many demonstrations without sampling, is no method here.",
    "ILQL again: methods of language learn from no fixed set of dialogues here.",
    "GUI-RCPO again: a vote teaches where most answers are right, not three in ten, as here.",
    "RaC again: help mends demonstrations of people who err; the desk's expert does not err.",
    "VRAG-RL again: GRPO gains too little on the needle (`experiments/results/bases.json`).",
    "RedStar: on worked sums of all levels a run gains 0.12, too little.",
    "Balanced filtering: on hard sums a pilot's 16,384 rollouts made 4 to 12 steps, not 20.",
)
BACK = """## What the gate would have done

The rules on each older claim's first question about held-out reward of two arms. Its first four seeds are the pilot, so
pilot and answer share runs.
"""
WAVE = """## Methods against their parents

A wave compares methods with the methods that they change, by held-out reward at equal FLOP, at a false discovery rate
of 10 % in a world. `easy sums` is an older world of answers of four characters. Runs are short, so small effects are
not detected. The runs are in `experiments/results` of commit {commit}.
"""
STRATEGIES = """## Test-time strategies

`experiments/strategy_claims.py` asks claims about [strategies](strategies.md) in the same way; seeds are draws of
problems. The gate also requires equal cost for an answer: tokens that the policy (+ scorer) writes, of arm and
comparator, or FLOP where models differ.
"""
HYPOTHESIS = """Predicted before the runs on `puzzles` and `sums`: 4 methods that equalled their parents on easy sums (
minpro, arrol, rolloutgdro, gdpo) differ on one of the two. Found: {count} of 4.
"""


@cache
def _control() -> dict[str, Claim]:
    return {name: of.claim for name, of in control_claims.rows().items()}


def everything() -> dict[str, Claim]:
    """Every claim by name: of methods of training, and of control."""
    return rows() | _control()


def records() -> dict[str, dict[str, Any]]:
    """The records of every claim by name."""
    return kept() | kept(control_claims.KEPT)


# the page -------------------------------------------------------------------------------------------------------------


def page(found: Records) -> str:
    """docs/claims.md; the same records give the same text."""
    every = everything()
    done = {name: record for name, record in found.items() if name in every and "outcome" in record}
    older = [c for c in every.values() if c.sealed]
    sealed = [r["row"]["title"] for r in found.values() if "seal" in r and "outcome" not in r]
    refused = [(every[n], r) for n, r in found.items() if "seal" not in r and not r["decidable"]]
    count = {x: sum(r["outcome"] == x for r in done.values()) for x in ORDER}
    table = markdown_table(("claim", "answer", "effect", "claimed", "tries"), [
        (f"`{n}` [{every[n].title}]({_where(every[n])})",
         ", ".join((f"**{r['outcome']}**", *_marks(r))), _effect(every[n], r), _claimed(_shown(every[n], r)[0]),
         _tries(n, every, found)) for n, r in ((n, found[n]) for n in ordered(every, found))])
    parts = [HEAD.format(older=len(older), commit=older[0].sealed) if older else HEAD.partition("{older}")[0],
             f"## Answers\n\n{count[HOLDS]} claims hold, {count[FAILS]} do not, {count[UNKNOWN]} are undecided.\n",
             SHOWN, table] if done else [HEAD.partition("{older}")[0], "No claim has been asked yet.\n"]
    parts += [pages.picture(PICTURE, ALT)] if done else []
    if sealed:
        parts.append("Sealed and not yet run: " + ", ".join(sealed) + ".\n")
    if waiting := [n for n in every if n not in found]:
        parts.append("Stated and not yet piloted: " + ", ".join(f"`{n}`" for n in waiting) + ".\n")
    parts.append(f"## Not asked, because\n\nA baseline that learns gains at least {decidable.GAIN:g}.\n")
    parts.append(markdown_table(("claim", "because"), [
        (f"[{c.title}]({_where(c)})", ", ".join(x["name"] for x in r["gate"] if x["passed"] is False))
        if c.name in _control() else (c.title, _refused(r)) for c, r in refused])
                 if refused else "No claim was refused by the gate yet.\n")
    parts += [*(f"- {line}" for line in NOT_ASKED), "", STRATEGIES, strategies_table()]
    parts += [BACK, back_table(back_test(every, found)), _waves()]
    took = repeatable(found)
    again = f"{len(took)} claims, {sum(took.values()) / 3600:.1f} CPU-hours"
    commands = ("python -m experiments.claim pilot liteppo-hard-sums", "# then seal, run",
                f"# repeat all: {again}")
    return wrapped("\n".join([*parts, "## Ask a claim\n", "```sh", *commands, "```\n"]))


def _tries(name: str, every: Mapping[str, Claim], found: Records) -> str:
    """How often a claim was asked, and what was answered before."""
    before = [found[n]["outcome"] for n in earlier(every[name], every) if "outcome" in found.get(n, {})]
    said = ", ".join(f"{before.count(x)} {SHORT[x]}" for x in ORDER if x in before)
    return f"{1 + len(earlier(every[name], every))}" + (f" ({said})" if said else "")


def ordered(every: Mapping[str, Claim], found: Records) -> list[str]:
    """The names of claims with an answer that no other answer repeats, misses first, each kind by its effect if that is
    a share."""
    def place(name: str) -> tuple[int, float]:
        shown = _shown(every[name], found[name])
        return ORDER.index(found[name]["outcome"]), shown[1]["value"] if _share(shown[0]) else -inf

    done = [n for n in every if "outcome" in found.get(n, {})]
    again = {x for n in done for x in earlier(every[n], every)}
    return sorted((n for n in done if n not in again), key=place)


def _shown(claim: Claim, record: Mapping[str, Any]) -> tuple[Question, Mapping[str, Any]]:
    """The first question that has the claim's answer, of two arms if there is one."""
    asked = [(q, a) for q, a in zip(claim.questions, record["answers"], strict=True)
             if a["answer"] == record["outcome"]]
    return next((x for x in asked if x[0].arm != x[0].comparator), asked[0])


def _share(q: Question) -> bool:
    return q.metric.startswith(SHARES)


def _effect(claim: Claim, record: Mapping[str, Any]) -> str:
    q, a = _shown(claim, record)
    equal = record.get("at_equal_flop", {}).get(q.says)
    return f"{q.metric if claim.name in _control() else q.says}: {_difference(a)}" + (
        f", equal FLOP {_difference(equal)}" if equal else "")


def _difference(a: Mapping[str, Any]) -> str:
    return f"{_signed(a['value'])} [{_signed(a['low'])}, {_signed(a['high'])}]"


def _marks(record: Mapping[str, Any]) -> list[str]:
    """What to know of an answer: an older rule of a method, and a gate that was not passed."""
    return [*filter(None, (other_rules(record), failed(record) if "anyway" in record else ""))]


def other_rules(record: Mapping[str, Any]) -> str:
    """Which of a record's methods have another rule now: "rule 1 of roc (2 in this version)"; empty if none has."""
    named = {arm_of(label)[0] for label in record.get("rates", ())} & {*methods.shipped()}
    now = {name: rule for name in named if (rule := rules.of_file(name)) != 1}
    return rules.differences(record.get("rules", {}), now)


def home_of(claim: Claim) -> str:
    """The method whose page has a claim's questions and numbers."""
    return (claim.own or claim.methods)[0]


def _where(claim: Claim) -> str:
    if claim.name in _control():
        return f"control_methods.md#{anchor(control.load(home_of(claim)).CARD.title)}"
    return f"methods/{home_of(claim)}.md#{anchor(claim.title)}"


def anchor(title: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def picture(found: Records, dark: bool) -> str:
    """A line for each claim of training whose effect is a share of attempts: its interval, by answer. Legible at 390
    pixels."""
    every = rows()
    names = [n for n in ordered(every, found) if _share(_shown(every[n], found[n])[0])]
    data = theme.data_of([{"claim": n, "answer": found[n]["outcome"], **{k: a[k] for k in ("value", "low", "high")}}
                          for n in names for a in (_shown(every[n], found[n])[1],)])
    base = alt.Chart(data).encode(
        y=alt.Y("claim:N", sort=names, title=None, axis=alt.Axis(labelFontSize=11, labelColor="var(--ink)",
                                                                 labelPadding=4, grid=True)),
        color=alt.Color("answer:N", title=None, sort=list(ORDER), scale=alt.Scale(
            domain=list(ORDER), range=theme.variables(*COLOURS.values()))))
    shape = alt.Shape("answer:N", title=None, sort=list(ORDER), scale=alt.Scale(
        domain=list(ORDER), range=["square", "triangle-up", "circle"]))
    title = "arm less baseline, share of right attempts"
    bars = base.mark_rule(strokeWidth=3, opacity=0.5).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(size=42, filled=True).encode(x=alt.X("value:Q", title=title), shape=shape)
    zero = alt.Chart(theme.data_of([{"value": 0}])).mark_rule(strokeDash=[3, 3]).encode(x="value:Q")
    return theme.svg(theme.finish(alt.layer(zero, bars, points), ALT, 16 * len(names)), width=640, dark=dark)


def write(found: Records) -> None:
    """The page and its picture."""
    PAGE.write_text(page(found), encoding="utf-8")
    for name, dark in (("light", False), ("dark", True)):
        (IMAGES / f"{PICTURE}-{name}.svg").write_text(picture(found, dark), encoding="utf-8")


# strategies -----------------------------------------------------------------------------------------------------------


def strategies_table() -> str:
    """A row for each claim about strategies, misses first: the answer, each question's effect, the cost."""
    found = kept(KEPT / "strategies").values()
    order = (*ORDER, "not asked")
    return markdown_table(("claim", "answer", "difference", "cost"), [
        (r["row"]["title"], f"**{r['outcome']}**" if "outcome" in r else f"not asked: {_refused(r)}",
         _differences(r.get("answers", ())), _cost(r))
        for r in sorted(found, key=lambda r: order.index(r.get("outcome", "not asked")))])


def _differences(answers: Sequence[Mapping[str, Any]]) -> str:
    """The effect of each question; what it asks is said where there are several."""
    says = [a["says"].removeprefix("solved, ") + " " for a in answers] if len(answers) > 1 else [""]
    return "; ".join(f"{said}{_difference(a)}" for said, a in zip(says, answers, strict=False))


def _refused(record: Mapping[str, Any]) -> str:
    """The rules of the gate that failed, without their remedies and the least gain, which is said once."""
    texts = {x["name"]: re.sub(": (?:train longer|pilot again)[^;]*", "", x["text"].rpartition(": ")[0])
             .replace(GAINS, "") for x in record["gate"] if x["passed"] is False}
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def _cost(record: Mapping[str, Any]) -> str:
    """What an answer of the first question's arm and comparator took, of its problems; with equal tokens the ratio of
    FLOP too, where it is not about one: tokens that are read are not counted in tokens."""
    if "unit" not in record:
        return ""
    asked = record["row"]["questions"][0]
    name, _, group = asked["metric"].partition(" ")
    of = f" {group}" if name == "solved" and group else ""
    flop, tokens, scorer = ([float(np.mean([x[k + of] for x in record["runs"][asked[side]].values()]))
                             for side in ("arm", "comparator")] for k in ("flop", "tokens", "scorer"))
    if record["unit"] == "flop":
        return ", ".join(f"{x:.2g}" for x in flop) + " FLOP"
    said = ", ".join(f"{t - s:.0f}" + (f" + {s:.0f}" if s else "") for t, s in zip(tokens, scorer, strict=True))
    return said + (f"; FLOP {flop[0] / flop[1]:.2f}:1" if abs(flop[0] / flop[1] - 1) > strategy_claims.WITHIN else "")


# the gate in hindsight ------------------------------------------------------------------------------------------------


def back_test(every: Mapping[str, Claim], found: Records) -> list[dict[str, Any]]:
    """What the gate would have said of each older claim, of its first question about pass@1 of two arms.

    A row has the name, the kind (more, margin), the question's answer, and by the first four seeds `ratio`: headroom,
    or the margin, over the predicted half-width; the baseline's `gain`, of a margin the larger of both arms; whether a
    run `fell`, all pairs are `equal`.
    """
    out = []
    for name in (n for n, c in every.items() if c.sealed and n in found):
        record = found[name]
        for q, answer in zip(every[name].questions, record["answers"], strict=True):
            if q.arm == q.comparator or q.metric != q.less or q.metric != "pass@1" or q.below != inf:
                continue
            a, b = ({s: n["pass@1"] for s, n in list(record["runs"][x].items())[:4]} for x in (q.arm, q.comparator))
            ends = [np.array(list(x.values())) for x in (a, b)]
            base = next(iter(record["runs"][q.comparator].values()))["pass@1 before"]
            gains = [float(x.mean()) - base for x in ends]
            known = decidable.spread([np.array([a[s] - b[s] for s in a if s in b])], FLOOR)
            assert known is not None
            half = known.half_width(answer["seeds"], 1 - answer["level"])
            room = -q.above if q.above < 0 else 1 - float(ends[1].mean())
            out.append({"name": name, "kind": "margin" if q.above < 0 else "more", "answer": answer["answer"],
                        "ratio": room / half, "gain": max(gains) if q.above < 0 else gains[1],
                        "fell": any(bool(decidable.fell(base, x).any()) for x in ends),
                        "equal": all(a[s] == b[s] for s in a if s in b)})
            break
    return out


def back_table(found: Sequence[Mapping[str, Any]]) -> str:
    """The back test as a table: how many of each answer a rule refuses or passes."""
    def cell(kind: str, answer: str, refused: Callable[[Mapping[str, Any]], bool]) -> str:
        own = [x for x in found if x["kind"] == kind and x["answer"] == answer]
        down = sum(map(refused, own))
        return f"{down} of {len(own)} refused" if answer == UNKNOWN else f"{len(own) - down} of {len(own)} passed"

    def more(k: float) -> Callable[[Mapping[str, Any]], bool]:
        return lambda x: x["ratio"] < k or x["gain"] < decidable.GAIN or x["fell"] or x["equal"]

    kinds: list[tuple[str, str, Callable[[Mapping[str, Any]], bool]]] = [
        *((f'"more than", headroom of {k:g}', "more", more(k)) for k in (2.0, decidable.HALVES, 4.0)),
        ('"no worse", half-width below the margin', "margin", lambda x: x["ratio"] < 1 or x["fell"] or x["equal"]),
        ('"no worse", and one of the two arms learns', "margin", more(1.0)),
    ]
    answers = (UNKNOWN, HOLDS, FAILS)
    return markdown_table(("claim", *answers),
                          [(says, *(cell(kind, a, rule) for a in answers)) for says, kind, rule in kinds])


# waves ----------------------------------------------------------------------------------------------------------------


@cache
def waves() -> dict[str, Any]:
    """The kept answers of methods against their parents: `worlds`, and `rows` of a method in a world."""
    return dict(json.loads(WAVES.read_text(encoding="utf-8")))


def _waves() -> str:
    """Counts of verdicts by world, with the methods' names, and the hypothesis."""
    worlds, found = waves()["worlds"], waves()["rows"]
    table = []
    for world, w in worlds.items():
        names = {x: [r["method"] for r in found if r["world"] == world and r["verdict"] == x] for x in STANDINGS}
        cells = (f"{len(own)}" + (f" ({', '.join(own)})" if own and x not in ("cannot tell", "same") else "")
                 for x, own in names.items())
        table.append((f"{world} (`{w['data']}`)", *cells, f"{w['called']} of {w['asked']}",
                      f"{w['runs']}, {w['hours']:.1f} h"))
    count = len({r["method"] for r in found if r["method"] in ("minpro", "arrol", "rolloutgdro", "gdpo")
                 and r["world"] != "easy sums" and r["verdict"] in ("better", "worse")})
    return "\n".join([
        WAVE.format(commit=next(iter(worlds.values()))["held_by"]),
        markdown_table(("world", *STANDINGS, "significant answers", "runs"), table),
        HYPOTHESIS.format(count=count)])


# a method's page ------------------------------------------------------------------------------------------------------


def of_method(name: str, every: Mapping[str, Claim] | None = None, found: Records | None = None) -> str:
    """The part of a method's page about its claims and waves, in Markdown; empty if nothing was asked."""
    every, found = rows() if every is None else every, kept() if found is None else found
    own = [_section(name, c, found, every) for n, c in every.items()
           if name in c.methods and "outcome" in found.get(n, {})]
    tried = [(r["world"], f"`{r['arm']}`" + (f", `max_age={r['max_age']}`" if r["max_age"] else ""),
              f"{r['n']}, {r['B']}", f"{r['rate']:.2g}", f"{r['reward']:.3f}", f"{r['parents']:.3f}",
              "{:+.3f} [{:+.3f}, {:+.3f}]".format(*r["answers"]["equal cost"]), r["verdict"], r["seeds"])
             for r in waves()["rows"] if r["method"] == name]
    parents = [r["parent"] for r in waves()["rows"] if r["method"] == name]
    if tried:
        own.append("### Against its parent\n\nHeld-out reward less that of `" + parents[0] + "`, at equal FLOP "
                   "([how](../claims.md#methods-against-their-parents)).\n\n" + markdown_table(
                       ("world", "arm", "n, B", "rate", "reward", "parent's", "difference", "verdict", "seeds"), tried))
    return "\n".join(own).rstrip("\n")


def _section(name: str, claim: Claim, found: Records, every: Mapping[str, Claim]) -> str:
    """One claim on the page of one of its methods: all of it, or a link to the page that has it (`home_of`)."""
    record = found[claim.name]
    if name != home_of(claim):
        return (f"### {claim.title}\n\n{claim.claim} **{record['outcome'].capitalize()}**. Details: "
                f"[{home_of(claim)}]({home_of(claim)}.md#{anchor(claim.title)}).\n")
    runs, seconds = (sum(part[k] for part in record["bill"].values()) for k in ("runs", "seconds"))
    amount = f"{record['cost']:.2g} FLOP" if record["unit"] == "flops" else f"{record['cost']:,.0f} {record['unit']}"
    rates = (f"learning rate {claim.rate:g}, not tuned" if claim.rate is not None else
             "learning rates " + ", ".join(f"{label} {rate:.2g}" for label, rate in record["rates"].items()))
    again = [f"[{every[n].title}]({'' if home_of(every[n]) == name else home_of(every[n]) + '.md'}"
             f"#{anchor(every[n].title)})" for n in earlier(claim, every) if "outcome" in found.get(n, {})]
    return "\n".join([
        f"### {claim.title}\n",
        " ".join(filter(None, (f"{claim.claim} **{record['outcome'].capitalize()}**.", _whose(claim),
                               f"Source: {claim.source}.", again and f"It asks again: {', '.join(again)}."))) + "\n",
        *([" ".join(claim.note.split()) + "\n"] if claim.note else []),
        markdown_table(("question", "arm", "baseline", "difference", "claimed", "answer"), [
            (a["says"], _short(a["of"]), _short(a["less"]), _difference(a), _claimed(q), a["answer"])
            for a, q in zip(record["answers"], claim.questions, strict=True)]),
        f"{counted(record['answers'][0]['seeds'], 'seed')} per arm, {amount} a run, n = {record['n']}, "
        f"B = {record['B']}; {rates}. {counted(runs, 'run')} with pilot and probes, {seconds / 60:.0f} minutes of run "
        f"time. {_sealed(claim, record)}\n",
        *_notes(record),
        *(["```text", gate_text(record), "```\n"] if "gate" in record else []),
    ])


def _whose(claim: Claim) -> str:
    """Which methods' own claim this is, and which claim something else."""
    others = [m for m in claim.methods if m not in claim.own]
    said = [f"This is the claim of {_listed(claim.own)}."] if claim.own else []
    said += [f"{_listed(others)} {'claims' if len(others) == 1 else 'claim'} something else."] if others else []
    return " ".join(said)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{n}`" for n in names)


def _sealed(claim: Claim, record: Mapping[str, Any]) -> str:
    """What was sealed, and how to ask again."""
    how = f"as source text, commit {claim.sealed}, digest" if claim.sealed else "with its pilot,"
    made = [f" after `python experiments/bases.py make {x.removeprefix('bases/')}`" for x in claim.options
            if x.startswith("bases/")]
    again = f"Not to be repeated: {claim.not_repeatable}." if claim.not_repeatable else (
        f"`python -m experiments.claim repeat {claim.name}` trains it again{''.join(made)}.")
    return f"Sealed {how} {record['seal'][:12]}. {again}"


def _notes(record: Mapping[str, Any]) -> list[str]:
    notes = [*record.get("ended", ()), *record.get("notes", ())]
    code = record["code"]
    if isinstance(code, Mapping) and code["probe"] != code["train"]:
        notes.append("The package's sources changed between the learning-rate probes and the runs.")
    if len(code["train"] if isinstance(code, Mapping) else code) > 1:
        notes.append("The package's sources changed during the runs.")
    if any("max_age" in label for label in record["rates"]) and record.get("age") != "exact":
        notes.append("Made by a version in which rollouts were at most as old as `max_age`; now they are exactly that "
                     "old ([Sample and learn at the same time](../overlap.md)).")
    if other := other_rules(record):
        notes.append(f"Made under {other}: it is not evidence for the method as it is now.")
    return ["".join(f"- {n}\n" for n in notes)] if notes else []


def evidence_of(name: str, every: Mapping[str, Claim], found: Records) -> list[tuple[str, str, Claim]]:
    """(state, the claim's record file, claim) of each answer about a method: reproduced, claim, or another claim."""
    out = []
    for n, c in every.items():
        record = found.get(n, {})
        if name not in c.methods or "outcome" not in record:
            continue
        answer = outcome_of([record["answers"][i]["answer"] for i in c.of_method(name)])
        asked = name in c.own
        state = ("reproduced" if asked and answer == record["outcome"] == HOLDS else
                 f"{'claim' if asked else 'another claim'}: {answer}")
        rule = int(record.get("rules", {}).get(name, 1))
        if name in methods.shipped() and rule != methods.load(name).CARD.rule:
            state = f"claim under rule {rule}: {answer}"
        out.append((state, f"experiments/results/claims/{n}.json", c))
    return out


def _short(x: float) -> str:
    return f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"


def _signed(x: float) -> str:
    return f"{x:+.3f}" if abs(x) < 10 else f"{x:+.1f}"


def _claimed(q: Question) -> str:
    if q.below == inf:
        return f"above {q.above:g}"
    return f"below {q.below:g}" if q.above == -inf else f"from {q.above:g} to {q.below:g}"
