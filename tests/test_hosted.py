"""What a service costs: its rates, hours and money, against a stand-in whose rates, clock and bill are known."""

import time
from dataclasses import replace

import pytest

from examples.openai_server import Background, Server
from fake_tinker import install
from isocost.planner.token_price import TokenPrice
from isocost.runs.files import read_json
from isocost.types import Cost
from test_endpoint import said

RATES = {"prefill": 2000.0, "sample": 500.0, "forward": 4000.0, "train": 1000.0, "step": 4.0}     # a second
PRICES = {"prefill": 2e-6, "sample": 4e-6, "forward": 2e-6, "train": 5e-6}
PRICE = "2usd/M-prefill,4usd/M-sample,5usd/M-train"
MODEL = ("--model", "tinker:http://localhost:8000#tiny", "--data", "sums:base=easy,count=40")


@pytest.fixture
def service(monkeypatch):
    server = install(monkeypatch)
    server.rates = RATES
    monkeypatch.setattr(time, "perf_counter", lambda: server.now)
    return server


def billed(server):
    """What the service itself bills, in money."""
    return sum(price * server.tokens[kind] for kind, price in PRICES.items())


def test_a_profile_measures_a_services_rates_and_a_plan_says_hours_and_money_of_training(service, tmp_path):
    """Rates are those of the stand-in, and the profile costs what it bills, its check and training calls included."""
    s = tmp_path / "s"
    text = said("profile", *MODEL, "--problems", 4, "--out", s, "--price", PRICE)
    found = read_json(s / "profile.json")
    rate, training = found["rate"], found["rate"]["training"]
    assert (rate["prompt_tokens_per_second"], rate["sampled_tokens_per_second"], rate["at_once"]) == (2000, 500, 64)
    assert (training["call_seconds"], training["forward"], rate["cached"]) == (0.25, 1.0, 0.0)
    assert found["money"]["amount"] == pytest.approx(billed(service), abs=1e-6)
    assert "2,000 prompt tokens/s and 500 sampled tokens/s at 64 requests at once; 0.25 s a training call" in text
    plan = said("plan", s, "--size", "tiny")
    units = {row["unit"]: row for row in read_json(s / "pilot.json")["units"]["rows"]}
    timing, planned = read_json(s / "pilot.json")["timing"], read_json(s / "pilot.json")
    read, written = (found["cost"][k] / 64 for k in ("prefill", "decode"))
    both = read + written
    assert timing["update"] == 0.25 and timing["rollout"] == pytest.approx(
        read / 2000 + written / 500 + both / training["trained_tokens_per_second"])
    each = 2e-6 * read + 4e-6 * written + (2e-6 + 5e-6) * both
    assert units["usd"]["training"] == pytest.approx(each * planned["train_bill"]["rollouts"])
    assert "device-hours" not in units and units["seconds"]["known"] == "derived" and "usd" in plan
    direct = said("plan", s, "--budget", "0.02usd")
    assert "1usd" not in direct and {r["unit"]: r for r in read_json(s / "pilot.json")["units"]["rows"]}["usd"][
        "training"] <= 0.02


def test_a_run_at_a_service_ends_at_an_amount_and_its_bill_is_the_services_own(service, tmp_path):
    """Every token that the service was sent is in the run's physical cost, those of the check of each connection too.
    """
    run = ("train", "grpo", *MODEL, "--budget", "200-rollouts", "-n", 2, "-B", 2, "--evaluations", 2, "--lr", "1e-4",
           "--out", tmp_path / "r", "--price", PRICE)
    text = said(*run, "--stop-at", "0.004usd")
    end = read_json(tmp_path / "r" / "end.json")
    assert end["reason"] == "stopped" and "of --stop-at 0.004 usd spent; another update and an evaluation take" in text
    assert end["steps"] > 2 and end["stop_at"]["spent"] == pytest.approx(billed(service)) and billed(service) <= 0.004
    assert "forecast there: not identified: no forecast is sealed for these runs" in text
    said(*run, "--stop-at", "0.008usd")
    more = read_json(tmp_path / "r" / "end.json")
    assert more["steps"] > end["steps"]
    assert all(more["physical"]["check"][k] == 2 * end["physical"]["check"][k] > 0 for k in ("score", "train"))
    lost = more["physical"]["lost"]["score"] - more["physical"]["evaluation"]["score"] / 3   # known as asked for alone
    assert more["stop_at"]["spent"] - PRICES["forward"] * lost == pytest.approx(billed(service))


