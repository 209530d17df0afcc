"""Views one image at a time against an oracle; losses by their gradients; what may be an argument."""

import inspect
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from blockrr.learning import contrastive as C
from blockrr.learning import encoder, pretrain

STRONG = C.PretrainRecipe(size=13, area=0.1, jitter=0.8, saturation=0.8, hue=0.5, grey=0.5, mirror=False)
LUMA = np.array([0.299, 0.587, 0.114])
YIQ = np.array([LUMA, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


def pictures(n, side=32, channels=3, seed=0):
    "Smooth made images."
    rng = np.random.default_rng(seed)
    coarse = rng.random((n, 5, 5, channels))
    large = np.repeat(np.repeat(coarse, -(-side // 5), 1), -(-side // 5), 2)
    return (255 * large[:, :side, :side]).astype(np.uint8)


def cropped(image, u, recipe):
    "A part of a uint8 image [H, W, 3], in float64."
    both, (h, w, _) = 2 * u - 1, image.shape
    area, ratio = recipe.area + (1 - recipe.area) * u[0], (4 / 3) ** both[1]
    width, height = (
        min(1, math.sqrt(area * ratio)) * w,
        min(1, math.sqrt(area / ratio)) * h,
    )
    left, top = (w - width) * (both[2] + 1) / 2, (h - height) * (both[3] + 1) / 2
    steps = (np.arange(recipe.size) + 0.5) / recipe.size
    x, y = left + width * steps - 0.5, top + height * steps - 0.5
    if recipe.mirror and u[4] < 0.5:
        x = x[::-1]
    grid = np.meshgrid(y, x, indexing="ij")
    channels = [map_coordinates(image[..., c] / 255, grid, order=1, mode="nearest") for c in range(3)]
    return np.stack(channels, -1)


def oracle(image, u, recipe):
    "One view, one change after the other, as in the papers' code."
    both, on = 2 * u - 1, u[5] < recipe.coloured
    v = cropped(image, u, recipe) * (1 + on * recipe.jitter * both[6])
    contrast = 1 + on * recipe.jitter * both[7]
    v = contrast * v + (1 - contrast) * (v @ LUMA).mean()
    y, i, q = np.moveaxis(v @ YIQ.T, -1, 0)
    turn = 2 * math.pi * on * recipe.hue * both[9]
    s = (1 + on * recipe.saturation * both[8]) * (u[10] >= recipe.grey)
    turned = [
        i * math.cos(turn) - q * math.sin(turn),
        i * math.sin(turn) + q * math.cos(turn),
    ]
    back = np.stack([y, *(s * t for t in turned)], -1) @ np.linalg.inv(YIQ).T
    return np.clip(back, 0, 1)


def planes(images):
    return torch.tensor(images.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("recipe", [C.GPU, STRONG])
def test_views_are_the_oracles(recipe):
    images, u = (
        pictures(40),
        np.random.default_rng(1).random((40, C.DRAWS_PER_VIEW)).astype(np.float32),
    )
    ours = C.views(planes(images), torch.tensor(u), recipe).permute(0, 2, 3, 1).numpy()
    theirs = np.stack([oracle(x, v.astype(float), recipe) for x, v in zip(images, u)])
    assert abs(ours - theirs).max() < 2e-3  # float32 coordinates, at edges of blocks


def test_moments_of_views():
    "Means and deviations of pixels over chance, ours and the oracle's, from different random numbers."
    image, n, recipe = pictures(1, seed=5), 3000, C.PretrainRecipe(size=12)
    u = torch.rand(n, C.DRAWS_PER_VIEW, generator=torch.Generator().manual_seed(0))
    ours = C.views(planes(image).expand(n, -1, -1, -1), u, recipe).permute(0, 2, 3, 1).numpy()
    rng = np.random.default_rng(7)
    theirs = np.stack([oracle(image[0], rng.random(C.DRAWS_PER_VIEW), recipe) for _ in range(n)])
    for power in (1, 2):
        a, b = ours**power, theirs**power
        z = (a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / n)
        # 432 pixels, of which some 60 are independent: 5 deviations happen once in 30,000 such tests
        assert abs(z).max() < 5
    a, b = (np.cov(v.mean((1, 2)).T) for v in (ours, theirs))
    assert np.allclose(a, b, rtol=0.15, atol=2e-4)


def test_gradients():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(6, 3, generator=g, dtype=torch.float64).requires_grad_()
    for loss in (C.vicreg, C.simclr):
        assert torch.autograd.gradcheck(lambda x, loss=loss: loss(x, 3), z)


@pytest.mark.parametrize("loss", [C.vicreg, C.simclr])
@pytest.mark.parametrize("n, n_views", [(7, 2), (6, 1), (6, 4)])
def test_uneven_views(loss, n, n_views):
    with pytest.raises(ValueError, match=f"got {n}"):
        loss(torch.ones(n, 2), n_views)


@pytest.mark.parametrize(
    "name, bad",
    [
        ("views", 1),
        ("size", 0),
        ("seed", -1),
        ("hue", 2.0),
        ("warmup", -0.1),
        ("area", 0.0),
        ("rate", 0.0),
        ("temperature", 0.0),
        ("teacher", -1.0),
        ("teacher", math.inf),
        ("network", "vgg"),
        ("loss", "byol"),
    ],
)
def test_bad_recipes(name, bad):
    with pytest.raises(ValueError, match=f"^{name}: needs .*, got {bad!r}"):
        C.PretrainRecipe(**{name: bad})


WORDS = ("label", "target", "released", "class", "transition", "epsilon")


def parameters():
    for module in (C, encoder, pretrain):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                yield from ((name, p) for p in inspect.signature(thing).parameters)
    yield from (("PretrainRecipe", field) for field in C.PretrainRecipe.__dataclass_fields__)


def test_no_label_is_an_argument():
    for name, parameter in parameters():
        assert not any(word in parameter for word in WORDS), (name, parameter)
