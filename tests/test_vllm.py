"""vLLM as the engine of a learner here: over HTTP against a server of the tests, and a real one where it is installed.

The real server: ISOCOST_VLLM_PYTHON names a python with vLLM (docs/vllm.md says how to install it).
"""

import asyncio
import os
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import real_vllm
from fake_vllm import serving
from isocost import meter as meters
from isocost import methods
from isocost.errors import Unreachable, UserError
from isocost.ledger import Ledger
from isocost.local.lora import save_adapter
from isocost.local.models import load
from isocost.loop import train
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import setting_with
from isocost.types import Place, Role, Sampling, Segment, Stop
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.vllm import ADD

FAST = RequestLimits(concurrency=8, timeout=20.0, retries=3, first=0.01, longest=0.02)
SLOW = replace(FAST, timeout=300.0)     # a first request compiles
PYTHON = os.environ.get("ISOCOST_VLLM_PYTHON", "")
DATA = "sums:base=easy,count=60"


@contextmanager
def opened(url, model="tiny", limits=FAST, **changes):
    found = open_setting(Setting.of(model=f"vllm:{url}#{model}", data=DATA, **changes), limits=limits)
    try:
        yield found.world
    finally:
        found.close()


def trained(world, *, rollouts=64, **changes):
    recipe, ledger = methods.load("grpo").recipe(groups=2, rollouts=4).but(**changes), Ledger(seed=4)

    async def go():
        return [step.line async for step in train(recipe, world, ledger, {"rollouts": rollouts})]

    return asyncio.run(go()), ledger


def test_the_learner_here_trains_on_what_the_server_samples_with_its_weights():
    """Every update arrives: a witness after each load, and ratios of 1 on the next wave."""
    with serving("tiny") as (url, fake), opened(url) as world:
        before = {k: v.clone() for k, v in world.learner.weights().items()}
        steps, ledger = trained(world)
        assert len(steps) == 8 == world.engine.version and sum(ledger.fates.values()) == 64
        assert fake.asked["/collective_rpc"] == fake.asked["/reset_prefix_cache"] == 9      # one at the start
        assert 0 < world.engine.largest < 1e-5
        assert any(not torch.equal(before[k], v) for k, v in world.learner.weights().items())
        mine = dict(fake.decoder.named_parameters())
        assert all(torch.equal(mine[k], v) for k, v in world.learner.weights().items())
        asked = [b for b in fake.bodies if "stop_token_ids" in b]     # the others are the witness's
        assert len(asked) == 64 and all(b["top_k"] == -1 and b["min_p"] == 0.0 for b in fake.bodies)
        assert all(b["stop_token_ids"] == list(world.text.ends) for b in asked)


def test_tokens_that_are_sent_again_under_the_same_weights_are_charged_as_read_again():
    with serving("tiny") as (url, _), opened(url) as world:
        first = Segment.empty(Sampling()).read(world.text.encode("12+34="), Role.PROMPT)

        def more(text, turn):
            before = world.meter.of()
            (said,) = asyncio.run(world.engine.generate(text, [3], place=Place(1, 0, 0), turn=turn, max_tokens=2))
            return said, world.meter.of() - before

        with meters.begins(True):
            said, cost = more(first, 0)
        assert (cost.rollouts, cost.prefill, cost.reread) == (1, 6, 0)
        text = first.wrote(said).read(world.text.encode("5"))
        assert (more(text, 1)[1].prefill, more(text, 1)[1].reread) == (len(text), len(text) - 1)
        world.engine.restore(world.learner.weights(), 1)
        assert more(text, 1)[1].reread == 0


