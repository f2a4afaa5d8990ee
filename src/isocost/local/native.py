"""Build the kernel once per machine and call it: the decoder in machine code, for CPUs.

Without a C++ compiler torch does the same computation, more slowly; `available` gives the reason.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache, cached_property, partial
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from isocost import chance, processor
from isocost.batch import Batch
from isocost.disk import store
from isocost.fast.columns import PaddedRows
from isocost.local import matrix_unit
from isocost.local.decoder import Config, Decoder, rotations
from isocost.local.layout import Units
from isocost.types import Place

log = logging.getLogger("isocost")

FOLDER = Path(__file__).with_name("kernel")
SOURCE = FOLDER / "kernel.cpp"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-shared", "-fPIC",
    "-pthread",
)
TARGET = ("-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native",)
SLOW_DOT = ("-mno-avx512bf16",)     # Intel's vdpbf16ps does two multiply-adds in the time of four; see `_target`
TILES = ("-DISOCOST_AMX",)          # kernel/tiles.h
SPAN = 9         # numbers of a span; kernel/forward.h names them


def available(config: Config, body: torch.dtype, device: torch.device) -> str:
    """"" where the kernel can run this model, else the reason why not, in words for the user."""
    if device.type != "cpu":
        return f"the kernel is for processors, and the device is {device}"
    if body not in (torch.float32, torch.bfloat16):
        return f"the kernel computes in fp32 or bf16, not in {str(body).removeprefix('torch.')}"
    library, why = _library()
    if library is None:
        return why
    lanes = library.isocost_lanes()
    lengths = {"hidden size": config.hidden, "feed-forward size": config.mlp, "head size": config.head_dim}
    for name, size in lengths.items():
        unit = max(lanes, 8)
        if size % unit:
            return f"the kernel needs a {name} that is a multiple of {unit}, and it is {size}"
    return ""


class EndIds(NamedTuple):
    """Which ids end rows: (lines, V + 1) of bool, and (N,) the line of each row. The last id is not a token."""

    lines: ndarray
    by: ndarray

    def of(self, ids: ndarray) -> ndarray:
        """Which of the rows' ids, (N,) or (N, T), end them."""
        return self.lines[self.by[:, None], ids] if ids.ndim == 2 else self.lines[self.by, ids]


