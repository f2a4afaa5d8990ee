"""The kernel's networks against torch's: values, gradients, the optimiser, and the same bytes in every stack."""

import numpy as np
import pytest
import torch

from isocost.control import native
from isocost.control.networks import Mlp
from isocost.control.optimise import Moments, adam

pytestmark = pytest.mark.skipif(native._library()[0] is None, reason="no C++ compiler here")
SHAPES = [       # inputs, outputs, width, depth, members, batch
    (3, 2, 64, 2, 1, 64), (4, 1, 64, 2, 2, 16), (5, 101, 32, 3, 2, 48), (17, 6, 128, 1, 3, 80), (4, 1, 256, 2, 10, 32),
]


@pytest.fixture
def plain(monkeypatch):
    """Turns the kernel off, and on again."""
    def turn(off):
        monkeypatch.setattr(native, "usable", (lambda *_: False) if off else usable)
        monkeypatch.setattr(native, "adam", (lambda *_: False) if off else step)

    usable, step = native.usable, native.adam
    return turn


def made(inputs, outputs, width, depth, members, batch, runs=3, shared=True):
    net, rng = Mlp(inputs, outputs, width, depth, members), np.random.default_rng(0)
    weights = torch.from_numpy(np.stack([net.start(rng) for _ in range(runs)])).requires_grad_()
    x = rng.standard_normal((runs, 1 if shared else members, batch, inputs), np.float32)
    return net, weights, torch.from_numpy(x).requires_grad_()


def both(net, weights, x):
    y = net(weights, x)
    loss = (torch.sin(y) * torch.linspace(-1, 1, y.numel()).view_as(y)).sum()
    return y.detach(), *torch.autograd.grad(loss, (weights, x))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_torchs(shape, shared, plain):
    net, weights, x = made(*shape, shared=shared)
    assert native.usable(net.dense, weights)
    ours = both(net, weights, x)
    plain(True)
    for a, b in zip(ours, both(net, weights, x), strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()
    assert ours[1][..., net.parameters :].abs().max() == 0 if net.size > net.parameters else True


@pytest.mark.parametrize("shape", SHAPES)
def test_a_network_is_the_same_alone_and_in_a_stack(shape):
    net, weights, x = made(*shape, runs=7)
    many = both(net, weights, x)[0], *torch.autograd.grad(net(weights, x).square().sum(), (weights, x))
    for i in range(7):
        w, z = (t[i : i + 1].detach().requires_grad_() for t in (weights, x))
        one = net(w, z).detach(), *torch.autograd.grad(net(w, z).square().sum(), (w, z))
        assert all((a[i] == b[0]).all() for a, b in zip(many, one, strict=True))


def test_only_the_gradient_that_is_asked_for_is_computed():
    net, weights, x = made(*SHAPES[0])
    (dx,) = torch.autograd.grad(net(weights.detach(), x).sum(), x)
    (dw,) = torch.autograd.grad(net(weights, x.detach()).sum(), weights)
    together = torch.autograd.grad(net(weights, x).sum(), (weights, x))
    assert (together[0] == dw).all() and (together[1] == dx).all()
    with torch.no_grad():
        assert (net(weights, x) == net(weights, x.detach())).all()


@pytest.mark.parametrize(("changes", "why"), [
    ({"norm": True}, "LayerNorm"), ({"activation": "tanh"}, "tanh"), ({"width": 20}, "a width without whole vectors"),
])
def test_what_the_kernel_cannot_do_torch_does(changes, why):
    net = Mlp(**{"inputs": 3, "outputs": 2, "width": 64, **changes})
    assert not (net.dense and native.usable(net.dense, torch.zeros(1, 1, net.size))), why


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_optimiser_is_torchs(decay, plain):
    found = []
    for off in (False, True):
        plain(off)
        weights = torch.linspace(-1, 1, 2 * 2 * 64).view(2, 2, 64).clone()
        moments, rate = Moments.of(weights), torch.tensor([1e-3, 1e-2], dtype=torch.float64)
        for k in range(30):
            adam(weights, moments, torch.sin(3 * weights + k), rate, decay)
        found.append((weights, moments.first, moments.second))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()
