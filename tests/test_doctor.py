"""A sound world passes every check; the check responsible finds each planted fault."""

import asyncio
import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from isocost import meter
from isocost.cli.commands import main
from isocost.doctor import CHECKS, diagnose, marks, policy, run_checks, words
from isocost.doctor.case import ATTEMPTS, distribution, examine, size
from isocost.local.decoder import Config, Decoder
from isocost.local.sampling import truncate
from isocost.local.tokenizer import Characters, HubTokenizer
from isocost.local.weights import Model, save_model
from isocost.steps.events import Observer
from isocost.tasks.verify import verifiers
from isocost.types import Sampling, Stop
from isocost.worlds.setting import Setting, open_setting

SETTING = Setting.of(data="sums:base=easy,count=24", held_out=0.4)


def looked(opened, *checks):
    """Findings of these checks by name."""
    return {f.name: f for f in asyncio.run(run_checks(opened, checks=checks)).findings}


def opened(**changes):
    return open_setting(SETTING.but(**changes))


def only(found):
    (finding,) = found.values()
    return finding


class Watched(Observer):
    def __init__(self, seen):
        self.seen = seen

    def on(self, event):
        self.seen.append(event)


# sound worlds -------------------------------------------------------------------------------------------------


def test_the_built_in_model_is_sound_and_everything_is_paid_for_as_a_probe():
    world = opened()
    told, charges = [], []
    world.world.meter.observer = lambda account, cost: charges.append(cost)
    found = asyncio.run(run_checks(world, observer=Watched(told)))
    assert [c for c in charges if not c.seconds > 0] == [], "whatever is computed takes time, and is billed for it"
    assert [f for f in found.findings if f.verdict == "fail"] == []
    quick = {"sandbox"}     # what is another on another machine
    assert {f.verdict for f in found.findings if f.name not in quick} == {"ok"}
    assert told == [found.subject, *found.findings] and len(found.findings) == len(CHECKS) and found.sound
    assert world.world.meter.logical.keys() == {meter.PROBE}
    assert found.cost.rollouts > 100 and found.cost.verify > 100 and found.cost.train > 0 and found.cost.score > 0
    assert all(f.said and any(c.isdigit() for c in f.said) for f in found.findings)
    json.dumps(found.to_dict())


@pytest.mark.parametrize("changes", [
    {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.3, "top_k": 5}, {"dtype": "bf16"}, {"dtype": "fp64"},
    {"top_k": 1},       # one token is kept, whose log-prob is 0 under any weights
    {"data": "sums:work=1,count=24", "max_tokens": 12},
])
def test_sound_whatever_the_sampling(changes):
    found = looked(opened(**changes), *CHECKS)
    assert [f for f in found.values() if f.verdict == "fail"] == []


