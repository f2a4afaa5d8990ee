"""TRL's GRPOTrainer as a contender, in its own virtual environment. Run as `python -m bench.trl_side`.

The trainer is stopped between two steps by a callback that waits for the next message, so that contenders can take
turns. A step is timed from one step's beginning to the next one's, logging included.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from bench.task import VOCAB, Task, fingerprint, read, reward, written
from bench.worker import Line


def tokenizer(end: int) -> PreTrainedTokenizerFast:
    """One character, one token; the end token has a name of its own where it is outside the vocabulary."""
    vocabulary = {c: i for i, c in enumerate(written(range(VOCAB)))}
    name = "<eos>" if end >= VOCAB else written([end])
    vocabulary[name] = end
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=written([0])))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=name, pad_token=written([0]), padding_side="left"
    )


class Pause(TrainerCallback):
    """Waits at the beginning of a step until the parent asks for more."""

    def __init__(self, line: Line, rollouts: int):
        self.line, self.rollouts, self.left, self.done = line, rollouts, 0, list[dict[str, Any]]()
        self.began: tuple[float, float] | None = None
        self.tokens, self.prompts = 0, list[str]()

    def reward(self, prompts: list[str], completions: list[str], completion_ids: Any = None, **_: Any) -> list[float]:
        self.prompts = prompts[:: self.rollouts]
        self.tokens = sum(len(ids) for ids in completion_ids)
        return [reward(ids) for ids in completion_ids]

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = time.perf_counter(), time.process_time()
        if self.began is not None:
            logged = [h for h in state.log_history if "reward" in h][-1]
            self.done.append({
                "seconds": now[0] - self.began[0], "cpu": now[1] - self.began[1], "tokens": self.tokens,
                "reward": logged["reward"], "grad_norm": logged.get("grad_norm"), "prompts": fingerprint(self.prompts),
            })
            self.left -= 1
        if self.left == 0:
            self.line.send(**({"steps": self.done} if self.began is not None else {"ready": True}))
            message = self.line.receive()
            if message is None:
                os._exit(0)
            self.left, self.done = message["count"], []
        self.began = time.perf_counter(), time.process_time()


def trainer(message: dict[str, Any], pause: Pause) -> GRPOTrainer:
    torch.set_num_threads(message["threads"])
    task, how = Task(**message["task"]), message["how"]
    cpu, parts = message["device"] == "cpu", how.pop("parts", 1)
    if how.get("use_vllm"):         # its engine reads the tokenizer from the model's folder
        tokenizer(task.end).save_pretrained(message["folder"])
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=task.prompts * task.rollouts // parts,
        gradient_accumulation_steps=parts,
        num_generations=task.rollouts, max_completion_length=task.new, learning_rate=task.lr,
        lr_scheduler_type="constant", max_steps=100_000, beta=0.0, temperature=1.0, loss_type="grpo", max_grad_norm=1.0,
        use_cpu=cpu, gradient_checkpointing=False, shuffle_dataset=False, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, seed=message["seed"], **how,
    )
    return GRPOTrainer(
        model=LlamaForCausalLM.from_pretrained(message["folder"], dtype=torch.float32), reward_funcs=pause.reward,
        args=config, train_dataset=Dataset.from_list([{"prompt": p} for p in message["prompts"]]),
        processing_class=tokenizer(task.end), callbacks=[pause],
    )


def main() -> None:
    line = Line()
    message = line.receive()
    if message is None:
        return
    assert read(message["prompts"][0])[0] < VOCAB
    try:
        pause = Pause(line, Task(**message["task"]).rollouts)
        trainer(message, pause).train()
    except Exception as error:
        line.send(error=f"{type(error).__name__}: {error}"[:500])


if __name__ == "__main__":
    main()
