"""Between text and tokens: how answers end, what the template makes of a prompt, what an answer is as text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from isocost.chance import Purpose
from isocost.doctor.case import SEED, Case, batch, own, sampled
from isocost.doctor.finding import Finding
from isocost.errors import UserError
from isocost.types import Message, Place, Rollout, Stop
from isocost.world import Text

LONG = 128         # tokens that an answer is let go on for, where none ended
ENOUGH = 0.9       # share of answers that ought to end by themselves
WORD = "yes"       # an assistant's turn, to see how a template closes one


async def ends(case: Case) -> Finding:
    """An answer that is done ends in an end token, one that was cut holds none; and most are done."""
    name, ids = "ends and truncation", set(case.world.text.ends)
    for r in case.rollouts:
        why = _wrong_end(r, ids, case)
        if why:
            return Finding(name, "fail", f"problem {r.problem.id}, attempt {r.attempt}: {why}",
                           "report this as a bug of isocost")
    done = float(np.mean([r.stop is Stop.DONE for r in case.rollouts]))
    limit = case.opened.setting.max_tokens
    said = f"{done:.0%} of {len(case.rollouts)} answers end by themselves within {limit} tokens"
    if done == 0:
        return await _never(case, said)
    if done < ENOUGH:
        return Finding(name, "warn", f"{said}; the others are cut, and earn what their beginning earns",
                       "raise --max-tokens, or use a reward that does not pay for what is cut")
    return Finding(name, "ok", said)


async def _never(case: Case, said: str) -> Finding:
    """No answer ended: are they only long? A few are let go on."""
    limit = max(LONG, 4 * case.opened.setting.max_tokens)
    groups = await sampled(case, case.problems[:4], Place(SEED, 6, 0, int(Purpose.PROFILE)), limit, attempts=range(2))
    done = [r.segments[0].written for g in groups for r in g.rollouts if r.stop is Stop.DONE]
    many = sum(len(g.rollouts) for g in groups)
    if not done:
        return Finding("ends and truncation", "fail", f"{said}; of {many} that were let go on, none within {limit}",
                       f"correct the model's end tokens (now {sorted(case.world.text.ends)}): see `end tokens` above")
    return Finding("ends and truncation", "warn", f"{said}; of {many} that were let go on, {len(done)} ended, after "
                   f"{min(done)} to {max(done)} tokens", f"give answers more room: --max-tokens {max(done)}")


def _wrong_end(r: Rollout, ids: set[int], case: Case) -> str:
    tokens, limit = own(r.segments[0]).tolist(), case.opened.setting.max_tokens
    room = case.world.extra["model"].config.max_len - (len(r.segments[0]) - len(tokens))
    if any(t in ids for t in tokens[:-1]):
        return "it goes on after an end token"
    if r.stop is Stop.DONE and (not tokens or tokens[-1] not in ids):
        return "it is called done, and its last token is no end token"
    if r.stop is Stop.LENGTH and tokens and tokens[-1] in ids:
        return "it is called cut, and ends in an end token"
    if r.stop is Stop.LENGTH and len(tokens) != min(limit, room):
        return f"it was cut at {len(tokens)} tokens, not at {min(limit, room)}"
    return ""


async def end_ids(case: Case) -> Finding:
    """The ids that end an answer are those the model's files name, and the one its template closes a turn with."""
    name, model, text = "end tokens", case.world.extra["model"], case.world.text
    ids = list(text.ends)
    outside = [i for i in ids if not 0 <= i < model.config.vocab]
    named = _named_ends(model)
    missing = sorted(set(named.values()) - set(ids))
    if outside or not ids:
        return Finding(name, "fail", f"end tokens {ids} are not all among the model's {model.config.vocab}",
                       "correct eos_token_id in generation_config.json")
    if missing:
        who = ", ".join(f"{k} names {v}" for k, v in named.items() if v in missing)
        return Finding(name, "fail", f"{who}, which does not end an answer here: {ids} do",
                       "correct eos_token_id in config.json and generation_config.json, so that they agree")
    closes = _closes(text)
    if closes is not None and closes not in ids:
        return Finding(name, "fail", f"the chat template closes a turn with token {closes} ({_spelled(model, closes)}),"
                       f" which does not end an answer here: {ids} do",
                       f"add {closes} to eos_token_id in the model's generation_config.json")
    spelled = ", ".join(f"{i} ({_spelled(model, i)})" for i in ids)
    how = "no template closes a turn" if closes is None else "and the template closes a turn with one"
    return Finding(name, "ok", f"answers end at {spelled}, as the model's files say; {how}")


def _named_ends(model: Any) -> dict[str, int]:
    """Every end token that the model's files name, by where."""
    generation = json.loads(model.files.get("generation_config.json", "{}"))
    out = {}
    for where, value in (("config.json", model.extra), ("generation_config.json", generation)):
        found = value.get("eos_token_id")
        for i, end in enumerate(found if isinstance(found, list) else [found]):
            if end is not None:
                out[where if i == 0 else f"{where}[{i}]"] = int(end)
    return out


