"""Random bits, and labels drawn with them."""

import copy
import math
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import blockrr as br
from blockrr.privacy.integers import DENOMINATOR, integer_table
from blockrr.privacy.lookup import sampler_for
from blockrr.privacy.sampling import Draw, RandomBits, draw


def rr_table(K, epsilon):
    a = math.exp(-epsilon)
    return integer_table(np.where(np.eye(K) > 0, 1.0, a) / (1 + (K - 1) * a), epsilon)


RNG = np.random.default_rng(0)
MANY = RNG.integers(0, 300, 400_000)
LONG = np.tile([2, 0, 1], 50_000)
STEEP = integer_table(RNG.dirichlet(np.full(200, 0.3), 3), math.inf)


def test_bounded_integers_are_uniform():
    bits = RandomBits(1)
    counts = np.bincount([bits.below(3) for _ in range(3000)], minlength=3)
    assert stats.chisquare(counts).pvalue > 1e-6  # fixed seed: fails only if the generator changes
    assert bits.below(1) == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_source_of_bits_is_not_copied(copied):
    for seed in (1, None):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(RandomBits(seed))


@pytest.mark.parametrize("bad", [-1, [0, -2], 1.5, "7", True, []])
def test_what_is_no_seed(bad):
    with pytest.raises((TypeError, ValueError), match="^seed: needs"):
        RandomBits(bad)


def test_many_labels_are_drawn_as_their_table_says():
    big = rr_table(300, 3)
    out = draw(big, MANY, RandomBits(1))
    kept = (out == MANY).mean()
    assert out.dtype == np.uint16
    assert abs(kept - big[0, 0] / DENOMINATOR) < 4 * math.sqrt(kept / len(MANY))  # four standard errors
    assert stats.chisquare(np.bincount(out[out != MANY], minlength=300)).pvalue > 1e-4
    for e in (0, math.inf):
        assert (draw(rr_table(300, e), MANY, RandomBits(1)) == MANY).all() == (e > 0)


@pytest.mark.parametrize("name", ["look-up", "many outputs", "many labels"])
def test_neither_threads_nor_cuts_change_what_a_seed_gives(name):
    cases = {"look-up": (rr_table(3, 1), LONG), "many outputs": (STEEP, LONG), "many labels": (rr_table(300, 3), MANY)}
    W, codes = cases[name]
    whole = draw(W, codes, RandomBits(5))
    for threads in (2, 3, 100):
        assert (draw(W, codes, RandomBits(5), threads=threads) == whole).all()
    pieces = Draw(sampler_for(W), RandomBits(5))
    cuts = [0, 0, 1, 7, 65_535, 65_536, 65_537, 140_000, len(codes)]
    drawn = [pieces(codes[a:b], 1 + a % 2) for a, b in zip(cuts, cuts[1:])]
    assert (np.concatenate(drawn) == whole).all()


def test_no_label_needs_no_bits():
    assert draw(rr_table(3, 1), np.empty(0, int), RandomBits(3)).tolist() == []


@pytest.mark.parametrize("bad", [[3], [-1], [0.5], [[1]], ["a"]])
def test_what_is_no_column_of_codes(bad):
    with pytest.raises((TypeError, ValueError), match="^codes: needs"):
        draw(rr_table(3, 1), bad, RandomBits(0))


@pytest.mark.parametrize("bad", [0, 1.5, True])
def test_threads(bad):
    with pytest.raises((TypeError, ValueError), match="^threads: needs"):
        draw(rr_table(3, 1), [0], RandomBits(0), threads=bad)


@pytest.mark.parametrize("seed", [None, 3])
def test_threads_sharing_bits_never_get_the_same_ones(seed):
    bits = RandomBits(seed)
    with ThreadPoolExecutor(8) as pool:
        words = np.concatenate(list(pool.map(lambda _: bits.words(5_000), range(40))))
    assert len(np.unique(words)) == len(words)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("block", ["", "sys.modules['cryptography'] = None; "])
def test_a_fork_repeats_nothing(block):
    code = (
        block
        + """
import os, numpy as np, blockrr as br
from blockrr.privacy.sampling import RandomBits
m, y, bits = br.rr(10, 1.0), np.zeros(500, np.uint8), RandomBits()
m.privatize(y); bits.words(3); chunks = m.privatize_chunks([y] * 9); next(chunks)
read, write = os.pipe()
if (child := os.fork()) == 0:
    drawn = [m.privatize(y), next(chunks), bits.words(4), m.privatize(y, seed=1)]
    os.write(write, b"".join(d.tobytes() for d in drawn))
    os._exit(0)
os.waitpid(child, 0)
theirs, ours = os.read(read, 4096), (m.privatize(y), next(chunks), bits.words(4), m.privatize(y, seed=1))
cut = [0, 500, 1000, 1032, 1532]
print([theirs[a:b] == o.tobytes() for a, b, o in zip(cut, cut[1:], ours)])
"""
    )
    done = subprocess.run([sys.executable, "-c", "import sys; " + code.strip()], capture_output=True, text=True)
    assert done.stdout.strip() == "[False, False, False, True]", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_with_its_parents_number_repeats_nothing(monkeypatch):
    "In a new namespace of process numbers a child can have the number that its parent has in the old one."
    bits, number, (read, write) = RandomBits(), os.getpid(), os.pipe()
    bits.words(1)
    monkeypatch.setattr(os, "getpid", lambda: number)
    if (child := os.fork()) == 0:
        os.write(write, bits.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 99) != bits.words(4).tobytes()


def test_without_cryptography_the_system_gives_the_bits():
    m = br.rr(10, 1.0)
    code = """import sys; sys.modules["cryptography"] = None
import numpy as np, blockrr as br
from blockrr.privacy import sampling
assert sampling._secure_source() is sampling._from_system
m, y = br.rr(10, 1.0), np.zeros(300_000, np.uint8)
a, b = m.privatize(y), m.privatize(y, threads=2)
print(int((a == b).all()), *np.bincount(a, minlength=10), *m.privatize(y[:20], seed=5))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same, *rest = map(int, done.stdout.split())
    expected = 300_000 * m.transition[0]
    assert not same and (np.abs(rest[:10] - expected) < 6 * np.sqrt(expected)).all()
    assert rest[10:] == m.privatize(np.zeros(20, np.uint8), seed=5).tolist()
