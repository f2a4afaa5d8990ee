"""A harness for a small language model: Gymnasium's FrozenLake, by text completions of one token a move.

Maps are the different ones with a way to the goal of `generate_random_map(size=3, p=0.7, seed=0 ... 399)`; the ice is
not slippery. The policy reads what is to its right and below it, after four examples, and writes a word. A word that is
no direction is a lost move. The episode ends at the goal (reward 1), in a hole (0), or after 8 moves (0).
"""

import asyncio

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from openai import AsyncOpenAI

model, max_turns, max_tokens = "smollm2", 8, 1
client = AsyncOpenAI(base_url="http://127.0.0.1", api_key="none")
MOVES = {"left": 0, "down": 1, "right": 2, "up": 3}
NAMES = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
ABOUT = """Walk over the ice to the goal. Never walk into a hole.
Right is hole, down is ice. Go down
Right is ice, down is edge. Go right
Right is edge, down is goal. Go down
Right is ice, down is hole. Go right
"""


def tasks():
    maps = dict.fromkeys(tuple(generate_random_map(size=3, p=0.7, seed=seed)) for seed in range(400))
    return [{"id": "".join(m), "prompt": "\n".join(m), "map": list(m)} for m in maps]


def sight(rows, at):
    """What is to the right of a place and below it."""
    row, column = divmod(at, 3)
    right = NAMES[rows[row][column + 1]] if column < 2 else "edge"
    down = NAMES[rows[row + 1][column]] if row < 2 else "edge"
    return f"Right is {right}, down is {down}. Go"


async def drive(task, base_url, model):
    lake = gymnasium.make("FrozenLake-v1", desc=task["map"], is_slippery=False)
    here, at, text = client.with_options(base_url=base_url), 0, ABOUT + sight(task["map"], 0)
    lake.reset(seed=0)
    try:
        while True:
            said = (await here.completions.create(model=model, prompt=text)).choices[0].text
            await asyncio.sleep(0)
            text += said
            if (move := MOVES.get(said.strip().lower())) is not None:
                at, reward, ended, _, _ = lake.step(move)
                if ended:
                    return float(reward)
            text += f"\n{sight(task['map'], int(at))}"
    finally:
        lake.close()