def test_ids_that_a_request_names_end_a_step_of_a_completion():
    with serving("tiny") as (url, fake), opened(url) as world:
        first, (mark,) = Segment.given(world.text.encode("47+38="), Role.PROMPT), world.text.encode("8")
        heard = {}
        said = asyncio.run(world.engine.generate(
            first, range(9), place=Place(1, 0, 0), turn=0, max_tokens=4, ends=[mark],
            on_tokens=heard.__setitem__))
        plain = asyncio.run(world.engine.generate(first, range(9), place=Place(1, 0, 0), turn=0, max_tokens=4))
        assert fake.bodies[-10]["stop_token_ids"] == [*world.text.ends, mark]
        assert [b["seed"] for b in fake.bodies[-18:-9]] != [b["seed"] for b in fake.bodies[-9:]], "a round's own"
        assert {s.stop for s in said} > {Stop.STEP} and Stop.STEP not in {s.stop for s in plain}
        assert all((s.stop is Stop.STEP) == (int(s.tokens[-1]) == mark) for s in said)
        assert heard == {k: s.tokens.tolist() for k, s in enumerate(said)}


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_log_probs_are_those_of_the_temperature_that_is_sampled(temperature):
    with serving("tiny") as (url, _), opened(url, temperature=temperature) as world:
        assert world.engine.gap() < 1e-5 / min(temperature, 1.0)


@pytest.mark.parametrize(("fault", "temperature"), [
    ("stale cache", 1.0), ("keeps its weights", 1.0), ("raw log-probs", 0.5),
])
def test_a_server_that_computes_something_else_is_found_at_the_first_load(fault, temperature, tmp_path):
    """The server begins with other weights, so a load that does nothing, or a cache that stays, cannot be right."""
    other = load("tiny")
    torch.manual_seed(0)
    other = other.but(weights={k: v + 0.02 * torch.randn_like(v) for k, v in other.weights.items()})
    with serving(other) as (url, fake):
        fake.faults.add(fault)
        with pytest.raises(UserError, match=r"differ by [\d.e+-]+ nats after loading weights"), \
                opened(url, temperature=temperature):
            pass


def test_a_difference_that_is_not_a_number_is_not_accepted(monkeypatch):
    with serving("tiny") as (url, _), opened(url) as world:
        monkeypatch.setattr(world.engine, "gap", lambda: float("nan"))
        with pytest.raises(UserError, match="differ by nan nats"):
            world.engine.restore(world.learner.weights(), 1)


def test_the_file_of_weights_has_the_head_that_the_server_packs_anew():
    """Also where the head is the embedding."""
    with serving("tiny") as (url, fake):
        answer, heads = fake.answer, []

        def read(path, body):
            if path == "/collective_rpc":
                file = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
                heads.append(torch.equal(file["lm_head.weight"], file["model.embed_tokens.weight"]))
            return answer(path, body)

        fake.answer = read
        with opened(url) as world:
            trained(world, rollouts=8)
    assert load("tiny").config.tied and heads == [True, True]


def test_a_cache_that_goes_stale_later_ends_the_run():
    with serving("tiny") as (url, fake), opened(url) as world:
        fake.faults.add("stale cache")
        learner = world.learner
        update = learner.update
        learner.update = lambda batch, loss, *, lr: update(batch, loss, lr=1e-2)      # a step that is seen at once
        with pytest.raises(UserError, match="stale cache"):
            trained(world)


def test_the_same_seed_is_the_same_run_and_overlap_changes_no_byte():
    found = []
    for in_turns in (False, True):
        with serving("tiny") as (url, _), opened(url, in_turns=in_turns) as world:
            steps, ledger = trained(world, max_age=1)
            found.append((str(steps), [x.text() for x in ledger.fresh]))
    assert found[0] == found[1]


def test_a_server_in_another_dtype_is_used_only_with_a_bound_that_accepts_it_and_the_run_says_how_far_it_was_off():
    with serving("tiny") as (url, fake):
        fake.faults.add("another dtype")        # off by 0.004 nats
        for bound in (None, 0.001):
            with pytest.raises(UserError, match=r"differ by 0\.004 nats .*bfloat16 is off by about 0\.01 nats"), \
                    opened(url, witness=bound):
                pass
        with opened(url, witness=0.01) as world:
            steps, _ = trained(world, rollouts=24)
            [note] = world.engine.notes()
        assert len(steps) == 3 and world.about.service["witness"] == 0.01
        assert len(world.engine.gaps) == 4 and world.engine.gaps == pytest.approx([0.004] * 4, rel=0.01)
    assert "at most 4.0e-03 nats at any load (median 4.0e-03, 4 loads; --witness accepts 0.01)" in note
    with pytest.raises(UserError, match="--witness is not an option of tiny"):
        setting_with(data=DATA, witness=0.01)


