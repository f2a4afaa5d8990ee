"""slime: what it calls n, B and M (slime/utils/arguments.py). Its logs are read from wandb or TensorBoard."""

TITLE = "slime"
SIZES = ("--n-samples-per-prompt {n}", "--rollout-batch-size {B}", "--num-rollout {M}")
