"""The environments that need nothing but the standard library: python, sql, shop, TRL's classes, MCP."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from episodes import call, first, play, played, text
from isocost.envs import opening, own_random, tiny
from isocost.envs.adapters import openenv
from isocost.envs.adapters.mcp import McpServer, ServerEnded
from isocost.envs.opening import KINDS, open_environment
from isocost.envs.sandbox import python
from isocost.envs.sandbox.client import CallLimits, Sandbox, available
from isocost.envs.tiny import shop, sql
from isocost.errors import UserError
from isocost.steps.look.environments import check_environment, list_environments
from isocost.tasks.load import load_problems
from isocost.types import Fault, FaultSource, Message, Problem, Shown

ASKED = Problem("p", (Message("user", "What is 2 ** 10?"),), "1024", meta={"columns": {"target": 3}})
missing = available().get("missing", "")
sandboxed = pytest.mark.skipif(bool(missing), reason=str(missing))


@pytest.mark.parametrize(("spec", "says"), [
    ("nothing", "there is no environment 'nothing'"), ("python:wide=1", "has no option 'wide'"),
    ("python:memory=0", "memory must be above 0"), ("python:sandbox=some", "all or none"),
    ("sql:kind=drop", "kind is read, change, both"), ("sql:level=9", "level is 0 to 3"),
    ("sql:file=none.sqlite", "there is no file none.sqlite"), ("sql:count=x", "count takes an integer"),
    ("shop:kind=rob", "kind is cancel"), ("shop:declined=2", "declined is 0 to 1"),
    ("tools:none.py:Shop", "there is no file none.py"), ("tools:none.py", "names no class"),
    ("mcp:", "names no command"), ("openenv:localhost", "names no server"),
    ("openenv:http://127.0.0.1:9#size=3", "no option 'size'"), ("textworld:none.z8", None), ("gym:", None),
    ("openenv:http://127.0.0.1:9", "does not answer as an OpenEnv server"),
    ("mcp:python 'x", "No closing quotation"), ("cmd:python 'x", "No closing quotation"),
    ("rooms:seed=-1", "seed is at least 0, not -1"), ("sql:seed=-1", "seed is at least 0, not -1"),
])
def test_a_spec_that_cannot_be_opened_is_an_error(spec: str, says: str | None):
    with pytest.raises(UserError, match=says):
        open_environment(spec)


def test_every_kind_says_what_it_is():
    for name, kind in KINDS.items():
        assert kind.about and len(kind.about) < 90, name


def test_an_environment_that_ships_is_a_file_of_its_folder(monkeypatch, tmp_path):
    for path in Path(tiny.__file__).parent.glob("[!_]*.py"):
        assert KINDS[path.stem].open(path.stem).problems is not None
    (tmp_path / "still.py").write_text(
        "from isocost.envs.environment_set import EnvironmentSet, EnvironmentKind\n"
        "from isocost.world import Ask\n"
        "ENVIRONMENT = EnvironmentKind('nothing happens', {}, lambda spec: EnvironmentSet(spec, Ask, None))\n")
    monkeypatch.setattr(tiny, "__path__", [*tiny.__path__, str(tmp_path)])
    try:
        assert opening._shipped()["still"].open("still").max_turns == 8
    finally:
        sys.modules.pop("isocost.envs.tiny.still")
        del tiny.still


# --- python

@sandboxed
def test_programs_run_and_the_answer_is_the_last_turn():
    shown = play("python", [call("python", code="open('a', 'w').write('x' * 3)\n2 ** 10"),
                            call("python", code="len(open('a').read())"), "1024"], ASKED)
    assert [text(s) for s in shown[1:3]] == ["1024", "3"] and shown[3].over and shown[3].reward == 0
    assert '"name": "python"' in text(shown[0]) and shown[0].messages[-1].content == "What is 2 ** 10?"
    found = open_environment("python")
    assert found.verifier == "" and found.problems is None


@sandboxed
@pytest.mark.parametrize(("code", "says", "what"), [
    ("1 / 0", "ZeroDivisionError: division by zero (line 1)", "error"),
    ("bytearray(1 << 30)", "64 MB of memory", "memory"),
    ("import time; time.sleep(9)", "longer than 0.3 s", "time"), ("import os; os.abort()", "by a signal", "killed"),
    ("open('/etc/passwd')", "Permission denied", "error"),
])
def test_a_program_that_fails_is_a_fault_of_the_tool(code: str, says: str, what: str):
    shown = play("python:memory=64,wall=0.3", [call("python", code=code)], ASKED)[1]
    assert says in text(shown) and shown.fault == Fault.tool(what) and not shown.over


@sandboxed
def test_random_numbers_are_those_of_the_turn():
    said = [call("python", code="import random; random.random()")] * 2
    one, two, other = (play("python", said, ASKED, seed=s) for s in (0, 0, 1))
    assert one == two and text(one[1]) != text(one[2]) and text(one[1]) != text(other[1])


@sandboxed
def test_a_sandbox_that_is_gone_is_a_fault_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    with Sandbox(CallLimits(), at_once=1) as closed:
        pass
    monkeypatch.setattr(python, "opened", lambda which: closed)
    env = python.Programs(ASKED)
    env.folder, env.luck = Path("/nowhere"), lambda: __import__("numpy").random.default_rng(0)
    with pytest.raises(python.SandboxFailed):
        asyncio.run(python.Toolbox([python.Tool(python.SCHEMA, env.run)], fatal=(python.SandboxFailed,)).answer(
            call("python", code="1")))


@pytest.mark.slow
@sandboxed
def test_reasoning_gym_tasks_are_solved_with_programs():
    pytest.importorskip("reasoning_gym")
    problems = load_problems("reasoning-gym:basic_arithmetic:size=4").problems
    for problem in problems:
        asked = problem.text.removeprefix("Calculate ").removesuffix(".")
        shown = play("python", [call("python", code=f"int({asked})")], problem)
        assert text(shown[1]) == problem.answer


# --- sql

@pytest.mark.parametrize("kind", ["read", "change"])
def test_sql_tasks_pay_for_their_solution_and_not_for_doing_nothing(kind: str):
    found = open_environment(f"sql:kind={kind},count=24,seed=3")
    assert found.problems is not None
    for problem in islice(found.problems(), 24):
        statements = problem.meta["solution"].split("; ")
        calls = [call("sql", statement=s) for s in statements]
        answer = (lambda shown: text(shown).splitlines()[-1]) if kind == "read" else "done"
        right = asyncio.run(played(found, problem, [*calls, answer]))
        assert right[-1].over and right[-1].reward == 1.0, problem.text
        assert asyncio.run(played(found, problem, ["done"]))[-1].reward == 0.0
        assert {m.role for m in right[0].messages} == {"system", "user"}


def test_sql_problems_differ_and_are_the_same_each_time():
    one, again = (list(sql.problems(sql.Sql(kind="both", count=90, seed=1))) for _ in range(2))
    assert one == again and len({p.id for p in one}) == 90 and {p.meta["level"] for p in one} == {1, 2, 3}
    assert [p.meta["kind"] for p in one].count("change") in range(40, 51)


@pytest.mark.parametrize(("statement", "says"), [
    ("attach 'x.db' as x", "not authorized"), ("pragma writable_schema = 1", "not authorized"),
    ("insert into customers values(99, 'a', 'b', 1)", "not authorized"), ("drop table orders", "not authorized"),
    ("create table t(x)", "not authorized"), ("select load_extension('x')", "not authorized"),
    ("vacuum into '/tmp/isocost-x.db'", "authorization denied"), ("begin", "not authorized"),
    ("select random()", "not authorized"), ("select * from none", "no such table"), ("selec", "syntax error"),
    ("with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n", "too many steps"),
    ("select zeroblob(100000000)", "too big"), ("select 1; select 2", "one statement at a time"),
    ("select hex(zeroblob(500000)) || hex(zeroblob(500000))", "too big"),
])
def test_sql_statements_that_are_not_allowed_are_faults_of_the_tool(statement: str, says: str):
    shown = play("sql", [call("sql", statement=statement), call("sql", statement="select count(*) from customers")])
    assert says in text(shown[1]) and shown[1].fault == Fault.tool("SQL error")
    assert text(shown[2]) == "count(*)\n20"


def test_a_statement_ends_after_the_same_number_of_steps_each_time():
    """So a resumed dialogue reads the same, on any machine."""
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n where i > {}"
    said = [call("sql", statement=endless.format(k)) for k in (1, 2)]
    assert play("sql", said) == play("sql", said)


def test_results_are_bounded():
    shown = play("sql", [call("sql", statement="select a.id, b.id from orders a, orders b")])
    assert text(shown[1]).endswith("[more rows]") and len(text(shown[1]).splitlines()) == 52


def test_a_change_may_only_touch_rows():
    said = [call("sql", statement=s) for s in ("update products set price = 1", "delete from sqlite_master",
                                               "alter table products add column x", "drop table orders")]
    shown = play("sql:kind=change", [*said, "done"])
    assert shown[1].fault is None and text(shown[1]) == "16 rows changed"
    assert all(s.fault is not None and s.fault.source is FaultSource.TOOL for s in shown[2:5])
    assert shown[5].reward == 0.0


def test_a_users_database_is_read_only(tmp_path: Path):
    path = tmp_path / "own.sqlite"
    data = sqlite3.connect(path)
    data.executescript("create table t(x); insert into t values(41)")
    data.close()
    before = path.read_bytes()
    said = [call("sql", statement="select x + 1 from t"), call("sql", statement="update t set x = 0"), "42"]
    shown = play(f"sql:file={path}", said, ASKED)
    assert text(shown[1]) == "x + 1\n42" and shown[2].fault == Fault.tool("SQL error") and shown[3].over
    assert path.read_bytes() == before and open_environment(f"sql:file={path}").verifier == ""


# --- shop

def actions(problem: Problem) -> list[str]:
    return [call(name, **given) for name, given in problem.meta["actions"]]


def test_shop_requests_pay_for_the_right_actions_in_any_order():
    found = open_environment("shop:count=15")
    assert found.problems is not None
    seen = set()
    for problem in found.problems():
        right = actions(problem)
        for said in (right, right[::-1]):
            assert asyncio.run(played(found, problem, [*said, "Done."]))[-1].reward == 1.0, problem.meta
        assert asyncio.run(played(found, problem, ["Done."]))[-1].reward == 0.0
        more = call("decline", order=problem.meta["actions"][0][1]["order"], reason="not in stock")
        assert asyncio.run(played(found, problem, [*right, more, "Done."]))[-1].reward == 0.0
        seen |= {name for name, _ in problem.meta["actions"]}
    assert seen == {"cancel_order", "change_address", "return_item", "exchange_item", "decline"}


def test_the_rules_of_the_shop_by_hand():
    orders = {"A": {"customer": "me", "status": "pending", "days since delivery": None},
              "B": {"customer": "me", "status": "shipped", "days since delivery": None},
              "C": {"customer": "me", "status": "delivered", "days since delivery": 30},
              "D": {"customer": "me", "status": "delivered", "days since delivery": 31},
              "E": {"customer": "you", "status": "delivered", "days since delivery": 1}}
    state = {"orders": orders, "stock": {"mug": {"red": 1, "blue": 0}}}

    def reason(name: str, order: str, **given: str) -> str:
        action, out = shop.right(state, "me", (name, {"order": order, **given}))
        return out["reason"] if action == "decline" else ""

    assert [reason("cancel_order", o) for o in "ABCDE"] == ["", *["already shipped"] * 3, "not your order"]
    assert [reason("return_item", o, product="mug") for o in "ABCDE"] == [
        "not delivered", "not delivered", "", "return period is over", "not your order"]
    assert reason("exchange_item", "C", product="mug", variant="red") == ""
    assert reason("exchange_item", "C", product="mug", variant="blue") == "not in stock"


def test_a_refund_goes_to_what_paid():
    paid = {}
    for id, order in shop.state(0)["orders"].items():
        paid.setdefault(order["paid by"], (id, order))
    for how, (id, order) in paid.items():
        after = shop.after(0, [("cancel_order", {"order": id})])
        price = sum(i["price"] for i in order["items"])
        assert after["refunds"] == [[id, price]]
        assert after["customers"][order["customer"]]["credit"] == (price if how == "voucher" else 0)


def test_the_state_names_turns_and_one_episode_does_not_change_another():
    found = open_environment("shop")
    problem = first(found)
    one = asyncio.run(played(found, problem, [call("find_customer", email="nobody"), *actions(problem), "Done."]))
    two = asyncio.run(played(found, problem, [*actions(problem), "Done."]))
    assert one[0] == two[0] and one[1].fault == Fault.tool("not found") and one[1].key == one[0].key
    assert one[2].key == two[1].key != one[0].key


# --- a class for TRL

TRL = '''
import random
import time

class IncrementEnv:
    def reset(self, **kwargs) -> str | None:
        self.counter = 0
        self.target = kwargs.get("target", 2)
        return f" Start at 0 of {len(kwargs['prompt'])} messages."

    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.

        Returns:
            The updated counter value.
        """
        if step < 0:
            raise ValueError("cannot go back")
        self.counter += step
        return self.counter

    def get_reward(self) -> float:
        return 1.0 if self.counter == self.target else 0.25 if self.counter else 0.0


