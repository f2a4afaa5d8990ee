"""docs/speed.md from the records: every number on it is one of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import charts, targets
from bench.worker import ROOT
from isocost.screen.words import markdown_table

Records = Mapping[str, Mapping[str, Any]]
PAGE, IMAGES = ROOT / "docs" / "speed.md", ROOT / "docs" / "images"
HEAD = """# Speed

`make bench` measures on your machine how fast isocost is beside TRL, `generate` of Hugging Face and the machine's own
peaks. `python -m bench page` writes this page from `experiments/results/bench`, which has every number; each further
machine has a folder there. Contenders run in processes of their own and take turns, and a ratio is computed within each
turn. Its interval is the sign test's for the median (95 %, or the whole range with fewer than six turns).
"""



WHY = """## Why it is fast

- The prompt of a group is read once, in sampling and in learning, and so are its rollouts while they have written the
  same. There is no padding, and no rollout waits for the longest.
- Each thread computes its own rows through all layers: activations stay in its cache, and there is no Python per token.
- Sampler and learner compute the same bits, so an on-policy update reuses the forward pass of sampling.
- The backward pass skips dead groups, and computes equal rollouts once.
- A wave of short answers is one call of the kernel. Rollouts are arrays until a seam reads them as objects.

Not implemented: formats smaller than bf16. [A GPU](gpu.md) replays CUDA graphs, which is not measured.

## Which instructions multiply bf16

| processor | bf16 products |
| --- | --- |
| AMX (`amx_bf16` and `amx_tile` in `/proc/cpuinfo`), Linux 5.16 or later | AMX tiles |
| Intel without AMX | as fp32: `vdpbf16ps` does two multiply-adds in the time of four of fp32's |
| AMD with `avx512_bf16` | `vdpbf16ps` |
| others | as fp32 |

The first model in bf16 checks AMX against vectors. Where products differ by more than rounding, or AMX is not
permitted, vectors are used and the log says why. `ISOCOST_AMX=off` turns AMX off. The order of sums differs between
the rows of this table, so resume a run on the machine and with the setting that it began with.
"""
AMX = "amx_bf16"
NO_AMX = """
The speed of AMX is not measured: no machine with AMX was at hand. Its products are tested in an emulation.
"""


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """What has been recorded, by case."""
    return {p.stem: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}


def machines(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The records of other machines, by the name of their folder."""
    return {p.parent.name: records(p.parent) for p in sorted(folder.glob("*/*.json"))}


def write(folder: Path) -> None:
    """The page, and its pictures in light and dark."""
    found = records(folder)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, chart in pictures(found):
        for side in ("light", "dark"):
            (IMAGES / f"speed-{name}-{side}.svg").write_text(charts.svg(chart, side == "dark"))
    PAGE.write_text(page(found, machines(folder)))


def pictures(found: Records) -> Iterable[tuple[str, Any]]:
    if "step" in found:
        yield "ratios", charts.ratios(found["step"])
    if "scaling" in found:
        yield "roofline", charts.roofline(found["scaling"])
        yield "axes", charts.axes(found["scaling"])


def page(found: Records, others: Mapping[str, Records] = MappingProxyType({})) -> str:
    """The whole page, with the records of other machines by name; the same records give the same text."""
    tell = {
        "step": _step, "neighbour": _neighbour, "decode": _decode, "learner": _learner, "products": _products,
        "study": _study, "pilot": _pilot, "scaling": _scaling, "overlap": _overlap, "search": _search,
        "overhead": _overhead,
    }
    parts = [HEAD, _machines(found), *_targets(found)]
    parts += [tell[case](found[case]) for case in tell if case in found]
    parts += [_other(records) for records in others.values()]
    parts.append(WHY)
    if not any(AMX in r["machine"]["flags"] for some in (found, *others.values()) for r in some.values()):
        parts[-1] += NO_AMX
    absent = [case for case in tell if case not in found]
    if absent:
        parts.append(f"Not measured yet: {', '.join(absent)}.\n")
    return "\n".join(parts)


