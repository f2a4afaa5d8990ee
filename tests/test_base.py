"""The embedded base: it is what its record says, it can be made again, and pass rates are where a study needs them."""

import json

import numpy as np
import pytest
import torch

import bases
import pass_rates
from isocost.local.decoder import Decoder
from isocost.local.embedded import BASE
from isocost.local.models import load
from isocost.tasks.builtin import sums as family

TINY = bases.BASES["tiny"]
IDS = {c: i for i, c in enumerate(family.ALPHABET)}


@pytest.fixture(scope="module")
def shipped():
    model = load("tiny")
    decoder = Decoder(model.config)
    decoder.load_state_dict(model.weights)
    return model, decoder


def test_shipped_base_has_the_pass_rates_it_states(shipped, tmp_path):
    model, _ = shipped
    bases.write(tmp_path, model, family.ALPHABET, {})
    facts, said = pass_rates.rates_of_sums(tmp_path), model.extra["made"]["pass_at_1"]
    found = json.loads((tmp_path / "rates.json").read_text())
    assert np.abs(np.subtract(found["pass_at_1"], family.base_rates()[10:, 10:])).max() < 2e-4   # to four decimals
    assert facts["mean"] == pytest.approx(said["mean"], abs=1e-3)
    assert facts["levels"] == pytest.approx(said["levels"], abs=1e-3)
    assert np.abs(np.subtract(facts["tenths"], said["tenths"])).max() <= 5 and facts.keys() == said.keys()
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
    tokens = torch.tensor([[IDS[c] for c in prompt]]).repeat(count, 1)
    with torch.no_grad():
        for _ in range(len("198|")):         # the longest answer, and the end token
            probabilities = decoder.logits(decoder(tokens)[:, -1]).softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probabilities, 1, generator=generator)], 1)
    spelled = ["".join((family.ALPHABET + "|")[t] for t in row) for row in tokens[:, len(prompt) :].tolist()]
    return [s.partition("|")[0] if "|" in s else None for s in spelled]


def test_it_is_small():
    folder = BASE
    assert folder.name == "base" and folder.parent.name == "local"
    assert sum(f.stat().st_size for f in folder.glob("*.*") if f.suffix != ".py") < 2 * 2**20


@pytest.mark.slow
def test_the_shipped_base_can_be_made_again(shipped, tmp_path):
    bases.make(TINY, tmp_path)
    facts, said = load(str(tmp_path)).extra["made"]["pass_at_1"], shipped[0].extra["made"]["pass_at_1"]
    assert facts["mean"] == pytest.approx(said["mean"], abs=0.05)     # another machine rounds otherwise
