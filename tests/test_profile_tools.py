"""What a profile prints, records and reports of environments with tools: a policy that follows a script calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.openai_server import Background, Server
from isocost import report
from isocost.cli.commands import main
from isocost.envs.sandbox.client import available
from isocost.runs.files import read_json
from isocost.steps.look.kept_rollouts import find_rollouts
from test_report import Page

TOOLS = '''
class Abacus:
    """An environment of TRL's kind: public methods are tools."""

    def reset(self, **columns):
        self.said = 0
        return None

    def add(self, x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: the first
            y: the second
        """
        if x % 2:
            raise OverflowError("an odd number")
        return x + y
'''


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Scripted(Server):
    """In place of a model: each completion is a function of the dialogue and its seed."""

    def __init__(self) -> None:
        self.name = "scripted"

    async def completions(self, body, chat):
        messages = body["messages"]
        said = self.says([m["content"] for m in messages], body.get("seed", 0) % 4, [m["role"] for m in messages])
        read, written = sum(len(m["content"]) for m in messages) // 4, len(said) // 4 + 1
        return {
            "object": "chat.completion", "model": self.name,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }

    def says(self, texts: list[str], luck: int, roles: list[str]) -> str:
        first, last, turn = texts[0], texts[-1], roles.count("assistant")
        if "# Tools" not in first:
            return "ready"      # what a client asks first, to learn what the server takes
        if turn:
            return (re.findall(r"-?\d+", last) or ["unknown"])[-1]
        if '"name": "find_customer"' in first:
            mail = re.search(r"\((\S+@\S+)\)", last)
            return call("find_customer", email=mail[1] if mail and luck else "nobody@x.example")
        if '"name": "sql"' in first:
            return call("sql", statement="select count(*) from orders" if luck else "select nothing from nowhere")
        x, y = map(int, re.findall(r"\d+", last)[-2:])
        if '"name": "python"' in first:
            return call("python", code=f"print({x} + {y})" if luck else "print(1 / 0)")
        return call("add", x=x, y=y) if luck else call("add", x=x)


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with Background(Scripted()) as url:
        yield f"openai:{url}#scripted"


def spec(name: str, folder: Path) -> list[str]:
    (folder / "own.py").write_text(TOOLS)
    return {
        "shop": ["--env", "shop"], "sql": ["--env", "sql"],
        "python": ["--env", "python", "--data", "sums:level=1"],
        "tools": ["--env", f"tools:{folder}/own.py:Abacus", "--data", "sums:level=1", "--verifier", "exact"],
    }[name]


@pytest.mark.parametrize(("name", "faults", "solved"), [
    ("shop", {"tool: not found"}, False), ("sql", {"tool: SQL error"}, False),
    ("python", {"tool: error"}, True), ("tools", {"model: wrong arguments", "tool: OverflowError"}, True),
])
def test_a_profile_says_where_episodes_fail_and_which_faults_they_have(name, faults, solved, model, tmp_path):
    if name == "python" and (lacks := available().get("missing")):
        pytest.skip(str(lacks))
    out = tmp_path / "s"
    done = CliRunner().invoke(main, ["profile", "--model", model, *spec(name, tmp_path), "--problems", "6", "--out",
                                     str(out)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    found = read_json(out / "profile.json")["dialogues"]
    assert {x["fault"] for x in found["listed"]} >= faults
    for fault in faults:
        (row,) = [x for x in found["listed"] if x["fault"] == fault]
        assert 0 < row["per_turn"] < row["rollouts"] < 1 and f"{fault}: {row['per_turn']:.2%} of turns, in" in said
    assert sum(x["rollouts"] for x in found["ended"]) == 6 * 16
    assert "where they fail: ended without success at turn" in said
    assert "dead groups, all failed and all succeeded n=2:" in said
    assert ("cost of a success:" in said) is solved is (found["success_costs"] is not None)
    if solved:
        rollouts = found["success_costs"]["rollouts"]
        assert found["success_costs"]["env_steps"] == pytest.approx(rollouts * found["turns"]["mean"], rel=0.01)
        assert found["success_costs"]["reread"] > 0 and found["faultless"]["success"] == 1.0
    text = Page(report.write(out).read_text(encoding="utf-8")).text
    for words in (*faults, "with mean reward", "all succeeded", "a lower limit cuts the same rollouts short"):
        assert words in text
    (first,) = find_rollouts(out, fault="tool", first=1).found
    assert first.turns[0].tokens.fresh is None, "a server alone knows how many tokens it read"
    assert first.turns[0].tokens.written == len(first.turns[0].said) // 4 + 1, "as the server counted"
