"""Checks of text and tokens: how answers end, what the template makes of a prompt, how an answer decodes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from isocost.chance import Purpose
from isocost.doctor.case import SEED, Case, batch, own, sampled
from isocost.doctor.finding import Finding
from isocost.errors import UserError
from isocost.steps.training.pass_rates import MOST_CUT
from isocost.types import Message, Place, Rollout, Stop
from isocost.world import Text

LONG = 128         # least tokens that an answer may take in a second try, if none ended
ENOUGH = 1 - MOST_CUT      # share of answers that should end with an end token
WORD = "yes"       # an assistant's turn, to find how a template closes one


async def ends(case: Case) -> Finding:
    """A complete answer ends with an end token, a truncated one has none; and most are complete."""
    name, ids = "ends and truncation", set(case.world.text.ends)
    for r in case.rollouts:
        why = _wrong_end(r, ids, case)
        if why:
            return Finding(name, "fail", f"problem {r.problem.id}, attempt {r.attempt}: {why}",
                           "report this as a bug of isocost")
    done = float(np.mean([r.stop is Stop.DONE for r in case.rollouts]))
    limit = case.opened.setting.lengths.max_tokens
    said = f"{done:.0%} of {len(case.rollouts)} answers end within {limit} tokens"
    if done == 0:
        return await _never(case, said)
    if done < ENOUGH:
        return Finding(name, "warn", f"{said}; the others are truncated, and their reward is that of their beginning",
                       "raise --max-tokens, or use a reward that is 0 for truncated answers")
    return Finding(name, "ok", said)


async def _never(case: Case, said: str) -> Finding:
    """No answer ended: sample a few with more room, to tell long answers from missing end tokens."""
    limit = max(LONG, 4 * case.opened.setting.lengths.max_tokens)
    groups = await sampled(case, case.problems[:4], Place(SEED, 6, 0, int(Purpose.PROFILE)), limit, attempts=range(2))
    done = [r.segments[0].written for g in groups for r in g.rollouts if r.stop is Stop.DONE]
    many = sum(len(g.rollouts) for g in groups)
    if not done:
        return Finding("ends and truncation", "fail", f"{said}; of {many} with more room none within {limit}",
                       f"correct the model's end tokens (now {sorted(case.world.text.ends)}): see `end tokens` above")
    return Finding("ends and truncation", "warn", f"{said}; of {many} with more room {len(done)} ended, after "
                   f"{min(done)} to {max(done)} tokens", f"allow longer answers: --max-tokens {max(done)}")


def _wrong_end(r: Rollout, ids: set[int], case: Case) -> str:
    tokens, limit = own(r.segments[0]).tolist(), case.opened.setting.lengths.max_tokens
    room = case.world.about.model.config.max_len - (len(r.segments[0]) - len(tokens))
    if any(t in ids for t in tokens[:-1]):
        return "it continues after an end token"
    if r.stop is Stop.DONE and (not tokens or tokens[-1] not in ids):
        return "it is recorded as complete, but its last token is not an end token"
    if r.stop is Stop.LENGTH and tokens and tokens[-1] in ids:
        return "it is recorded as truncated, but ends with an end token"
    if r.stop is Stop.LENGTH and len(tokens) != min(limit, room):
        return f"it was truncated at {len(tokens)} tokens instead of {min(limit, room)}"
    return ""


async def end_ids(case: Case) -> Finding:
    """Answers end at the ids in the model's files and at the one with which its template closes a turn."""
    name, model, text = "end tokens", case.world.about.model, case.world.text
    ids = list(text.ends)
    outside = [i for i in ids if not 0 <= i < model.config.vocab]
    named = _named_ends(model)
    missing = sorted(set(named.values()) - set(ids))
    if outside or not ids:
        return Finding(name, "fail", f"end tokens {ids} are not all among the model's {model.config.vocab}",
                       "correct eos_token_id in generation_config.json")
    if missing:
        who = ", ".join(f"{k} names {v}" for k, v in named.items() if v in missing)
        return Finding(name, "fail", f"{who}, which does not end an answer here; {ids} do",
                       "make eos_token_id equal in config.json and generation_config.json")
    closes = _closes(text)
    if closes is not None and closes not in ids:
        return Finding(name, "fail", f"the chat template closes a turn with token {closes} ({_spelled(model, closes)}),"
                       f" which does not end an answer here; {ids} do",
                       f"add {closes} to eos_token_id in the model's generation_config.json")
    spelled = ", ".join(f"{i} ({_spelled(model, i)})" for i in ids)
    how = "no chat template closes a turn" if closes is None else "the template closes a turn with one"
    return Finding(name, "ok", f"answers end at {spelled}, as in the model's files; {how}")


