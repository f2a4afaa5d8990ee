"""A GRPO run with TRL: a small model learns sums of two numbers with a carry. The configuration comes from isocost.

    isocost profile --out studies/trl --held-out 128 --samples 4 --lr 1e-4 --trainer
      'trl: .venv-trl/bin/python examples/trl/train.py --model models/tiny --config {config}'

The last two lines of `main` are all that a script needs for isocost: it takes the configuration of a run, which says
where to continue from, and saves its state at the end.
"""

import argparse

import torch
import yaml
from datasets import Dataset
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

SUMS = [
    {"prompt": f"{a}+{b}=", "answer": str(a + b)}
    for a in range(10, 100) for b in range(10, 100) if a % 10 + b % 10 >= 10 and a // 10 + b // 10 < 9
]


def right(completions, answer, **_):
    """1 for the right sum, else 0."""
    return [float(said == a) for said, a in zip(completions, answer, strict=True)]


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--model", required=True)
    options.add_argument("--config", required=True)
    asked = options.parse_args()
    torch.set_num_threads(1)
    with open(asked.config) as file:
        config = yaml.safe_load(file)
    # The model is so small that a whole update is one pass, and so are all completions of an evaluation.
    config["per_device_train_batch_size"] *= config.pop("gradient_accumulation_steps")
    config["per_device_eval_batch_size"] = config["num_generations_eval"] * 128
    own = {
        "temperature": 1.0, "max_completion_length": 4, "beta": 0.0, "report_to": [], "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False,
    }
    trainer = GRPOTrainer(
        model=LlamaForCausalLM.from_pretrained(asked.model, dtype=torch.float32),
        processing_class=PreTrainedTokenizerFast.from_pretrained(asked.model, padding_side="left"),
        reward_funcs=right,
        train_dataset=Dataset.from_list([p for i, p in enumerate(SUMS) if i % 5]),
        eval_dataset=Dataset.from_list(SUMS[::5][:128]),
        args=GRPOConfig(**{**own, **config}),
    )
    trainer.train(resume_from_checkpoint=config.get("resume_from_checkpoint"))
    trainer.save_state()


if __name__ == "__main__":
    main()
