"""Training over the Tinker API, against a service in this process whose numbers are real (`fake_tinker`)."""

import asyncio
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.nn.utils import parameters_to_vector

from fake_tinker import TinkerError, install
from isocost import meter as meters
from isocost import methods
from isocost.can import Can
from isocost.cli.commands import main
from isocost.contract.conflicts import refuse
from isocost.errors import Unreachable, UserError
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.pack import pack
from isocost.planner.training.learning_rate import starting_rule
from isocost.recipe import paced
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job, reopen
from isocost.runs.run import run
from isocost.steps.training.single import starting_rule_of
from isocost.types import Place, Role, Sampling, Segment, Stop
from isocost.worlds import service
from isocost.worlds.conventions import REDUCTIONS, Reduction
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.spec import spec_of
from turns import OF_ONE_TURN

MODEL = "tinker:http://localhost:8000#tiny"
REFUSED = {
    **dict.fromkeys(("adhint", "aepo", "arpo", "dart", "ettrl", "isoeasy", "mssr", "t1"), "entropy"),
    **dict.fromkeys(("archer", "ilql", "mcawr", "pirl", "ppo", "rlsqm", "tppo", "vlarl", "vldac", "webrl"),
                    "value function"),
    **dict.fromkeys(("bfsprover", "goedel", "kimi", "metartl"), "reset"), "vcpo": "gradient of each rollout",
    "jetrl": "weights as tensors", "latr": "top-",
}


def opened(model=MODEL, **setting):
    return open_setting(Setting.of(model=model, data="sums:level=1", limit=120, kernels="torch", **setting))


def batch_of(world, groups=3, attempts=4):
    """Groups that the local engine sampled, packed, with the advantages and weights of GRPO."""
    recipe = paced(methods.recipe("grpo", groups=groups, rollouts=attempts), lr=1e-3, max_tokens=4)

    async def first():
        steps = train(recipe, world, Ledger(seed=1), {"rollouts": 1000})
        return (await anext(steps)).groups

    batch = pack(asyncio.run(first()), version=1)
    batch = batch.but(advantage=recipe.advantage(batch, Ledger(seed=1)))
    return batch.but(weight=recipe.weight(batch))


@pytest.fixture(scope="module")
def batch():
    own = opened("tiny")
    found = batch_of(own.world)
    own.close()
    return found


def flat(opened):
    """All weights of a world on this machine, one after the other."""
    return parameters_to_vector(opened.world.learner.decoder.parameters()).detach().clone()


def squared(out, batch):
    """A loss whose gradient depends on the log-prob itself, with both signs."""
    return (out.logp + 1.0) ** 2 - batch.advantage * out.logp, {"logp": out.logp.detach()}


# gradients -------------------------------------------------------------------------------------------------------


def test_a_reductions_factors_turn_it_into_a_sum():
    k = np.array([2, 3])
    assert {name: f(k).tolist() for name, f in REDUCTIONS.items()} == {
        "sum": [1, 1], "mean over the tokens of a row and over rows": [4, 6], "mean over the tokens of a row": [2, 3],
        "mean over rows": [2, 2], "mean over all tokens": [5, 5],
    }
    with pytest.raises(UserError, match=r"reduction is not known \(twice x0.7\)"):
        Reduction("", {"twice": 0.7}).scale(k)


@pytest.mark.parametrize("fault, name", [
    (None, "sum"), ("row-mean", "mean over the tokens of a row and over rows"), ("token-mean", "mean over all tokens"),
])
@pytest.mark.parametrize("method", ["grpo", "gspo", "dapo", "cispo", None])
def test_the_services_gradient_is_the_local_learners(monkeypatch, batch, fault, name, method):
    install(monkeypatch, *[fault] if fault else [])
    loss = methods.recipe(method).loss if method else squared
    there, here = opened(), opened("tiny")
    learner = there.world.learner
    assert learner.reduction.name == name
    # A policy that has moved, so that ratios are not 1.
    old = learner.score(batch).logp + 0.1 * torch.linspace(-1, 1, batch.tokens.numel()).view(batch.tokens.shape)
    batch = batch.but(old=old * batch.mask)
    seen, gradient, logp = learner.gradient(batch, loss)
    learner.push(batch, gradient, logp)
    mine = here.world.learner
    assert seen["loss"] == pytest.approx(mine.gradient(batch, loss)["loss"], rel=1e-4, abs=1e-6)
    pairs = [(p.grad, q.grad) for p, q in zip(learner.adapter._client.decoder.parameters(),
                                              mine.decoder.parameters(), strict=True)]
    norm = torch.cat([q.flatten() for _, q in pairs]).norm()
    gap = torch.cat([(p - q).flatten() for p, q in pairs]).norm()
    assert norm > 1e-2 and gap < 1e-5 * norm
    there.close()
    here.close()