def test_an_overloaded_server_is_asked_again_and_one_that_stays_so_ends_the_run():
    with serving("tiny") as (url, fake), opened(url) as world:
        fake.busy = 2
        steps, _ = trained(world, rollouts=8)
        assert len(steps) == 1 and world.engine.server.client.tally.repeated["503"] == 2
        fake.busy = 10**6
        with pytest.raises(Unreachable, match="left a request without an answer"):
            trained(world, rollouts=24)


def test_what_cannot_be_trained_on_is_an_error_that_says_so():
    with serving("tiny", room=8) as (url, fake):
        with pytest.raises(UserError, match="top-p and top-k"), opened(url, top_p=0.9):
            pass
        fake.faults.add("no token ids")
        with pytest.raises(UserError, match="without token ids or log-probs: start it with VLLM_SERVER_DEV_MODE=1"), \
                opened(url):
            pass
    with pytest.raises(Unreachable, match="does not answer /version"), opened(url):
        pass


def test_one_process_at_a_time_uses_a_server():
    with serving("tiny") as (url, _), opened(url), pytest.raises(UserError, match="another process uses"), opened(url):
        pass
    with serving("tiny") as (url, _), opened(url):
        """Closed before: it can be opened again."""


def test_a_run_is_recorded_with_its_server_and_goes_on_after_a_kill(tmp_path):
    import kill9

    with serving("tiny") as (url, _):
        setting = Setting.of(model=f"vllm:{url}#tiny", data=DATA, held_out=0.4)
        job = Job("served", setting, "grpo", 3, {"rollouts": 48}, Arm(n=4, B=2, lr=1e-4), save_every=2, export=True)
        end = asyncio.run(run(job, tmp_path / "whole"))
        assert end["reason"] == "spent" and any("differed by at most" in note for note in end["notes"])
        assert sum(end["fates"].values()) == sum(cost["rollouts"] for cost in end["bill"].values())
        kill9.dies_at_step(job, tmp_path / "killed", 4)
        asyncio.run(run(job, tmp_path / "killed"))
        assert kill9.left_by(tmp_path / "killed") == kill9.left_by(tmp_path / "whole")


# adapters -----------------------------------------------------------------------------------------------------


def moving(world, lr):
    """The world, whose learner takes steps of this rate whatever the recipe says."""
    update = world.learner.update
    world.learner.update = lambda batch, loss, **_: update(batch, loss, lr=lr)
    return world


def test_an_adapter_is_swapped_after_every_update_and_the_servers_own_weights_stay():
    with serving("tiny") as (url, fake), opened(url, lora=2) as world:
        own = {k: v.clone() for k, v in fake.decoder.named_parameters()}
        assert world.about.service["loads"] == "adapter"
        steps, ledger = trained(moving(world, 1e-3))
        assert len(steps) == 8 == world.engine.version and sum(ledger.fates.values()) == 64
        assert 0 < world.engine.largest < 1e-5
        assert fake.asked["/collective_rpc"] == fake.asked["/reset_prefix_cache"] == 1      # its own, at the start
        assert all(torch.equal(w, own[k]) for k, w in fake.decoder.named_parameters())
        [(name, (folder, decoder))] = fake.adapters.items()     # earlier ones were removed
        assert name == world.engine.server.sampled and Path(folder).is_dir()
        mine = world.learner.weights()
        assert all(torch.allclose(w, mine[k], atol=1e-6) for k, w in decoder.named_parameters())
        assert not all(torch.equal(w, own[k]) for k, w in decoder.named_parameters())
        assert len({b["model"] for b in fake.bodies if "stop_token_ids" in b}) == 8      # a version for each wave
        assert any("the adapter, which was loaded 10 times" in note for note in world.engine.notes())
        home = Path(folder).parent
    assert not fake.adapters and not home.exists()


