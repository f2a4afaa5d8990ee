"""LoRA: its gradients, its sampler, its file format, and what it costs."""

import asyncio
import json

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.local import lora
from isocost.local.models import load, reading
from isocost.local.weights import from_hub, save_model, to_hub
from isocost.planner.training.learning_rate import starting_rule
from isocost.runs.arm import Arm
from isocost.runs.files import read_json
from isocost.runs.job import Job, reopen
from isocost.runs.run import run
from isocost.types import Cost
from isocost.worlds.setting import Setting
from local_world import batch as sampled
from local_world import model, pull, world

RANK = 4
MODELS = {"llama": {}, "untied": {"tied": False}, "qwen2": {"qkv_bias": True, "family": "qwen2"},
          "qwen3": {"qk_norm": True, "family": "qwen3"}}


def written(w):
    """A batch that this world sampled."""
    return sampled(w, ["12+34=", "7+8="], 4)


def moved(source=None, steps=3, **settings):
    w = world(source or model(), lora=RANK, **settings)
    batch = written(w)
    for _ in range(steps):
        w.learner.update(batch, pull, lr=1e-2)
    return w, batch


def by_formula(w, factors):
    """The merged weights by Hugging Face's names, from the equation: W0 + (alpha / r) B A."""
    base = to_hub(w.about.model.config, model().weights)
    for name in {k.removeprefix(lora.PREFIX).rsplit(".lora_", 1)[0] for k in factors}:
        a, b = (factors[f"{lora.PREFIX}{name}.lora_{x}.weight"] for x in "AB")
        base[f"{name}.weight"] = base[f"{name}.weight"] + w.learner.alpha / RANK * b @ a
    return base


def test_an_adapter_starts_as_the_base_and_counts_what_it_learns():
    w, plain = world(lora=RANK), world()
    batch = written(plain)
    assert torch.equal(w.learner.score(batch).logp, plain.learner.score(batch).logp)
    c = w.about.model.config
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    sides = [(q, c.hidden), (kv, c.hidden), (kv, c.hidden), (c.hidden, q), (c.mlp, c.hidden), (c.mlp, c.hidden),
             (c.hidden, c.mlp)]
    assert w.learner.learned == c.layers * RANK * sum(map(sum, sides)) == lora.count(c, RANK)
    assert w.learner.parameters == plain.learner.parameters == plain.learner.learned
    with pytest.raises(UserError, match="--lora 64 is more than the smallest side"):
        world(lora=64)


def test_training_flops_count_the_weights_that_are_not_learned_twice_less():
    cost = Cost(prefill=10, decode=20, score=30, train=40)
    assert cost.flops(100) == 2 * 100 * 60 + 6 * 100 * 40
    assert cost.flops(100, 100) == cost.flops(100)
    assert cost.flops(100, 7) == 2 * 100 * 60 + (4 * 100 + 2 * 7) * 40


def test_the_gradient_of_the_factors_is_that_of_autograd():
    w, batch = moved(kernels="torch", steps=2)
    learner, (tokens, mask) = w.learner, (batch.tokens, batch.mask)
    factors = {k: v.clone().requires_grad_() for k, v in learner.adapter().items()}
    c = w.about.model.config
    decoder = type(learner.decoder)(c)
    weights = from_hub(c, by_formula(w, factors))
    hidden = torch.func.functional_call(decoder, weights, (tokens,))
    logits = F.linear(hidden, weights["embed"] if c.tied else weights["head"])
    logp = F.log_softmax(logits[:, :-1], -1).gather(-1, tokens[:, 1:, None])[..., 0]
    logp = F.pad(logp, (1, 0)) * mask
    (-logp * batch.advantage * batch.weight).sum().backward()
    learner.gradient(batch, pull)
    found = learner._project()
    ours = dict(zip(learner.adapter(), (x for p, (a, b) in zip(learner.places, learner._each(found), strict=True)
                                        for x in (a, p.outwards(b))), strict=True))
    norm = torch.cat([v.grad.flatten() for v in factors.values()]).norm()
    gap = torch.cat([(ours[k] - v.grad).flatten() for k, v in factors.items()]).norm()
    assert norm > 1e-3 and gap < 1e-5 * norm


@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_the_sampler_has_the_merged_weights(kernels):
    w, _ = moved(kernels=kernels)
    asyncio.run(w.engine.load(w.learner.weights()))
    batch = written(w)
    gap = (w.learner.score(batch).logp - batch.logp)[batch.mask].abs().max()
    base = (world().learner.score(batch).logp - batch.logp)[batch.mask].abs().max()
    assert gap < 2e-5 and base > 1e-2
    for name, whole in to_hub(w.about.model.config, w.learner.weights()).items():
        torch.testing.assert_close(whole, by_formula(w, w.learner.adapter())[name], rtol=0, atol=1e-6)


def test_a_state_continues_the_same_updates():
    w, batch = moved()
    other = world(model(), lora=RANK)
    other.restore(w.state())
    for each in (w, other):
        each.learner.update(batch, pull, lr=1e-2)
    for k, v in w.state().items():
        assert torch.equal(v, other.state()[k]), k
    assert sum(v.numel() for k, v in w.state().items() if not k.startswith("adam")) == w.learner.learned
    with pytest.raises(ValueError, match="another adapter"):
        world(model(), lora=2).restore(w.state())


