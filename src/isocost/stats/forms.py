"""Parametric curves of reward against compute, and one least-squares fit for all of them.

Every form is linear in some of its parameters once the others are given. The linear ones are solved in closed form. The
others start from a grid that covers the range of the data, so no starting value is needed; damped Gauss-Newton steps
inside the bounds refine the best cell. The fit is vectorised over rows: a bootstrap is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy import ndarray

from isocost.errors import UserError

SHARPEST = 8.0      # the largest exponent searched: a rise from a tenth to nine tenths within a factor of 1.7
FLATTEST = 0.1


@dataclass(frozen=True)
class Form:
    """A named curve y = f(x, *parameters) with x > 0 in rollouts.

    `linear` names the parameters that are solved in closed form; `starts(x)` is the (G, rest) grid of the others, made
    from the range of the data, so that a fit does not depend on units. `positive` parameters are fitted on a log scale.
    """

    name: str
    parameters: tuple[str, ...]
    f: Callable[..., ndarray] = field(compare=False)
    bounds: tuple[tuple[float, float], ...]
    linear: tuple[str, ...]
    positive: tuple[str, ...]
    starts: Callable[[ndarray], ndarray] = field(compare=False)

    @property
    def searched(self) -> tuple[str, ...]:
        """The parameters that are not linear, in the order of the grid's columns."""
        return tuple(name for name in self.parameters if name not in self.linear)


@dataclass(frozen=True)
class Fitted:
    """A form's parameters by name with standard errors, the weighted sum of squares and its degrees of freedom."""

    form: Form
    parameters: dict[str, float]
    errors: dict[str, float]
    squares: float
    dof: int

    def __call__(self, x: ndarray) -> ndarray:
        """The fitted curve at x."""
        return self.form.f(np.asarray(x, dtype=float), *(self.parameters[p] for p in self.form.parameters))


def gain_share(x: ndarray, Cmid: ndarray | float, b: ndarray | float, tail: float = 1.0) -> ndarray:
    """The share of the gain that is reached at x, 0 to 1, one half at Cmid.

    With u = (x / Cmid)^b: tail 1 is ScaleRL's sigmoid u / (1 + u); a smaller tail approaches its asymptote more
    slowly, as a power law with exponent b * tail (Burr's distribution); an infinite tail is 1 - 2^-u.
    """
    with np.errstate(over="ignore", divide="ignore"):
        u = np.exp(np.minimum(b * (np.log(x) - np.log(Cmid)), 700.0))
    if np.isinf(tail):
        return np.asarray(1.0 - np.exp2(-u))
    return np.asarray(1.0 - (1.0 + (2.0 ** (1.0 / tail) - 1.0) * u) ** -tail)


def reached(share: ndarray, Cmid: ndarray | float, b: ndarray | float, tail: float = 1.0) -> ndarray:
    """The x at which `gain_share` equals this share (its inverse): 0 for shares <= 0, infinite for shares >= 1."""
    inside = np.clip(share, 0.0, 1.0)
    with np.errstate(over="ignore", divide="ignore"):
        if np.isinf(tail):
            u = -np.log2(1.0 - inside)
        else:
            u = ((1.0 - inside) ** (-1.0 / tail) - 1.0) / (2.0 ** (1.0 / tail) - 1.0)
        return np.asarray(Cmid * u ** (1.0 / np.asarray(b)))


def steepness(b: ndarray | float, tail: float = 1.0) -> ndarray:
    """The exponent of the sigmoid with the same slope at its midpoint, which makes b comparable between forms."""
    return np.asarray(b) * (2 * np.log(2) if np.isinf(tail) else 2 * tail * (1 - 2 ** (-1 / tail)))


def peak(x: ndarray, values: ndarray) -> ndarray:
    """The x (...) at which values (arms, ...) over x (arms,) peak: a parabola's vertex, or the best if at an end."""
    best = values.argmax(0)
    if len(x) < 3:
        return np.asarray(x[best])
    at = np.clip(best, 1, len(x) - 2)
    left, middle, right = (np.take_along_axis(values, (at + i)[None], 0)[0] for i in (-1, 0, 1))
    a, b = x[at] - x[at - 1], x[at + 1] - x[at]
    up, down = (middle - left) / a, (middle - right) / b
    shift = (up * b - down * a) / (2 * np.maximum(up + down, 1e-12))
    vertex = np.clip(x[at] + shift, x[at] - a / 2, x[at] + b / 2)
    return np.where((best == 0) | (best == len(x) - 1), x[best], vertex)


