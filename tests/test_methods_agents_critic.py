"""Critics of turns against numbers worked by hand."""

import pytest
import torch

from dialogues import batch_of, by_turn, dialogue
from isocost import methods
from isocost.ledger import Ledger
from isocost.methods import archer, ilql, mcawr, vldac
from isocost.ops import at_turns, gae_turns, turn_ends, turns_of
from isocost.pack import pack
from isocost.recipe import paced
from isocost.worlds import toy
from toy import run

LEDGER = Ledger()
CRITICS = ("vldac", "archer", "mcawr", "ilql", "vlarl")


def flat(each):
    return [x for one in each for x in one]


def close(a, b, within=1e-5):
    assert a == pytest.approx(b, abs=within)


def valued(*values, rewards=((0, 0, 1), (0,))):
    """Two dialogues of three and one turns, whose critic says this at each turn's first token, and 9 elsewhere."""
    batch = batch_of([dialogue([""] * len(r), r) for r in rewards])
    turns = turns_of(batch)
    table = torch.full_like(batch.logp, 9.0)
    table[turns.row, turn_ends(turns, batch)[0]] = torch.tensor(values)
    return batch.but(extra={"values": table}), turns


def test_advantages_of_turns_by_hand():
    """γ 1/2, λ 1: returns over turns 1/4, 1/2, 1 less the values; λ 0: the one-step errors."""
    batch, turns = valued(0.2, 0.4, 0.6, 0.3)
    values = at_turns(batch.extra["values"], turns, batch)
    close(values.tolist(), [0.2, 0.4, 0.6, 0.3])
    close(gae_turns(values, turns, gamma=0.5, lam=1.0).tolist(), [0.05, 0.1, 0.4, -0.3])
    close(gae_turns(values, turns, gamma=0.5, lam=0.0).tolist(), [0.0, -0.1, 0.4, -0.3])
    close(gae_turns(values, turns, gamma=1.0, lam=0.5).tolist(), [0.2 + 0.5 * 0.4, 0.2 + 0.5 * 0.4, 0.4, -0.3])


def test_values_of_turns_that_are_exact_give_no_advantage():
    batch, turns = valued(0.25, 0.5, 1.0, 0.0)
    values = at_turns(batch.extra["values"], turns, batch)
    assert not gae_turns(values, turns, gamma=0.5, lam=0.7).any()


def test_vldac_has_one_advantage_for_a_turn_and_fits_one_value_for_it():
    batch, turns = valued(0.2, 0.4, 0.6, 0.3)
    close(flat(by_turn(vldac.advantage(batch, LEDGER, gamma=0.5, lam=1.0, whiten=False), batch)),
          [0.05, 0.1, 0.4, -0.3])
    white = torch.tensor(flat(by_turn(vldac.advantage(batch, LEDGER, gamma=0.5, lam=1.0), batch)))
    close([float(white.mean()), float(white.std(correction=0))], [0.0, 1.0])
    assert int(vldac.first_tokens(batch, turns).sum()) == 4 == len(turns.number)


def test_archer_learns_q_from_backups_and_v_from_q_of_fresh_turns():
    """At the first token of a turn V, at its last Q: 9 here, which V of fresh turns is fitted to."""
    batch, turns = valued(0.2, 0.4, 0.6, 0.3)
    mask, target = archer.targets(batch.extra["values"], torch.tensor([False, True]), turns, batch, gamma=0.5)
    first, last = turn_ends(turns, batch)
    assert mask[turns.row, first].tolist() == [False, False, False, True] and bool(mask[turns.row, last].all())
    assert int(mask.sum()) == 5
    close(target[turns.row, last].tolist(), [0.2, 0.3, 1.0, 0.0])       # r + γ V'
    close(target[turns.row, first].tolist(), [9.0] * 4)
    close(flat(by_turn(archer.advantage(batch, LEDGER, gamma=0.5), batch)), [0.0, -0.1, 0.4, -0.3])


def test_weights_of_returns_and_of_backups():
    batch, _ = valued(0.2, 0.4, 0.6, 0.3)
    close(flat(by_turn(mcawr.advantage(batch, LEDGER, gamma=0.5, beta=1.0), batch)),
          torch.tensor([0.05, 0.1, 0.4, -0.3]).exp().tolist())
    close(flat(by_turn(ilql.advantage(batch, LEDGER, gamma=0.5, beta=1.0), batch)),
          torch.tensor([0.0, -0.1, 0.4, -0.3]).exp().tolist())
    assert set(mcawr.advantage(batch, LEDGER, beta=0.0)[batch.mask].tolist()) == {1.0}, "β = 0 is imitation"
    assert set(ilql.advantage(batch, LEDGER, beta=0.0)[batch.mask].tolist()) == {1.0}
    close(float(mcawr.advantage(batch, LEDGER, gamma=1.0, beta=100.0).max()), 20.0)


def test_an_expectiles_targets_have_its_gradient():
    """|τ − 1{q < v}| (q − v)²: its slope in v is −2 |τ − 1| (q − v)."""
    value = torch.tensor([0.5, 0.5], requires_grad=True)
    goal = torch.tensor([1.0, 0.0])
    weight = torch.tensor([0.7, 0.3])
    (slope,) = torch.autograd.grad((weight * (goal - value).square()).sum(), value)
    fitted = ilql.expectile(value.detach(), goal, 0.7)
    (found,) = torch.autograd.grad(((value - fitted).square() / 2).sum(), value)
    close(found.tolist(), slope.tolist())
    close(ilql.expectile(value.detach(), goal, 0.5).tolist(), goal.tolist())


@pytest.mark.parametrize("name", CRITICS)
def test_a_critic_of_turns_comes_to_explain_the_returns_of_a_batch(name):
    made, world = paced(methods.recipe(name, groups=8, rollouts=8), lr=0.02, warmup=0, max_turns=3), toy.dialogues()
    ledger, (step,) = run(made, world, 64)
    batch, losses = pack(step.groups, 0), []
    for _ in range(20):
        for add in made.enrich:
            batch = add(batch, world)
        batch = batch.but(advantage=made.advantage(batch, ledger))
        batch = batch.but(weight=made.weight(batch))
        losses.append(made.improve(batch, made, world, ledger)["critic/loss"])
    assert losses[-1] < losses[0]


def test_archers_buffer_keeps_the_latest_groups():
    made = paced(methods.recipe("archer", groups=4, rollouts=4), lr=1e-3, max_turns=3)
    ledger, _ = run(made, toy.dialogues(), 4 * 4 * 4)
    kept = ledger.kept[archer.BUFFER]
    assert len(kept) == 16 and all(r.origin == "replay" for g in kept for r in g.rollouts)
