"""Updates per CPU second of control, against the same learner in JAX, in pairs within one run.

    python -m pip install --target /tmp/jax --no-deps jax jaxlib ml_dtypes opt_einsum
    XLA_FLAGS=--xla_cpu_multi_thread_eigen=false PYTHONPATH=/tmp/jax:. OMP_NUM_THREADS=1 taskset -c 0 \\
        python -m bench.control_jax --out FILE

SAC at Pendulum's sizes, 64 wide with batches of 64. In JAX runs are stacked by `jax.vmap`, and a call makes 100
updates in one `lax.scan`, so that dispatch costs little. Both draw their batches from a replay of 1,000 transitions.
`taskset` limits both to one core, XLA's threads too.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from bench.control import command, rate, stack

BARS = {16: 0.8, 64: 1.1}       # runs -> times JAX
SEEN, A, WIDTH, BATCH, STORED, STEPS = 3, 1, 64, 64, 1000, 100
GAMMA, TAU, LR, B1, B2, TINY = 0.99, 0.005, 3e-4, 0.9, 0.999, 1e-8


def mlp(key: Any, sizes: tuple[int, ...]) -> list[Any]:
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.uniform(k, (i, o), minval=-1, maxval=1) / i**0.5, jnp.zeros(o))
            for k, i, o in zip(keys, sizes, sizes[1:], strict=False)]


def run(layers: list[Any], x: Any) -> Any:
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ layers[-1][0] + layers[-1][1]


def q(critics: Any, s: Any, a: Any) -> Any:
    return jax.vmap(run, (0, None))(critics, jnp.concatenate((s, a), -1))[..., 0]


def acted(actor: list[Any], s: Any, key: Any) -> tuple[Any, Any]:
    """A tanh-Gaussian's action, (B, A), and its log-prob, (B,)."""
    mean, spread = jnp.split(run(actor, s), 2, -1)
    spread = jnp.clip(spread, -5, 2)
    z = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(spread) * z
    squash = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), (-0.5 * z * z - spread - 0.5 * jnp.log(2 * jnp.pi) - squash).sum(-1)


def fresh(key: Any) -> dict[str, Any]:
    one, two, three = jax.random.split(key, 3)
    weights = {"actor": mlp(one, (SEEN, WIDTH, WIDTH, 2 * A)), "temperature": jnp.zeros(()),
               "critic": jax.vmap(lambda k: mlp(k, (SEEN + A, WIDTH, WIDTH, 1)))(jax.random.split(two, 2))}
    zeros = jax.tree.map(jnp.zeros_like, weights)
    rows = jax.random.normal(three, (STORED, 2 * SEEN + A + 2))
    return {"w": weights, "slow": weights["critic"], "m": zeros, "v": zeros, "t": jnp.zeros(()), "rows": rows}


def update(state: dict[str, Any], key: Any) -> tuple[dict[str, Any], None]:
    one, two, three = jax.random.split(key, 3)
    at = jax.random.randint(one, (BATCH,), 0, STORED)
    s, a, r, s2, end = jnp.split(state["rows"][at], (SEEN, SEEN + A, SEEN + A + 1, 2 * SEEN + A + 1), -1)

    def loss(w: dict[str, Any]) -> Any:
        alpha = jax.lax.stop_gradient(jnp.exp(w["temperature"]))
        fixed = jax.lax.stop_gradient(w)
        a2, after = acted(fixed["actor"], s2, two)
        target = r[:, 0] + GAMMA * (1 - (end[:, 0] > 2)) * (q(state["slow"], s2, a2).min(0) - alpha * after)
        made, logp = acted(w["actor"], s, three)
        return (((q(w["critic"], s, a) - target) ** 2).mean(-1).sum() + (
            alpha * logp - q(fixed["critic"], s, made).min(0)).mean()
            - w["temperature"] * (jax.lax.stop_gradient(logp).mean() - A))

    g, t = jax.grad(loss)(state["w"]), state["t"] + 1
    m = jax.tree.map(lambda m, g: B1 * m + (1 - B1) * g, state["m"], g)
    v = jax.tree.map(lambda v, g: B2 * v + (1 - B2) * g * g, state["v"], g)
    w = jax.tree.map(lambda w, m, v: w - LR * (m / (1 - B1**t)) / (jnp.sqrt(v / (1 - B2**t)) + TINY), state["w"], m, v)
    slow = jax.tree.map(lambda s, w: s + TAU * (w - s), state["slow"], w["critic"])
    return state | {"w": w, "slow": slow, "m": m, "v": v, "t": t}, None


def jaxed(runs: int) -> Callable[[int], None]:
    """`STEPS` updates of each run in one call, as often as asked."""
    keys = jax.random.split(jax.random.key(0), runs)
    many = jax.jit(jax.vmap(lambda state, key: jax.lax.scan(update, state, jax.random.split(key, STEPS))[0]))
    held = {"state": jax.vmap(fresh)(keys)}

    def updates(count: int) -> None:
        for _ in range(count // STEPS):
            held["state"] = jax.block_until_ready(many(held["state"], keys))

    return updates


def measured(pairs: int) -> list[dict[str, Any]]:
    rows = []
    for runs, bar in BARS.items():
        theirs, ours = jaxed(runs), stack(WIDTH, BATCH, runs)
        theirs(STEPS)
        ours(3)
        count = 3200 // runs * STEPS // 100
        found = [{"jax": rate(theirs, max(count // STEPS, 1) * STEPS) * runs, "kernel": rate(ours, count) * runs}
                 for _ in range(pairs)]
        over = median(x["kernel"] / x["jax"] for x in found)
        rows.append({"runs": runs, "updates_per_cpu_second": {
            k: round(median(x[k] for x in found)) for k in ("jax", "kernel")}, "over_jax": round(over, 2), "bar": bar,
            "held": over >= bar})
    return rows


if __name__ == "__main__":
    command(__doc__, 5, measured, jax=jax.__version__)
