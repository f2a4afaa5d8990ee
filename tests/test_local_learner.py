"""The learner's gradient is exact under any split, its log-probs need no padding, its state is all there is to it."""

import asyncio
import itertools

import numpy as np
import pytest
import torch

import local_world
from isocost.local.decoder import Decoder
from isocost.local.learner import NEVER
from isocost.pack import pack
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Sampling, Score, Stop
from local_world import SETTINGS, batch, model, pull, say, start, sums, teach, world


@pytest.fixture(autouse=True, params=["native", "torch"])
def kernels(request, monkeypatch):
    """Every test here holds for both ways to compute."""
    monkeypatch.setattr(local_world, "KERNELS", request.param)
    return request.param


def ragged(w, sampling=Sampling()):
    """Groups of unlike prompts and lengths, in one batch."""
    return batch(w, ["1+2=", "47+38=", "9" * 13, "5"], 5, tokens=12, sampling=sampling)


def plain(w, b):
    """Log-probs and entropies, one row at a time, from the definition. (N, T) each."""
    logp, entropy = torch.zeros(b.tokens.shape, dtype=torch.float64), torch.zeros(b.tokens.shape, dtype=torch.float64)
    decoder = Decoder(w.learner.config, body=torch.float64)
    decoder.load_state_dict({k: v.double() for k, v in w.learner.weights().items()}, strict=False)
    for i, n in enumerate(b.length.tolist()):
        logits = decoder.logits(decoder(b.tokens[i : i + 1, :n]))[0].detach() / float(b.temperature[i])
        kept = iter(b.kept[i]) if b.kept else None
        for t in range(n):
            if b.mask[i, t]:
                here = logits[t - 1]
                if kept is not None:
                    ids = torch.from_numpy(next(kept))
                    here = torch.full_like(here, -torch.inf).index_copy(0, ids, here[ids])
                p = here.softmax(-1)
                logp[i, t], entropy[i, t] = p[b.tokens[i, t]].log(), -(p[p > 0] * p[p > 0].log()).sum()
    return logp, entropy


@pytest.mark.parametrize("sampling", SETTINGS)
def test_log_probs_and_entropies_are_the_definitions(sampling):
    w = world(dtype="fp64")
    b = ragged(w, sampling)
    out, (logp, entropy) = w.learner.score(b), plain(w, b)
    torch.testing.assert_close(out.logp, logp, atol=1e-10, rtol=0)
    torch.testing.assert_close(out.entropy, entropy, atol=1e-10, rtol=0)
    assert not out.logp[~b.mask].any() and not out.entropy[~b.mask].any()


def test_shared_prompts_are_read_once_and_change_nothing():
    w = world(dtype="fp64")
    w.learner._widest = 1000
    b = ragged(w)
    apart = b.but(group=torch.arange(len(b.reward)))
    torch.testing.assert_close(w.learner.score(b).logp, w.learner.score(apart).logp, atol=1e-12, rtol=0)
    logical, physical = w.meter.of(), w.meter.physical["train"]
    assert logical.score == 2 * int(b.length.sum())
    prompts = 4 + 6 + 13 + 1
    answers = int(b.mask.sum())
    rows = len(b.tokens)
    assert physical.score == (prompts + answers - rows) + (5 * prompts + answers - rows)


def test_rows_of_one_group_with_unlike_prompts_do_not_mix():
    w = world(dtype="fp64")
    b = batch(w, ["1+2=", "3+4=", "47+38=", "5"], 4)
    lumped = b.but(group=torch.zeros_like(b.group))
    torch.testing.assert_close(w.learner.score(lumped).logp, plain(w, b)[0], atol=1e-10, rtol=0)


def test_several_turns_and_tokens_that_are_not_its_own():
    w = world(dtype="fp64")
    text = start(w, "1+2=")
    for turn in range(3):
        (said,) = asyncio.run(w.engine.generate(text, [0], place=Place(7, 0, 0), turn=turn, max_tokens=4))
        text = text.wrote(said).read(w.text.encode("?="), Role.SEEN)
    problem = Problem("1+2=", (Message("user", "1+2="),))
    group = Group(problem, (Rollout(problem, (text,), "", Stop.DONE, 0, Score(1.0)),))
    b = pack([group, group], 0)
    assert b.mask.sum() == 2 * text.own.sum() < len(text) * 2 - 8
    torch.testing.assert_close(w.learner.score(b).logp, plain(w, b)[0], atol=1e-10, rtol=0)
    np.testing.assert_allclose(b.logp[0][b.mask[0]], plain(w, b)[0][0][b.mask[0]], atol=1e-6)


