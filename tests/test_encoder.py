"""Bases and encoders: what they refuse, and that subsets and larger sets agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from blockrr.learning.contrastive import PretrainRecipe
from blockrr.learning.encoder import Encoder, _crops, as_stored, embedder, fit_pca
from blockrr.learning.images import digits

TINY = PretrainRecipe(
    size=8,
    views=4,
    batch=32,
    width=4,
    embed=32,
    area=0.4,
    mirror=False,
    hue=0.0,
    grey=0.0,
)
DIGITS = digits()


@pytest.mark.parametrize(
    "features, options, word",
    [
        (np.ones((5, 3)), {}, "all images have the same features"),
        (np.full((5, 3), np.nan), {}, "finite"),
        (np.ones(5), {}, "finite numbers"),
        (np.eye(5), dict(dims=0), "dims: needs"),
        (np.eye(5), dict(steps=0.0), "steps: needs"),
    ],
)
def test_bad_features(features, options, word):
    with pytest.raises(ValueError, match=word):
        fit_pca(features, **options)


def test_axes_do_not_depend_on_signs():
    "The largest entry of each axis is positive, and directions without variance are left out."
    f = np.random.default_rng(0).normal(size=(50, 6)) * [5, 3, 2, 1, 0, 0]
    basis = fit_pca(f)
    assert basis.axes.shape == (6, 4)
    assert (basis.axes[abs(basis.axes).argmax(0), np.arange(4)] > 0).all()
    flipped = fit_pca(-f)
    np.testing.assert_allclose(flipped.axes, basis.axes, atol=1e-12)


def test_crops():
    "Whole and mirrored, then 36 parts of four sizes at nine places, every second mirrored."
    x = torch.arange(16.0 * 16).view(1, 1, 16, 16)
    recipe = replace(TINY, size=12, mirror=True)
    crops = list(_crops(x, recipe))
    assert len(crops) == 38 and torch.equal(crops[0], x) and torch.equal(crops[1], x.flip(3))
    assert {c.shape[2] for c in crops[2:]} == {12}
    three_quarters = crops[2 + 18 :][:9]
    corners = [c.flip(3)[0, 0, 0, 0] if i % 2 else c[0, 0, 0, 0] for i, c in enumerate(three_quarters)]
    assert corners == [x[0, 0, top, left] for top in (0, 2, 4) for left in (0, 2, 4)]


def test_an_encoder_of_something_else(tmp_path):
    path = tmp_path / "encoder.pt"
    with pytest.raises(FileNotFoundError):
        Encoder.load(path)
    torch.save({"format": "another"}, path)
    with pytest.raises(ValueError, match="no readable encoder .ValueError: another"):
        Encoder.load(path)


def test_pixels_are_seen_at_their_own_scale():
    "Digits go from 0 to 16: twice the values with twice the scale are the same images."
    net = as_stored(embedder(DIGITS.train_images, TINY))
    a = Encoder(net, TINY, {"white": 16.0}).features(DIGITS.test_images[:5], "cpu")
    b = Encoder(net, TINY, {"white": 32.0}).features(2 * DIGITS.test_images[:5], "cpu")
    np.testing.assert_allclose(a, b, atol=1e-6)