def _targets(found: Records) -> list[str]:
    """How many targets were reached, and those that were not."""
    lines = targets.lines(found)
    if not lines:
        return []
    rows = [[x["what"], x["target"], x["measured"]] for x in lines if x["verdict"] == "missed"]
    reached = sum(x["verdict"] == "reached" for x in lines)
    out = f"## Targets\n\n{reached} of {len(lines)} targets of `bench/targets.py` are reached."
    return [f"{out} Missed:\n\n{markdown_table(['what', 'target', 'measured'], rows)}" if rows else f"{out}\n"]


def _other(found: Records) -> str:
    """Another machine: what was measured there, a level of headings further down."""
    name = next(iter(found.values()))["machine"]["processor"]
    tell = {"step": _variants, "neighbour": _neighbour, "learner": _learner, "products": _products}
    parts = [_machines(found), *(tell[case](found[case]) for case in tell if case in found)]
    inside = "\n".join(parts).replace("\n### ", "\n#### ").replace("\n## ", "\n### ")
    return f"## On {name}\n\n{inside}"


def picture(name: str, alt: str) -> str:
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/speed-{name}-dark.svg">\n'
        f'  <img alt="{alt}" src="images/speed-{name}-light.svg">\n</picture>\n'
    )


def _machines(found: Records) -> str:
    """A table of commands for each machine with its versions."""
    groups: dict[str, list[list[Any]]] = {}
    for r in found.values():
        m, trl = r["machine"], r["machine"]["versions"].get("trl")
        packages = [f"{k} {v}" for k, v in m["versions"].items() if isinstance(v, str) and k != "trl"]
        cpu = f"{m['processor']}, {m['cores']} cores ({', '.join(m['flags'])}), {', '.join(packages)}"
        gpu = f"; {m['gpu']}" if m["gpu"] else ""
        command = f"`{r['command'].removeprefix('python -m ')}`"
        command += f" with trl {trl['trl']}" if isinstance(trl, dict) else ""
        groups.setdefault(cpu + gpu, []).append([command, m["load_before"], f"{r['seconds']:.0f}"])
    head = ["`python -m`", "load before", "seconds"]
    out = [f"{machine}:\n\n{markdown_table(head, rows)}" for machine, rows in groups.items()]
    if not any(r["machine"]["gpu"] for r in found.values()):
        out.append("This machine had no GPU. The same commands add GPU rows where torch finds one.\n")
    return "\n".join(out)


def _range(x: Mapping[str, Any], digits: int = 2) -> str:
    return f"{x['median']:.{digits}f} ({x['low']:.{digits}f} to {x['high']:.{digits}f})"


def _step(record: Mapping[str, Any]) -> str:
    out = [
        "## RL step\n\nA Llama of 4 layers, 128 wide (0.86M parameters): 16 prompts x 16 rollouts, one update, against "
        "TRL's `GRPOTrainer` with the same weights, prompts, sampling, reward, loss and optimiser. `base`: prompts of "
        "8 and 24 new tokens. `long`: prompts of 256. `ragged`: up to 192 new tokens by a policy that ends after 24 on "
        "average, but not at all after one prompt in ten.\n",
        picture("ratios", "Speed of each contender relative to TRL's best settings, with intervals"),
    ]
    return "\n".join([*out, _variants(record, "###")])


def _variants(record: Mapping[str, Any], level: str = "##") -> str:
    """A table for each variant of the RL step."""
    out = []
    head = ["contender", "s/step", "times TRL's best", "peak MiB", "late reward minus TRL's"]
    for v in record["variants"]:
        tried = [r for r in v["rows"] if "ratio_equal_tokens" not in r]
        rows = [_step_row(r, v["best_trl"]) for r in v["rows"] if r not in tried or r["name"] == v["best_trl"]]
        by_cpu = [f"{r['name']} {_range(r['ratio_cpu'])}" for r in v["rows"] if "ratio_cpu" in r]
        title = f"{level} {'' if level == '###' else 'RL step, '}{v['name']}, {v['device']}"
        best = f"TRL's best of {len(tried)} settings: {v['best_trl']}. Ratios are at equal tokens."
        out.append(f"{title}\n\n{best}\n\n" + markdown_table(head, rows))
        if by_cpu:
            out.append(f"Times TRL's best in CPU seconds, at equal tokens: {'; '.join(by_cpu)}.\n")
        out += [f"Left out: {x['why']}.\n" for x in v["missing"]]
    return "\n".join(out)


