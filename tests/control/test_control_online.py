"""Methods that learn from a set and then from samples, by numbers worked from the papers' equations."""

import hashlib

import pytest
import torch

from isocost.control import data, methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Luck
from isocost.control.methods import calql, sac, wsrl
from isocost.control.networks import Params
from isocost.control.parts import mix
from isocost.control.replay import Replay
from isocost.control.tasks import open_task
from isocost.control.types import Space
from isocost.errors import UserError
from isocost.runs import driver
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.files import read_json, read_lines
from offline_sets import made


@pytest.fixture(autouse=True, scope="module")
def checkpoints_by_steps_alone():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(driver, "WORTH_SAVING", float("inf"))
        yield


def begun(method, *, first, sigma=4.0, warmup=40, **sets):
    """One run on pendulum with a set of random actions, and its loop."""
    agent = methods.tuned(methods.agent(method, batch=16, width=16, members=3), {"tempo.warmup": str(warmup), **sets})
    run = StackedRun(0, sigma, 1e-3, first=first)
    return run, Loop(agent, open_task("pendulum"), [run], 500, made("pendulum").rows)


def weights(loop):
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in loop.weights.values())).hexdigest()


# phases -----------------------------------------------------------------------------------------------------------


def test_wsrl_learns_from_the_set_then_waits_then_learns_from_its_own_samples_alone():
    """12 updates on the set; 40 samples without an update; 10 more: 40 updates of the critic and 10 of the actor."""
    run, loop = begun("wsrl", first=12, **{"losses.drawn": "2"})
    loop.advance([12])
    assert (run.updates, run.samples, loop.moments["actor"].steps.item()) == (12, 0, 12)
    taught = weights(loop)
    loop.advance([12 + 40])
    assert (run.samples, run.updates, loop.replay.stored) == (40, 12, [40]) and weights(loop) == taught
    loop.advance([12 + 50])
    assert (run.updates, loop.moments["critic"].steps.item(), loop.moments["actor"].steps.item()) == (52, 52, 22)
    batch = loop.agent.sample(loop.replay.view([0]), 64, Luck([run.source], [0], "test"))
    own = {tuple(x) for x in loop.replay.rows[0, :50, :3].tolist()}
    assert loop.replay.stored == [50] and {tuple(x) for x in batch.observation[0].tolist()} <= own


@pytest.mark.slow
def test_five_thousand_samples_of_warm_up_of_wsrl():
    """As the paper's run: after 5,100 samples 400 updates of the critic and 100 of the actor, 5,100 transitions."""
    agent = methods.tuned(methods.agent("wsrl", batch=16, width=16, members=2), {"losses.drawn": "2"})
    run = StackedRun(0, 4.0, 1e-3, first=4)
    loop = Loop(agent, open_task("pendulum"), [run], 5200, made("pendulum").rows)
    loop.advance([5004])
    taught = weights(loop)
    loop.advance([5004 + 100])
    assert (run.samples, run.updates - 4, loop.moments["actor"].steps.item() - 4) == (5100, 400, 100)
    assert loop.replay.stored == [5100] and weights(loop) != taught


def test_a_batch_beside_a_set_has_its_share_of_each_run_alone():
    """Rows of the set are 100 and more: the last quarter of the batch; in the updates on the set, all of it."""
    replay = Replay.of(Space(1, 1), 2, 8)
    replay.add([0, 1], torch.arange(10).reshape(2, 5, 1).expand(2, 5, 6).float())
    replay.prior = Replay.of_set(Space(1, 1), 2, (100 + torch.arange(30.0))[:, None].expand(30, 6))
    luck = Luck([StackedRun(s, 1.0, 0.0).source for s in (0, 1)], [3, 3], "test")
    seen = mix.beside(replay.view([0, 1]), 16, luck, old=0.25).observation[..., 0]
    assert seen.shape == (2, 16) and (seen[:, :12] < 100).all() and (seen[:, 12:] >= 100).all()
    assert (seen[0, :12] < 5).all() and (seen[1, :12] >= 5).all() and (seen[0] != seen[1]).any()
    alone = mix.beside(replay.view([1]), 16, Luck(luck.sources[1:], [3], "test"), old=0.25)
    assert (alone.observation[0, :, 0] == seen[1]).all()
    assert (mix.beside(replay.prior.view([0]), 8, Luck(luck.sources[:1], [3], "test")).observation >= 100).all()


def test_rlpd_draws_half_from_the_set_and_its_actor_waits():
    run, loop = begun("rlpd", first=0, sigma=20.0)
    loop.advance([42])
    assert (run.updates, loop.moments["critic"].steps.item(), loop.moments["actor"].steps.item()) == (40, 40, 2)
    batch = loop.agent.sample(loop.replay.view([0]), 64, Luck([run.source], [0], "test"))
    kept = {tuple(x) for x in made("pendulum").rows[:, :3].tolist()}
    assert [tuple(x) in kept for x in batch.observation[0].tolist()] == [False] * 32 + [True] * 32