def _closes(text: Text) -> int | None:
    """The token after an assistant's words; None where no template writes one, or it leaves the words out."""
    talk = (Message("user", "?"), Message("assistant", WORD), Message("user", "?"))
    try:
        tokens, word = list(text.prompt(talk)), list(text.encode(WORD))
    except UserError:      # an alphabet without these letters, a template that refuses the dialogue
        return None
    starts = [i for i in range(len(tokens) - len(word)) if tokens[i : i + len(word)] == word]
    if not starts:
        return None
    after = tokens[starts[-1] + len(word)]
    spelled = text.decode([after])
    return None if after not in text.ends and (not spelled.strip() or spelled.strip() == "?") else after


def _spelled(model: Any, token: int) -> str:
    """A token as its tokenizer's file spells it."""
    if "tokenizer.json" in model.files:
        for added in json.loads(model.files["tokenizer.json"]).get("added_tokens", []):
            if added["id"] == token:
                return str(added["content"])
    return "end of text"


async def template(case: Case) -> Finding:
    """A prompt says what the messages say, twice the same, and reads back to the same tokens."""
    name, text = "template", case.world.text
    spell = _speller(case.world.extra["model"])
    for p in case.problems:
        tokens = list(text.prompt(p.prompt))
        if tokens != list(text.prompt(p.prompt)):
            return Finding(name, "fail", f"problem {p.id} gives two different prompts when asked twice",
                           "take clocks and random numbers out of the chat template")
        if len(tokens) > 1 and tokens[0] == tokens[1] and spell and spell[1](spell[0](tokens[:1])) == tokens[:1] \
                and spell[0](tokens[:1]).startswith("<"):
            return Finding(name, "fail", f"prompts begin with {spell[0](tokens[:1])} twice",
                           "take the beginning-of-text token out of the chat template")
        written = spell[0](tokens) if spell else text.decode(tokens)
        lost = [m.content for m in p.prompt if m.content.strip() not in written]
        if lost:
            return Finding(name, "fail", f"the prompt of problem {p.id} does not hold its message {lost[0][:40]!r}: it "
                           f"reads {written[-60:]!r}", "correct the chat template or the tokenizer")
        back = spell[1](written) if spell else list(text.encode(written))
        if back != tokens:
            where = next((i for i, (a, b) in enumerate(zip(tokens, back, strict=False)) if a != b), len(back))
            return Finding(name, "fail" if not spell else "warn", f"the prompt of problem {p.id} does not read back to "
                           f"its tokens: they part at token {where} of {len(tokens)}",
                           "see whether a message spells a special token, or the tokenizer changes text")
    longest = max(len(text.prompt(p.prompt)) for p in case.problems)
    return Finding(name, "ok", f"{len(case.problems)} prompts of up to {longest} tokens hold their messages and read "
                   "back to the same tokens")


def _speller(model: Any):
    """(tokens -> text, text -> tokens) of the model's own tokenizer file, special tokens and all; None without one."""
    if "tokenizer.json" not in model.files:
        return None
    from tokenizers import Tokenizer

    own_ = Tokenizer.from_str(model.files["tokenizer.json"])
    return (
        lambda tokens: own_.decode(list(tokens), skip_special_tokens=False),
        lambda text: own_.encode(text, add_special_tokens=False).ids,
    )


async def answers(case: Case) -> Finding:
    """The verifier reads the text of the very tokens that are trained on; as text they may be other tokens."""
    name, text, ids = "answers, token in, token out", case.world.text, set(case.world.text.ends)
    trained = batch(case.groups, case.world.engine.version)
    rows = [trained.tokens[i][trained.mask[i]].tolist() for i in range(len(trained.tokens))]
    other, unstable = 0, 0
    for r, row in zip(case.rollouts, rows, strict=True):
        said = own(r.segments[0]).tolist()
        if row != said:
            return Finding(name, "fail", f"attempt {r.attempt} at problem {r.problem.id} is trained on other tokens "
                           "than were sampled", "report this as a bug of isocost")
        words = text.decode(r.segments[0].reply().tolist())
        if r.final != words:
            return Finding(name, "fail", f"the verifier reads {r.final[:40]!r} where the tokens say {words[:40]!r}",
                           "report this as a bug of isocost")
        again = list(text.encode(words)) if words else []
        other += again != [t for t in said if t not in ids]
        unstable += text.decode(again) != words
    n = len(rows)
    if unstable:
        return Finding(name, "warn", f"{unstable} of {n} answers do not survive decode, encode, decode",
                       "their text holds what the tokenizer cannot write (broken characters); rewards still read it")
    said_all = f"the text of {n} answers survives encoding; {other} of them would be other tokens if encoded again"
    return Finding(name, "ok", said_all + (", which changes nothing here: the sampled tokens are trained on"
                                           if other else ""))

