"""A value of prompts: its equation and fit, its reading of a model, and the model that it routes to."""

import asyncio
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from isocost import meter, strategies
from isocost.chance import Purpose
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.gather import finished
from isocost.ledger import Ledger
from isocost.methods import v0
from isocost.scorers import prompts
from isocost.scorers.prompts import FittedValue, PromptValue
from isocost.steps import prompt_scorer
from isocost.steps.prompt_scorer import PROMPTS, across, brier, fit, learn_prompts, pass_rates
from isocost.types import Place, Problem, Score
from isocost.worlds.setting import Setting, open_setting
from test_methods_value import allocated

PLACE = Place(0, 0, 0, int(Purpose.EVALUATION))
PUZZLES = Setting.of(model="tiny-puzzles", data="puzzles:kind=chain", limit=24, max_tokens=48, held_out=0.5)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def planted(count, seed, shift=0.0):
    """States of four numbers, and pass rates of which the first number tells the most."""
    states = torch.randn((count, 4), generator=rng(seed))
    return states, torch.sigmoid(2.5 * states[:, 0] + shift)


def test_v_is_what_the_prompt_says_moved_by_what_prompts_alike_earned_beyond_that():
    """By hand: f = h_1 - 1 of states that are standardised, and attention to the one of h_1 = 1 over that of 0."""
    value = PromptValue(2, wide=4)
    with torch.no_grad():
        value.mean.copy_(torch.tensor([1.0, 0.0]))
        value.scale.copy_(torch.tensor([2.0, 1.0]))
        value.direct.weight.copy_(torch.tensor([[1.0, 0.0]]))
        value.direct.bias.fill_(-1.0)
        for side in (value.asked, value.known):
            side.weight.zero_()
            side.weight[0, 0] = 2.0
        value.gain.fill_(3.0)
        found = value(torch.tensor([[5.0, 5.0]]), torch.tensor([[3.0, 0.0], [1.0, 9.0]]), torch.tensor([1.0, 0.5]))
    near = 1 / (1 + np.exp(-4.0))       # h_1 = 2: (2 · 2 · 2 · 1 - 0) / √4
    beyond = near * (1.0 - 0.5) + (1 - near) * (0.5 - 1 / (1 + np.e))
    assert found.tolist() == pytest.approx([1.0 + 3.0 * beyond])


def test_v_ranks_prompts_it_was_not_fitted_on_and_follows_a_policy_that_changed_by_its_context_alone():
    states, rates = planted(300, 1)
    value = fit(states, np.array([rates.numpy(), torch.sigmoid(2.5 * states[:, 0] + 1.5).numpy()]), PROMPTS)
    held, truth = planted(200, 2, shift=-1.0)
    known = FittedValue(value, "", (), states, {"old": rates, "new": planted(300, 1, shift=-1.0)[1]})
    new, old = (np.array(known.of(held, name)) for name in ("new", "old"))
    assert across(new, truth.numpy(), 32) > 0.85
    assert brier(new, truth.numpy()) < brier(old, truth.numpy()) < brier(np.full(200, 0.5), truth.numpy())
    assert known.of(held[:7], "new") == pytest.approx(new[:7].tolist(), abs=1e-6)
    with pytest.raises(UserError, match="fitted to old, new, not 'other': name it in --others"):
        known.of(held, "other")


def test_the_auroc_of_texts_is_by_hand():
    """Two texts of each prompt: ties count half."""
    assert across(np.array([0.9, 0.1]), np.array([1.0, 0.0]), 2) == 1
    assert across(np.array([0.9, 0.1]), np.array([0.5, 0.0]), 2) == pytest.approx((0.5 + 1 + 1) / 3)


def test_policies_that_are_right_where_the_other_is_wrong_are_told_apart_by_their_context():
    states, rates = planted(200, 1)
    value = fit(states, np.array([rates.numpy(), 1 - rates.numpy()]), replace(PROMPTS, epochs=120))
    held, truth = planted(100, 2)
    known = FittedValue(value, "", (), states, {"one": rates, "other": 1 - rates})
    for name, right in (("one", truth), ("other", 1 - truth)):
        assert across(np.array(known.of(held, name)), right.numpy(), 32) > 0.8, name