@pytest.mark.parametrize("fault", [[], ["row-mean"]])
def test_updates_move_the_adapter_as_they_move_the_local_model(monkeypatch, batch, fault):
    install(monkeypatch, *fault)
    there, here = opened(), opened("tiny")
    before = flat(here)
    for _ in range(3):
        one = there.world.learner.update(batch, squared, lr=1e-3)
        other = here.world.learner.update(batch, squared, lr=1e-3)
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    # Adam divides a gradient by its own size, so the last digits of a small one are not small in a single weight. One
    # per cent of the learning rate would be a gap of 0.04.
    own = there.world.learner.adapter._client.decoder
    moved, gap = flat(here) - before, parameters_to_vector(own.parameters()) - flat(here)
    assert moved.norm() > 0.1 and gap.norm() < 1e-3 * moved.norm()
    # Both clip to the norm 1; the norm that is reported is that before the clip, of the service's own reduction.
    assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    there.close()
    here.close()


def test_log_probs_are_the_local_learners_at_the_same_positions(monkeypatch, batch):
    install(monkeypatch)
    there, here = opened(), opened("tiny")
    torch.testing.assert_close(there.world.learner.score(batch).logp, here.world.learner.score(batch).logp * batch.mask,
                               rtol=0, atol=2e-5)       # logits near 10, whose spacing is 1e-6, summed in another order
    problems = there.sides.train[:5]
    assert there.world.exact(problems, Sampling()) == pytest.approx(here.world.exact(problems, Sampling()), abs=1e-6)


def test_what_needs_an_entropy_is_no_silent_zero(monkeypatch, batch):
    install(monkeypatch)
    learner = opened().world.learner
    assert bool(learner.score(batch).entropy.isnan().all())
    with pytest.raises(UserError, match="may use entropies"):
        learner.update(batch, lambda out, b: (out.logp - out.entropy, {}), lr=1e-3)
    with pytest.raises(UserError, match="temperature 1"):
        learner.forward(batch.but(temperature=batch.temperature * 0.7))
    assert learner.can == {Can.TEXT} and learner.weights() == {}


# sampling --------------------------------------------------------------------------------------------------------


def test_a_completion_has_its_seeds_tokens_its_log_probs_and_the_version(monkeypatch):
    install(monkeypatch)
    world = opened().world
    start = Segment.empty().read(world.text.prompt(world.problems[0].prompt), Role.PROMPT)

    async def write(attempts, slot=0):
        with meters.begins(True):
            return await world.engine.generate(start, attempts, place=Place(3, 0, slot), turn=0, max_tokens=4)

    first = asyncio.run(write(range(6)))
    again = asyncio.run(write([4]))[0]
    assert again.tokens.tolist() == first[4].tokens.tolist()
    assert len({tuple(x.tokens) for x in first}) > 1
    ends = set(world.text.ends)
    assert all((x.stop is Stop.DONE) == (int(x.tokens[-1]) in ends) for x in first)
    bill = world.meter.of()
    assert (bill.rollouts, bill.prefill, bill.decode) == (
        7, 7 * len(start), sum(len(x.tokens) for x in [*first, again]))
    asyncio.run(world.engine.load({}))
    assert set(asyncio.run(write([0]))[0].version.tolist()) == {1}


