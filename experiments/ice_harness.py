"""A harness for a small language model: Gymnasium's FrozenLake, by text completions of one token a move.

    isocost train grpo --env harness:experiments/ice_harness.py -n 8 -B 4 --budget 160-rollouts --held-out 0.4 \\
        --samples 4 --evaluations 1 --seed 0 --threads 1 --out runs/ice
    isocost eval runs/ice --base --samples 4

Maps are the different ones with a way to the goal of `generate_random_map(size=3, p=0.7, seed=0 ... 399)`; the ice is
not slippery. The policy reads what is to its right (A) and below it (B), after four examples, and writes a letter. Any
other word is a lost move. The episode ends at the goal (reward 1), in a hole (0), or after 8 moves (0).

Design, fixed before the run: SmolLM2-135M-Instruct, five updates of 4 maps x 8 rollouts, the default learning rate, one
seed. Held-out success before and after, with a paired 90 % interval by map. It is one run: no law is fitted and nothing
is forecast. Words of directions instead of letters gave a base success of 0.02 (108 rollouts), outside of what the
design needs (0.1 to 0.9); that is why it has letters.
"""

import asyncio

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from openai import AsyncOpenAI

model, max_turns, max_tokens = "smollm2", 8, 1
client = AsyncOpenAI(base_url="http://127.0.0.1", api_key="none")
MOVES = {"a": 2, "b": 1}      # right and down
NAMES = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}
ABOUT = """Two ways lead on. Never take one to a hole.
A: hole. B: ice. Take B
A: ice. B: edge. Take A
A: edge. B: goal. Take B
A: ice. B: hole. Take A
"""


def tasks():
    maps = dict.fromkeys(tuple(generate_random_map(size=3, p=0.7, seed=seed)) for seed in range(400))
    return [{"id": "".join(m), "prompt": "\n".join(m), "map": list(m)} for m in maps]


def sight(rows, at):
    """What is to the right of a place and below it."""
    row, column = divmod(at, 3)
    right = NAMES[rows[row][column + 1]] if column < 2 else "edge"
    down = NAMES[rows[row + 1][column]] if row < 2 else "edge"
    return f"A: {right}. B: {down}. Take"


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