def _rise(x: ndarray, R0: ndarray, A: ndarray, Cmid: ndarray, b: ndarray, tail: float = 1.0) -> ndarray:
    return R0 + (A - R0) * gain_share(x, Cmid, b, tail)


def _log_sigmoid(x: ndarray, L: ndarray, U: ndarray, k: ndarray, C0: ndarray) -> ndarray:
    return L + (U - L) * gain_share(x, C0, k)


def _power(x: ndarray, D: ndarray, b: ndarray) -> ndarray:
    return D * x ** -b


def _power_constant(x: ndarray, A: ndarray, D: ndarray, b: ndarray) -> ndarray:
    return A - D * x ** -b


def _midpoints_and_slopes(x: ndarray) -> ndarray:
    low, high = np.log(x[x > 0].min()), np.log(x.max())
    middle = np.exp(np.linspace(low - 1.5, high + 4.0, 44))
    slope = np.geomspace(0.25, 6.0, 14)
    return np.stack(np.meshgrid(middle, slope, indexing="ij"), -1).reshape(-1, 2)


def _slopes_and_midpoints(x: ndarray) -> ndarray:
    return _midpoints_and_slopes(x)[:, ::-1]


def _exponents(x: ndarray) -> ndarray:
    return np.geomspace(0.02, 4.0, 60)[:, None]


_ANY, _RISE = (0.0, np.inf), (FLATTEST, SHARPEST)


def rise(tail: float = 1.0, name: str = "") -> Form:
    """A form for reward in [0, 1] from R0 to A, midpoint Cmid, exponent b; see `gain_share` for the tail."""
    return Form(name or f"rise with tail {tail:g}", ("R0", "A", "Cmid", "b"), partial(_rise, tail=tail),
                ((0.0, 1.0), (0.0, 1.0), _ANY, _RISE), ("R0", "A"), ("Cmid", "b"), _midpoints_and_slopes)


# ScaleRL (arXiv 2510.13786): R0 + (A - R0) / (1 + (Cmid / C)^b). The paper uses a grid over A and Cmid and solves b on
# log-odds. Here the grid is over Cmid and b, and A is solved, because reward is linear in A: residuals stay in units of
# reward, and a noisy point above A or below R0, which has no log-odds, is kept.
SIGMOID = rise(1.0, "sigmoid")
# IsoCompute (arXiv 2603.12151): log2 n*(C) = L + (U - L) / (1 + exp(-k (ln C - ln C0))), natural log.
LOG_SIGMOID = Form("log-sigmoid", ("L", "U", "k", "C0"), _log_sigmoid,
                   ((0.0, 20.0), (0.0, 20.0), _RISE, _ANY), ("L", "U"), ("k", "C0"), _slopes_and_midpoints)
POWER = Form("power law", ("D", "b"), _power, ((-np.inf, np.inf), (-4.0, 4.0)), ("D",), (),
             lambda x: np.linspace(-2.0, 2.0, 81)[:, None])
POWER_CONSTANT = Form("power law with a constant", ("A", "D", "b"), _power_constant,
                      ((-np.inf, np.inf), (-np.inf, np.inf), (0.01, 6.0)), ("A", "D"), ("b",), _exponents)
FORMS = {form.name: form for form in (SIGMOID, LOG_SIGMOID, POWER, POWER_CONSTANT)}


