"""A harness for a small language model: TextArena's GuessTheNumber from 1 to 7, a token of a text completion a guess.

    isocost profile --env harness:experiments/guess_harness.py --out studies/guess

The game, its hints and its reward are TextArena's (`GuessTheNumber-v0`). The words are ours: SmolLM2-135M rarely writes
a number in square brackets, which the game reads, so the policy continues a text and the token that it writes is put
into the brackets. A rollout has success (reward 1) if it names the number within three guesses, else 0. A word that is
no new number from 1 to 7 is a lost guess. The two games of the prompt show the form, not the strategy; guesses in
halves (4, then 2 or 6, then what is left) always succeed.
"""

import asyncio

from openai import AsyncOpenAI

from isocost.envs.adapters import seeded
from isocost.envs.adapters.textarena import Game

model, max_turns, max_tokens = "smollm2", 3, 1
clients = {}        # by event loop: a client's connections belong to the loop that opened them
GAME = Game.of("textarena:GuessTheNumber-v0,max_number=7,max_turns=9")
ABOUT = """Find the number from 1 to 7.
Guess 2: higher. Guess 7: lower. Guess 6: right.
Guess 5: lower. Guess 3: right.
Guess """


def tasks():
    return [{"id": f"guess-{seed}", "prompt": f"game {seed}", "seed": seed} for seed in range(300)]


def begun(seed):
    """The game of a seed: its number is of Python's global generator."""
    with seeded.global_random(seed):
        game = GAME.make()
        game.reset(num_players=1, seed=seed)
    return game


def client():
    loop = asyncio.get_running_loop()
    if loop not in clients:
        clients[loop] = AsyncOpenAI(base_url="http://127.0.0.1", api_key="none")
    return clients[loop]


async def drive(task, base_url, model):
    game, here, text = begun(task["seed"]), client().with_options(base_url=base_url), ABOUT
    for _ in range(max_turns):
        said = (await here.completions.create(model=model, prompt=text)).choices[0].text
        await asyncio.sleep(0)
        guess, state = said.strip(), game.state.game_state
        tried = len(state["guess_history"])
        over, _ = game.step(f"[{guess}]")
        if over:
            return float(guess == str(state["game_number"]))
        hint = state["guess_history"][-1][1] if len(state["guess_history"]) > tried else "not a new number"
        text += f"{said}: {hint}. Guess "
    return 0.0