def test_ids_that_a_request_names_end_a_step(monkeypatch):
    install(monkeypatch)
    world = opened().world
    start, (mark,) = Segment.given(world.text.encode("47+38="), Role.PROMPT), world.text.encode("8")
    said = asyncio.run(world.engine.generate(
        start, range(9), place=Place(3, 0, 0), turn=0, max_tokens=4, ends=[mark]))
    assert {s.stop for s in said} > {Stop.STEP}
    assert all((s.stop is Stop.STEP) == (int(s.tokens[-1]) == mark) for s in said)


def test_a_halted_wave_returns_without_tokens(monkeypatch):
    install(monkeypatch)
    world = opened().world
    start = Segment.empty().read(world.text.prompt(world.problems[0].prompt), Role.PROMPT)
    place = Place(0, 2, 0)
    world.engine.halt(place)
    said = asyncio.run(world.engine.generate(start, [0, 1], place=place, turn=0, max_tokens=4))
    assert [(x.stop, len(x.tokens)) for x in said] == [(Stop.CANCELLED, 0)] * 2 and world.meter.of().rollouts == 0


# what is refused ---------------------------------------------------------------------------------------------------


def test_methods_whose_loss_cannot_travel_are_refused_with_the_reason():
    found = {}
    for name in methods.names():
        try:
            refuse(paced(methods.recipe(name), temperature=1.0), can=spec_of(MODEL).of.learner, where=MODEL)
        except UserError as e:
            found[name] = str(e)
    assert found.keys() == REFUSED.keys()
    assert all(word in found[name] and MODEL in found[name] for name, word in REFUSED.items())


@pytest.mark.parametrize("options, said", [
    (["--temperature", "0.7"], "temperature is 0.7: training needs log-probs at temperatures other than 1"),
    (["--top-k", "3"], "top_k is 3"),
    (["--budget", "1e12flop"], "a budget in FLOPs needs the model's number of parameters"),
])
def test_what_the_service_cannot_do_is_one_line(monkeypatch, tmp_path, options, said):
    install(monkeypatch)
    if "--budget" in options:
        monkeypatch.setattr("isocost.worlds.tinker.size_of", lambda *_: (0, 0))
    options = options if "--budget" in options else [*options, "--budget", "64-rollouts"]
    found = CliRunner().invoke(main, [
        "train", "grpo", "--model", MODEL, "--lr", "1e-3", "--limit", "80", "-n", "4", "-B", "4",
        "--out", str(tmp_path / "r"), *options,
    ])
    assert found.exit_code == 2 and said in found.output


def test_the_rate_of_an_adapter_is_ten_times_that_of_all_weights_of_a_model_of_unknown_size():
    rule = starting_rule_of(Setting.of(model=MODEL))
    assert rule.at(64) == pytest.approx(10 * starting_rule(None).at(64)) and "for an adapter" in rule.why


def test_a_missing_sdk_a_dead_server_and_an_open_key_are_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(UserError, match=r"pip install tinker;"):
        opened()
    server = install(monkeypatch)
    with pytest.raises(UserError, match="has no model 'other'; it has tiny"):
        opened("tinker:http://localhost:8000#other")
    monkeypatch.setenv(service.KEY, "tml-secret")
    with pytest.raises(UserError, match="not encrypted"):
        opened("tinker:http://example.org#tiny")
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"no server answers at http://127\.0\.0\.1:9"):
        service._knock("http://127.0.0.1:9")
    with pytest.raises(UserError, match="names no model: write tinker:URL#MODEL"):
        spec_of("tinker:http://localhost:8000")
    assert server.calls == 0


def test_the_sdks_errors_are_named_by_the_call():
    lost = type("APIConnectionError", (TinkerError,), {})
    answer = r"did not answer forward \(APIConnectionError: gone"
    with pytest.raises(Unreachable, match=answer), service._naming("forward"):
        raise lost("gone")
    with pytest.raises(UserError, match="rejects save_state: disk full"), service._naming("save_state"):
        raise TinkerError("disk full")
    with pytest.raises(ZeroDivisionError), service._naming("forward"):
        raise ZeroDivisionError


@pytest.mark.parametrize("fault, said", [("sign", "sign is turned round"), ("masked-mean", "reduction is not known")])
def test_a_world_is_not_opened_where_gradients_would_be_wrong(monkeypatch, fault, said):
    install(monkeypatch, fault)
    with pytest.raises(UserError, match=said):
        opened()