def test_a_price_without_trained_tokens_is_named_before_a_profile_or_a_budget(service, tmp_path):
    bare = "2usd/M-prefill,4usd/M-sample"
    said_ = said("profile", *MODEL, "--problems", 4, "--out", tmp_path / "s", "--price", bare, code=2)
    assert "has none of trained tokens, and a profile here times two training calls" in said_
    assert not (tmp_path / "s").exists()


# an OpenAI-compatible server, which a real model answers -------------------------------------------------------


@pytest.fixture(scope="module")
def served():
    class Caching(Server):
        """It says that the first 4 tokens of each prompt were cached."""

        async def completions(self, body, chat):
            found = await super().completions(body, chat)
            found["usage"]["prompt_tokens_details"] = {"cached_tokens": 4}
            return found

    with Background(Caching()) as url:
        yield f"openai:{url}#tiny"


@pytest.fixture(scope="module")
def profiled(served, tmp_path_factory):
    home = tmp_path_factory.mktemp("served")
    prices = home / "prices.toml"
    own = "prefill = 10\ncached = 1\nsample = 20\ntrain = 30\n"
    prices.write_text(f'currency = "eur"\n[tiny]\n{own}[other]\ninput = 1\n')
    text = said("profile", "--model", served, "--data", "sums:base=easy,count=60", "--problems", 4, "--out", home / "s",
                "--price", prices, "--parameters", "1.5B")
    return home / "s", text


def test_cached_prompt_tokens_have_their_price_and_the_file_of_prices_is_not_needed_again(profiled):
    """1 + 64 + 4 requests: the first, the profile's and those of one token; 4 tokens of each were cached."""
    home, text = profiled
    found = read_json(home / "profile.json")
    read, written = (found["cost"][k] + found["measuring"][k] for k in ("prefill", "decode"))
    cached = 4 * 68         # the first request is a check, charged whole
    money = (10 * (read - cached) + 1 * cached + 20 * written) / 1e6
    assert found["money"]["amount"] == pytest.approx(money, abs=1e-6)
    assert found["money"]["price"] == "10eur/M-prefill,1eur/M-cached,20eur/M-sample,30eur/M-train"
    assert found["rate"]["at_once"] == 16 and "training" not in found["rate"] and "requests at once" in text


def test_a_plan_for_a_trainer_elsewhere_has_money_and_the_time_of_sampling_and_says_what_is_not_known(profiled):
    home, _ = profiled
    found = read_json(home / "profile.json")
    text = said("plan", home, "--budget", "1eur")
    units = {row["unit"]: row for row in read_json(home / "pilot.json")["units"]["rows"]}
    bill, e = (read_json(home / "pilot.json")[k] for k in ("train_bill", "evaluation"))
    share = found["rate"]["cached"]
    read, written = ((found["cost"][k] - (k == "decode")) / 64 for k in ("prefill", "decode"))
    assert units["eur"]["known"] == "asked" and 0 < units["eur"]["training"] <= 1
    assert share == pytest.approx(4 / 6, abs=0.2) and read > written > 0 and bill["rollouts"] and e["problems"]
    assert "training calls: not known, none was measured here" in text
    assert "cannot be counted: the time of training is not known" in said("plan", home, "--budget", "2h", code=2)


@pytest.mark.parametrize(("price", "message"), [
    ("1usd/M-input,2usd/M-output,3usd/M-cached,4usd/M-prefill", "names input tokens twice"),
    ("1usd/M-input,2usd/M-train", "needs both input and output tokens"),
    ("none.toml", "cannot read the prices in none.toml"),
])
def test_a_price_that_cannot_be_used_is_named(served, tmp_path, price, message):
    assert message in said("profile", "--model", served, "--data", "sums:base=easy,count=60", "--out", tmp_path / "s",
                           "--price", price, code=2)


def test_four_prices_are_read_in_both_vocabularies_and_from_json(tmp_path):
    """Tinker's and Fireworks' words for the same; a cost is worth each of its counts."""
    tinker, fireworks = (TokenPrice.parse(text) for text in (
        "0.13usd/M-prefill,0.026usd/M-cached,0.40usd/M-sample,0.44usd/M-train",
        "0.13usd/M-input, 0.026usd/M-cached, 0.40usd/M-output, 0.44usd/M-train"))
    cost = Cost(prefill=1_000_000, decode=2_000_000, score=500_000, train=3_000_000)
    assert tinker.of(cost, 100_000).amount == pytest.approx(0.13 + 0.0026 + 0.80 + 0.065 + 1.32)
    assert replace(tinker, asked="") == replace(fireworks, asked="")
    file = tmp_path / "p.json"
    file.write_text('{"prefill": 0.13, "cached": 0.026, "sample": 0.40, "train": 0.44}')
    assert replace(TokenPrice.parse(str(file)), asked="") == replace(tinker, asked="")
