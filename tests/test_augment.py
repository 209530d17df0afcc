"""Augmentation at full size against plain code with its own random numbers."""

import numpy as np
import torch

from blockrr.learning.augment import Augmentation, augment, draw_augmentation

PAPER = Augmentation()


def plain(image, rng):
    "One augmented copy, the ordinary way."
    if rng.random() < 0.5:
        image = image[:, ::-1]
    x = np.pad(image, ((4, 4), (4, 4), (0, 0)), "reflect")
    top, left = rng.integers(0, 9, 2)
    cy, cx = rng.integers(0, 32, 2)
    x = (x[top : top + 32, left : left + 32] / 255 - [0.4914, 0.4822, 0.4465]) / [
        0.2023,
        0.1994,
        0.2010,
    ]
    x[max(cy - 4, 0) : cy + 4, max(cx - 4, 0) : cx + 4] = 0
    return x.transpose(2, 0, 1)


def test_augmentation_at_full_size():
    "Mean and mean square of every pixel of a 32x32 image, within 5.5 standard errors (6,144 figures)."
    rng, n = np.random.default_rng(0), 1500
    image = rng.integers(0, 256, (32, 32, 3), np.uint8)
    draws = draw_augmentation(n, n, (32, 32), settings=PAPER, generator=torch.Generator().manual_seed(1))
    ours = augment(torch.tensor(image).expand(n, 32, 32, 3), draws, PAPER).numpy()
    theirs = np.stack([plain(image, rng) for _ in range(n)])
    for power in (1, 2):
        a, b = ours.astype(float) ** power, theirs**power
        error = np.sqrt((a.var(0) + b.var(0)) / n)
        assert (np.abs(a.mean(0) - b.mean(0)) / error).max() < 5.5


def test_partners_stay_in_their_batch():
    draws = draw_augmentation(10, 4, (32, 32, 3), settings=PAPER, generator=torch.Generator().manual_seed(0))
    for start in (0, 4, 8):
        of_batch = draws.batch(start, start + 4)
        assert of_batch.partner.sort().values.tolist() == list(range(len(of_batch.partner)))
        assert of_batch.weight.unique().numel() == 1


def test_without_chance_nothing_is_drawn():
    none = Augmentation(flip=False, pad=0, cutout=0, mixup=0)
    draws = draw_augmentation(5, 4, (8, 8, 1), settings=none, generator=torch.Generator())
    assert not draws.flip.any() and not draws.dy.any() and draws.weight.min() == 1
