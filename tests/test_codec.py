"""The codec gives back every pixel, in every shape, and refuses arrays that do not fit together."""

import numpy as np
import pytest

from blockrr.learning import codec as C


def smooth(n, height, width, channels, seed=0):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, 1, 1, channels))
    return np.clip(coarse + rng.integers(-20, 21, (n, height, width, channels)), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 5, 3), (2, 5, 1, 2), (7, 6, 4, 3)])
def test_round_trip(shape):
    images = smooth(*shape)
    assert (C.decode(C.encode(images, 5)) == images).all()


@pytest.mark.parametrize("value", [0, 255])
def test_extreme_pixels(value):
    images = np.full((4, 5, 5, 3), value, np.uint8)
    images[1] = 255 - value
    assert (C.decode(C.encode(images, 5)) == images).all()


def test_chunks_and_processes(monkeypatch):
    monkeypatch.setattr(C, "_CHUNK", 5)
    images = smooth(13, 4, 4, 1)
    arrays = C.encode(images, 5)
    assert {"states0", "states1", "states2"} < set(arrays) and "states3" not in arrays
    monkeypatch.setattr(C.os, "cpu_count", lambda: 2)
    assert (C.decode(arrays) == images).all()  # in processes
    monkeypatch.setattr(C.os, "cpu_count", lambda: 1)
    assert (C.decode(arrays) == images).all()


@pytest.mark.parametrize("in_processes", [False, True])
def test_damage_is_noticed(monkeypatch, in_processes):
    monkeypatch.setattr(C.os, "cpu_count", lambda: 2 if in_processes else 1)
    monkeypatch.setattr(C, "_CHUNK", 5)
    arrays = C.encode(smooth(13, 4, 4, 1), 5)
    short = {**arrays, "words0": arrays["words0"][:-1]}
    fewer = {**arrays, "states1": arrays["states1"][:-1]}
    for bad in (short, fewer):
        with pytest.raises((ValueError, IndexError)):
            C.decode(bad)
    missing = {k: v for k, v in arrays.items() if k != "layer0w"} | {"layer00w": arrays["layer00w"][:0]}
    with pytest.raises((ValueError, KeyError)):
        C.decode(missing)