def _named_ends(model: Any) -> dict[str, int]:
    """Every end token in the model's files, by file."""
    generation = json.loads(model.files.get("generation_config.json", "{}"))
    out = {}
    for where, value in (("config.json", model.extra), ("generation_config.json", generation)):
        found = value.get("eos_token_id")
        for i, end in enumerate(found if isinstance(found, list) else [found]):
            if end is not None:
                out[where if i == 0 else f"{where}[{i}]"] = int(end)
    return out


def _closes(text: Text) -> int | None:
    """The token after an assistant's turn; None if there is no template, or it omits the turn."""
    talk = (Message("user", "?"), Message("assistant", WORD), Message("user", "?"))
    try:
        tokens, word = list(text.prompt(talk)), list(text.encode(WORD))
    except UserError:      # an alphabet without these letters, or a template that does not accept the dialogue
        return None
    starts = [i for i in range(len(tokens) - len(word)) if tokens[i : i + len(word)] == word]
    if not starts:
        return None
    after = tokens[starts[-1] + len(word)]
    spelled = text.decode([after])
    return None if after not in text.ends and (not spelled.strip() or spelled.strip() == "?") else after


def _spelled(model: Any, token: int) -> str:
    """A token's text in tokenizer.json."""
    if "tokenizer.json" in model.files:
        for added in json.loads(model.files["tokenizer.json"]).get("added_tokens", []):
            if added["id"] == token:
                return str(added["content"])
    return "end of text"


async def template(case: Case) -> Finding:
    """A prompt contains its messages, is the same twice, and encodes back to the same tokens."""
    name, text = "template", case.world.text
    spell = _speller(case.world.about.model)
    for p in case.problems:
        tokens = list(text.prompt(p.prompt))
        if tokens != list(text.prompt(p.prompt)):
            return Finding(name, "fail", f"the template makes two different prompts of problem {p.id}",
                           "remove dates, clocks and random numbers from the chat template")
        if len(tokens) > 1 and tokens[0] == tokens[1] and spell and spell[1](spell[0](tokens[:1])) == tokens[:1] \
                and spell[0](tokens[:1]).startswith("<"):
            return Finding(name, "fail", f"prompts begin with {spell[0](tokens[:1])} twice",
                           "remove the beginning-of-text token from the chat template")
        written = spell[0](tokens) if spell else text.decode(tokens)
        lost = [m.content for m in p.prompt if m.content.strip() not in written]
        if lost:
            return Finding(name, "fail", f"the prompt of problem {p.id} does not hold its message {lost[0][:40]!r}: it "
                           f"ends with {written[-60:]!r}", "correct the chat template or the tokenizer")
        back = spell[1](written) if spell else list(text.encode(written))
        if back != tokens:
            where = next((i for i, (a, b) in enumerate(zip(tokens, back, strict=False)) if a != b), len(back))
            return Finding(name, "fail" if not spell else "warn", f"the prompt of problem {p.id} does not encode back "
                           f"to its tokens: the first difference is at token {where} of {len(tokens)}",
                           "check whether a message contains a special token, or the tokenizer changes text")
    longest = max(len(text.prompt(p.prompt)) for p in case.problems)
    return Finding(name, "ok", f"{len(case.problems)} prompts of up to {longest} tokens hold their messages and encode "
                   "back to the same tokens")


def _speller(model: Any):
    """(tokens -> text, text -> tokens) by the model's tokenizer.json, with special tokens; None without one."""
    if "tokenizer.json" not in model.files:
        return None
    from tokenizers import Tokenizer

    own_ = Tokenizer.from_str(model.files["tokenizer.json"])
    return (
        lambda tokens: own_.decode(list(tokens), skip_special_tokens=False),
        lambda text: own_.encode(text, add_special_tokens=False).ids,
    )


async def answers(case: Case) -> Finding:
    """The verifier reads the text of the tokens that are trained on; encoded again that text may give other tokens."""
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
            return Finding(name, "fail", f"the verifier reads {r.final[:40]!r}, but the tokens decode to "
                           f"{words[:40]!r}", "report this as a bug of isocost")
        again = list(text.encode(words)) if words else []
        other += again != [t for t in said if t not in ids]
        unstable += text.decode(again) != words
    n = len(rows)
    if unstable:
        return Finding(name, "warn", f"{unstable} of {n} answers change in decode, encode, decode",
                       "their text contains characters that the tokenizer cannot encode; rewards still read it")
    said_all = f"the text of {n} answers is unchanged by encoding; encoded again, {other} would be other tokens"
    return Finding(name, "ok", said_all + (", which has no effect: the sampled tokens are trained on"
                                           if other else ""))