class Waiting(IncrementEnv):
    async def reset(self, **kwargs):
        self.counter, self.target = 0, 1

    async def increment(self, step: int) -> int:
        """Add.

        Args:
            step: how much
        """
        self.counter += step
        return self.counter

    async def get_reward(self):
        return float(self.counter)


class Sampling:
    # As TRL's documentation has it: reset makes the task.
    def reset(self, **kwargs) -> str | None:
        self.counter = 0
        self.target = random.randint(1, 6)
        self.columns = kwargs
        return f"Increment the counter by {self.target}."

    def get_reward(self) -> float:
        return float(self.counter == self.target)

    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.
        """
        self.counter += step
        return self.counter

    def roll(self) -> int:
        """Roll a die."""
        time.sleep(0.01)
        return random.randint(1, 10**9)


class Narrow(Sampling):
    def reset(self) -> None:
        self.counter, self.target = 0, 1


class Blind:
    def __init__(self):
        raise OSError("no backend")

    def reset(self):
        pass
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "my_env.py"
    path.write_text(TRL)
    return path


def test_a_class_for_trl_runs_as_it_is(own: Path):
    said = [call("increment", step=1), call("increment", step=-1), call("increment", step=2), call("get_reward"), "3"]
    shown = play(f"tools:{own}:IncrementEnv", said, ASKED)
    assert shown[0].messages[-1].content == "What is 2 ** 10? Start at 0 of 1 messages."
    assert [text(s) for s in shown[1:4]] == ["1", "error: cannot go back", "3"]
    assert [s.reward for s in shown[1:]] == [0.25, 0.0, 0.75, 0.0, 0.0] and shown[5].over
    assert shown[2].fault == Fault.tool("ValueError") and shown[4].fault == Fault.model("no such tool")


def test_a_class_that_samples_its_task_opens_alike_for_every_attempt(own: Path):
    found = open_environment(f"tools:{own}:Sampling#count=12,seed=3")
    assert found.problems is not None
    problems = list(found.problems())

    async def several(seeds: Sequence[int]) -> list[list[Shown]]:
        said = [call("roll"), call("roll")]
        return await asyncio.gather(*(played(found, p, said, s) for p in problems for s in seeds))

    shown = asyncio.run(several((0, 0, 1)))
    for one, same, other in zip(shown[::3], shown[1::3], shown[2::3], strict=True):
        assert one == same and other[0] == one[0] and other[1] != one[1] and text(one[1]) != text(one[2])
    asked = [s[0].messages[-1].content for s in shown]
    assert len(set(asked)) > 2 and all(a.startswith("Increment the counter by ") for a in asked)
    target = int(asked[0][-2])
    right = asyncio.run(played(found, problems[0], [call("increment", step=target), "Done."]))
    assert sum(s.reward for s in right) == 1.0 and right[-1].over
    assert not play(f"tools:{own}:Narrow", [call("increment", step=1)], ASKED)[1].over
    with pytest.raises(UserError, match="no option 'size'"):
        open_environment(f"tools:{own}:Sampling#size=1")


def test_random_numbers_of_ones_own_leave_those_of_others_alone():
    own_random.install()
    random.seed(5)
    one = [random.random() for _ in range(3)]
    random.seed(5)
    with own_random.seeded(1):
        inner = random.random()
    assert [random.random() for _ in range(3)] == one and inner == random.Random(1).random()


def test_coroutines_of_a_class_for_trl_are_awaited(own: Path):
    shown = play(f"tools:{own}:Waiting", [call("increment", step=1), "1"], ASKED)
    assert text(shown[1]) == "1" and [s.reward for s in shown] == [0.0, 1.0, 0.0]


def test_a_class_for_trl_without_a_reward_leaves_it_to_the_data(own: Path):
    assert open_environment(f"tools:{own}:Blind").verifier == ""
    assert open_environment(f"tools:{own}:IncrementEnv").verifier == "environment"
    with pytest.raises(OSError, match="no backend"):
        play(f"tools:{own}:Blind", [], ASKED)


def test_what_is_nested_too_deeply_is_the_models_fault_and_garbage_of_the_server_the_environments():
    class Socket:
        async def send(self, text: str) -> None:
            pass

        async def recv(self) -> str:
            return "garbage"

    which = openenv.OpenEnvServer("http://127.0.0.1:9", "", "{}", 1, 0)
    session = openenv.OpenEnvEpisode(Problem("a", (Message("user", "a"),), meta={"seed": 0}), which)
    session.socket = Socket()
    shown = asyncio.run(session.step("[" * 20_000, lambda: np.random.default_rng(0)))
    assert shown.fault == Fault.model("malformed action")
    with pytest.raises(openenv.ServerFailed, match="what it answered is not JSON"):
        asyncio.run(session.step("{}", lambda: np.random.default_rng(0)))


# --- MCP

SERVER = '''
import json, os, sys
count = 0
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    name, given = m["method"], m.get("params", {})
    if name == "initialize":
        print("a line of a log", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": "s1", "method": "ping"}), flush=True)
        out = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {}}
    elif name == "tools/list" and not given.get("cursor"):
        out = {"tools": [{"name": "count", "description": "Count up.", "inputSchema": {"type": "object", "properties":
               {"by": {"type": "integer"}}, "required": ["by"]}}], "nextCursor": "2"}
    elif name == "tools/list":
        out = {"tools": [{"name": "break", "inputSchema": {"type": "object"}}, {"name": "die", "inputSchema": {}},
                         {"name": "bad", "inputSchema": {}}]}
    elif given["name"] == "die":
        os._exit(1)
    elif given["name"] == "bad":
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32602, "message": "no"}}), flush=True)
        continue
    elif given["name"] == "break":
        out = {"content": [{"type": "text", "text": "broken"}], "isError": True}
    else:
        count += given["arguments"]["by"]
        out = {"content": [{"type": "text", "text": str(count)}, {"type": "image", "data": ""}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": out}), flush=True)
'''


@pytest.fixture
def server(tmp_path: Path) -> str:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return f"mcp:{sys.executable} -S {path}"


def test_the_tools_of_a_server_are_called(server: str):
    said = [call("count", by=2), call("count", by=3), call("count", by="x"), call("break"), call("bad"), "5"]
    shown = play(server, said, ASKED)
    assert [text(s) for s in shown[1:3]] == ["2\n[image]", "5\n[image]"] and '"Count up."' in text(shown[0])
    assert [s.fault for s in shown[3:6]] == [Fault.model("wrong arguments"), Fault.tool("tool error"),
                                             Fault.tool("tool error")]
    assert text(shown[4]) == "error: broken" and text(shown[5]) == "error: no" and shown[6].over
    assert play(server, said, ASKED) == shown      # a server of its own: the count begins at 0 again


def test_a_server_that_ends_is_a_fault_of_the_environment(server: str):
    with pytest.raises(ServerEnded, match="the server has ended"):
        play(server, [call("die")], ASKED)
    for command in ("mcp:/nowhere/server", f"mcp:{sys.executable} -c pass"):
        with pytest.raises(ServerEnded):
            play(command, [], ASKED)


def test_a_server_that_breaks_the_protocol_is_ended_like_one_that_ends(tmp_path: Path):
    path, note = tmp_path / "server.py", tmp_path / "pid"
    path.write_text(f"import os, sys\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n"
                    "print('{\"id\": [1], \"result\": {}}', flush=True)\nsys.stdin.read()\n")
    with pytest.raises(ServerEnded, match="the server has ended"):
        play(f"mcp:{sys.executable} -S {path}", [], ASKED)
    assert _gone(int(note.read_text()))


def _gone(number: int) -> bool:
    """Whether a process has ended; one that was killed may take a moment on a busy machine."""
    for _ in range(100):
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("text", "says"), [
    ("import sys; sys.stderr.write('no key: set SEARCH_KEY'); sys.exit(1)", "ended; it wrote: no key: set SEARCH_KEY"),
    ("import json, sys\n"
     "for line in sys.stdin:\n"
     "    if 'id' in (m := json.loads(line)):\n"
     "        print(json.dumps({'id': m['id'], 'result': {}}), flush=True)\n", "tools/list has no list `tools`"),
])
def test_a_server_that_fails_says_why(text: str, says: str, tmp_path: Path):
    (tmp_path / "server.py").write_text(text)

    async def opened() -> None:
        made = open_environment(f"mcp:{sys.executable} {tmp_path / 'server.py'}").make(ASKED)
        try:
            await made.open()
        finally:
            await made.close()

    with pytest.raises(ServerEnded, match=says):
        asyncio.run(opened())


def test_a_level_that_a_house_lacks_and_data_beside_problems_are_errors():
    with pytest.raises(UserError, match=r"level is 1 to \d+ in this house, not 99"):
        check_environment("rooms:level=99")
    with pytest.raises(UserError, match="has its own problems: leave out --data"):
        check_environment("rooms", "sums:level=1")


def test_a_server_and_what_it_started_end_with_the_episode(tmp_path: Path):
    path = tmp_path / "server.py"
    path.write_text("import subprocess\nchild = subprocess.Popen(['sleep', '100'])\n" + SERVER)

    async def go() -> tuple[int, int]:
        server = await McpServer.start(f"{sys.executable} -S {path}")
        pid = server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        await server.close()
        return pid, int(children[0])

    pid, child = asyncio.run(go())
    for number in (pid, child):
        assert _gone(number)


def test_a_server_made_with_the_protocols_own_package(tmp_path: Path):
    pytest.importorskip("mcp.server.mcpserver", reason="needs the package mcp")
    path = tmp_path / "server.py"
    path.write_text(textwrap.dedent(f'''
        import sys
        sys.path[:] = {sys.path!r}
        from mcp.server.mcpserver import MCPServer
        server = MCPServer("sums")

        @server.tool()
        def add(x: int, y: int) -> int:
            """Add two numbers."""
            return x + y

        @server.tool()
        def fail() -> str:
            """Fail."""
            raise ValueError("as asked")

        server.run()
    '''))
    shown = play(f"mcp:{sys.executable} {path}", [call("add", x=2, y=40), call("fail"), "42"], ASKED)
    assert text(shown[1]) == "42" and "Add two numbers." in text(shown[0])
    assert shown[2].fault == Fault.tool("tool error") and "error" in text(shown[2])


# --- what every environment promises

@pytest.mark.parametrize("spec", [
    "sql:count=6", "sql:kind=change,count=6", "shop:count=6", pytest.param("python:wall=2", marks=sandboxed),
])
def test_the_contract_of_environments_holds(spec: str):
    found = check_environment(spec, None if open_environment(spec).problems else "sums:level=1")
    assert [(f.promise, f.why) for f in found.findings if not f.kept] == []


@pytest.mark.slow
def test_the_contract_holds_for_a_class_for_trl_and_a_server(own: Path, server: str):
    for spec in (f"tools:{own}:IncrementEnv", server):
        assert [f.why for f in check_environment(spec, "sums:level=1").findings if not f.kept] == [], spec


def test_those_that_need_more_than_their_name_are_listed_by_their_form():
    rows = {e.name: e for e in list_environments().environments}
    assert rows.keys() == KINDS.keys() and rows["sql"].limits.problems == 300
    assert rows["gym"].form.startswith("gym:ID") and rows["gym"].needs == "gymnasium, minigrid"