def test_what_is_learned_with_a_swapped_adapter_is_what_is_learned_with_merged_weights():
    found = []
    for adapters in (True, False):
        with serving("tiny", adapters=adapters) as (url, _), opened(url, lora=2) as world:
            trained(moving(world, 1e-3), rollouts=24)
            found.append({k: v.clone() for k, v in world.learner.weights().items()})
    one, other = found
    assert all(torch.allclose(one[k], other[k], atol=1e-4) for k in one)


@pytest.mark.parametrize("fault", ["keeps its adapter", "stale cache"])
def test_an_adapter_that_is_not_swapped_and_a_cache_of_an_earlier_one_end_the_run(fault):
    with serving("tiny") as (url, fake), opened(url, lora=2) as world:
        fake.faults.add(fault)
        with pytest.raises(UserError, match=r"differ by [\d.e+-]+ nats after loading weights"):
            trained(moving(world, 1e-4))
        assert world.engine.version <= 2


@pytest.mark.parametrize(("status", "error", "said"), [
    (400, UserError, f"{ADD} answered 400: it is full"), (503, Unreachable, f"does not answer {ADD}"),
])
def test_an_adapter_that_the_server_no_longer_takes_ends_the_run(status, error, said):
    with serving("tiny") as (url, fake), opened(url, lora=2) as world:
        answer = fake.answer
        fake.answer = lambda path, body: (
            (status, {"error": {"message": "it is full"}}) if path == ADD else answer(path, body)
        )
        with pytest.raises(error, match=said):
            trained(world, rollouts=24)
        assert world.engine.version == 0


def test_an_adapter_is_loaded_with_the_learners_weights_and_no_others():
    with serving("tiny") as (url, fake), opened(url, lora=2) as world:
        own = world.learner.weights()
        other = {k: v + 1 for k, v in own.items()}
        loads = fake.asked[ADD]
        with pytest.raises(ValueError, match="learner's weights only"):
            world.engine.restore(other, 1)
        assert fake.asked[ADD] == loads
        world.engine.restore({k: v.clone() for k, v in own.items()}, 1)
        assert fake.asked[ADD] == loads + 1


@pytest.mark.parametrize(("adapters", "fault", "said"), [(False, "", "404"), (True, "no adapters", "not enabled")])
def test_a_server_without_adapters_gets_the_merged_weights_and_says_how_to_start_it(adapters, fault, said, caplog):
    with serving("tiny", adapters=adapters) as (url, fake):
        fake.faults.add(fault)
        with opened(url, lora=2) as world:
            steps, _ = trained(world, rollouts=24)
            assert len(steps) == 3 and fake.asked["/collective_rpc"] == 5 and not fake.adapters
            assert world.about.service["loads"] == "merged weights"
            [note] = [x for x in world.engine.notes() if "merged weights are loaded" in x]
    assert said in note and "--enable-lora --max-lora-rank 8" in note and note in caplog.text


def test_an_adapters_server_needs_no_endpoints_of_vllms_developers():
    """Without VLLM_SERVER_DEV_MODE there are no /collective_rpc, /pause and /reset_prefix_cache."""
    with serving("tiny") as (url, fake):
        answer = fake.answer
        gone = ("/collective_rpc", "/pause", "/resume", "/reset_prefix_cache")
        fake.answer = lambda path, body: (404, {"error": "no such path"}) if path in gone else answer(path, body)
        with opened(url, lora=2) as world:
            assert len(trained(world, rollouts=24)[0]) == 3


# the real server ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The address of a real vLLM server, and the folder of its model."""
    if not PYTHON:
        pytest.skip("ISOCOST_VLLM_PYTHON names no python with vLLM")
    home = tmp_path_factory.mktemp("vllm")
    folder = real_vllm.random_model(home / "model")
    with real_vllm.serving(PYTHON, folder, home / "log") as url:
        yield url, folder


def even(folder):
    """A reward that a random model earns differently in each answer: without one no update changes a weight."""
    return {"max_tokens": 8, "verifier": f"{folder / 'even.py'}:even"}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_real_log_probs_are_the_learners(real, temperature):
    url, folder = real
    with opened(url, str(folder), SLOW, temperature=temperature, max_tokens=8) as world:
        assert world.engine.gap() < 1e-5 / min(temperature, 1.0)


