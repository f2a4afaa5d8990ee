"""docs/cluster.md and its picture from `experiments/results/ray_chaos.json`, `ray_silent.json` and `ray_scale.json`.

`python experiments/cluster_page.py` writes them; the same records give the same page and the same picture.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.report import theme
from isocost.screen.words import markdown_table
from ray_chaos import KILL, NODES
from ray_scale import LONGEST, PLAN, RUNS, SAVED, WORKERS, overheads

Record = Mapping[str, Any]
HOME = Path(__file__).resolve().parents[1]
RESULTS, PAGE, IMAGES = HOME / "experiments" / "results", HOME / "docs" / "cluster.md", HOME / "docs" / "images"
ALT = ("Two panels against the hours between failures of a worker, for four kinds of checkpoints: the makespan over "
       "its lower bound, and the share of busy time that is wasted")

HEAD = """# Run a study on a cluster

With `--launch ray`, the runs of a study go to a [Ray](https://docs.ray.io) cluster instead of processes of this
machine. Results are the same, byte for byte, if the nodes have the same kind of processor and the same torch.

```text
pip install -e '.[cluster]'         # on every node
ray start --head                    # on one node; ray start --address=HOST:6379 on the others
isocost pilot studies/mine --launch ray
isocost train --plan studies/mine --launch ray
isocost compare grpo dapo --budget 200k-rollouts --launch ray
```

From Python: `study.pilot(site=Site("ray", "HOST:6379"))`, with `Site` from `isocost.runs.launch.site`.

## What it needs

- **A shared file system.** Every node mounts the study's folder, and the working directory of the command, at the same
  path. A node that does not see them says so. A mount of an object store will not do.
- **The same isocost, torch, Python and Ray on every node.** A node with other sources of isocost says so and runs
  nothing. Environment variables are those of the node, not of the command.
- **The same kind of device.** `--device auto` is resolved on the node: name the device if nodes differ.

| option | meaning |
| --- | --- |
| `--address auto` | the cluster that this machine belongs to (default), or the one that `RAY_ADDRESS` names |
| `--address HOST:PORT` | the cluster with this head; this machine must belong to it |
| `--address local` | a cluster of this machine alone, started for the command and ended with it |
| `--gpus-per-run 1` | GPUs of each run; 0.25 puts four runs on one GPU. Without it a run sees no GPU |
| `--workers N` | at most N runs at once; without it, as many as the cluster has room for |

A run takes as many processors as the study's `--threads`. The longest runs start first. Give `isocost plan` the
cluster's number of workers: hours and money are for it.

## What happens when something fails

- **A node or process dies**: its runs start again on another node and continue from their last checkpoint, at most a
  minute old. What was computed again is charged to the account `lost`.
- **A node asks its processes to stop** (SIGTERM before a preemption): the run saves, and nothing is lost.
- **Ctrl-C** saves and stops every run; the same command continues.
- **A run that cannot advance** (ten attempts in a row without a new checkpoint) ends the command with the reason, after
  the others have ended.
- **A node is taken for dead and still runs**: two processes then have one run's folder. Every attempt has a number, in
  `attempts.jsonl`; a process stops if the last number is not its own.

Whether a run is over is read from its folder, never from Ray. Ray pickles nothing but text.

The lock of a run's folder (`flock`) also keeps a second process out, and makes the accounts exact. By their
documentation it holds between nodes on NFS 4, NFS 3 with lockd, Lustre mounted with `flock`, CephFS and GPFS; not on
NFS mounted with `nolock` or `local_lock`, nor on Lustre with `localflock`. There the numbers keep metrics, journal,
samples and weights right; at most one update of the earlier process is not charged, and a checkpoint may be skipped.
"""


def read() -> tuple[Record, Record, Record]:
    """The records of killed nodes, of nodes that stop answering, and of scale."""
    chaos, silent, scale = (json.loads((RESULTS / f"{k}.json").read_text(encoding="utf-8"))
                            for k in ("ray_chaos", "ray_silent", "ray_scale"))
    return chaos, silent, scale


def killed(chaos: Record) -> str:
    """The section on killed nodes."""
    rounds = chaos["rounds"]
    kills = [r for r in rounds if r["kind"] == KILL]
    lost, billed = (sum(r[k] for r in kills) for k in ("lost", "billed"))
    runs, equal = (sum(r[k] for r in rounds) for k in ("runs", "equal"))
    right = sum(x["billed"] == x["fated"] for r in rounds for x in r["each"])
    ended = sum(r["ended"] for r in rounds)
    apart = " to ".join(f"{x:g}" for x in chaos["apart"])
    said = (
        f"`experiments/results/ray_chaos.json`: {chaos['runs']} runs of {chaos['rollouts']:,} rollouts on a simulated "
        f"cluster of {NODES} nodes (Ray {chaos['ray']}), while a node was killed without grace every {apart} s. "
        f"In {len(kills)} rounds {sum(r['kills'] for r in kills)} nodes were killed. Over all rounds {ended} of {runs} "
        f"runs ended, {equal} of {runs} have the metrics, journal, samples and final weights of one machine's runs, "
        f"byte for byte, and in {right} of {runs} the fates sum to the bill. Computed again and charged as lost: "
        f"{lost:,} of {billed:,} rollouts, {lost / billed:.1%}. Runs saved every eight updates."
    )
    few = sum(r["kills"] for r in kills)
    other = "".join(f"Round {i + 1} had {r['runs']} runs of {r['rollouts']:,} rollouts. "
                    for i, r in enumerate(rounds) if r in kills and "rollouts" in r)
    missing = "" if few >= 50 else (
        f"**Missing:** {50 - few} of the 50 kills that were planned. The machine became too busy to start nodes of "
        "Ray, then and in a later trial. ")
    after = (
        f"{other}{missing}A killed node may have had no run: {sum(sum(r['again'].values()) for r in kills)} of the "
        "kills ended an attempt."
    )
    again = "`python experiments/ray_chaos.py --out RECORD.json` makes such rounds until 50 nodes are killed."
    return "\n\n".join([f"## Measured: {few} killed nodes", said, after, again])


def silent(record: Record) -> str:
    """The section on nodes that stop answering."""
    each = {r["kind"]: [x for cut in r["cut"] for x in cut["each"]] for r in record["rounds"]}
    rows = []
    for r in record["rounds"]:
        again = [x for x in each[r["kind"]] if x["replaced"] is not None]
        late = [x["gone"] - x["replaced"] for x in again if x["gone"] is not None]
        rows.append([
            r["kind"], len(r["cut"]), f"{len(again)} of {len(each[r['kind']])}", sum(bool(x["alive"]) for x in again),
            f"{max(late):.1f} s" if late else "", r["attempts"], f"{r['equal']} of {r['runs']}", f"{r['billed']:,}",
            f"{r['fated']:,}", f"{r['lost']:,} ({r['lost_share']:.1%})"])
    table = markdown_table((
        "kind", "nodes", "runs started again", "earlier process alive then", "longest until it let go", "attempts",
        "equal bytes", "bill", "fates", "lost"), rows)
    said = (
        f"`experiments/results/ray_silent.json`: {record['runs']} runs of {record['rollouts']:,} rollouts, "
        f"{record['at_once']} in flight, on the same kind of cluster. A node that has a run stops answering until the "
        "cluster takes it for dead; then its connections to the launcher are closed. In the round `partition` its "
        "workers go on; in the round `pause` they are stopped, and continue once their run has been started again."
    )
    after = (
        "Ray keeps a task on a node that it takes for dead as long as the connection to its process is open: in a "
        "trial whose connections stayed open, none of eight partitioned runs was started again, and six of them ended "
        "on nodes that were taken for dead, with the same bytes. So a node that freezes holds up its runs until it "
        "wakes or its connections time out; nothing is lost."
    )
    title = "## Measured: nodes that stop answering"
    return "\n\n".join([title, said, table.rstrip(), after, f"`{record['command']}`"])


def cost(scale: Record) -> str:
    """The section on overhead and workers."""
    found = scale["measure"]
    (local, first), (ray, cold) = (overheads(found, site) for site in ("local", "ray"))
    by = {(x["site"], x["workers"]): x for x in found["workers"]}
    counts = sorted({k for _, k in by})
    base = {site: by[site, 1]["seconds"] for site in ("local", "ray")}
    rows = [[k, *(f"{by[s, k]['seconds']:.1f} s ({base[s] / by[s, k]['seconds']:.2f} times)" for s in ("local", "ray")),
             f"{by['local', k]['load']:.0f}, {by['ray', k]['load']:.0f}"] for k in counts]
    said = (
        "`experiments/results/ray_scale.json`. Besides its own time a run took "
        f"{local:.2f} s in local processes and {ray:.2f} s on Ray (median); the first run of a process took "
        f"{first:.1f} s and {cold:.1f} s, mostly to start it and to import torch. A checkpoint of the built-in model "
        f"took {found['checkpoint'] * 1000:.0f} ms. Eight runs of 512 rollouts, with the load of the machine "
        f"({found['cores']} cores, shared):"
    )
    table = markdown_table(("workers", "local processes", "Ray", "load"), rows)
    return "\n\n".join(["## Measured: overhead", said, table.rstrip()])


def simulated(scale: Record) -> str:
    """The section on the simulation."""
    found = scale["simulate"]
    rows = found["rows"]

    def at(saved: str, order: str, stragglers: bool, hours: float | None) -> Record:
        [row] = [r for r in rows if (r["saved"], r["order"], r["stragglers"], r["mtbf_hours"])
                 == (saved, order, stragglers, hours)]
        return row

    def worded(x: list[float], digits: int = 2) -> str:
        return f"{x[0]:.{digits}f} [{x[1]:.{digits}f}, {x[2]:.{digits}f}]"

    minute = next(iter(SAVED))
    calm = {order: at(minute, order, False, None)["ratio"] for order in (PLAN, LONGEST)}
    slow = {order: at(minute, order, True, None)["ratio"] for order in (PLAN, LONGEST)}
    hourly = {name: at(name, LONGEST, True, 1.0) for name in SAVED if name != "none"}
    said = (
        f"A clock of events, not a cluster: {RUNS:,} runs of one hour on average on {WORKERS:,} workers, with the "
        "measured spread of run times and slowdowns. Assumed: 2 % of workers are four times slower, a death is noticed "
        f"after 30 s, a worker is replaced after 120 s and takes {found['start']:.0f} s to start. The lower bound is "
        "the larger of all work over all speeds and the longest run on the fastest worker, without failures or starts. "
        "Mean of "
        f"{found['seeds']} seeds, with the least and the greatest."
    )
    low, *_, high = found["slowdowns"]
    points = [
        f"- **Stragglers cost most, and the launcher does not move their runs.** Without failures the makespan is "
        f"{worded(calm[LONGEST])} times the lower bound with the measured slowdowns alone ({low:.2f} to {high:.2f} in "
        f"the middle nine tenths), and {worded(slow[LONGEST])} with 2 % of workers four times slower. Both are "
        "likely too large: the slowdowns are of a machine that other jobs shared.",
        "- Waste if a worker fails once an hour on average: "
        + "; ".join(f"{x['waste'][0]:.1%} with checkpoints {name}" for name, x in hourly.items()) + ". Of the first, "
        f"{hourly[minute]['starts'][0]:.1%} are starts of workers and {hourly[minute]['lost'][0]:.1%} computed again.",
    ]
    picture = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/cluster-dark.svg">\n'
        f'  <img alt="{ALT}" src="images/cluster-light.svg">\n</picture>'
    )
    return "\n\n".join(["## Simulated: 1,000 workers", said, picture, "\n".join(points)])


def drawing(scale: Record) -> dict[str, Any]:
    """The picture: makespan over its lower bound, and waste, against the time between failures."""
    import altair as alt

    rows = [{"hours": r["mtbf_hours"], "checkpoints": r["saved"], "ratio": r["ratio"][0], "low": r["ratio"][1],
             "high": r["ratio"][2], "waste": r["waste"][0]} for r in scale["simulate"]["rows"]
            if r["mtbf_hours"] is not None]
    colour = alt.Color("checkpoints:N", sort=list(SAVED), legend=alt.Legend(title="checkpoints", columns=4),
                       scale=alt.Scale(domain=list(SAVED),
                                       range=theme.variables("accent", "filtered", "evaluation", "stale")))
    hours = sorted({r["hours"] for r in rows})
    x = alt.X("hours:Q", title="mean hours between failures of a worker",
              scale=alt.Scale(type="log", domain=[hours[0], hours[-1]], nice=False), axis=alt.Axis(values=hours))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, color=colour)
    ratio = alt.Y("ratio:Q", title="makespan / lower bound", scale=alt.Scale(type="log", nice=False, domain=[1, 250]),
                  axis=alt.Axis(values=[1, 2, 5, 10, 20, 50, 100, 200]))
    left = alt.layer(
        base.mark_rule(opacity=0.4, strokeWidth=1).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line().encode(y=ratio), base.mark_point(size=40).encode(y=ratio),
    ).properties(width=300, height=240)
    waste = alt.Y("waste:Q", title="wasted share of busy time", axis=alt.Axis(format=".0%"))
    right = alt.layer(base.mark_line().encode(y=waste), base.mark_point(size=40).encode(y=waste)).properties(
        width=300, height=240)
    spec = alt.hconcat(left, right, spacing=48).properties(description=ALT).to_dict(validate=False)
    spec.pop("config", None)
    return spec


def pictures(scale: Record) -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    import altair as alt
    import vl_convert

    out, version = {}, alt.SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]
    for side in ("light", "dark"):
        whole = theme.solid({**drawing(scale), "config": theme.CONFIG, "padding": theme.ROOM}, side == "dark")
        out[f"cluster-{side}.svg"] = vl_convert.vegalite_to_svg(whole, vl_version=version)
    return out


def wrapped(text: str) -> str:
    """Paragraphs and list items in lines of at most 120 characters; tables, pictures and commands as they are."""
    out = []
    for line in text.split("\n"):
        kept = len(line) <= 120 or line.lstrip()[:1] in "|<#" or line.startswith("`python")
        out.append(line if kept else textwrap.fill(
            line, 120, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False,
            break_on_hyphens=False))
    return "\n".join(out)


def page(chaos: Record, cut: Record, scale: Record) -> str:
    """The whole page."""
    parts = [killed(chaos), silent(cut), *([cost(scale)] if "measure" in scale else []), simulated(scale)]
    return HEAD + "\n" + wrapped("\n\n".join(parts)) + "\n"


if __name__ == "__main__":
    every = read()
    PAGE.write_text(page(*every), encoding="utf-8")
    for name, drawn in pictures(every[2]).items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")