def _step_row(r: Mapping[str, Any], best: str) -> list[str]:
    less = "" if "learning" not in r else f"{r['learning']['mean']:+.3f}"
    if "low" in r.get("learning", {}):
        less += f" ({r['learning']['low']:+.3f} to {r['learning']['high']:+.3f})"
    ratio = _range(r["ratio_equal_tokens"]) if "ratio_equal_tokens" in r else "1" if r["name"] == best else ""
    return [r["name"], _range(r["seconds"], 3), ratio, f"{r['peak_mb']:.0f}", less]


def _neighbour(record: Mapping[str, Any]) -> str:
    """The RL step alone and beside a busy process."""
    rows = [[r["name"], *(_range(r["ratio"][s]) for s in ("alone", "beside")), _range(r["left"])]
            for r in record["rows"] if "left" in r]
    return (
        "## Beside a busy neighbour\n\nThe RL step `base`, alone and beside a process that keeps one core busy, in "
        "turns. Steps of isocost get shorter as the policy learns, so ranges are wide.\n\n"
        + markdown_table(["contender", "times TRL's best, alone", "beside", "share that is left"], rows)
        + "".join(f"\nLeft out: {x['why']}.\n" for x in record["missing"])
    )


def _decode(record: Mapping[str, Any]) -> str:
    head = ["model", "precision", "batch", "tokens/s", "of the roofline", "times the best generate"]
    rows = []
    for r in record["rows"]:
        ours, speed = next((k, x) for k, x in r["tokens_per_second"].items() if k.startswith("isocost"))
        rows.append([r["model"], r["dtype"], r["batch"], f"{speed:,.0f}", f"{speed / r['floor_tokens_per_second']:.0%}",
                     _range(r["ratio"][ours]) if ours in r.get("ratio", {}) else ""])
    logp = [[x["dtype"], x["name"], *(f"{x[k]:.1e}" for k in ("mean", "p99", "max"))]
            for x in record["logp"]]
    out = "## Decode\n\nEqual prompts and numbers of new tokens, sampled at temperature 1; nothing ends early.\n\n"
    out += markdown_table(head, rows)
    if logp:
        logged = " and ".join(dict.fromkeys(x["model"] for x in record["logp"]))
        sizes = ["mean", "99th percentile", "largest"]
        out += f"\nLog-probs of {logged} while decoding, minus those of Hugging Face's float32 pass, by size:\n\n"
        out += markdown_table(["precision", "contender", *sizes], logp)
    return out + "".join(f"\nLeft out: {x}.\n" for x in record["missing"])


def _learner(record: Mapping[str, Any]) -> str:
    peaks = record["peaks"]["cpu"]
    head = ["shape", "precision", "kernels", "tokens/s", "share of matmul peak"]
    rows = [[r["shape"], r["dtype"], r["kernels"], f"{r['tokens_per_second']:,.0f}", f"{r['share']:.0%}"]
            for r in record["rows"]]
    flops = ", ".join(f"{k} {v / 1e9:.0f} GFLOP/s" for k, v in peaks["flops"].items())
    return (
        f"## Learner\n\nOne update on 256 rollouts. Measured peaks of {peaks['threads']} threads: {flops}, memory "
        f"{peaks['bytes'] / 1e9:.0f} GB/s. Counted are operations that every update needs (shared prompts once).\n\n"
        + markdown_table(head, rows) + "".join(f"\nLeft out: {x}.\n" for x in record["missing"])
    )


def _products(record: Mapping[str, Any]) -> str:
    kinds = list(dict.fromkeys(k for r in record["rows"] for k in r["gflops"]))
    rows = [
        [f"{r['rows']} x {r['inputs']} x {r['outputs']}", *(f"{r['gflops'].get(k, float('nan')):.0f}" for k in kinds)]
        for r in record["rows"]
    ]
    return (
        "## Products\n\nThe kernel's products of activations (rows x inputs) with weights (inputs x outputs), on one "
        "core from its own caches, in GFLOP per CPU second.\n\n" + markdown_table(["shape", *kinds], rows)
    )


