"""One thread, so that other work on the machine cannot slow the suite tenfold; shapes in annotations are checked."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from jaxtyping import install_import_hook  # after the environment is set

install_import_hook(["isocost.types", "isocost.ops", "isocost.pack"], "beartype.beartype")

import torch  # noqa: E402 - after the hook, or the shapes would not be checked

import isocost  # noqa: E402, F401 - before torch's first product: it makes the settings of torch's libraries

torch.set_num_threads(1)