def test_the_reference_truncates_as_the_sampler_says_it_does():
    logits = torch.randn(40, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    for s in (Sampling(0.5), Sampling(1.3, 0.8), Sampling(1.0, 1.0, 4), Sampling(0.7, 0.6, 9)):
        p, k = torch.full((40,), s.top_p, dtype=torch.float64), torch.full((40,), s.top_k)
        theirs = truncate(logits / s.temperature, p, k).log_softmax(-1)
        torch.testing.assert_close(distribution(logits, s), theirs)
    # by hand: (.5, .3, .2) at top-p .6 is (.5, .3) / .8
    hand = distribution(torch.tensor([[0.5, 0.3, 0.2]]).log(), Sampling(1.0, 0.6)).exp()
    torch.testing.assert_close(hand, torch.tensor([[0.625, 0.375, 0.0]]))


def test_a_case_is_about_as_many_tokens_whatever_their_length():
    assert size(1000, 4) == 32 and size(10, 4) == 10
    assert size(1000, 64) * 64 * ATTEMPTS == 4096
    assert size(1000, 4000) == 4 and size(3, 4000) == 3


# planted faults: the sampler ----------------------------------------------------------------------------------


def around(engine, monkeypatch, change):
    """Let `change(said, start, call)` alter what the engine says; `call` counts calls."""
    true, calls = engine.generate, count()

    async def generate(start, attempts, **asked):
        call = next(calls)
        return [change(s, start, call) for s in await true(start, attempts, **asked)]

    monkeypatch.setattr(engine, "generate", generate)


def untempered(world):
    """What a sampler would record that forgets temperature and truncation."""
    decoder = Decoder(world.about.model.config, body=torch.float64)
    for name, p in decoder.named_parameters():
        p.data.copy_(world.learner.weights()[name])

    def change(said, start, call):
        tokens = torch.from_numpy(np.concatenate([start.tokens, said.tokens]))
        with torch.no_grad():
            logp = decoder.logits(decoder(tokens[None])[0, len(start) - 1 : -1]).log_softmax(-1)
        chosen = logp.gather(-1, torch.from_numpy(said.tokens)[:, None])[:, 0]
        return replace(said, logp=chosen.numpy().astype(np.float32))

    return change


def test_untempered_log_probs_are_found(monkeypatch):
    o = opened()
    around(o.world.engine, monkeypatch, untempered(o.world))
    found = looked(o, policy.cached_decode, policy.sampling)
    assert found["cached decode"].verdict == "ok"       # at temperature 1 there is nothing to see
    assert found["temperature and top-p"].verdict == "fail"
    assert "temperature 0.6" in found["temperature and top-p"].said
    hot = opened(temperature=0.7)
    around(hot.world.engine, monkeypatch, untempered(hot.world))
    assert only(looked(hot, policy.cached_decode)).verdict == "fail"


@pytest.mark.parametrize("fault", ["none", "one less", "all"])
def test_wrong_kept_sets_are_found(fault, monkeypatch):
    o = opened()

    def change(said, start, call):
        if not said.kept:
            return said
        whole = np.arange(o.world.about.model.config.vocab)
        wrong = {"none": (), "all": tuple(whole for _ in said.kept),
                 "one less": tuple(k[k != t] for k, t in zip(said.kept, said.tokens, strict=True))}
        return replace(said, kept=wrong[fault])

    around(o.world.engine, monkeypatch, change)
    assert only(looked(o, policy.sampling)).verdict == "fail"


def test_draws_from_another_distribution_than_is_recorded_are_found(monkeypatch):
    o = opened()
    true, honest = o.world.engine.generate, untempered(o.world)

    async def generate(start, attempts, **asked):
        hot = replace(start, sampling=Sampling(1.5))
        return [honest(s, start, 0) for s in await true(hot, attempts, **asked)]

    monkeypatch.setattr(o.world.engine, "generate", generate)
    found = looked(o, policy.cached_decode, policy.draws)
    assert found["cached decode"].verdict == "ok" and found["draws"].verdict == "fail"


@pytest.mark.parametrize("fault", ["stale", "position"])
def test_a_sampler_of_other_weights_and_a_learner_of_other_positions_are_found(fault):
    o = opened(kernels="torch")
    if fault == "stale":
        o.world.engine.restore({k: w * 1.002 for k, w in o.world.learner.weights().items()}, 0)
    else:
        o.world.learner.decoder.turns[6:] = o.world.learner.decoder.turns[5:-1].clone()
    found = only(looked(o, policy.cached_decode))
    assert found.verdict == "fail" and found.do
    assert ("the sampler is further off" if fault == "stale" else "the learner is wrong") in found.said


@pytest.mark.parametrize(("dtype", "rounds", "wrong"), [("bf16", 0.1, 0.3), ("fp32", 3e-5, 3e-4)])
def test_a_model_that_rounds_more_is_no_bug_while_sampler_and_learner_agree(dtype, rounds, wrong, monkeypatch):
    """The bar on their distance from the plain pass is not the one on their distance from each other."""
    true = policy.kept_logp
    for off, verdict in ((rounds, "ok"), (wrong, "fail")):
        o = opened(dtype=dtype)
        assert o.world.about.kernels == "native"                    # the two agree to the last bit
        monkeypatch.setattr(policy, "kept_logp", lambda logits, x, off=off: true(logits, x) - off)
        found = looked(o, policy.sampling, policy.weights)
        assert {f.verdict for f in found.values()} == {verdict}, found
        plain = re.search(r"and (\S+) from those of a full pass", found["weights reach the sampler"].said)
        assert float(plain[1]) == pytest.approx(off, rel=0.3)


def test_a_sampler_that_depends_on_when_it_is_asked_is_found(monkeypatch):
    o = opened()
    true, calls = o.world.engine.generate, count()

    async def generate(start, attempts, *, place, **asked):
        return await true(start, attempts, place=replace(place, wave=100 + next(calls)), **asked)

    monkeypatch.setattr(o.world.engine, "generate", generate)
    assert only(looked(o, policy.determinism)).verdict == "fail"


def test_last_bits_that_depend_on_company_are_a_warning(monkeypatch):
    o = opened()
    around(o.world.engine, monkeypatch,
           lambda said, start, call: replace(said, logp=said.logp * np.float32(1 + 2e-7 * (call % 5))))
    found = looked(o, policy.determinism, policy.cached_decode)
    assert found["determinism"].verdict == "warn" and found["cached decode"].verdict == "ok"


# planted faults: weights --------------------------------------------------------------------------------------


def test_weights_that_do_not_load_are_found(monkeypatch):
    o = opened()

    async def load(weights):
        o.world.engine.version += 1

    monkeypatch.setattr(o.world.engine, "load", load)
    found = only(looked(o, policy.weights))
    assert found.verdict == "fail" and "does not reach the sampler" in found.said


@pytest.mark.parametrize("tensor", ["norm", "blocks.1.down", "blocks.1.norm2", "blocks.1.qkv"])
def test_one_tensor_that_does_not_load_is_named(tensor, monkeypatch):
    o = opened()
    true, first = o.world.engine.load, {k: w.clone() for k, w in o.world.learner.weights().items()}
    monkeypatch.setattr(o.world.engine, "load", lambda weights: true({**weights, tensor: first[tensor]}))
    found = only(looked(o, policy.weights))
    assert found.verdict == "fail" and tensor in found.said


def test_weights_that_load_one_update_late_are_found(monkeypatch):
    o = opened()
    true, held = o.world.engine.load, []

    async def load(weights):
        held.append({k: w.clone() for k, w in weights.items()})
        await true(held[-1] if len(held) < 10 else held[-2])

    monkeypatch.setattr(o.world.engine, "load", load)
    found = only(looked(o, policy.weights))
    assert found.verdict == "fail" and "after an update" in found.said


def test_a_learner_that_keeps_reading_with_its_old_weights_is_found(monkeypatch):
    """Sampler and learner then differ after an update; were both stale, the full pass would tell."""
    o = opened()
    monkeypatch.setattr(o.world.learner, "score", o.world.learner.frozen().score)
    found = only(looked(o, policy.weights))
    assert found.verdict == "fail" and "from the learner's" in found.said


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("fault", ["", "sign", "lost", "stretched"])
def test_a_wrong_gradient_is_found(fault, kernels, monkeypatch):
    o = opened(kernels=kernels, temperature=0.8)
    true = o.world.learner.gradient

    def gradient(batch, loss):
        seen, named = true(batch, loss), dict(o.world.learner.decoder.named_parameters())
        if fault == "sign":
            named["norm"].grad.neg_()
        if fault == "lost":
            named["blocks.1.qkv"].grad[3] = 0
        if fault == "stretched":
            for p in named.values():
                p.grad.mul_(1.01)
        return seen

    monkeypatch.setattr(o.world.learner, "gradient", gradient)
    found = only(looked(o, policy.gradient))
    assert found.verdict == ("fail" if fault else "ok"), found


# planted faults: text -----------------------------------------------------------------------------------------


class Clipped(Characters):
    def prompt(self, messages):
        return super().prompt(messages)[:-1]


class Restless(Characters):
    calls = 0

    def prompt(self, messages):
        self.calls += 1
        return [*super().prompt(messages), self.calls % 2]


class Deaf(Characters):
    """Reads other tokens than it writes."""

    def encode(self, text):
        return [t if t != 3 else 4 for t in super().encode(text)]


@pytest.mark.parametrize("fault", [Clipped, Restless, Deaf])
def test_a_text_that_does_not_round_trip_is_found(fault):
    o = opened()
    text = o.world.text
    o.world.text = fault(text.alphabet, text.ends[0])
    o.world.engine.text = o.world.text
    found = only(looked(o, words.template))
    assert found.verdict == "fail" and found.do


def test_wrong_end_ids_are_found():
    o = opened()
    text = o.world.text
    case = asyncio.run(examine(o))
    o.world.text = Characters(text.alphabet, 3)
    assert asyncio.run(words.end_ids(case)).verdict == "fail"
    assert asyncio.run(words.ends(case)).verdict == "fail"
    o.world.text = Characters(text.alphabet, 999)
    assert "not all among" in asyncio.run(words.end_ids(case)).said


def test_answers_that_never_end_are_distinguished_from_answers_that_need_more_tokens():
    short = only(looked(opened(data="sums:work=2,count=24", max_tokens=3), words.ends))
    assert short.verdict == "warn" and "--max-tokens" in short.do
    o = opened()
    o.world.engine._is_end[:] = False
    never = only(looked(o, words.ends))
    assert never.verdict == "fail"


@pytest.mark.parametrize("stop, room", [(Stop.DONE, 2), (Stop.LENGTH, 4)])
def test_an_end_that_is_called_by_the_wrong_name_is_found(stop, room, monkeypatch):
    o = opened(max_tokens=room)
    around(o.world.engine, monkeypatch, lambda said, start, call: replace(said, stop=stop))
    found = only(looked(o, words.ends))
    assert found.verdict == "fail" and "it is recorded as" in found.said


def test_answers_that_are_not_the_text_of_their_tokens_are_found():
    case = asyncio.run(examine(opened()))
    first = case.groups[0]
    case.groups = (first.of([r.but(final=r.final + "0") for r in first.rollouts]), *case.groups[1:])
    assert asyncio.run(words.answers(case)).verdict == "fail"


# a folder with a template -------------------------------------------------------------------------------------


TEMPLATE = (
    "{% for m in messages %}<turn>{{ m['role'] }}\n{{ m['content'] }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)


def folder(path, *, template=TEMPLATE, end="<end>", seed=0):
    """A random model of bytes with two special tokens, as a Hugging Face folder; 257 is the end."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<turn>", special=True), AddedToken("<end>", special=True)])
    config = Config(vocab=258, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=48, max_len=256)
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(seed))
    weights = {k: v.detach().clone() for k, v in decoder.named_parameters()}
    id_ = made.token_to_id(end)
    files = {
        "tokenizer.json": made.to_str(),
        "tokenizer_config.json": json.dumps({"eos_token": end, "chat_template": template}),
        "generation_config.json": json.dumps({"eos_token_id": id_}),
    }
    text = HubTokenizer(files["tokenizer.json"], [id_], template, {})
    save_model(path, Model("bytes", config, weights, text, {"eos_token_id": id_}, files))
    return str(path)


def test_a_folder_of_a_user_is_looked_at_as_it_stands(tmp_path):
    found = looked(opened(model=folder(tmp_path), max_tokens=24), *CHECKS)
    bad = {k: f.said for k, f in found.items() if f.verdict == "fail"}
    assert bad.keys() <= {"ends and truncation"}, bad       # random weights need not end
    assert "257 (<end>)" in found["end tokens"].said and "template closes a turn with one" in found["end tokens"].said


def test_an_end_token_that_the_template_does_not_use_is_found(tmp_path):
    found = only(looked(opened(model=folder(tmp_path, end="<turn>")), words.end_ids))
    assert found.verdict == "fail" and "257 (<end>)" in found.said and "generation_config.json" in found.do


def test_a_template_that_loses_words_or_begins_twice_is_found(tmp_path):
    lossy = TEMPLATE.replace("m['content']", "m['content'][:3]")
    found = only(looked(opened(model=folder(tmp_path / "a", template=lossy)), words.template))
    assert found.verdict == "fail" and "does not hold its message" in found.said
    twice = "<turn>" + TEMPLATE
    found = only(looked(opened(model=folder(tmp_path / "b", template=twice)), words.template))
    assert found.verdict == "fail" and "<turn> twice" in found.said


# planted faults: rewards --------------------------------------------------------------------------------------


def paying(mark, must_agree=True):
    return verifiers.VerifierKind(lambda text, problem, tokens=(): mark(text, problem), must_agree=must_agree)


def right(text, problem):
    return float(text == problem.answer)


@pytest.mark.parametrize("mark, words_", [
    (lambda t, p: float(t in ("", p.answer)), "an empty answer earns 1.00"),
    (lambda t, p: float(p.answer in t), "every answer of the set"),
    (lambda t, p: float(t in (p.answer, p.text)), "the prompt read back earns 1.00"),
    (lambda t, p: float(len(t) in (2, 3)), "one constant answer"),
])
def test_a_verifier_that_can_be_cheated_is_found(mark, words_, monkeypatch):
    monkeypatch.setitem(verifiers.BUILT_IN, "exact", paying(mark))
    found = only(looked(opened(), marks.reward_probes))
    assert found.verdict == "fail" and words_ in found.said


def test_a_verifier_that_changes_its_mind_or_gives_no_mark_is_a_warning(monkeypatch):
    calls = count()
    monkeypatch.setitem(verifiers.BUILT_IN, "exact", paying(lambda t, p: right(t, p) * (next(calls) % 3 > 0)))
    found = only(looked(opened(), marks.reward_probes))
    assert found.verdict == "warn" and "marked twice differs" in found.said
    monkeypatch.setitem(verifiers.BUILT_IN, "exact", paying(lambda t, p: 1 / 0 if t.startswith("1") else right(t, p)))
    found = only(looked(opened(), marks.reward_probes))
    assert found.verdict == "warn" and "ZeroDivisionError" in found.said


def test_answers_that_are_not_right_by_their_own_verifier_are_found(monkeypatch):
    for must, verdict in ((True, "fail"), (False, "warn")):
        monkeypatch.setitem(verifiers.BUILT_IN, "exact", paying(lambda t, p: 0.5 * right(t, p), must))
        assert only(looked(opened(), marks.answer_key)).verdict == verdict


# the command --------------------------------------------------------------------------------------------------


def said(*args, code=0):
    done = CliRunner().invoke(main, ["doctor", *args])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_the_command_prints_json_and_its_exit_code_tells(monkeypatch):
    made = []
    with monkeypatch.context() as patched:
        patched.setattr("isocost.doctor.diagnose", lambda **asked: made.append(diagnose(**asked)) or made[-1])
        data = json.loads(said("tiny", "--json", "--limit", "40").stdout)
    assert data == made[0].to_dict() and made[0].sound
    assert data["model"] == "tiny" and data["sound"] and data["cost"]["rollouts"] > 0
    assert {f["verdict"] for f in data["findings"]} <= {"ok", "warn", "cannot tell"}
    monkeypatch.setitem(verifiers.BUILT_IN, "exact", paying(lambda t, p: 1.0))
    shown = said("tiny", "--limit", "40", code=3)
    assert "fail" in shown.stdout and "reward probes" in shown.stdout and "do:" in shown.stdout


@pytest.mark.parametrize("args, words_", [
    (["nowhere"], "nowhere"), (["tiny", "--temperature", "0"], "temperature"),
    (["tiny", "--data", "no.jsonl"], "no.jsonl"), (["tiny", "--dtype", "fp13"], "fp13"),
])
def test_a_mistake_of_the_user_is_one_line(args, words_):
    done = said(*args, code=2)
    assert done.stderr.startswith("isocost: ") and done.stderr.count("\n") == 1 and words_ in done.stderr


def test_a_check_that_cannot_finish_is_a_failure_of_what_it_looked_at():
    o = opened()

    async def broken_thing(case):
        raise RuntimeError("no")

    found = only(looked(o, broken_thing))
    assert found.name == "broken thing" and found.verdict == "fail" and "RuntimeError: no" in found.said


def test_the_page_names_every_check():
    page = (Path(__file__).parents[1] / "docs" / "doctor.md").read_text(encoding="utf-8")
    found = asyncio.run(run_checks(opened()))
    rows = re.findall(r"^\| ([^|]+?) \|", page, flags=re.M)[2:]
    assert rows[: len(found.findings)] == [f.name for f in found.findings]
