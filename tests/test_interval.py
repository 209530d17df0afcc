"""The interval mechanism in pieces."""

import math

import numpy as np

import blockrr as br


def test_interval_in_pieces():
    m = br.rp_with_prior([0, 1, 2, 5], [1, 5, 1], 1.0)
    y = np.random.default_rng(0).uniform(-1, 7, 200_000)
    whole = m.privatize(y, seed=4)
    pieces = np.split(y, np.sort(np.random.default_rng(1).integers(0, len(y), 20)))
    assert (np.concatenate(list(m.privatize_chunks(pieces, seed=4, threads=2))) == whole).all()
    assert (m.privatize(y, seed=4, threads=5) == whole).all()
    assert (m.privatize(y[:50]) != m.privatize(y[:50])).any()
    secure = np.concatenate(list(m.privatize_chunks(pieces, threads=2)))
    assert abs(secure.mean() - m.mean(y).mean()) < 6 * math.sqrt(m.variance(y).mean() / len(y))
