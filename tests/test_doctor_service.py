"""`isocost doctor` of a service: each planted fault is named, with what was measured; a sound one passes."""

import json
import re

import pytest
from click.testing import CliRunner

from fake_tinker import FAULTS, install
from isocost.cli.commands import main
from isocost.doctor.service import CHECKS, diagnose_service
from isocost.errors import Unreachable, UserError

URL = "http://localhost:8000#tiny"
MODEL = f"tinker:{URL}"
# By fault: the check that finds it, its verdict, and what it says, as a pattern. Last digits are the processor's.
NEAR_1 = r"(1|1\.0\d|0\.99\d?)"
FOUND = {
    "row-mean": ("reduction", "warn", "mean over the tokens of a row and over rows, where the API says sum"),
    "token-mean": ("reduction", "warn", "mean over all tokens, where the API says sum"),
    "masked-mean": ("reduction", "fail", "neither a sum nor a mean that is known"),
    "sign": ("sign", "fail", "changes the token's log-prob by -"),
    "temperature": ("temperature", "fail", "those of T = 0.7"),
    "sampler": ("draws", "fail", "standard errors"),
    "scaled": ("temperature", "ok", "not of T = 1 when another temperature is requested"),
    "clip": ("clipping", "fail", r"ratios of 3 and 1/3 have 1\.[45]\d and 0\.1[678]\d times"),
    "ratio": ("clipping", "fail", f"ratios of 3 and 1/3 have {NEAR_1} and {NEAR_1} times"),
    "norm": ("gradient norm", "fail", r"1000 times the advantage has 0\.\d+ times"),
    "shift": ("log-probs", "fail", "one position late"),
    "seed": ("seed", "warn", "of 8 seeds gave the same tokens again"),
    "stale": ("sampler's weights", "fail", "after training, a new sampler and the learner differ by"),
    "decay": ("hidden terms", "fail", "a step without advantages changes the log-prob by"),
    "weights-only": ("checkpoint", "fail", "the next step is"),
    "no-end": ("end token", "warn", "8 of 8 completions that ended lack their end token"),
}


def test_every_fault_of_the_fake_is_looked_for():
    assert FOUND.keys() == FAULTS.keys()


def test_a_sound_service_passes_every_check(monkeypatch):
    install(monkeypatch)
    found = diagnose_service(MODEL)
    assert [f.verdict for f in found.findings] == ["ok"] * len(CHECKS) and found.sound
    assert found.subject.model == "tiny" and found.cost.rollouts > 0 and found.cost.train > 0
    assert found.to_dict()["sound"] is True


@pytest.mark.parametrize("fault", FOUND)
def test_each_fault_is_named_with_its_measurement(monkeypatch, fault):
    install(monkeypatch, fault)
    name, verdict, said = FOUND[fault]
    if name != "draws":
        monkeypatch.setattr("isocost.doctor.service.DRAWS", 16)
    findings = {f.name: f for f in diagnose_service(MODEL).findings}
    assert findings[name].verdict == verdict and re.search(said, findings[name].said), findings[name]
    assert bool(findings[name].do) == (verdict != "ok")


def test_the_command_prints_a_row_for_each_check_and_fails_with_the_service(monkeypatch):
    install(monkeypatch, "clip")
    found = CliRunner().invoke(main, ["doctor", "--model", MODEL, "--lora", "8"])
    assert found.exit_code == 3 and "ratios are clipped" in " ".join(found.output.split())
    assert "tiny at http://localhost:8000 (adapter of rank 8)" in " ".join(found.output.split())
    data = json.loads(CliRunner().invoke(main, ["doctor", MODEL, "--json"]).output)
    assert data["rank"] == 32 and [f["name"] for f in data["findings"] if f["verdict"] == "fail"] == ["clipping"]
    other = CliRunner().invoke(main, ["doctor", MODEL, "--temperature", "0.5"])
    assert other.exit_code == 2 and "--temperature has no use with a model that a service trains" in other.output


def test_a_call_that_is_rejected_is_a_finding_and_a_lost_server_ends_it(monkeypatch):
    server = install(monkeypatch)
    from isocost.worlds.service import Adapter

    def rejects(self, name):
        raise UserError("the service rejects save_state: disk full")

    monkeypatch.setattr(Adapter, "save", rejects)
    found = diagnose_service(MODEL).findings[-1]
    assert (found.name, found.verdict) == ("checkpoint", "fail") and found.said.endswith("save_state: disk full")

    def gone(self, name):
        raise Unreachable("the service did not answer save_state")

    monkeypatch.setattr(Adapter, "save", gone)
    with pytest.raises(Unreachable):
        diagnose_service(MODEL)
    assert server.calls > 0