def fit_form(form: Form, x: ndarray, y: ndarray, weights: ndarray | None = None,
             fixed: Mapping[str, float] | None = None) -> Fitted:
    """Least-squares fit of one form to points x (K,), y (K,): the best cell of a grid, then refined.

    `weights` (K,) multiply the squared residuals; `fixed` holds parameters that are known. Standard errors are those of
    the linearised fit with the residual variance; they are infinite without degrees of freedom, or if the data do not
    determine a parameter. Raises UserError for too few points.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    fixed = dict(fixed or {})
    values, squares = fit_many(form, x, y[None, :], weights, fixed)
    free = [i for i, name in enumerate(form.parameters) if name not in fixed]
    dof = len(x) - len(free)
    errors = _errors(form, x, values[0], _root(weights, x), free, float(squares[0]), dof)
    return Fitted(form, dict(zip(form.parameters, map(float, values[0]), strict=True)),
                  dict(zip(form.parameters, errors, strict=True)), float(squares[0]), dof)


def fit_many(form: Form, x: ndarray, y: ndarray, weights: ndarray | None = None,
             fixed: Mapping[str, float] | None = None) -> tuple[ndarray, ndarray]:
    """(N, P) parameters and (N,) squares of rows of y (N, K) at x (K,) > 0, infinite at the asymptote, or UserError."""
    fixed = dict(fixed or {})
    free = [i for i, name in enumerate(form.parameters) if name not in fixed]
    above = int((x > 0).sum())
    if above < len(x):
        base = "; x = 0 is the base, whose reward is R0: remove its row" if "R0" in form.parameters else ""
        raise UserError(f"the {form.name} is fitted at x > 0, but only {above} of {len(x)} points have x > 0{base}")
    if len(x) < len(free):
        raise UserError(f"the {form.name} has {len(free)} free parameters and needs as many points; got {len(x)}")
    root = _root(weights, x)
    start = _best_cell(form, x, y, root, fixed)
    return _polish(form, x, y, root, start, free)


def _root(weights: ndarray | None, x: ndarray) -> ndarray:
    return np.ones(len(x)) if weights is None else np.sqrt(np.asarray(weights, dtype=float))


def _best_cell(form: Form, x: ndarray, y: ndarray, root: ndarray, fixed: Mapping[str, float]) -> ndarray:
    """The grid cell with the least squares for each row, its linear parameters solved: (N, P)."""
    cells = form.starts(x[np.isfinite(x)])
    held = {name: cells[:, j] for j, name in enumerate(form.searched)}
    for name in form.searched:
        if name in fixed:
            held[name] = np.full(len(cells), fixed[name])

    def curve(linear: Mapping[str, float]) -> ndarray:
        full = {**held, **{name: np.full(len(cells), value) for name, value in linear.items()}}
        return root * form.f(x[None, :], *(full[p][:, None] for p in form.parameters))

    unknown = [name for name in form.linear if name not in fixed]
    zero = {name: fixed.get(name, 0.0) for name in form.linear}
    offset = curve(zero)
    basis = np.stack([curve({**zero, name: 1.0}) - offset for name in unknown], 1)      # (G, m, K)
    bounds = np.array([form.bounds[form.parameters.index(name)] for name in unknown])
    solved, squares = _solve(basis, offset, root * y, bounds)                           # (G, N, m), (G, N)
    best = squares.argmin(0)
    rows = np.arange(len(y))
    full = {**{name: column[best] for name, column in held.items()},
            **{name: np.full(len(y), value) for name, value in fixed.items()},
            **{name: solved[best, rows, j] for j, name in enumerate(unknown)}}
    return np.stack([full[p] for p in form.parameters], 1)


def _solve(basis: ndarray, offset: ndarray, y: ndarray, bounds: ndarray) -> tuple[ndarray, ndarray]:
    """Linear least squares in each of G cells for each of N rows, clipped to bounds: (G, N, m), squares (G, N)."""
    gram = np.einsum("gik,gjk->gij", basis, basis)
    trace = np.einsum("gii->g", gram)[:, None, None]
    gram = gram + np.eye(len(bounds)) * (1e-12 * trace + 1e-300)
    right = np.einsum("gik,nk->gni", basis, y) - np.einsum("gik,gk->gi", basis, offset)[:, None, :]
    solved = np.einsum("gij,gnj->gni", np.linalg.inv(gram), right)
    solved = np.clip(solved, bounds[:, 0], bounds[:, 1])
    residual_0 = (y**2).sum(-1)[None, :] - 2 * offset @ y.T + (offset**2).sum(-1)[:, None]
    quadratic = np.einsum("gni,gij,gnj->gn", solved, gram, solved)
    return solved, residual_0 - 2 * np.einsum("gni,gni->gn", solved, right) + quadratic


def _to_search(form: Form, values: ndarray) -> ndarray:
    logs = [name in form.positive for name in form.parameters]
    return np.where(logs, np.log(np.where(logs, values, 1.0)), values)


def _from_search(form: Form, values: ndarray) -> ndarray:
    logs = [name in form.positive for name in form.parameters]
    return np.where(logs, np.exp(np.where(logs, np.minimum(values, 690.0), 0.0)), values)


def _edges(form: Form, x: ndarray) -> tuple[ndarray, ndarray]:
    """The bounds in search space; a midpoint is kept within a factor of 1000 of the data."""
    low, high = np.array(form.bounds).T
    for i, name in enumerate(form.parameters):
        if form.bounds[i] == _ANY and name in form.positive:
            low[i], high[i] = x.min() / 1000, x[np.isfinite(x)].max() * 1000
    return _to_search(form, low), _to_search(form, high)


def _model(form: Form, x: ndarray, search: ndarray, root: ndarray) -> ndarray:
    values = _from_search(form, search)
    return root * form.f(x[None, :], *(values[:, i, None] for i in range(values.shape[1])))


def _jacobian(form: Form, x: ndarray, search: ndarray, root: ndarray, free: list[int]) -> ndarray:
    """Central differences of the weighted curve by the free parameters: (N, K, F)."""
    columns = []
    for i in free:
        step = 1e-6 * (1.0 + np.abs(search[:, i]))
        up, down = search.copy(), search.copy()
        up[:, i] += step
        down[:, i] -= step
        columns.append((_model(form, x, up, root) - _model(form, x, down, root)) / (2 * step)[:, None])
    return np.stack(columns, -1)


def _polish(form: Form, x: ndarray, y: ndarray, root: ndarray, start: ndarray, free: list[int],
            steps: int = 25) -> tuple[ndarray, ndarray]:
    """Damped Gauss-Newton steps inside the bounds; a step is accepted only if it lowers the squares."""
    low, high = (edge[free] for edge in _edges(form, x))
    here = _to_search(form, start)
    here[:, free] = np.clip(here[:, free], low, high)
    target = root * y
    squares = ((target - _model(form, x, here, root)) ** 2).sum(-1)
    damping = np.full(len(y), 1e-2)
    live = np.arange(len(y))
    for _ in range(steps):
        now = here[live]
        residual = target[live] - _model(form, x, now, root)
        move = _step(_jacobian(form, x, now, root, free), residual, now[:, free], low, high, damping[live])
        trial = now.copy()
        trial[:, free] = np.clip(now[:, free] + move, low, high)
        after = ((target[live] - _model(form, x, trial, root)) ** 2).sum(-1)
        better = after < squares[live]
        gain = np.where(better, squares[live] - after, np.inf)
        here[live[better]], damping[live] = trial[better], np.where(better, damping[live] / 5, damping[live] * 6)
        small = np.where(better, gain < 1e-9 * (squares[live] + 1e-12), damping[live] > 1e4)
        squares[live[better]] = after[better]
        live = live[~small]
        if not len(live):
            break
    return _from_search(form, here), squares


def _step(jacobian: ndarray, residual: ndarray, at: ndarray, low: ndarray, high: ndarray,
          damping: ndarray) -> ndarray:
    """One damped step (N, F); a parameter that the gradient pushes against its bound is kept there."""
    gradient = np.einsum("nkf,nk->nf", jacobian, residual)
    stuck = ((at <= low) & (gradient < 0)) | ((at >= high) & (gradient > 0))
    jacobian = np.where(stuck[:, None, :], 0.0, jacobian)
    gradient = np.where(stuck, 0.0, gradient)
    normal = np.einsum("nkf,nkg->nfg", jacobian, jacobian)
    size = np.einsum("nff->nf", normal)
    ridge = damping[:, None] * size + 1e-12 * size.max(-1, keepdims=True) + 1e-300
    normal = normal + ridge[:, :, None] * np.eye(size.shape[1])
    scale = np.sqrt(np.einsum("nff->nf", normal))
    move = np.linalg.solve(normal / (scale[:, :, None] * scale[:, None, :]), (gradient / scale)[..., None])
    return move[..., 0] / scale


def _errors(form: Form, x: ndarray, values: ndarray, root: ndarray, free: list[int], squares: float,
            dof: int) -> list[float]:
    errors = [0.0 if i not in free else float("inf") for i in range(len(values))]
    if dof <= 0:
        return errors
    jacobian = _jacobian(form, x, _to_search(form, values[None, :]), root, free)[0]
    scale = np.sqrt((jacobian**2).sum(0))
    if not np.all(scale > 0):
        return errors
    normal = (jacobian / scale).T @ (jacobian / scale)
    if np.linalg.cond(normal) > 1e14:
        return errors
    covariance = np.linalg.inv(normal) * squares / dof / np.outer(scale, scale)
    for place, i in enumerate(free):
        error = float(np.sqrt(covariance[place, place]))
        errors[i] = error * values[i] if form.parameters[i] in form.positive else error
    return errors