def test_the_gradients_of_rollouts_add_up_to_that_of_the_batch():
    w, batch = moved()
    w.learner.gradient(batch, pull)
    whole = w.learner._project().clone()
    parts = sum(g.clone() for g, _ in w.learner.gradients(batch, pull))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5 * float(whole.norm()))
    one, other = world(model(), lora=RANK), world(model(), lora=RANK)
    one.restore(w.state())
    other.restore(w.state())
    one.learner.update(batch, pull, lr=1e-3)
    other.learner.step(parts, lr=1e-3)
    torch.testing.assert_close(one.learner._factors, other.learner._factors, rtol=0, atol=1e-5)


# peft's format ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
def test_an_adapter_that_is_written_and_read_is_the_same_model(tmp_path, kind):
    source = model(**MODELS[kind])
    w, batch = moved(source, kernels="torch")
    save_model(tmp_path / "base", source)
    lora.save_adapter(tmp_path / "adapter", w.learner, str(tmp_path / "base"))
    read = world(load(str(tmp_path / "adapter")), kernels="torch")
    gap = (read.learner.score(batch).logp - w.learner.score(batch).logp)[batch.mask].abs().max()
    assert gap < 2e-6
    assert reading(str(tmp_path / "adapter"))[1] == source.config.max_len


@pytest.mark.parametrize("change, said", [
    ({"use_dora": True}, "use_dora is True; adapters are read with use_dora = False only"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
    ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    ({"base_model_name_or_path": "nowhere"}, "no model 'nowhere'"),
    ({"r": None}, "r is null"),
])
def test_an_adapter_of_another_kind_is_refused(tmp_path, change, said):
    w = world("tiny", lora=RANK)
    lora.save_adapter(tmp_path, w.learner, "tiny")
    settings = read_json(tmp_path / lora.SETTINGS)
    (tmp_path / lora.SETTINGS).write_text(json.dumps({**settings, **change}))
    with pytest.raises(UserError, match=said.split(" is ")[0]):
        load(str(tmp_path))


def test_an_adapter_of_another_model_or_of_itself_is_refused(tmp_path):
    w = world(model(), lora=RANK)
    lora.save_adapter(tmp_path, w.learner, "tiny")
    with pytest.raises(UserError, match="it is an adapter of another model"):
        load(str(tmp_path))
    lora.save_adapter(tmp_path, w.learner, str(tmp_path))
    with pytest.raises(UserError, match="is the adapter itself"):
        load(str(tmp_path))


def test_peft_reads_what_is_written_and_its_adapters_are_read(tmp_path):
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    source = model()
    save_model(tmp_path / "base", source)
    w, batch = moved(source, kernels="torch")
    lora.save_adapter(tmp_path / "ours", w.learner, str(tmp_path / "base"))
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "ours").eval()

    def logp(made):
        with torch.no_grad():
            x = F.log_softmax(made(batch.tokens).logits[:, :-1].float(), -1)
        return F.pad(x.gather(-1, batch.tokens[:, 1:, None])[..., 0], (1, 0)) * batch.mask

    assert (logp(theirs) - w.learner.score(batch).logp)[batch.mask].abs().max() < 1e-5
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    own = peft.get_peft_model(base, peft.LoraConfig(
        r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "up_proj"],
    ))
    with torch.no_grad():
        for p in own.parameters():
            if p.requires_grad:
                p.add_(0.3 * torch.randn_like(p))
    own.save_pretrained(tmp_path / "theirs")
    read = world(load(str(tmp_path / "theirs")), kernels="torch")
    assert (logp(own.eval()) - read.learner.score(batch).logp)[batch.mask].abs().max() < 1e-5


# runs --------------------------------------------------------------------------------------------------------------


def test_a_run_with_an_adapter_continues_exactly_and_writes_both_folders(tmp_path):
    def job(budget):
        setting = Setting.of(model="tiny", data="sums:level=1", limit=120, lora=RANK)
        return Job("r", setting, "grpo", 0, {"rollouts": budget}, arm=Arm(n=4, B=4, lr=3e-3), save_every=2, export=True)

    asyncio.run(run(job(96), tmp_path / "whole"))
    asyncio.run(run(job(48), tmp_path / "parts"))
    assert reopen(tmp_path / "parts", job(96))
    asyncio.run(run(job(96), tmp_path / "parts"))
    for name in ("metrics.jsonl", "journal.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes().count(b"reward") > 0
    one, other = ((tmp_path / x / "adapter" / lora.TENSORS).read_bytes() for x in ("whole", "parts"))
    assert one == other
    described = read_json(tmp_path / "whole" / "run.json")["model"]
    assert described["learned"] == lora.count(load("tiny").config, RANK) < described["parameters"]
    merged, adapter = load(str(tmp_path / "whole" / "final")), load(str(tmp_path / "whole" / "adapter"))
    for k, v in merged.weights.items():
        torch.testing.assert_close(v, adapter.weights[k], rtol=0, atol=1e-6)


def test_the_command_and_the_rate_of_an_adapter(tmp_path):
    found = CliRunner().invoke(main, [
        "train", "grpo", "--lora", "4", "--limit", "80", "-n", "4", "-B", "4", "--budget", "32-rollouts",
        "--evaluations", "1", "--out", str(tmp_path / "r"),
    ])
    assert found.exit_code == 0, found.output
    rule = starting_rule(load("tiny").parameters, own=load("tiny").starting_rate)
    assert read_json(tmp_path / "r" / "run.json")["arm"]["lr"] == pytest.approx(10 * rule.at(16))
