"""The environments of other libraries, each with the real thing: skipped where it is not installed."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from episodes import first, play, played, text
from isocost.envs.adapters import minigrid_words, openenv, seeded
from isocost.envs.opening import open_environment
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Shown

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize(("spec", "module", "line"), [
    ("gym:FrozenLake-v1", "gymnasium", "gymnasium minigrid"),
    ("textarena:Wordle-v0", "textarena", "textarena"),
    ("textworld:rooms=2", "textworld", "textworld"),
    ("miniwob:click-button", "miniwob", "miniwob"),
])
def test_what_is_missing_is_named_with_its_line(spec: str, module: str, line: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"pip install {line} "):
        open_environment(spec)


def test_without_websockets_an_openenv_server_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(UserError, match=r"needs websockets, of the extra \[openenv\]: pip install websockets"):
        open_environment("openenv:http://127.0.0.1:9")


def test_options_are_read_as_json_or_text():
    assert seeded.options("a=1,b=true,c=x,d=True,e=0.5") == {"a": 1, "b": True, "c": "x", "d": True, "e": 0.5}
    with pytest.raises(UserError, match="key=value"):
        seeded.options("a")
    with pytest.raises(UserError, match="count is an integer of at least 1, got 0"):
        seeded.whole({"count": 0}, "count", 5, 1)


def test_global_random_numbers_are_put_back():
    import random

    import numpy as np

    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    with seeded.global_random(1):
        drawn = random.random(), float(np.random.rand())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    with seeded.global_random(1):
        assert (random.random(), float(np.random.rand())) == drawn


# --- gymnasium

WORDS = '''
ACTIONS = ["left", "down", "right", "up"]

def about(env):
    return "\\n".join("".join(c.decode() for c in row) for row in env.unwrapped.desc)

def show(observation, info):
    return f"You are at {observation // 4},{observation % 4}."

def read(said):
    return ACTIONS.index(said) if said in ACTIONS else None
'''


@pytest.fixture
def lake(tmp_path: Path) -> str:
    pytest.importorskip("gymnasium")
    path = tmp_path / "lake.py"
    path.write_text(WORDS)
    return f"gym:FrozenLake-v1@{path}"


def test_an_environment_of_gymnasium_in_a_users_words(lake: str):
    way = ["down", "down", "right", "right", "down", "right"]
    shown = play(f"{lake},is_slippery=false", ["up up", *way])
    assert text(shown[0]) == "SFFF\nFHFH\nFFFH\nHFFG\n\nYou are at 0,0."
    assert shown[1].fault == Fault.model("no such action") and shown[1].key == shown[0].key and not shown[1].over
    assert [s.reward for s in shown[2:]] == [0, 0, 0, 0, 0, 1] and shown[-1].over and not shown[-2].over
    assert len({s.key for s in shown[1:]}) == 7


def test_its_random_numbers_are_those_of_the_turn(lake: str):
    """A slippery lake is the same again with the same luck, and not with another."""
    found = open_environment(f"{lake},is_slippery=true,count=3,seed=7")
    problem = first(found, 2)
    assert problem.meta["seed"] == 9

    def walked(seed: int) -> list[Shown]:
        return asyncio.run(played(found, problem, ["right"] * 12, seed))

    assert all(walked(s) == walked(s) for s in range(3))
    assert len({tuple(text(x) for x in walked(s)) for s in range(8)}) > 1


def test_spec_and_words_that_do_not_fit_are_errors(tmp_path: Path):
    pytest.importorskip("gymnasium")
    empty = tmp_path / "empty.py"
    empty.write_text("")
    for spec, says in (("gym:Nothing-v0@x.py", "there is no file x.py"), ("gym:FrozenLake-v1", "is not made of text"),
                       (f"gym:FrozenLake-v1@{empty}", "has no function show"), ("gym:", "names no environment"),
                       ("gym:Nothing-v0", "gymnasium does not make 'Nothing-v0'")):
        with pytest.raises(UserError, match=says):
            open_environment(spec)


def test_an_environment_of_text_needs_no_words():
    gymnasium = pytest.importorskip("gymnasium")

    class Echo(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Text(100)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return f"seed {seed}", {}

        def step(self, action):
            return f"{action} {self.np_random.integers(1000)}", len(action), action == "end", False, {}

    gymnasium.register("IsocostEcho-v0", entry_point=lambda: Echo())
    shown = play("gym:IsocostEcho-v0,seed=4", ["abc", "end"])
    assert text(shown[0]) == "seed 4" and text(shown[1]).startswith("abc ") and shown[1].reward == 3
    assert shown[2].over


def test_minigrid_is_solved_by_its_words():
    """A walker that reads the words and nothing else reaches the goal of the empty room."""
    pytest.importorskip("minigrid")

    def walk(shown: Shown) -> str:
        seen = text(shown).rpartition("You see ")[2]
        goal = next((s for s in seen.rstrip(".").split("; ") if s.startswith("a goal")), "")
        if "front" in goal:
            return "go forward"
        return "turn right" if "right" in goal else "turn left"

    shown = play("gym:MiniGrid-Empty-5x5-v0", [walk] * 20)
    assert shown[-1].over and shown[-1].reward > 0.5
    assert "Goal: get to the green goal square." in text(shown[0])
    door = "gym:MiniGrid-DoorKey-5x5-v0"
    other = play(door, ["jump", "turn left"])
    assert other[1].fault == Fault.model("no such action") and "key" in text(other[0])
    assert play(door, ["turn left"], n=3) == play(door, ["turn left"], n=3)


def test_minigrid_in_words_by_hand():
    import numpy as np

    image = np.zeros((7, 7, 3), dtype=int)
    image[:, :, 0] = 1
    image[3, 4] = (4, 4, 2)          # a locked yellow door two steps ahead
    image[1, 6] = (6, 0, 0)          # a red ball two steps to the left
    image[4, 5] = (8, 1, 0)          # the goal: one ahead, one to the right
    image[3, 6] = (5, 2, 0)          # carried: a blue key
    image[3, 2] = (2, 5, 0)          # a wall four steps ahead
    shown = minigrid_words.show({"image": image, "mission": "open the door"}, {})
    assert shown == ("Goal: open the door. You carry a blue key.\nYou see a goal 1 step in front of you and 1 step to "
                     "your right; a locked yellow door 2 steps in front of you; a red ball 2 steps to your left; a "
                     "wall 4 steps in front of you.")
    said = ("Turn left.", "go forward", "forward", "pick up", "fly")
    assert [minigrid_words.read(x) for x in said] == [0, 2, 2, 3, None]


# --- textarena

def test_a_game_of_textarena_is_won_by_its_words():
    pytest.importorskip("textarena")
    low, high = 1, 20

    def guess(shown: Shown) -> str:
        nonlocal low, high
        if "is lower" in text(shown):
            high = (low + high) // 2 - 1
        elif "is higher" in text(shown):
            low = (low + high) // 2 + 1
        return f"[{(low + high) // 2}]"

    shown = play("textarena:GuessTheNumber-v0,seed=3", [guess] * 8)
    assert shown[-1].over and shown[-1].reward == 1.0 and all(s.reward == 0 for s in shown[:-1])
    low, high = 1, 20
    assert play("textarena:GuessTheNumber-v0,seed=3", [guess] * 8) == shown


def test_moves_that_a_game_does_not_take_are_faults_of_the_model():
    pytest.importorskip("textarena")
    shown = play("textarena:GuessTheNumber-v0", ["hello", "[99]"])
    assert shown[1].fault == shown[2].fault == Fault.model("invalid move") and shown[2].over
    with pytest.raises(UserError, match="no game 'GuessTheNumbers-v0'; near it are GuessTheNumber-v0"):
        open_environment("textarena:GuessTheNumbers-v0")
    with pytest.raises(UserError, match="not for one player"):
        open_environment("textarena:TicTacToe-v0")


@pytest.mark.parametrize("game", ["Mastermind-v0", "TowerOfHanoi-v0", "FrozenLake-v0", "Sudoku-v0", "Minesweeper-v0"])
def test_games_open_alike_for_every_attempt_and_differ_by_seed(game: str):
    pytest.importorskip("textarena")
    found = open_environment(f"textarena:{game}")
    one, two = (asyncio.run(played(found, first(found), ["[1 2]"])) for _ in range(2))
    assert one == two and len(text(one[0])) > 50


# --- textworld

def test_a_made_game_is_won_by_its_walkthrough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    textworld = pytest.importorskip("textworld")
    home = Path.home() / ".cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home if (home / "isocost" / "textworld").exists() else tmp_path))
    from isocost.envs.adapters import textworld as textworld_env
    from isocost.envs.adapters.textworld import Made, made

    which = Made(rooms=2, objects=3, quest=2, count=2)
    monkeypatch.setattr(textworld_env, "_GAMES", [])
    file = made(which, 1)
    game = textworld.start(file, textworld.EnvInfos(policy_commands=True))
    way = list(game.reset().policy_commands)
    game.close()
    shown = play("textworld:rooms=2,objects=3,quest=2,count=2", ["dance wildly", *way], n=1)
    assert shown[1].fault == Fault.model("not understood") and shown[2].fault is None
    assert shown[-1].over and sum(s.reward for s in shown) == 1.0
    assert "$$" not in text(shown[0]) and "-= " in text(shown[0]) and not text(shown[2]).endswith(">")
    assert text(play(f"textworld:{file}", [])[0]) == text(shown[0])
    found = open_environment(f"textworld:{file}")

    async def killed() -> None:
        env = found.make(first(found))
        await env.open()
        textworld_env.games().process.kill()
        textworld_env.close_games()
        with pytest.raises(textworld_env.GameFailed):
            for _ in range(200):
                await env.step("look", lambda: None)
                await asyncio.sleep(0.02)
        await env.close()

    asyncio.run(killed())
    assert play(f"textworld:{file}", ["\0", "x" * 200, "é"])[1].fault == Fault.model("not understood")
    textworld_env.close_games()
    with pytest.raises(UserError, match="no TextWorld game at"):
        open_environment("textworld:none.z8")
    with pytest.raises(UserError, match="rooms is at least 1"):
        open_environment("textworld:rooms=0")


# --- miniwob

@pytest.fixture(scope="module")
def browser() -> Iterator[None]:
    pytest.importorskip("miniwob")
    from isocost.envs.adapters.browser import NAMES
    from isocost.envs.adapters.miniwob import close_browser
    if not any(map(shutil.which, NAMES)):
        pytest.skip("no browser")
    yield
    close_browser()


def number(shown: Shown, *words: str) -> str:
    """The number of the first element whose line has all these words."""
    lines = [line for line in text(shown).splitlines() if line.startswith("[") and all(w in line for w in words)]
    assert lines, (words, text(shown))
    return lines[0][1 : lines[0].index("]")]


def quoted(shown: Shown) -> list[str]:
    return text(shown).splitlines()[0].split('"')[1::2]


def test_a_button_is_clicked_in_a_real_browser(browser: None):
    for seed in range(3):
        shown = play("miniwob:click-button", [lambda s: f"click {number(s, 'button', quoted(s)[0])}"], n=seed)
        assert shown[-1].over and shown[-1].reward == 1.0
    shown = play("miniwob:click-button", ["jump", "click 99", "press Home", "press Tab"])
    assert [s.fault for s in shown[1:]] == [Fault.model("no such action"), Fault.model("no such element"),
                                            Fault.model("no such key"), None]


def test_text_is_typed_and_an_option_chosen(browser: None):
    def words(shown: Shown) -> list[str]:
        return quoted(shown)

    found = open_environment("miniwob:login-user")

    async def login() -> list[Shown]:
        env = found.make(first(found, 1))
        shown = [await env.open()]
        user, secret = words(shown[0])
        fields = [line for line in text(shown[0]).splitlines() if "input" in line]
        for field, value in zip(fields, (user, secret), strict=True):
            shown.append(await env.step(f"type {field[1]} {value}", lambda: None))
        shown.append(await env.step(f"click {number(shown[-1], 'button', 'Login')}", lambda: None))
        await env.close()
        return shown

    shown = asyncio.run(login())
    assert shown[-1].over and shown[-1].reward == 1.0 and f'= "{words(shown[0])[0]}"' in text(shown[1])

    def choose(shown: Shown) -> str:
        option = text(shown).splitlines()[0].removeprefix("Select ").partition(" from")[0]
        return f"choose {number(shown, 'select')} {option}"

    shown = play("miniwob:choose-list", [choose, lambda s: f"click {number(s, 'button')}"])
    assert shown[-1].over and shown[-1].reward == 1.0
    assert play("miniwob:choose-list", ["choose 0 nothing"])[1].fault == Fault.model("no such option")


def test_pages_are_the_same_for_a_seed_and_side_by_side(browser: None):
    found = open_environment("miniwob:click-checkboxes,count=4")

    async def several() -> list[list[Shown]]:
        return await asyncio.gather(*(played(found, first(found, n), []) for n in (0, 1, 2, 3, 0, 1)))

    opened = asyncio.run(several())
    assert opened[0] == opened[4] and opened[1] == opened[5] and len({text(o[0]) for o in opened}) == 4


def test_a_browser_that_is_gone_is_a_fault_and_the_next_episode_has_a_new_one(browser: None):
    from isocost.envs.adapters import miniwob
    from isocost.envs.adapters.browser import BrowserFailed

    found = open_environment("miniwob:click-button")

    async def killed() -> None:
        env = found.make(first(found))
        await env.open()
        miniwob.browser().process.kill()
        with pytest.raises(BrowserFailed, match="ended"):
            await env.step("click 0", lambda: None)
        await env.close()

    asyncio.run(killed())
    assert text(play("miniwob:click-button", [])[0])


def test_no_page_reaches_the_network(browser: None):
    from isocost.envs.adapters import miniwob

    async def go() -> str:
        page = await miniwob.browser().open_page("about:blank")
        try:
            return await page.run("fetch('http://localhost:1/').then(r => 'reached', e => 'no: ' + e.name)")
        finally:
            await page.close()

    assert asyncio.run(go()) == "no: TypeError"
    with pytest.raises(UserError, match=r"no task 'click-butto'; it has \d+, among them click-"):
        open_environment("miniwob:click-butto")
    with pytest.raises(UserError, match="no option 'speed'"):
        open_environment("miniwob:click-button,speed=2")


# --- OpenEnv

OPENENV = '''
import sys
sys.path[:] = {path!r}
from typing import Optional
from openenv.core.env_server import types
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment

class Guess(types.Action):
    {fields}

class Seen(types.Observation):
    words: str = ""

class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs):
        self.target, self.count = (seed or 0) % 10, 0
        return Seen(words=f"guess {{seed}}", done=False, reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        self.count += 1
        if action.{value} in ("boom", -1):
            raise RuntimeError("broken")
        right = str(action.{value}) == str(self.target)
        return Seen(words="right" if right else "wrong", done=right, reward=float(right))

    @property
    def state(self):
        return types.State(episode_id="x", step_count=self.count)

app = create_fastapi_app(Guessing, Guess, Seen, max_concurrent_envs=8)
import uvicorn
uvicorn.run(app, host="127.0.0.1", port={port}, log_level="error")
'''


def served(tmp_path: Path, fields: str, value: str) -> tuple[subprocess.Popen[bytes], str]:
    pytest.importorskip("openenv.core.env_server.http_server", reason="needs the package openenv-core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "server.py"
    file.write_text(OPENENV.format(path=sys.path, fields=fields, value=value, port=port))
    process = subprocess.Popen([sys.executable, file])
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return process, f"openenv:http://127.0.0.1:{port}"
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    process.kill()
    raise AssertionError("the server does not start")


def test_an_environment_of_an_openenv_server(tmp_path: Path):
    process, url = served(tmp_path, "guess: str", "guess")
    try:
        shown = play(f"{url}#count=5,seed=3", ["1", "3"])
        assert [text(s) for s in shown] == ["guess 3", "wrong", "right"] and shown[2].over and shown[2].reward == 1.0
        found = open_environment(url)

        async def several() -> list[list[Shown]]:
            return await asyncio.gather(*(played(found, first(found, n), [str(n)]) for n in range(4)))

        assert [[text(s) for s in one] for one in asyncio.run(several())] == [[f"guess {n}", "right"] for n in range(4)]
        with pytest.raises(RuntimeError, match="EXECUTION_ERROR"):
            play(url, ["boom"])
    finally:
        process.kill()
        process.wait()


def test_an_action_with_several_fields_is_json(tmp_path: Path):
    process, url = served(tmp_path, "guess: int\n    loud: bool = False", "guess")
    try:
        shown = play(f"{url}#seed=4", ["4", json.dumps({"guess": "four"}), json.dumps({"guess": 4})])
        assert '"guess": {"type": "integer"}' in text(shown[0])
        assert [s.fault for s in shown[1:]] == [Fault.model("malformed action"), Fault.model("invalid action"), None]
        assert shown[3].over
    finally:
        process.kill()
        process.wait()


def talked(answers: list[Any], *says: str) -> list[Shown]:
    """What is shown by a session of a server that gives these answers, one after the other."""
    from websockets.asyncio.server import ServerConnection, serve

    async def handler(connection: ServerConnection) -> None:
        for answer in answers:
            await connection.recv()
            if answer == "close":
                await connection.close(1001, "enough")
            else:
                await connection.send(answer)

    async def go() -> list[Shown]:
        async with serve(handler, "127.0.0.1", 0, max_size=None) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            session = openenv.OpenEnvEpisode(problem, openenv.OpenEnvServer(url, "text", "{}", 1, 0))
            try:
                return [await session.open(), *[await session.step(x, lambda: None) for x in says]]
            finally:
                await session.close()

    problem = Problem("a", (Message("user", "a"),), meta={"seed": 0})
    return asyncio.run(go())


def seen(words: str) -> str:
    return json.dumps({"data": {"observation": {"words": words}, "reward": 1}})


def test_messages_of_a_server_come_whole_and_one_that_is_too_long_is_a_fault():
    long = "\u00e9" * 200_000
    shown = talked([seen("a"), seen(long), iter([seen("b")[:20], seen("b")[20:]])], long, "x")
    assert [text(s) for s in shown] == ["a", long, "b"] and shown[1].reward == 1.0
    with pytest.raises(Exception, match=r"1009|too big"):
        talked([seen("a"), " " * (openenv.LARGEST + 1)], "x")


def test_a_server_that_closes_or_is_no_websocket_server_says_why():
    with pytest.raises(Exception, match=r"1001.*enough"):
        talked([seen("a"), "close"], "x")

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def go() -> None:
        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(Exception, match="HTTP 404"):
                server = openenv.OpenEnvServer(url, "", "{}", 1, 0)
                await openenv.OpenEnvEpisode(Problem("a", (), meta={"seed": 0}), server).open()

    asyncio.run(go())
