"""An own reward: any function with TRL's signature. Here, half of the reward is for the right last digit.

    python examples/own_reward.py           # profiles the built-in model with it
    isocost train grpo --reward examples/own_reward.py:reward --budget 20k-rollouts
"""

import tempfile
from pathlib import Path

import isocost


def reward(prompts, completions, answer, **columns):
    """1 for the right number, 0.5 for the right last digit."""
    pairs = zip(completions, answer, strict=True)
    return [1.0 if said == right else 0.5 if said[-1:] == right[-1:] else 0.0 for said, right in pairs]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        study = isocost.study(
            data="sums:base=easy,count=40", verifier=f"{Path(__file__).resolve()}:reward", problems=8, out=folder
        )
        profile = study.profile()
    print(f"mean reward {profile.mean:.2f} over {profile.problems} problems, {profile.samples} completions each")
    print(f"{profile.regime} problems: {profile.why}")