def _study(record: Mapping[str, Any]) -> str:
    last = sum(r["last"] - r["first"] for r in record["rows"]) / len(record["rows"])
    return (
        f"## A study\n\n{record['runs']} runs of the built-in problems (ten arms, three seeds, {record['C']} rollouts "
        f"each) by {record['workers']} workers: {record['seconds_wall'] / 60:.1f} minutes of wall-clock time, "
        f"{record['cpu'] / 60:.1f} of CPU, {record['rollouts']:,} rollouts, {record['updates']:,} updates, at most "
        f"{record['peak_mb']} MiB per worker. Held-out reward rose by {last:.3f} on average.\n"
    )


def _pilot(record: Mapping[str, Any]) -> str:
    rows = [[x.get("n", "all"), _range(x["ratio"]), f"{x['shares']['rest']:.0%}"] for x in (*record["by_n"], record)]
    same = "the same bytes" if record["same_weights"] else "NOT the same bytes"
    return (
        f"## The runs of a pilot\n\nCPU seconds of a pilot's runs against commit {record['commit_before']}, in turns, "
        f"with {same} of weights; the rest is neither sampling, learning nor evaluating.\n\n"
        + markdown_table(["n", "times before", "the rest now"], rows)
    )


def _scaling(record: Mapping[str, Any]) -> str:
    return (
        "## Scaling\n\nA Llama of 4 layers, 128 wide unless stated; per sampled token.\n\n"
        + picture("roofline", "Operations per byte against GFLOP/s reached, under the measured roofs")
        + picture("axes", "Microseconds per token along batch, length, width and group size, with the floor")
        + "".join(f"\nLeft out: {x}.\n" for x in record["missing"])
    )


def _overlap(record: Mapping[str, Any]) -> str:
    new = record["variants"][0]["task"]["new"]
    rows = []
    for v in record["variants"]:
        waits = v["task"].get("marking", 0.0)
        elsewhere = f", a verifier elsewhere: {waits:g} s for a group" if waits else ""
        rows.append([f"{v['task']['prompts']}{elsewhere}",
                     *(_range(v["ratios"][k]) for k in ("in turns", "in turns, 1 threads", "synchronous"))])
    return (
        "## Sampling and learning at the same time\n\n"
        f"GRPO, 2 rollouts a prompt; those of one prompt write up to {new} tokens, the others end after 24 on average "
        "(with a verifier elsewhere, the base RL step with 8 rollouts a prompt). Ratios of speed; each side has its "
        "better number of threads. The target was 1.5 times. [The page on overlap](overlap.md) explains it.\n\n"
        + markdown_table(["prompts", "against taking turns", "one thread a side", "against synchronous"], rows)
    )


def _search(record: Mapping[str, Any]) -> str:
    rows = [[r["strategy"], r["n"], _range(r["ratio"]), f"{1000 * r['cpu']['median']:.1f}",
             f"{1000 * r['plain']['median']:.1f}", f"{r['prefill']:.0f}", f"{r['prefill_plain']:.0f}"]
            for r in record["rows"]]
    head = ["strategy", "n", "times plain", "ms per 1,000 tokens", "plain", "tokens read an answer", "plain"]
    return (
        f"## Search\n\nStrategies at test time on {record['problems']} built-in problems at once, with the step "
        "checker, on one core: CPU seconds for each token written, over those of plain sampling of n answers in the "
        "same turn. Kept rows make a step read one token for each text that goes on.\n\n" + markdown_table(head, rows)
    )


def _overhead(record: Mapping[str, Any]) -> str:
    rows = [[r["B"], r["n"], f"{r['ours']['median']:,.0f}", f"{r['plain']['median']:,.0f}", _range(r["share"])]
            for r in record["rows"]]
    head = ["problems per step", "rollouts per problem", "rollouts/s", "a plain loop", "share"]
    return (
        "## Overhead of Python\n\nFeed, pack and journal with an engine that costs nothing, on one core, against a "
        "hand-written loop that makes the same arrays and lines.\n\n" + markdown_table(head, rows)
    )