def test_of_many_prompts_an_update_predicts_so_many_and_compares_no_more_pairs(monkeypatch):
    states, rates = planted(1500, 1)
    asked, forward = set(), PromptValue.forward

    def seen(self, states, context, known):
        asked.add((len(states), len(context)))
        return forward(self, states, context, known)

    monkeypatch.setattr(PromptValue, "forward", seen)
    fit(states, rates.numpy()[None], replace(PROMPTS, epochs=2))
    fit(states[:100], rates[:100].numpy()[None], replace(PROMPTS, epochs=2))
    assert asked == {(1024, 256), (50, 50)}


def test_rates_of_the_ledger_are_the_context_once_enough_prompts_have_one():
    states, rates = planted(100, 1)
    known = FittedValue(fit(states, rates.numpy()[None], PROMPTS), "", tuple(map(str, range(100))), states, {"": rates})
    before = known.of(states[:3])
    assert known.of(states[:3], latest={str(i): 1.0 for i in range(prompts.LEAST - 1)}) == before
    after = known.of(states[:3], latest={str(i): 1.0 for i in range(prompts.LEAST)})
    assert all(b > a for a, b in zip(before, after, strict=True))


# of a model -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    out = tmp_path_factory.mktemp("value") / "v"
    done = CliRunner().invoke(main, ["scorer", "tiny-puzzles", "--of", "prompts", "--texts", "2", "--epochs", "20",
                                     "--others", "tiny-puzzles", "--data", "puzzles:kind=chain", "--limit", "24",
                                     "--max-tokens", "48", "--held-out", "0.5", "--out", str(out)])
    assert done.exit_code == 0 and "AUROC" in done.output, done.output
    return out


@pytest.fixture
def opened():
    there = open_setting(PUZZLES)
    yield there
    there.close()


def test_a_prompt_s_score_is_its_value_and_reading_it_is_charged(learned, opened):
    problem = opened.sides.train[0]
    fitted = prompts.opened(str(learned))
    (value,) = fitted.of(prompts.states_of([problem], fitted.model, opened.world))
    read = opened.world.meter.total.score
    assert read == len(opened.world.text.prompt(problem.prompt))
    assert asyncio.run(prompts.score(problem, [1, 2], [True, True], opened.world, file=str(learned))) == [value] * 2
    assert opened.world.meter.total.score == 2 * read
    about = json.loads((learned / "scorer.json").read_text())
    assert about["cost"]["score"] > 0 and len(about["ids"]) == 12 and about["policies"] == ["tiny-puzzles"]


def test_a_model_is_opened_once_and_values_that_were_fitted_anew_are_read_anew(learned, opened, tmp_path):
    file, problem = shutil.copytree(learned, tmp_path / "v"), opened.sides.train[0]

    def value():
        return asyncio.run(prompts.score(problem, [1], [True], opened.world, file=str(file)))[0]

    first, reader = value(), dict(opened.world.critics)
    kept = load_file(file / prompts.VALUES)
    save_file({**kept, "direct.bias": kept["direct.bias"] + 1}, file / prompts.VALUES)
    assert value() > first and all(opened.world.critics[k] is v for k, v in reader.items())


def test_rollouts_are_allocated_by_the_value_of_the_folder(learned, opened):
    async def posed(problem):
        return await v0.guide(problem, opened.world, Ledger(0), file=str(learned))

    problems = [asyncio.run(posed(p))[0] for p in opened.sides.train[:4]]
    values = [p.meta[v0.VALUE] for p in problems]
    assert len(set(values)) == 4 and all(0 < x < 1 for x in values)
    assert all(p.meta["solution"] for p in problems)
    assert v0.allocate(problems, None, 32) == allocated(values, 32) != [8] * 4


class Known:
    """Values of one prompt by policy; `latest` are the rewards that were its context."""

    model, ids, latest = "m", ("a", "b", "c"), None

    def of(self, states, policy="", latest=None):
        self.latest = latest
        return [{"": 0.3, "strong": 0.9}[policy]]


@pytest.fixture
def known(monkeypatch):
    values = Known()
    monkeypatch.setattr(prompts, "opened", lambda file: values)
    monkeypatch.setattr(prompts, "states_of", lambda problems, model, world: None)
    return values


def test_against_another_policy_the_score_is_low_where_that_is_worth_its_cost(known):
    assert asyncio.run(prompts.score(None, [1, 2], [True] * 2, None, against="strong")) == pytest.approx([0.2, 0.2])