# runs --------------------------------------------------------------------------------------------------------------


def job(budget):
    setting = Setting.of(model=MODEL, data="sums:level=1", limit=120, lora=8, evaluated=10)
    return Job("r", setting, "grpo", 0, {"rollouts": budget}, arm=Arm(n=4, B=4, lr=3e-4), save_every=2, export=True)


def test_a_continued_run_is_the_run_that_was_never_stopped(monkeypatch, tmp_path):
    install(monkeypatch, "row-mean")
    asyncio.run(run(job(96), tmp_path / "whole"))
    asyncio.run(run(job(48), tmp_path / "parts"))
    assert reopen(tmp_path / "parts", job(96))
    end = asyncio.run(run(job(96), tmp_path / "parts"))

    def steps(name):
        drop = ("seconds",)
        return [{k: v for k, v in x.items() if k not in drop} for x in read_lines(tmp_path / name / "metrics.jsonl")
                if "reward" in x]

    assert len(steps("whole")) == 6 and steps("parts") == steps("whole")
    assert end["notes"][-1].startswith("the trained adapter stays with the service, at tinker://fake/weights/isocost-")
    assert not (tmp_path / "parts" / "final").exists()
    machine = read_json(tmp_path / "whole" / "run.json")["machine"]
    assert machine["service"] == {"url": "http://localhost:8000", "sdk": "", "lora": 8,
                                  "reduction": "mean over the tokens of a row and over rows"}


def test_a_run_by_the_command(monkeypatch, tmp_path):
    install(monkeypatch)
    found = CliRunner().invoke(main, [
        "train", "grpo", "--model", MODEL, "--lora", "8", "--lr", "3e-4", "--limit", "80", "-n", "4", "-B", "4",
        "--budget", "32-rollouts", "--evaluations", "1", "--out", str(tmp_path / "r"),
    ])
    assert found.exit_code == 0, found.output
    assert read_json(tmp_path / "r" / "end.json")["reason"] == "spent"
    assert read_json(tmp_path / "r" / "run.json")["job"]["setting"]["lora"] == 8


def test_a_profile_takes_a_recipe_that_can_be_trained_there(monkeypatch, tmp_path):
    install(monkeypatch)
    found = CliRunner().invoke(main, [
        "profile", "--model", MODEL, "--data", "sums:base=easy,count=40", "--problems", "4",
        "--out", str(tmp_path / "s"),
    ])
    assert found.exit_code == 0, found.output
    profile = read_json(tmp_path / "s" / "profile.json")
    assert profile["regime"] == "easy" and profile["recipe"]["method"] == "isohard"
    assert "in place of isoeasy, which needs the entropy" in profile["recipe"]["why"]
    assert profile["learned"] > 0 and profile["parameters"] is None


METHODS = sorted(set(methods.names()) - REFUSED.keys())
FAST = ("areal", "kl_cov", "gigpo", "tti")     # of others the losses are compared above
WIDE = ("agentrlvr", "webagentr1")      # their words need more letters than the base of rooms has


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in METHODS if name not in WIDE
])
def test_every_other_method_steps(monkeypatch, name):
    if name in OF_ONE_TURN:
        install(monkeypatch)
        setting = Setting.of(model=MODEL, data="sums:level=1", limit=200)
    else:
        install(monkeypatch, model="tiny-agents")
        setting = Setting.of(model=f"{MODEL}-agents", env="rooms", max_turns=4, limit=100)
    world = open_setting(setting, reference=True).world
    recipe = paced(methods.recipe(name), lr=1e-4, warmup=0, max_tokens=4, temperature=1.0, top_p=1.0, top_k=0)
    recipe = paced(recipe, max_turns=4).but(groups=4, rollouts=max(4, min(recipe.rollouts, 8)))

    async def two():
        lines = []
        async for step in train(recipe, world, Ledger(seed=0), {"rollouts": 400}):
            lines.append(step.line)
            if len(lines) == 2:
                break
        return lines

    lines = asyncio.run(two())
    assert lines and all(np.isfinite(x["grad_norm"]) for x in lines if "grad_norm" in x)
    assert world.learner.adapter._client.steps >= len(lines)