def test_wsrl_is_cal_ql_on_the_set_and_sac_without_entropy_in_its_target_after_it():
    run, loop = begun("wsrl", first=4, **{"losses.drawn": "2"})
    luck, due = Luck([run.source], [0], "test"), frozenset(loop.networks)
    params, slow = Params(loop.networks, loop.weights, due), Params(loop.networks, loop.slow, due)
    on_set = loop.agent.sample(loop.replay.prior.view([0]), 16, luck)
    target = loop.agent.target(on_set, params, slow, luck)
    found = loop.agent.losses(on_set, target, params, luck)
    assert found["critic"] == calql.losses(on_set, target, params, luck, alpha=5.0, drawn=2)["critic"]
    later = on_set._replace(others={})
    assert loop.agent.losses(later, target, params, luck)["critic"] == sac.losses(later, target, params, luck)["critic"]
    loop.weights["temperature"] += 5.0
    assert (wsrl.target(on_set, Params(loop.networks, loop.weights, due), slow, luck) == target).all()


# records ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    path = tmp_path_factory.mktemp("set") / "a.parquet"
    data.write(made("pendulum"), open_task("pendulum").space, path)
    return path


def job(seed, where, method="wsrl", **more):
    arm = Arm({"batch": 16, "width": 16, "rate": 1e-3, "members": 2}, sigma=(1.0, 2.0)[seed % 2])
    sets = {"tempo.warmup": "20", **({"losses.drawn": "2"} if method == "wsrl" else {})}
    return ControlJob(**{"name": f"s{seed}", "task": "pendulum", "method": method, "seed": seed,
                         "budget": {"env-steps": 60.0}, "arm": arm, "points": (1.0, 40.0), "sets": sets, "episodes": 2,
                         "data": str(where), "offline_updates": 30 + 10 * seed, **more})


def left(out):
    end = read_json(out / "end.json")
    bill = {a: {k: v for k, v in c.items() if k != "seconds"} for a, c in end["bill"].items() if a != "lost"}
    last = sorted(out.glob("checkpoints/step-*"))[-1]
    return (out / "metrics.jsonl").read_bytes(), (last / "learner.safetensors").read_bytes(), bill


def test_both_phases_are_billed_recorded_and_resumed_byte_for_byte(where, tmp_path):
    """30 and 40 updates on the set, then 60 samples of which 40 are paid back once or twice, in one stack or alone."""
    whole = [tmp_path / f"whole{s}" for s in (0, 1)]
    ends = run_stack([job(s, where) for s in (0, 1)], whole)
    assert [(e["samples"], e["updates"]) for e in ends] == [(60, 30 + 40), (60, 40 + 80)]
    about, lines = read_json(whole[1] / "run.json"), read_lines(whole[1] / "metrics.jsonl")
    assert about["offline"]["updates"] == 40 and about["data"]["hash"] == made("pendulum").card["hash"]
    assert [(x["env_steps"], x["updates"]) for x in lines if "return" in x] == [(0, 0), (1, 40), (40, 80), (60, 120)]
    bill, both = ends[1]["bill"]["train"], about["offline"]["flop"] * 40
    assert (bill["env_steps"], bill["updates"]) == (60, 120) and ends[1]["flop"] > both > 30 * about["update"]["flop"]
    assert next(x for x in lines if x["updates"] == 40)["flop"] == both
    seen = []

    def dies(name, line):
        seen.append(line)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(BaseException, match=r".*"):
        run_stack([job(1, where)], [tmp_path / "again"], save_every=1, save_seconds=0, on_step=dies)
    run_stack([job(1, where)], [tmp_path / "again"], save_every=1, save_seconds=0)
    assert left(tmp_path / "again") == left(whole[1])
    with pytest.raises(UserError, match="its offline differs"):
        run_stack([job(1, where, offline_updates=50)], [whole[1]])


@pytest.mark.parametrize("method, more, said", [
    ("wsrl", {"data": None}, "wsrl learns from a set: give --offline FILE; `isocost collect pendulum`"),
    ("wsrl", {"offline_updates": 0}, "wsrl learns from the set before its first sample alone: give --offline-updates"),
    ("sac", {"data": None}, "sac has no phase on a set before its samples: leave --offline-updates out"),
    ("iql", {"budget": {"updates": 9.0}}, "iql has no phase on a set"),
])
def test_what_does_not_go_together(where, tmp_path, method, more, said):
    with pytest.raises(UserError, match=said):
        run_stack([job(0, where, method, **{"sets": {}, **more})], [tmp_path / "a"])
    assert not (tmp_path / "a").exists()