class Kernel:
    """One model's weights, laid out for products, and scratch memory for each thread."""

    def __init__(self, decoder: Decoder, body: torch.dtype, threads: int):
        """For weights in the order and shapes of `decoder`'s."""
        library, why = _library()
        if library is None:
            raise RuntimeError(why)
        config = decoder.config
        self.config, self.threads, self._call, self._lanes = config, threads, library, library.isocost_lanes()
        self.dtype = torch.bfloat16 if body == torch.bfloat16 else torch.float32
        c = config
        shape = np.array([
            c.vocab, c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.mlp, c.qkv_bias, c.qk_norm, c.tied,
            body == torch.bfloat16, threads,
        ], dtype=np.int64)
        offsets, size = _offsets(decoder)
        turns = torch.view_as_real(rotations(config)).contiguous().numpy()
        self._model = ctypes.c_void_p(library.isocost_open(
            _at(shape), ctypes.c_double(c.norm_eps), _at(offsets), ctypes.c_int64(size), _at(turns),
            ctypes.c_int64(len(turns)),
        ))
        self.unit = matrix_unit.choose(library, config) if self.dtype == torch.bfloat16 else matrix_unit.VECTORS
        library.isocost_use(self._model, ctypes.c_int(self.unit))
        self._flat = torch.zeros(0)
        self._taped: Sequence[Tape | None] | WaveTapes = ()      # the backward pass reads them

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._call.isocost_close(self._model)

    def load(self, flat: Tensor) -> None:
        """Use these weights, (parameters,) float32 in the decoder's order; not copied: load again after a change."""
        self._flat = flat
        self._call.isocost_load(self._model, flat.data_ptr())

    def use(self, workers: int) -> None:
        """Compute on this many cores, at most `threads`. Results depend on `threads` alone."""
        self._call.isocost_workers(self._model, ctypes.c_int(workers))

    def memory(self, tokens: int) -> int:
        """Numbers in the keys and values of this many tokens, all layers; see `room`."""
        return 2 * self.config.layers * self.config.kv_heads * self.config.head_dim * self.room(tokens)

    def tape_bytes(self, tokens: int) -> int:
        """Approximate bytes of a tape for this many tokens."""
        return self._call.isocost_tape_bytes(self._model, ctypes.c_int64(tokens))

    def room(self, tokens: int) -> int:
        """The number of tokens, padded to the kernel's lanes."""
        return -(-tokens // self._lanes) * self._lanes

    def read(self, spans: ndarray, tokens: ndarray) -> Tensor:
        """Read (S, SPAN) spans of all `tokens` one after the other -> (S, hidden), the last state of each."""
        hidden = torch.empty(len(spans), self.config.hidden)
        self._call.isocost_read(
            self._model, ctypes.c_int64(len(spans)), _at(spans), _at(tokens), ctypes.c_void_p(hidden.data_ptr())
        )
        return hidden

    def copy(self, rows: ndarray, room: int) -> None:
        """Copy keys and values between memories for `room` tokens: (rows, 3) from where, to where, how many tokens."""
        self._call.isocost_copy(self._model, ctypes.c_int64(len(rows)), _at(rows), ctypes.c_int64(room))

    def logits(self, hidden: Tensor) -> Tensor:
        """(S, hidden) -> (S, V)."""
        out = torch.empty(len(hidden), self.config.vocab)
        self._call.isocost_logits(
            self._model, ctypes.c_int64(len(hidden)), ctypes.c_void_p(hidden.data_ptr()),
            ctypes.c_void_p(out.data_ptr()),
        )
        return out

    def draw(self, logits: Tensor, temperature: ndarray, u: ndarray) -> tuple[ndarray, ndarray]:
        """(N, V) logits, overwritten; (N,) temperatures and numbers in (0, 1) -> (N,) ids and log-probs."""
        ids, logp = np.empty(len(u), dtype=np.int64), np.empty(len(u), dtype=np.float32)
        self._call.isocost_draw(
            self._model, ctypes.c_int64(len(u)), ctypes.c_void_p(logits.data_ptr()), _at(temperature), _at(u), _at(ids),
            _at(logp),
        )
        return ids, logp

    def truncate(self, logits: Tensor, temperature: ndarray, top_p: ndarray, top_k: ndarray) -> Tensor:
        """(N, V) logits, tempered, -inf outside each row's kept set; in place. See `sampling.truncate`."""
        self._call.isocost_truncate(
            self._model, ctypes.c_int64(len(logits)), ctypes.c_void_p(logits.data_ptr()), _at(temperature), _at(top_p),
            _at(top_k),
        )
        return logits

    def uniforms(self, addresses: ndarray, count: int) -> ndarray:
        """What `chance.numbers` gives."""
        u = np.empty((len(addresses), 4 * count))
        self._call.isocost_uniforms(ctypes.c_int64(len(u)), ctypes.c_int64(count), _at(addresses), _at(u))
        return u

    def decode(
        self, spans: ndarray, last: ndarray, left: ndarray, of: ndarray, ends: EndIds, temperature: ndarray,
        u: ndarray, same: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Write up to u.shape[1] tokens for each of N rows: (N, ticks) ids and log-probs, and (N,) counts.

        Stops after the tick in which a call (`of`) has no unfinished row, or in which the logits of a row were not
        finite; that row's last id is then V, which is not a token. Rows with equal numbers in `same` have the same text
        before `last`. It is overwritten with numbers below N that say so of the text before the last token.
        """
        ids, logp = np.zeros(u.shape, dtype=np.int64), np.zeros(u.shape, dtype=np.float32)
        wrote = np.zeros(len(last), dtype=np.int64)
        rows, ticks = map(ctypes.c_int64, u.shape)
        open_ = np.bincount(of)      # counted down by the kernel
        self._call.isocost_decode(
            self._model, rows, ticks, _at(spans), _at(last), _at(left), _at(of), _at(open_), _at(ends.lines),
            _at(ends.by), _at(temperature), _at(u), _at(ids), _at(logp), _at(wrote), _at(same),
        )
        return ids, logp, wrote

    def wave(
        self, prompts: Sequence[Sequence[int]], attempts: Sequence[Sequence[int]], limits: Sequence[int],
        places: Sequence[Place], temperature: float, ends: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray, ndarray, WaveTapes, PaddedRows]:
        """Answers of up to `limits` tokens, from the first on, to each prompt, one row per attempt.

        (R, W) ids and log-probs, (R,) counts and whether an end token is the last, a tape for each prompt, and the
        rows as a batch. If the logits of a row were not finite, the tapes hold prompts only, and the batch has no
        columns.
        """
        rows, lengths, groups = [len(a) for a in attempts], [len(p) for p in prompts], len(prompts)
        width, count = max(limits), sum(rows)
        most = count * (max(lengths) + width)
        first = places[0]
        given = np.array([
            *lengths, *rows, *limits, *[p.slot for p in places], *chain.from_iterable(prompts),
            *chain.from_iterable(attempts), *chance.key(first), first.wave, 0,
        ], dtype=np.int64)
        prompt, who, address = 4 * groups, len(given) - 4 - count, len(given) - 4        # where they begin
        # One piece of memory, in eights of bytes: ids, counts, tapes and the batch's integers, then what is smaller.
        smaller = -(-most // 8), -(-most // 2), -(-count * width // 2), -(-count // 8)
        sizes = count * width, count, groups, count, most, most, most, *smaller
        whole = np.empty(sum(sizes), dtype=np.int64)
        begin = [0, *accumulate(sizes)]
        ids, wrote, made, length, tokens, role, turn = (whole[a:b] for a, b in pairwise(begin[:8]))
        mask, behaviour = whole[begin[7] : begin[8]].view(bool), whole[begin[8] : begin[9]].view(np.float32)
        logp = whole[begin[9] : begin[10]].view(np.float32)[: count * width].reshape(count, width)
        ended = whole[begin[10] :].view(bool)[:count]
        base, at = _address(whole), _address(given)
        where = [base + 8 * x for x in begin]
        fields = (ctypes.c_int64 * 6)(where[4], where[5], where[6], where[3], where[7], where[8])
        T = self._call.isocost_wave(
            self._model, groups, at, at + 8 * prompt, at + 8 * groups, at + 16 * groups, at + 24 * groups, at + 8 * who,
            at + 8 * address, temperature, _address(ends), width, where[0], where[9], where[1], where[10],
            where[2], ctypes.addressof(fields),
        )
        ids = ids.reshape(count, width)

        def laid(x: ndarray) -> ndarray:
            return x[: count * T].reshape(count, T)

        tapes = WaveTapes(self, places, prompts, given[groups : 2 * groups], made, ids, wrote)
        laid_out = PaddedRows(laid(tokens), laid(mask), laid(behaviour), laid(role), laid(turn), length)
        return ids, logp, wrote, ended, tapes, laid_out

    def taped(
        self, tapes: Sequence[Tape] | WaveTapes, rows: ndarray, batch: Batch
    ) -> tuple[Tensor, Tensor, int] | None:
        """(N, T) log-probs and entropies of the masked tokens, zero elsewhere, of groups that lie on these tapes.

        And the number of tokens on the tapes. `rows` (groups,) says how many each has. Prepares `taped_backward`. None
        if the rows are not those of the tapes.
        """
        logp, entropy = map(torch.from_numpy, np.zeros((2, *batch.tokens.shape), dtype=np.float32))
        if isinstance(tapes, WaveTapes):
            at = tapes.rows_at, tapes.pointers_at
        else:
            pointers = np.array([t.pointer for t in tapes])
            at = _address(rows), _address(pointers)
        given = [
            x if x.dtype == kind and x.is_contiguous() else x.to(kind).contiguous() for x, kind in (
                (batch.tokens, torch.int64), (batch.mask, torch.bool), (batch.length, torch.int64),
                (batch.temperature, torch.float32),
            )
        ]
        self._taped = tapes
        read = self._call.isocost_taped(
            self._model, len(rows), *at, *batch.tokens.shape,
            *(x.data_ptr() for x in given), logp.data_ptr(), entropy.data_ptr(),
        )
        return (logp, entropy, read) if read else None

    def taped_backward(self, logp: Tensor, entropy: Tensor | None, grad: Tensor) -> None:
        """Add to `grad` (parameters,) the gradient, from those (N, T) of the last `taped`."""
        logp, entropy = logp.contiguous(), None if entropy is None else entropy.contiguous()
        self._call.isocost_taped_backward(
            self._model, logp.data_ptr(), None if entropy is None else entropy.data_ptr(), grad.data_ptr()
        )
        self._taped = ()

    def descend(
        self, flat: Tensor, grad: Tensor, share: float, moments: tuple[Tensor, Tensor], betas: tuple[float, float],
        steps: float, eps: float, lr: float,
    ) -> None:
        """AdamW's step number `steps` with this share of the gradient, without decay, in place.

        To the bit what `LocalLearner._step` does with torch. All vectors are (parameters,) float32; the gradient is
        overwritten.
        """
        (b1, b2), (first, second), size = betas, moments, flat.numel()
        at = flat.data_ptr(), grad.data_ptr(), first.data_ptr(), second.data_ptr()
        self._call.isocost_moments(*at[1:], size, share, 1 - b1, b2, 1 - b2)
        torch.sqrt(second, out=grad)
        self._call.isocost_descend(at[0], at[2], at[1], size, (1 - b2**steps) ** 0.5, eps, -lr / (1 - b1**steps))

    def forward(self, units: Units, *, keep: bool, tapes: Sequence[Tape | None] = ()) -> tuple[Tensor, Tensor]:
        """(K,) log-probs and entropies of masked tokens; `keep` makes `backward` possible. Units with tapes are not
        read."""
        logp, entropy = torch.empty(len(units.at)), torch.empty(len(units.at))
        self._taped = tapes if keep else ()
        given = np.array([0 if t is None else t.pointer for t in tapes or (None,) * (len(units.first_span) - 1)])
        self._call.isocost_forward(
            self._model, ctypes.c_int64(len(units.first_span) - 1), _at(units.first_span), _at(units.counts),
            _at(units.lead), _at(units.tokens), _at(units.first_mask), _at(units.at), _at(units.target),
            _at(units.temperature), _at(given), ctypes.c_void_p(logp.data_ptr()), ctypes.c_void_p(entropy.data_ptr()),
            ctypes.c_int(keep),
        )
        return logp, entropy

    def backward(self, units: Units, logp: Tensor, entropy: Tensor, grad: Tensor) -> None:
        """Add to `grad` (parameters,) the gradient, from those (K,) of the last forward's log-probs and entropies."""
        logp, entropy = logp.contiguous(), entropy.contiguous()
        self._call.isocost_backward(
            self._model, ctypes.c_int64(len(units.first_span) - 1), _at(units.first_span), _at(units.counts),
            _at(units.first_mask), _at(units.at), _at(units.target), _at(units.temperature),
            ctypes.c_void_p(logp.data_ptr()), ctypes.c_void_p(entropy.data_ptr()), ctypes.c_void_p(grad.data_ptr()),
        )
        self._taped = ()


class Tape:
    """Activations of a prompt and its rows, kept for the learner. `where` (rows + 1,) is the memory of their keys."""

    prompt: ndarray | Sequence[int]
    _rows: tuple[ndarray, ndarray]      # of a tape of a wave: its rows' ids, and how many each has
    _of: WaveTapes | None = None

    def __init__(self, kernel: Kernel, prompt: ndarray, rows: int, own: int):
        self.prompt, self.rows, self.own = prompt, rows, own
        self._call, self._model = kernel._call, kernel._model
        self.where = np.zeros(rows + 1, dtype=np.int64)
        self.tokens = np.zeros(0, dtype=np.int64)       # of the prompt and then of each row, after `close`
        self.pointer: int = self._call.isocost_tape(
            self._model, *map(ctypes.c_int64, (len(prompt), rows, own)), _at(self.where)
        )

    @classmethod
    def written(cls, of: WaveTapes, g: int, begin: int, end: int) -> Tape:
        """The tape of group g of a wave, which frees it."""
        tape = object.__new__(cls)
        tape.prompt, tape.pointer, tape._of = of.prompts[g], int(of.pointers[g]), of
        tape._rows = of.ids[begin:end], of.wrote[begin:end]
        return tape

    @cached_property
    def tokens(self) -> ndarray:
        """Those of the prompt, and then what each row has read."""
        ids, counts = self._rows
        return np.concatenate((self.prompt, *(row[: k - 1] for row, k in zip(ids, counts.tolist(), strict=True))))

    def close(self, wrote: Sequence[ndarray]) -> None:
        """Finish the tape with the tokens of each row. The last token of a row was never read."""
        read = [w[:-1] for w in wrote]
        self.tokens = np.concatenate((self.prompt, *read))
        counts = np.array([len(self.prompt), *map(len, read)], dtype=np.int64)
        self._call.isocost_tape_close(
            self._model, ctypes.c_void_p(self.pointer), ctypes.c_int64(self.rows), ctypes.c_int64(self.own),
            _at(counts), _at(self.tokens),
        )

    def __del__(self) -> None:
        if self._of is None:
            self._call.isocost_tape_free(self._model, ctypes.c_void_p(self.pointer))


class WaveTapes:
    """The tapes of all groups of a wave, made and closed by the kernel, which also frees them together."""

    def __init__(
        self, kernel: Kernel, places: Sequence[Place], prompts: Sequence[Sequence[int]], rows: ndarray,
        pointers: ndarray, ids: ndarray, wrote: ndarray,
    ):
        self.places, self.prompts, self.rows, self.pointers, self.ids, self.wrote = (
            places, prompts, rows, pointers, ids, wrote
        )
        self.rows_at, self.pointers_at = _address(rows), _address(pointers)
        self._call, self._model = kernel._call, kernel._model

    def each(self) -> dict[Place, Tape]:
        """One by one."""
        begin = [0, *accumulate(self.rows.tolist())]
        cuts = zip(self.places, begin, begin[1:], strict=False)
        return {place: Tape.written(self, g, a, b) for g, (place, a, b) in enumerate(cuts)}

    def __del__(self) -> None:
        self._call.isocost_tapes_free(self._model, len(self.pointers), self.pointers_at)


def _at(x: ndarray) -> ctypes.c_void_p:
    if not x.flags.c_contiguous:
        raise ValueError("the kernel reads contiguous arrays")
    return ctypes.c_void_p(x.ctypes.data)


def _address(x: ndarray) -> int:
    """For functions with declared types of arguments; `ctypes` objects take longer to make."""
    return x.__array_interface__["data"][0]


def _offsets(decoder: Decoder) -> tuple[ndarray, int]:
    """Where each parameter begins in the flat vector: embed, norm, head, then nine of each block; -1 for none."""
    where, size = dict[str, int](), 0
    for name, p in decoder.named_parameters():
        where[name] = size
        size += p.numel()
    parts = ("norm1", "qkv", "qkv_bias", "q_norm", "k_norm", "out", "norm2", "gate_up", "down")
    names = ["embed", "norm", "head", *(f"blocks.{i}.{x}" for i in range(decoder.config.layers) for x in parts)]
    return np.array([where.get(name, -1) for name in names], dtype=np.int64), size


_version = attrgetter("_version")


class Flat(dict[str, Tensor]):
    """A module's weights by name, all views of the vector `flat`, in the order of its parameters."""

    def __init__(self, module: nn.Module, flat: Tensor):
        self.flat, self._parameters = flat, list(module.parameters())
        super().__init__((name, p.detach()) for name, p in module.named_parameters())

    @property
    def version(self) -> int:
        """Grows with every change in place, of the vector or of one of its views."""
        return self.flat._version + sum(map(_version, self._parameters))


def flatten(module: nn.Module) -> Tensor:
    """Copy a module's parameters to one flat vector, of which they become views."""
    named = list(module.parameters())
    flat = torch.cat([p.detach().flatten() for p in named])
    at = 0
    for p in named:
        p.data, at = flat[at : at + p.numel()].view(p.shape), at + p.numel()
    return flat


# building ----------------------------------------------------------------------------------------------------------


@cache
def _library() -> tuple[Any, str]:
    """The loaded kernel, or None and the reason."""
    if os.environ.get("ISOCOST_KERNELS") == "torch":
        return None, "ISOCOST_KERNELS=torch is set"
    compiler = next((c for c in map(shutil.which, COMPILERS) if c), None)
    if compiler is None:
        return None, f"there is no C++ compiler here ({', '.join(COMPILERS)}); install one, and runs get faster"
    try:
        try:
            return _loaded(_built(compiler)), ""
        except (OSError, AttributeError):    # an intact copy, built with other system libraries
            return _loaded(_built(compiler, anew=True)), ""
    except (OSError, AttributeError, subprocess.SubprocessError) as e:
        said = str(getattr(e, "stderr", "") or e).strip().splitlines()
        return None, f"{compiler} could not build the kernel: {said[0] if said else type(e).__name__}"


library = _library      # for `isocost.control.native`, which has calls of its own


def _target() -> tuple[str, ...]:
    """The compiler's options for this processor: `_compiled` leaves out AMX, then all, where they are unknown.

    On Intel (measured on a Xeon of family 6, model 207) `vdpbf16ps` issues at a quarter of the rate of fp32's
    multiply-add, so the kernel multiplies bf16 as fp32. On AMD's Zen 4 it is the faster of the two.
    """
    if platform.machine() != "x86_64":
        return TARGET
    return (*TARGET, *(SLOW_DOT if processor.intel() else ()), *(TILES if processor.has_amx() else ()))


def _loaded(code: bytes) -> Any:
    """Raises OSError for what cannot be loaded, AttributeError for a library that is not the kernel."""
    library = _sealed(code)
    library.isocost_open.restype = ctypes.c_void_p
    library.isocost_tape.restype = ctypes.c_void_p
    library.isocost_tape_bytes.restype = ctypes.c_int64
    at, whole = ctypes.c_void_p, ctypes.c_int64
    library.isocost_wave.argtypes = [at, whole, *[at] * 7, ctypes.c_float, at, whole, *[at] * 6]
    library.isocost_tapes_free.argtypes = [at, whole, at]
    library.isocost_load.argtypes = [at, at]
    library.isocost_taped.argtypes = [at, whole, at, at, whole, whole, *[at] * 6]
    library.isocost_taped_backward.argtypes = [at] * 4
    library.isocost_moments.argtypes = [*[at] * 3, whole, *[ctypes.c_float] * 4]
    library.isocost_descend.argtypes = [*[at] * 3, whole, *[ctypes.c_float] * 3]
    library.isocost_mlp.argtypes, library.isocost_mlp_back.argtypes = [at] * 5, [at] * 7
    library.isocost_adam.argtypes = [whole, whole, *[at] * 8]
    return library


def _sealed(code: bytes) -> ctypes.CDLL:
    """Load a library from its bytes: from sealed memory on Linux, else from a private folder. Raises OSError."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        memory = os.memfd_create("isocost-kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(memory, "wb", closefd=False) as file:
            file.write(code)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS,
                    fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        # Never closed: the loader knows a library by its path, and would take the next one of this number for this.
        return ctypes.CDLL(f"/proc/self/fd/{memory}")
    with tempfile.TemporaryDirectory(prefix="isocost-") as scratch:
        path = Path(scratch) / "kernel.so"
        path.write_bytes(code)
        return ctypes.CDLL(str(path))


def _built(compiler: str, *, anew: bool = False) -> bytes:
    """The shared library for this source, compiler and machine; compiled unless it is stored, or with `anew`."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    sources = [p.read_text() for p in sorted(FOLDER.glob("*")) if p.suffix in (".h", ".cpp")]
    key = "\n".join((*sources, version, _machine(), *FLAGS, *_target())).encode()
    name = f"kernel-{hashlib.sha256(key).hexdigest()[:16]}.so"
    return store.kept(name, key, partial(_compiled, compiler), anew=anew)


def _compiled(compiler: str) -> bytes:
    """Compile, in a folder for temporary files that only this user can open."""
    log.info("building the kernel for this machine, once (about ten seconds)")
    with tempfile.TemporaryDirectory(prefix="isocost-") as scratch:
        out = Path(scratch) / "kernel.so"
        for some in (_target(), tuple(x for x in _target() if x not in TILES), ()):
            command = [compiler, *FLAGS, *some, str(SOURCE), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                return out.read_bytes()
            if os.strerror(errno.ENOSPC) in done.stderr:        # other options need as much
                done.stderr = f"no space is left in {tempfile.gettempdir()}; set TMPDIR to a folder with 50 MB"
                break
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)


def _machine() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(x for x in lines if x.startswith(("model name", "flags", "Features", "CPU part")))
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
