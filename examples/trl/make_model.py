"""The model that ships with isocost as a Hugging Face folder with a tokenizer of one character a token, for TRL.

    python examples/trl/make_model.py BASE OUT       BASE: .../isocost/local/base
"""

import json
import shutil
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def main(base, out):
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((base / "config.json").read_text())
    alphabet, end = config.pop("alphabet"), config["eos_token_id"]
    config.pop("made", None)
    (out / "config.json").write_text(json.dumps({**config, "bos_token_id": None, "pad_token_id": end}, indent=1))
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": end, "pad_token_id": end}))
    shutil.copy(base / "model.safetensors", out)
    vocabulary = {**{c: i for i, c in enumerate(alphabet)}, "<eos>": end}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    tokenizer.save(str(out / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<eos>"}
    (out / "tokenizer_config.json").write_text(json.dumps({**kind, "padding_side": "left", "model_max_length": 128}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