@pytest.mark.parametrize("lora", [None, 8])
def test_real_weights_arrive_after_every_update(real, lora):
    url, folder = real
    with opened(url, str(folder), SLOW, lora=lora, **even(folder)) as world:
        assert world.about.service["loads"] == ("adapter" if lora else "all weights")
        before = {k: v.clone() for k, v in world.learner.weights().items()}
        steps, ledger = trained(moving(world, 1e-3), rollouts=64)
        assert len(steps) == 8 == world.engine.version and world.engine.largest < 1e-5
        assert ledger.fates["trained"] == 64
        moved = {k for k, v in world.learner.weights().items() if (v - before[k]).abs().max() > 1e-3}
        assert {"blocks.0.qkv", "blocks.1.down"} <= moved and ("embed" in moved) == (lora is None)


def test_a_real_adapter_that_is_not_swapped_is_found_after_the_first_update(real):
    url, folder = real
    with opened(url, str(folder), SLOW, lora=8, **even(folder)) as world:
        world.engine.carrier.take = lambda weights: None
        with pytest.raises(UserError, match=r"differ by [\d.e+-]+ nats after loading weights"):
            trained(moving(world, 1e-5))
        assert world.engine.version == 1


def test_a_real_cache_of_an_earlier_adapter_is_found(real):
    """An adapter that is loaded in place, from a folder of the same name, leaves the cache as it was."""
    url, folder = real
    with opened(url, str(folder), SLOW, lora=8, **even(folder)) as world:
        carrier = world.engine.carrier
        server, there = carrier.server, carrier.server.folder / carrier.server.sampled

        def take(weights):
            save_adapter(there, carrier.learner, server.served)
            said = {"lora_name": there.name, "lora_path": str(there), "load_inplace": True}
            server.client.ask("POST", ADD, said, silent=True)

        carrier.take = take
        with pytest.raises(UserError, match="stale cache"):
            trained(moving(world, 1e-3))


def test_a_real_cache_that_is_not_reset_is_found_at_the_first_load(real, monkeypatch):
    url, folder = real
    with opened(url, str(folder), SLOW, max_tokens=8) as world:
        server, ask = world.engine.server, world.engine.server.ask
        skipped = ("/reset_prefix_cache", "/pause", "/resume")      # a pause clears the cache, too
        monkeypatch.setattr(server, "ask", lambda m, path, *a, **k: None if path in skipped else ask(m, path, *a, **k))
        weights = world.learner.weights()
        torch.manual_seed(1)
        for w in weights.values():
            w.add_(0.05 * torch.randn_like(w))
        with pytest.raises(UserError, match="stale cache"):
            world.engine.restore(weights, 1)
        monkeypatch.undo()
        world.engine.restore(weights, 2)        # with the reset they are loaded well


def test_the_witnesss_prompt_is_in_a_real_servers_cache(real):
    """Of two blocks of 128 tokens and a rest: without a whole block the witness would say nothing about the cache."""
    url, folder = real

    def hits():
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        return sum(float(x.rpartition(" ")[2]) for x in lines if x.startswith("vllm:prefix_cache_hits_total"))

    with opened(url, str(folder), SLOW, max_tokens=8) as world:
        before = hits()
        world.engine.gap()
        assert hits() - before == 256


def test_real_seeds_give_the_same_rollouts_twice(real):
    url, folder = real
    found = []
    for _ in range(2):
        with opened(url, str(folder), SLOW, max_tokens=8) as world:
            _, ledger = trained(world, rollouts=16)
            found.append([x.text() for x in ledger.fresh])
    assert found[0] == found[1]


def test_prompts_of_the_witness_are_long_and_have_no_end_token():
    with serving("tiny") as (url, _), opened(url) as world:
        prompt, ids, logp = world.engine._witnessed()
        assert len(prompt) == world.engine.room - 8 and not set(prompt) & set(world.text.ends)
        assert len(ids) == len(logp) == 8 and np.isfinite(logp).all()
        assert len(set(prompt)) > 3
