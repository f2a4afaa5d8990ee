"""The masked-diffusion world: passes as tokens, how places are filled, what is re-scored, and what is charged."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from isocost import methods
from isocost.can import Can
from isocost.contract.conflicts import needs
from isocost.errors import UserError
from isocost.methods import cjgrpo, grpo
from isocost.pack import pack
from isocost.parts.play import fork, sample
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.seams import Pace
from isocost.steps.training.single import train_one
from isocost.types import Group, Place, Sampling, Score
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.tiny import masked

SETTING = Setting.of(model="masked:sums", data="places:count=60", max_tokens=8, held_out=0.4, samples=2)
DONE, PACE = 14, Pace(lr=0.0, max_tokens=8)     # tokens of a pass


def opened(reference=False, **changes):
    return open_setting(SETTING.but(**changes), reference=reference).world


def play(world, attempts=6, pace=PACE):
    return asyncio.run(sample(world.problems[0], range(attempts), world, pace, Place(1, 0, 0)))


def batch_of(world, rollouts):
    scored = tuple(r.scored(Score(float(i % 2))) for i, r in enumerate(rollouts))
    return pack([Group(rollouts[0].problem, scored, Place(1, 0, 0))], world.engine.version)


def test_a_token_is_what_a_pass_wrote_and_the_text_is_all_of_them():
    cells = np.array([[7, -1, -1, 12, -1, -1, -1, 0], [-1, 2, 12, -1, -1, -1, -1, -1]])
    tokens = masked.passes_of(cells)
    assert tokens.tolist() == [8 + (13 << 12) + (1 << 28), (3 << 4) + (13 << 8)]
    assert (masked.cells_of(tokens) == cells).all()
    text = masked.CellText()
    assert text.decode(tokens.tolist()) == "72" and text.decode(tokens[:1].tolist()) == "7??"
    with pytest.raises(UserError, match="has 5 characters; this policy reads 6"):
        text.prompt([masked.Message("user", "1+2=E")])
    with pytest.raises(UserError, match="has 'a'"):
        text.prompt([masked.Message("user", "1a2=EE")])
    with pytest.raises(UserError, match="reads no text but a sum, so not '72'"):
        text.encode("72")                   # as SAPO and hints would


@pytest.mark.parametrize(("options", "sizes"), [
    ({}, [2, 2, 2, 2]), ({"passes": 3}, [2, 2, 4]), ({"passes": 8}, [1] * 8), ({"passes": 1}, [8]),
    ({"doubling": True}, [1, 2, 5]),       # at most log2 L passes, and the last one takes what is left
])
def test_every_place_is_filled_once_in_as_many_passes(options, sizes):
    world = opened(**options)
    rollouts = play(world)
    cells = np.stack([masked.cells_of(r.segments[0].tokens[6:]) for r in rollouts])
    assert (cells >= 0).sum(-1).tolist() == [sizes] * 6
    assert ((cells >= 0).sum(1) == 1).all()
    assert {r.stop for r in rollouts} == {"done"} and len({r.final for r in rollouts}) > 1
    assert world.meter.of().decode == 6 * len(sizes) * DONE and world.meter.of().prefill == 0


@pytest.mark.parametrize("options", [{}, {"doubling": True, "end_factor": 0.4}])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_trajectory_that_is_scored_again_has_the_same_log_probs(options, temperature):
    world = opened(**options)
    rollouts = play(world, 8, Pace(lr=0.0, max_tokens=8, sampling=Sampling(temperature)))
    batch = batch_of(world, rollouts)
    out = world.learner.score(batch)
    torch.testing.assert_close(out.logp.float(), batch.logp, atol=2e-6, rtol=2e-6)
    assert (batch.logp[batch.mask] < 0).all() and (out.entropy[batch.mask] > 0).all()
    assert world.meter.of().score == int(batch.mask.sum()) * DONE


def test_one_pass_takes_the_first_state_for_all_and_costs_one():
    world, whole = opened(one_pass=True), opened()
    batch = batch_of(world, play(world))
    out, exact = world.learner.score(batch).logp, whole.learner.score(batch).logp
    torch.testing.assert_close(out[:, 6], exact[:, 6])         # the first pass is in that state
    assert float((out - exact)[:, 7:].abs().max()) > 0.01
    assert world.meter.of().score == 6 * DONE
    states = torch.cat((batch.tokens[:, :6], torch.full((6, 8), masked.MASK)), 1)
    logp = whole.learner.policy(states, torch.ones(6).double())[0]
    cells = torch.from_numpy(masked.cells_of(batch.tokens[:, 6:].numpy()).max(1))
    torch.testing.assert_close(out.sum(-1), logp.gather(-1, cells[..., None])[..., 0].sum(-1))


def test_the_most_confident_places_stay_and_an_end_counts_less():
    p = np.full((1, 8, 13), 1e-9)
    told = [(1, .9), (2, .8), (12, .85), (3, .7), (4, .6), (5, .5), (6, .4), (12, .99)]
    for place, (symbol, sure) in enumerate(told):
        p[0, place, symbol], p[0, place, 0] = sure, 1 - sure
    masked_places = np.array([[True] * 7 + [False]])
    u = np.full((1, 8), 0.9999)
    drawn, logp, stays = masked.chosen(np.log(p), u, masked_places, 2, 1.0)
    assert drawn[0, :4].tolist() == [1, 2, 12, 3] and stays[0].nonzero()[0].tolist() == [0, 2]
    np.testing.assert_allclose(logp[0, 0], np.log(0.9), atol=1e-6)
    assert masked.chosen(np.log(p), u, masked_places, 2, 0.4)[2][0].nonzero()[0].tolist() == [0, 1]
    assert masked.chosen(np.log(p), 0 * u, masked_places, 8, 1.0)[2].sum() == 7      # a place is filled once


def test_an_ends_factor_grows_to_one_in_the_last_pass(monkeypatch):
    factors, own = [], masked.chosen
    monkeypatch.setattr(masked, "chosen", lambda *given: factors.append(given[-1]) or own(*given))
    play(opened(end_factor=0.4, passes=4), 1)
    np.testing.assert_allclose(factors, [0.4, 0.6, 0.8, 1.0])


def test_a_cut_trajectory_goes_on_as_it_would_have_and_a_fork_pays_for_its_own():
    world = opened()
    (whole,) = play(world, 1)
    (again,) = asyncio.run(sample(whole.problem, [0], world, PACE, Place(1, 0, 0), whole.cut(8)))
    assert (again.segments[0].tokens == whole.segments[0].tokens).all() and again.final == whole.final
    before = world.meter.of().decode
    asyncio.run(fork(whole, 8, [1, 2], world, PACE, Place(1, 0, 0)))
    assert world.meter.of().decode - before == 2 * 2 * DONE
    (short,) = play(world, 1, Pace(lr=0.0, max_tokens=3))
    assert short.stop == "length" and "?" in masked.CellText().decode(short.segments[0].tokens[6:8].tolist())


def test_cjgrpo_clips_the_ratio_of_a_pass_and_holds_to_the_reference():
    world = opened(reference=True)
    batch = batch_of(world, play(world, 4))
    recipe = cjgrpo.recipe()
    for add in recipe.enrich:
        batch = add(batch, world)
    batch = batch.but(advantage=grpo.advantage(batch, None), weight=recipe.weight(batch))
    world.learner.gradient(batch, grpo.recipe().loss)
    plain = [p.grad.clone() for p in world.learner.policy.parameters()]
    seen = world.learner.gradient(batch, recipe.loss)
    assert seen["kl"] < 1e-9        # at the reference its gradient is 0, so it is GRPO's
    for a, p in zip(plain, world.learner.policy.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, atol=1e-7, rtol=1e-5)
    out = world.learner.score(batch)
    moved = batch.but(old=(out.logp - 0.3 * batch.mask).float(), extra={"reference": out.logp - 0.5})
    loss, _ = recipe.loss(out, moved)
    clipped = torch.where(batch.advantage > 0, 1.2, float(np.exp(0.3)))
    want = -batch.advantage * clipped + 0.01 * (np.exp(-0.5) + 0.5 - 1)
    torch.testing.assert_close(loss[batch.mask].float(), want[batch.mask].float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("changes", "said"), [
    ({"model": "masked:words"}, "there is no masked policy 'words': give masked:sums"),
    ({"passes": 9}, "--passes is 9; an answer has 8 places"),
    ({"end_factor": 0.0}, "--end-factor is 0"),
])
def test_what_it_cannot_do_is_one_line(changes, said):
    with pytest.raises(UserError, match=said):
        opened(**changes)


@pytest.mark.parametrize("setting", [SETTING, Setting.of(model="flow2d:modes", data="modes:count=60")])
def test_a_method_that_writes_texts_is_refused_before_a_run(setting, tmp_path):
    """Declared by each that encodes text or writes a message; UI-S1 does so in dialogues, which these are not."""
    with pytest.raises(UserError, match="needs a reader of texts that the method writes, which the model"):
        train_one("rlad", setting, out=tmp_path / "run", budget="4k-rollouts")
    assert not list(tmp_path.iterdir())
    writes = {f.stem for f in Path(methods.__file__).parent.glob("*.py")
              if re.search(r"text\.encode\(|Message\(last\.role", f.read_text())} - {"uis1"}
    assert len(writes) > 10 and all(Can.TEXT in needs(methods.recipe(name)) for name in writes)


def test_a_run_that_is_killed_resumes_to_the_same_bytes(tmp_path):
    def killed(line):
        if line["step"] == 3:
            raise KeyboardInterrupt

    job = Job(arm=Arm(n=4, B=4, lr=1e-3), name="masked", setting=SETTING, method="cjgrpo", seed=5,
              budget={"rollouts": 16 * 5}, points=(32, 80), save_every=2)
    asyncio.run(run(job, tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(job, tmp_path / "again", on_step=killed))
    asyncio.run(run(job, tmp_path / "again"))
    for name in ("metrics.jsonl", "journal.jsonl", "samples.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
