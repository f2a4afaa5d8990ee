"""One machine: a Llama-family decoder for sampling and training, with equal log-probs in both."""
