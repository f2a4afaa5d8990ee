"""The embedded base: it is what its record says, it can be made again, and pass rates are where a study needs them."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

import make_base as make
from isocost.local.decoder import Decoder
from isocost.local.embedded import BASE
from isocost.local.models import load
from isocost.tasks import sums as family

SMALL = make.Lessons(hidden=32, layers=1, steps=40, rows=64)


@pytest.fixture(scope="module")
def shipped():
    model = load("tiny")
    decoder = Decoder(model.config)
    decoder.load_state_dict(model.weights)
    return model, decoder


def test_shipped_base_has_the_pass_rates_it_states(shipped):
    model, decoder = shipped
    rates, stated = make.rates(decoder), family.base_rates()
    assert np.nanmax(np.abs(rates - stated)) < 2e-4     # written to four decimals
    facts, said = make.summary(rates), model.extra["made"]["pass_at_1"]
    assert facts["mean"] == pytest.approx(said["mean"], abs=1e-3)
    assert facts["levels"] == pytest.approx(said["levels"], abs=1e-3)
    assert np.abs(np.subtract(facts["tenths"], said["tenths"])).max() <= 5
    assert len(family.sums(base="easy")) == said["easy"] and len(family.sums(base="hard")) == said["hard"]


def test_shipped_base_suits_a_study(shipped):
    said = shipped[0].extra["made"]["pass_at_1"]
    assert min(said["easy"], said["hard"]) >= 700
    assert 0.4 < said["mean"] < 0.7
    assert said["levels"] == sorted(said["levels"], reverse=True)         # carries make it harder
    tenths = said["tenths"]
    assert min(tenths[0], tenths[-1]) > 1.5 * max(tenths[2:-2])           # both ends full


def test_exact_chance_is_the_chance_of_a_sample(shipped):
    _, decoder = shipped
    pairs = [(47, 38), (12, 34), (99, 99), (55, 55)]
    stated = [family.base_rates()[p] for p in pairs]
    draws, generator = 4000, torch.Generator().manual_seed(0)
    for (a, b), p in zip(pairs, stated, strict=True):
        said = sample(decoder, f"{a}+{b}=", draws, generator)
        found = np.mean([s == str(a + b) for s in said])
        assert abs(found - p) < 4 * np.sqrt(p * (1 - p) / draws) + 1e-3


def sample(decoder, prompt, count, generator):
    """`count` answers drawn at temperature 1, by nothing but full forward passes."""
    tokens = torch.tensor([[make.IDS[c] for c in prompt]]).repeat(count, 1)
    with torch.no_grad():
        for _ in range(len("198|")):         # the longest answer, and the end token
            probabilities = decoder.logits(decoder(tokens)[:, -1]).softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probabilities, 1, generator=generator)], 1)
    spelled = ["".join((family.ALPHABET + "|")[t] for t in row) for row in tokens[:, len(prompt) :].tolist()]
    return [s.partition("|")[0] if "|" in s else None for s in spelled]


def test_a_smaller_base_can_be_made_and_made_again():
    model, again = make.teach(SMALL), make.teach(SMALL)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    untaught = Decoder.from_config(make.config(SMALL), torch.Generator().manual_seed(0))
    assert np.nanmean(make.rates(model)) > 3 * np.nanmean(make.rates(untaught))


def test_what_is_written_reads_back(tmp_path):
    model = make.teach(make.Lessons(hidden=16, layers=1, heads=2, steps=2, rows=8))
    facts = make.write(tmp_path, model, SMALL)
    read = load(str(tmp_path))
    assert all(torch.equal(read.weights[k], v) for k, v in model.named_parameters())
    assert read.extra["made"] == {"lessons": json.loads(json.dumps(asdict(SMALL))), "pass_at_1": facts}
    assert read.text.decode(read.text.encode("47+38=?:;")) == "47+38=?:;" and read.text.ends == (make.END,)


def test_it_is_small():
    folder = BASE
    assert folder.name == "base" and folder.parent.name == "local"
    assert sum(f.stat().st_size for f in folder.glob("*.*") if f.suffix != ".py") < 2 * 2**20


@pytest.mark.slow
def test_the_shipped_base_can_be_made_again(shipped):
    lessons = make.Lessons(**{**shipped[0].extra["made"]["lessons"], "mix": make.Lessons().mix})
    assert lessons == make.Lessons()
    facts, said = make.summary(make.rates(make.teach(lessons))), shipped[0].extra["made"]["pass_at_1"]
    assert facts["mean"] == pytest.approx(said["mean"], abs=0.05)     # another machine rounds otherwise
