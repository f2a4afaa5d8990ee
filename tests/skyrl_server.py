"""SkyRL's open Tinker server on a processor, with isocost's built-in model. Runs in an environment of its own:

    python -m venv skyrl
    skyrl/bin/pip install 'skyrl[tinker,jax]==0.3.0' tinker==0.24.1 torch jaxtyping altair vl-convert-python
    ISOCOST_SKYRL_PYTHON=$PWD/skyrl/bin/python python -m pytest -m slow tests/test_skyrl.py

By hand: `python tests/skyrl_server.py FOLDER PORT`, with that environment's python. Two things stand in its way: it
starts its engine by `uv run` and reads the command line of its parent, so a script called uv starts both; and 0.3.0
needs Python 3.12's TypedDict.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

BASE = Path(__file__).parent.parent / "src" / "isocost" / "local" / "base"
UV = """#!/bin/bash
while [ $# -gt 0 ] && [ "$1" != "-m" ]; do shift; done
"{python}" "$@" &
child=$!
trap 'kill $child 2>/dev/null' TERM INT
wait $child
"""
TYPED = "import typing, typing_extensions\ntyping.TypedDict = typing_extensions.TypedDict\n"
RANK = 8


def make_model(folder: Path) -> None:
    """The built-in model as a Hugging Face folder with a tokenizer.json: one character is one token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True)
    config = json.loads((BASE / "config.json").read_text())
    alphabet = config.pop("alphabet")
    del config["made"]
    (folder / "config.json").write_text(json.dumps({**config, "bos_token_id": None}))
    shutil.copy(BASE / "model.safetensors", folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 15, "pad_token_id": 15}')
    vocabulary = {**{c: i for i, c in enumerate(alphabet)}, "<eos>": 15}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    inner.add_special_tokens([AddedToken("<eos>", special=True)])
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<eos>",
        "padding_side": "left", "model_max_length": 128,
    }))


def command(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """What starts the server in a new folder, and its environment."""
    make_model(folder / "tiny")
    (folder / "bin").mkdir()
    uv = folder / "bin" / "uv"
    uv.write_text(UV.format(python=sys.executable))
    uv.chmod(0o755)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(TYPED)
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(folder / "site"),
           "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": one, "HF_HUB_OFFLINE": "1"}
    sizes = json.dumps({"max_lora_adapters": 8, "max_lora_rank": RANK})
    return [
        str(uv), "run", "--extra", "tinker", "--extra", "jax", "-m", "skyrl.tinker.api", "--base-model", "tiny",
        "--backend", "jax", "--backend-config", sizes, "--host", "127.0.0.1", "--port", str(port),
        "--database-url", f"sqlite:///{folder}/tinker.db", "--checkpoints-base", str(folder / "checkpoints"),
    ], env


if __name__ == "__main__":
    where = Path(sys.argv[1]).resolve()
    asked, env = command(where, int(sys.argv[2]))
    sys.exit(subprocess.run(asked, cwd=where, env=env, check=False).returncode)
