"""The network's size and weights: PyTorch's own counter and distributions; what is refused."""

import math

import pytest
import torch

from blockrr.learning.resnet import ResNet, flops, reset, resnet18


def test_the_papers_network():
    with torch.device("meta"):
        paper = ResNet()
    assert sum(p.numel() for p in paper.parameters()) == 11_172_170
    assert 790e12 / (3 * flops(paper, (3, 32, 32))) == pytest.approx(237_000, abs=500)


@pytest.mark.parametrize(
    "name, bad",
    [("n_classes", 1), ("channels", 0), ("width", 0), ("width", 4.0), ("width", True)],
)
def test_bad_sizes(name, bad):
    with pytest.raises(ValueError, match=f"^{name}: needs an integer"):
        ResNet(**{name: bad})


def test_bounds_of_the_weights():
    model = resnet18(width=16)
    weights = model.blocks[7].conv2.weight.detach()
    assert weights.abs().max().item() == pytest.approx(1 / math.sqrt(128 * 9), abs=1e-5)
    assert (model.norm.weight == 1).all() and (model.norm.bias == 0).all()


def test_reset_forgets():
    model = resnet18(0, 3, 1, width=2)
    fresh = {k: v.clone() for k, v in model.state_dict().items()}
    model(torch.ones(4, 1, 8, 8)).sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= p.grad
    reset(model, torch.Generator().manual_seed(0))
    for name, value in model.state_dict().items():
        assert torch.equal(value, fresh[name]), name