def test_padding_a_batch_leaves_log_probs_alone():
    w = world(dtype="fp64")
    b = ragged(w)
    def wider(x, fill=0):
        return torch.nn.functional.pad(x, (0, 9), value=fill)
    names = ("logp", "role", "turn", "advantage", "weight")
    wide = b.but(tokens=wider(b.tokens, 5), mask=wider(b.mask, False), **{k: wider(getattr(b, k)) for k in names})
    T = b.tokens.shape[1]
    torch.testing.assert_close(w.learner.score(wide).logp[:, :T], w.learner.score(b).logp, atol=1e-12, rtol=0)


def test_a_model_that_counts_gives_its_next_number_a_log_prob_of_zero():
    """A shift by one anywhere would make it very negative."""
    w = world(model(hidden=16, layers=1, heads=1, kv_heads=1, head_dim=16, mlp=16, tied=False))
    weights = {k: torch.zeros_like(v) for k, v in w.learner.weights().items()}
    weights["embed"], weights["norm"] = torch.eye(16), torch.ones(16)
    weights["head"] = 20 * torch.eye(16).roll(1, 0)       # the head says token + 1
    for name in weights:
        if "norm" in name:
            weights[name] = torch.ones_like(weights[name])
    asyncio.run(w.engine.load(weights))
    for name, mine in w.learner.weights().items():
        mine.copy_(weights[name])
    b = batch(w, ["3", "7"], 4, tokens=6)
    assert b.tokens[0].tolist() == [3, 4, 5, 6, 7, 8, 9] and b.tokens[4].tolist() == [7, 8, 9, 10, 11, 12, 13]
    assert float(w.learner.score(b).logp.abs().max()) < 1e-5 and float(b.logp.abs().max()) < 1e-5


@pytest.mark.parametrize("micro", [1, 24, 70, 200])
def test_the_gradient_does_not_depend_on_the_split(micro):
    source = model()
    whole = world(source, dtype="fp64")
    b = ragged(whole, Sampling(1.3, 0.9, 0))
    split = world(source, dtype="fp64", micro_tokens=micro)
    grads, seen = [], []
    for learner in (whole.learner, split.learner):
        seen.append(learner.gradient(b, pull))
        grads.append(learner._grad.clone())
    assert grads[0].abs().max() > 1e-3
    torch.testing.assert_close(grads[0], grads[1], atol=1e-10, rtol=0)
    assert seen[0] == pytest.approx(seen[1], abs=1e-12)
    out = whole.learner.score(b)
    assert seen[0]["loss"] == pytest.approx(float((-out.logp * b.advantage * b.weight).sum()), abs=1e-12)
    assert seen[0]["twice"] == pytest.approx(float(2 * out.logp[b.mask].mean()), abs=1e-12)
    assert seen[0]["entropy"] == pytest.approx(float(out.entropy[b.mask].mean()), abs=1e-12)


def test_the_gradient_is_that_of_finite_differences():
    w = world(dtype="fp64")
    b = ragged(w, Sampling(0.7, 1.0, 6))
    w.learner.gradient(b, lambda out, batch: (pull(out, batch)[0] - 0.1 * out.entropy, {}))
    flat, grad = w.learner._flat, w.learner._grad.clone()

    def value():
        out = w.learner.score(b)
        return float(((-out.logp * b.advantage - 0.1 * out.entropy) * b.weight)[b.mask].sum())

    way = torch.from_numpy(np.random.default_rng(0).normal(size=len(flat)))
    at, h = flat.clone(), 1e-5
    flat.copy_(at + h * way)
    up = value()
    flat.copy_(at - h * way)
    assert (up - value()) / (2 * h) == pytest.approx(float(grad @ way), rel=1e-6)


def test_the_policy_gradient_of_one_token_by_hand():
    """d/dz of -log p(a) is p - onehot(a); the head's bias-free row gradient is that times the hidden state."""
    w = world(model(tied=False), dtype="fp64")
    b = batch(w, ["1+2="], 1, tokens=1).but(advantage=torch.ones(1, 5), weight=torch.ones(1, 5))
    w.learner.gradient(b, pull)
    hidden = w.learner.decoder(b.tokens[:, :4])[0, -1].detach()
    p = w.learner.decoder.logits(hidden).softmax(-1).detach()
    p[b.tokens[0, 4]] -= 1
    torch.testing.assert_close(w.learner.decoder.head.grad, p[:, None] * hidden, atol=1e-12, rtol=0)


