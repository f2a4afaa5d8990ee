"""What was promised, and what the records say: one line each, missed ones included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Records = Mapping[str, Mapping[str, Any]]
Line = dict[str, str]
OVERHEAD, MINUTES, SHARE, NEAR, LEFT = 20_000, 15, 0.5, 0.8, 2 / 3


def lines(records: Records) -> list[Line]:
    """Every target whose record is there: what, target, measured, and "reached", "missed" or "not measured".

    Missed ones come first.
    """
    made: list[tuple[str, Callable[[Mapping[str, Any]], list[Line]]]] = [
        ("step", _step), ("neighbour", _neighbour), ("decode", _decode), ("learner", _learner),
        ("study", _study), ("pilot", _pilot), ("search", _search), ("overhead", _overhead),
    ]
    every = [line for case, tell in made if case in records for line in tell(records[case])]
    return sorted(every, key=lambda line: line["verdict"] != "missed")


def _pilot(record: Mapping[str, Any]) -> list[Line]:
    """CPU seconds of the same runs; the smallest n has a target of its own."""
    first = record["by_n"][0]
    rest = record["shares"]["rest"]
    return [
        _line("pilot: times the rollouts per CPU second of before", "at least 4", _times(record["ratio"]),
              record["ratio"]["median"] >= 4),
        _line(f"pilot, n = {first['n']}: times the rollouts per CPU second of before", "at least 6",
              _times(first["ratio"]), first["ratio"]["median"] >= 6),
        _line("pilot: time that is neither sampling, learning nor evaluating", "at most 15%", f"{rest:.0%}",
              rest <= 0.15),
    ]


def _line(what: str, target: str, measured: str, reached: bool | None) -> Line:
    verdict = "not measured" if reached is None else "reached" if reached else "missed"
    return {"what": what, "target": target, "measured": measured, "verdict": verdict}


def _times(x: Mapping[str, Any]) -> str:
    return f"{x['median']:.2f} ({x['low']:.2f} to {x['high']:.2f})"


def _step(record: Mapping[str, Any]) -> list[Line]:
    """Each variant's fastest isocost contender against TRL's best, at equal tokens."""
    out = []
    for v in record["variants"]:
        ours = [r for r in v["rows"] if "ratio_equal_tokens" in r]
        if not ours:
            continue
        best, least = max(ours, key=lambda r: r["ratio_equal_tokens"]["median"]), 5 if v["name"] == "base" else 3
        ratio, where = best["ratio_equal_tokens"], f"RL step, {v['name']}, {v['device']}"
        out.append(_line(
            f"{where}: times TRL's best at equal tokens", f"at least {least}", f"{_times(ratio)}, {best['name']}",
            ratio["median"] >= least,
        ))
        if "holds_zero" in best["learning"]:
            d = best["learning"]
            out.append(_line(
                f"{where}: late reward less TRL's, {d['pairs']} seeds", "interval holds 0",
                f"{d['mean']:+.3f} ({d['low']:+.3f} to {d['high']:+.3f})", d["holds_zero"],
            ))
        trl = next(r for r in v["rows"] if r["name"] == v["best_trl"])
        out.append(_line(
            f"{where}: peak memory, MiB", f"at most TRL's {trl['peak_mb']:.0f}", f"{best['peak_mb']:.0f}",
            best["peak_mb"] <= trl["peak_mb"],
        ))
    return out


def _neighbour(record: Mapping[str, Any]) -> list[Line]:
    """The contender that is fastest alone."""
    ours = [r for r in record["rows"] if "left" in r]
    if not ours:
        return []
    best = max(ours, key=lambda r: r["ratio"]["alone"]["median"])
    left = best["left"]
    return [_line(
        "RL step, base, beside one busy neighbour: share of the lead over TRL that is left", f"at least {LEFT:.0%}",
        f"{left['median']:.0%} ({left['low']:.0%} to {left['high']:.0%}), {best['name']}", left["median"] >= LEFT,
    )]


def _decode(record: Mapping[str, Any]) -> list[Line]:
    """The tiny model at every batch, in either precision; SmolLM2 at 64; and its log-probs."""
    out = []
    for r in record["rows"]:
        least = 4 if r["model"].startswith("tiny") else 5 if r["batch"] == 64 else None
        if least is None or not r.get("ratio"):
            continue
        name, ratio = max(r["ratio"].items(), key=lambda x: x[1]["median"])
        near = r["tokens_per_second"][name] / r["floor_tokens_per_second"]
        out.append(_line(
            f"decode, {r['model']}, {r['dtype']}, batch {r['batch']}: times the best generate",
            f"at least {least}, or {NEAR:.0%} of the roofline", f"{_times(ratio)}, {near:.0%} of the roofline, {name}",
            ratio["median"] >= least or near >= NEAR,
        ))
    for x in (x for x in record["logp"] if x["name"].startswith("isocost")):
        out.append(_line(
            f"log-probs, {x['model']}, {x['dtype']}, {x['name']}: off float32, mean and 99th percentile",
            "at most 2e-3 and 5e-2", f"{x['mean']:.1e} and {x['p99']:.1e}", x["mean"] <= 2e-3 and x["p99"] <= 5e-2,
        ))
    return out


def _learner(record: Mapping[str, Any]) -> list[Line]:
    """The RL step's own shape, or else the shape that comes closest; or 80 % of what the roofline allows."""
    out = []
    for dtype in ("fp32", "bf16"):
        rows = [r for r in record["rows"] if r["dtype"] == dtype and r["device"] == "cpu"]
        for best in [max(some, key=lambda r: r["share"]) for some in (
            [r for r in rows if r["shape"] == "RL step"], [r for r in rows if r["shape"] != "RL step"]
        ) if some]:
            out.append(_line(
                f"learner, {dtype}, {best['shape']}: share of the measured matmul peak",
                f"at least {SHARE:.0%}, or {NEAR:.0%} of the roofline",
                f"{best['share']:.0%}, {best['of_floor']:.0%} of the roofline, {best['kernels']} kernels",
                best["share"] >= SHARE or best["of_floor"] >= NEAR,
            ))
    return out


def _study(record: Mapping[str, Any]) -> list[Line]:
    minutes = record["seconds_wall"] / 60
    return [_line(f"{record['runs']} runs, minutes", f"at most {MINUTES}", f"{minutes:.1f}", minutes <= MINUTES)]


def _search(record: Mapping[str, Any]) -> list[Line]:
    return [
        _line(f"{r['strategy']}, n = {r['n']}: times the CPU seconds of plain sampling", f"at most {r['most']:g}",
              _times(r["ratio"]), r["ratio"]["median"] <= r["most"])
        for r in record["rows"]
    ]


def _overhead(record: Mapping[str, Any]) -> list[Line]:
    return [
        _line(
            f"our own Python, {r['B']} problems x {r['n']} rollouts: rollouts per second on one core",
            f"at least {OVERHEAD:,}", f"{r['ours']['median']:,.0f}, {r['share']['median']:.0%} of a plain loop",
            r["ours"]["median"] >= OVERHEAD,
        )
        for r in record["rows"]
    ]