def test_the_context_of_a_prompt_are_the_latest_rewards_of_others(known):
    """Its own would tell the value of what was already sampled; of a prompt without rollouts there is none."""
    ledger = SimpleNamespace(of=lambda name, variant: SimpleNamespace(recent={"a": (0.0, 1.0), "b": (0.5, 0.25)}.get(
        name, ())))
    (posed,) = asyncio.run(v0.guide(Problem("a", ()), SimpleNamespace(open_other=1), ledger, file="v"))
    assert posed.meta[v0.VALUE] == 0.3 and known.latest == {"b": 0.25}


def test_an_answer_without_a_mark_is_wrong(opened, monkeypatch):
    async def half(texts, *_):
        return [t.marked(Score(1.0) if k % 2 else None) for k, t in enumerate(texts)]

    monkeypatch.setattr(prompt_scorer, "marked", half)
    found = finished(pass_rates(opened.world, opened.sides.train[:2], PUZZLES.measured, replace(PROMPTS, texts=4), 0,
                                lambda *_: None))
    assert found == [0.5, 0.5]


def test_the_mean_beside_a_value_is_that_of_the_prompts_that_it_was_fitted_to(tmp_path, monkeypatch):
    async def rates(world, problems, pace, fitting, side, tell):
        return [(0.25, 0.75)[side]] * len(problems)

    monkeypatch.setattr(prompt_scorer, "pass_rates", rates)
    found = learn_prompts(PUZZLES, tmp_path / "v", replace(PROMPTS, epochs=1))
    (mean,), (own,) = found.mean.values(), found.brier.values()
    assert mean == pytest.approx(0.75 * 0.75**2 + 0.25 * 0.25**2) and own != mean


def test_held_out_prompts_are_sampled_with_random_numbers_of_their_own(opened):
    some, asked = opened.sides.train[:8], replace(PROMPTS, texts=4)
    train, held = (finished(pass_rates(opened.world, some, PUZZLES.measured, asked, side, lambda *_: None))
                   for side in (0, 1))
    assert train != held


def test_a_prompt_whose_value_is_below_is_answered_by_the_strong_model_alone(learned, opened):
    problem, pace = opened.sides.train[0], PUZZLES.measured
    value, others = asyncio.run(prompts.score(problem, [1], [True], opened.world, file=str(learned)))[0], {}
    for below in (value - 1e-3, value + 1e-3, 1.0):
        spec = f"route:rule=prompt,below={below},strong=tiny-puzzles,scorer=(prompts:file={learned})"
        with meter.tab() as tab, meter.begins(True):
            (text,) = asyncio.run(strategies.parse(spec).play(problem, [0], opened.world, pace, PLACE))
        strong = opened.world.meter.logical.get(f"{meter.MODEL}tiny-puzzles")
        others[below] = text
        routed = below > value
        assert text.notes["routed"] == routed and (text.notes["strong"] > 0) == routed and text.notes["tries"] == 1
        assert tab.cost.rollouts == 1 and (strong is not None) == routed
    (one,) = asyncio.run(strategies.parse("one").play(problem, [0], opened.world, pace, PLACE))
    assert {t.final for t in others.values()} == {one.final}       # the two models are one here


def test_the_model_that_reads_the_prompts_is_known_before_anything_is_asked(learned):
    """A server opens models at its start alone."""
    for spec in (f"best-of:n=3,scorer=(prompts:file={learned})", f"route:scorer=(prompts:votes=2,file={learned})"):
        assert strategies.parse(spec).models == ["tiny-puzzles"]
    assert strategies.parse(f"route:strong=a#b,scorer=(prompts:file={learned})").models == ["a#b", "tiny-puzzles"]
    with pytest.raises(UserError, match="there is no value of prompts in scorer; make one"):
        _ = strategies.parse("best-of:n=3,scorer=prompts").models


def test_what_lacks_a_value_says_how_to_make_one(tmp_path, opened):
    with pytest.raises(UserError, match="no value of prompts in none; make one: isocost scorer MODEL --of prompts"):
        asyncio.run(prompts.score(opened.sides.train[0], [1], [True], opened.world, file="none"))
    with pytest.raises(UserError, match="is learned of four problems or more, not 3"):
        learn_prompts(PUZZLES.but(limit=13, held_out=10), tmp_path / "v")
    done = CliRunner().invoke(main, ["scorer", "tiny-puzzles", "--others", "tiny"])
    assert done.exit_code == 2 and "--others of --of prompts" in done.output