def test_adam_is_torchs():
    w = world()
    other = Decoder(w.learner.config)
    other.load_state_dict({k: v.clone() for k, v in w.learner.weights().items()}, strict=False)
    adam = torch.optim.AdamW(other.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    b = ragged(w)
    for lr in (1e-3, 3e-4, 2e-3):
        w.learner.gradient(b, pull)
        norm = float(torch.linalg.vector_norm(w.learner._grad))
        for p, q in zip(other.parameters(), w.learner.decoder.parameters(), strict=True):
            p.grad = q.grad / max(norm + 1e-6, 1.0)
        for group in adam.param_groups:
            group["lr"] = lr
        adam.step()
        assert w.learner.update(b, pull, lr=lr)["grad_norm"] == pytest.approx(norm)
        for p, q in zip(other.parameters(), w.learner.decoder.parameters(), strict=True):
            torch.testing.assert_close(p, q, atol=1e-7, rtol=1e-5)


def test_a_restored_learner_goes_on_exactly():
    source = model()
    a, c = world(source), world(source)
    batches = [batch(a, sums(6, k), 4, wave=k) for k in range(5)]
    for b in batches[:3]:
        a.learner.update(b, pull, lr=1e-3)
    c.learner.restore(a.learner.state())
    a.learner.update(batches[3], pull, lr=1e-3)     # the state is a copy: this cannot reach c
    for b in batches[4:]:
        a.learner.update(b, pull, lr=1e-3)
    c.learner.update(batches[3], pull, lr=1e-3)
    c.learner.update(batches[4], pull, lr=1e-3)
    for (name, x), y in zip(a.learner.state().items(), c.learner.state().values(), strict=True):
        assert torch.equal(x, y), name
    with pytest.raises(ValueError, match="another shape"):
        a.learner.restore({"weights.norm": torch.zeros(2)})


def test_the_reference_stays_where_the_run_began():
    w = world(reference=True)
    b = ragged(w)
    before = w.learner.score(b).logp
    teach(w, 3)
    assert torch.equal(w.reference.score(b).logp, before)
    assert not torch.allclose(w.learner.score(b).logp, before, atol=1e-3)
    w.follow(0.5)
    half = w.reference.score(b).logp
    w.follow(0.0)
    assert torch.equal(w.reference.score(b).logp, w.learner.score(b).logp)
    assert not torch.allclose(half, before, atol=1e-3) and not torch.allclose(half, w.learner.score(b).logp, atol=1e-3)
    again = world(reference=True)
    again.restore(w.state())
    assert torch.equal(again.reference.score(b).logp, w.learner.score(b).logp)


def test_a_gradient_that_is_not_finite_changes_nothing():
    w = world()
    b, before = ragged(w), {k: v.clone() for k, v in w.learner.weights().items()}
    seen = w.learner.update(b, lambda out, batch: (out.logp * float("nan"), {}), lr=1e-2)
    assert np.isnan(seen["grad_norm"])
    assert all(torch.equal(v, before[k]) for k, v in w.learner.weights().items())


def test_a_mask_on_the_first_token_and_a_kept_set_too_few_are_errors():
    w = world()
    b = ragged(w, Sampling(1.0, 0.9, 0))
    with pytest.raises(ValueError, match="first token"):
        w.learner.score(b.but(mask=torch.ones_like(b.mask)))
    with pytest.raises(ValueError, match="kept sets"):
        w.learner.score(b.but(kept=tuple(k[:-1] for k in b.kept)))


def test_updates_and_scores_are_charged():
    w = world()
    b = ragged(w)
    w.learner.update(b, pull, lr=1e-3)
    w.learner.score(b)
    cost = w.meter.of()
    tokens = int(b.length.sum())
    assert (cost.train, cost.updates, cost.score) == (tokens, 1, tokens)


def test_learning_moves_rewards_up():
    """A reward of 1 for an even first digit, from the embedded base: the chance of one rises."""
    w = world("tiny")
    prompts = sums(8, 5)

    def even(b):
        i = torch.arange(len(b.tokens))
        first = b.tokens[i, b.mask.int().argmax(1)]
        return (first < 10) & (first % 2 == 0)

    rates = []
    for wave in range(12):
        b = batch(w, prompts, 16, tokens=4, wave=wave)
        reward = even(b).float()
        rates.append(float(reward.mean()))
        b = b.but(advantage=(reward - reward.mean())[:, None] * b.mask)
        w.learner.update(b, pull, lr=1e-2)
        asyncio.run(w.engine.load(w.learner.weights()))
    assert np.mean(rates[-3:]) > np.mean(rates[:2]) + 0.2


# sequence log-probs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SETTINGS)
def test_sequence_log_probs_are_those_of_sampling_it(sampling):
    w = world()
    said = asyncio.run(say(w, "47+38=", range(40), tokens=12, sampling=sampling))
    done = [s for s in said if s.stop is Stop.DONE]
    answers = [s.tokens[:-1].tolist() for s in done]
    prompts = [w.text.encode("47+38=")] * len(done)
    logp = w.learner.sequence_logp(prompts, answers, sampling)
    np.testing.assert_allclose(logp, [s.logp.sum() for s in done], atol=2e-5)
    tokens = sum(6 + len(a) + 1 for a in answers)
    assert w.meter.of().score == tokens


def test_sequence_log_probs_add_up_over_every_reply_and_every_end():
    source = model(vocab=5, sharp=1.0)
    source.text.ends = (3, 4)
    w = world(source)
    for sampling in (Sampling(), Sampling(0.5), Sampling(1.0, 1.0, 3)):
        total = 0.0
        for length in range(4):
            answers = [list(a) for a in itertools.product(range(3), repeat=length)]
            p = np.exp(w.learner.sequence_logp([[0, 1]] * len(answers), answers, sampling))
            assert (p >= 0).all() and (p <= 1).all()
            total += p.sum()
        longer = asyncio.run(say_tokens(w, [0, 1], 4000, sampling))
        assert total == pytest.approx(1 - longer, abs=4 * np.sqrt(longer * (1 - longer) / 4000) + 1e-6)


async def say_tokens(w, prompt, n, sampling):
    """The share of n attempts that write more than three tokens before they end."""
    from isocost.types import Segment

    text = Segment.empty(sampling).read(prompt, Role.PROMPT)
    said = await w.engine.generate(text, range(n), place=Place(1, 0, 0), turn=0, max_tokens=4)
    return float(np.mean([s.stop is Stop.LENGTH for s in said]))


def test_sequence_log_probs_do_not_depend_on_company_and_impossible_answers_have_none():
    w = world(micro_tokens=40)
    wide = world()
    prompts, answers = [w.text.encode(p) for p in sums(30)], [[k % 10] * (k % 5) for k in range(30)]
    a = w.learner.sequence_logp(prompts, answers, Sampling())
    b = wide.learner.sequence_logp(prompts, answers, Sampling())
    np.testing.assert_allclose(a, b, atol=1e-5)
    greedy = np.exp(wide.learner.sequence_logp([[1, 2]] * 10, [[k] for k in range(10)], Sampling(1.0, 1.0, 1)))
    assert set(greedy) <= {0.0, 1.0}
    assert NEVER < -1e20
    assert len(w.learner.sequence_logp([], [], Sampling())) == 0


def test_exact_pass_rates_are_what_sampling_measures():
    w = world("tiny", exact=True)
    problems = [Problem(p, (Message("user", p),), str(eval(p[:-1]))) for p in sums(12, 8)]
    exact = np.array(w.exact(problems, Sampling()))

    async def every():
        return await asyncio.gather(*(say(w, p.id, range(400), i, tokens=4) for i, p in enumerate(problems)))

    said = asyncio.run(every())
    rate = np.array([
        np.mean([s.stop is Stop.DONE and w.text.decode(s.tokens.tolist()) == p.answer for s in some])
        for p, some in zip(problems, said, strict=True)
    ])
    assert np.all(np.abs(rate - exact) < 5 * np.sqrt(exact * (1 - exact) / 400) + 0.01)
    assert 0.05 < exact.mean() < 0.95


# narrow bodies --------------------------------------------------------------------------------------------------


def test_a_bf16_body_with_a_float32_head_stays_near_float32(kernels):
    wide, narrow = world("tiny"), world("tiny", dtype="bf16")
    b = batch(narrow, sums(32, 4), 8)
    truth = wide.learner.score(b).logp
    gap = (b.logp - truth)[b.mask].abs()
    own = (narrow.learner.score(b).logp - b.logp)[b.mask].abs()
    with narrow_head(narrow.learner.decoder):
        worse = (narrow.learner.score(b).logp - truth)[b.mask].abs()
    print(f"bf16 sampler against fp32: mean {gap.mean():.1e} p99 {gap.quantile(0.99):.1e}; against its learner "
          f"{own.mean():.1e}; with a bf16 head {worse.mean():.1e}")
    assert gap.mean() < 1e-2 and gap.quantile(0.99) < 1e-1
    if kernels == "torch":
        assert worse.mean() > gap.mean()
    else:
        assert own.max() == 0.0      # one code and one rounding for both


def narrow_head(decoder):
    """The head in bf16, as most trainers have it."""
    from unittest.mock import patch

    def logits(hidden):
        return torch.nn.functional.linear(hidden.bfloat16(), decoder.embed.bfloat16()).float()

    return patch.object(decoder, "logits", logits)


def test_a_bf16_rollout_does_not_depend_on_its_neighbours():
    w = world(dtype="bf16")
    prompts = sums(9)

    async def crowd():
        return await asyncio.gather(*(say(w, p, range(5), i, tokens=20) for i, p in enumerate(prompts)))

    for i, said in enumerate(asyncio.run(crowd())):
        (alone,) = asyncio.run(say(w, prompts[i], [3], i, tokens=20))
        assert said[3].tokens.tobytes() == alone.tokens.tobytes() and said[3].logp.tobytes() == alone.logp.tobytes()
