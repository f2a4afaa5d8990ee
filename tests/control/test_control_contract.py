"""The contract of methods of control: shipped ones keep it, and each mistake of a user's file breaks its promise."""

import re

import pytest
from click.testing import CliRunner

from in_turn import in_their_turn
from isocost.cli.commands import main
from isocost.contract import agents
from isocost.control import methods
from logs_to_import import said

FILE = '''"""SAC, changed.

    y = r
"""
import random

import torch

from isocost.control.methods import sac
from isocost.found import Card

CARD = Card("Mine", "none", 2026, "sac", "It is a claim.")


def target(batch, params, slow, luck):
    y = sac.target(batch, params, slow, luck)
    {target}
    return y


def losses(batch, target, params, luck):
    found = sac.losses(batch, target, params, luck)
    {losses}
    return found


def explore(params, observation, luck):
    action = sac.improve.by_policy(params, observation, luck)
    {explore}
    return action


def agent(**changes):
    return sac.agent(name="mine", target=target, losses=losses, explore=explore).but({changes})
'''


def mine(folder, **changes):
    file = folder / "mine.py"
    file.write_text(FILE.format(**{"target": "", "losses": "", "explore": "", "changes": "**changes", **changes}))
    return str(file)


@pytest.mark.parametrize("name", in_their_turn(methods.names(), methods))
def test_every_method_keeps_the_contract(name):
    assert [p.why for p in agents.check(name) if not p.kept] == []


ACTOR = """found["actor"] = -params("critic", batch.observation, sac.improve.squashed(
        params, batch.observation, batch.action)[0])[:, 0, :, 0].mean(-1)"""


@pytest.mark.parametrize("promise, change, told", [
    ("agent", {"changes": ""}, "it ignores the sizes"),
    ("shapes", {"target": "y = y[0]"}, r"target has shape \(16,\), expected \(S, B\) = \(3, 16\)"),
    ("shapes", {"losses": 'found["critic"] = found["critic"].sum()'}, r"the loss of critic has shape \(\)"),
    ("shapes", {"losses": 'found["critics"] = found.pop("critic")'}, "losses names 'critics', which is no network"),
    ("shapes", {"explore": "action = action[0]"}, r"explore returned shape \(16, 1\), expected"),
    ("acting", {"explore": "action = 2 * action"}, r"outside of \[-1, 1\]"),
    ("acting", {"explore": "action = torch.rand_like(action)"}, "two actions for one observation"),
    ("unmixed", {"target": "y = y - y.mean()"}, "target of the first run changes with the other runs"),
    ("unmixed", {"losses": 'found["actor"] = found["actor"] / found["actor"].std()'}, "the loss of actor"),
    ("own_luck", {"target": "y = y + torch.randn(y.shape)"}, "reads the generator of torch"),
    ("own_luck", {"explore": "action = action * random.random()"}, "reads the generator of random"),
    ("own_gradients", {"losses": ACTOR}, r"the loss of actor has a gradient in critic: read it with params.fixed"),
    ("own_gradients", {"losses": 'found["actor"] = found["actor"].detach()'}, "has no gradient"),
    ("slow_copies", {"target": "slow.weights['critic'].mul_(0.9)"}, "written in place"),
    ("slow_copies", {"target": "with torch.enable_grad(): y = sac.target(batch, params, slow, luck)"},
     "turns gradients on, and one reaches the slow copy"),
])
def test_a_mistake_breaks_its_promise(tmp_path, promise, change, told):
    why = getattr(agents, promise)(agents.AgentTrial(mine(tmp_path, **change)))
    assert re.search(told, why), why


def test_a_file_is_checked_from_the_command_line(tmp_path):
    assert "mine.py keeps the contract" in said("methods", "check", mine(tmp_path))
    (tmp_path / "bad").mkdir()
    done = CliRunner().invoke(main, ["methods", "check", mine(tmp_path / "bad", target="y = y[0]")])
    assert done.exit_code == 2 and "target has shape (16,)" in done.output
    assert "not tried" in done.output and "breaks 1 of 9 promises" in done.output
