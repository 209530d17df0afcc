"""One seed, one release: streams are named by purpose and facts, so nothing is shared by accident."""

import ast
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.prior import split
from blockrr.privacy.sampling import RandomBits, seed_sequence
from blockrr.privacy.stages import cluster_priors, release_in_groups, two_stage

SEED = 918273645546372819
ROOT = Path(__file__).resolve().parent.parent


def shared_noise(one, other, true_one, true_other) -> float:
    "How often two released bits were flipped alike, less what independent noise gives."
    flipped, also = one != true_one, other != true_other
    return (flipped == also).mean() - (flipped.mean() * also.mean() + (1 - flipped.mean()) * (1 - also.mean()))


@pytest.mark.parametrize("method", ["rr", "block_rr", "rr_with_prior"])
def test_two_columns_of_one_seed_share_no_noise(method):
    x, y = np.random.default_rng(1).integers(0, 2, (2, 20_000))
    a, b = (br.release(c, 1.0, 2, method, seed=SEED) for c in (x, y))
    assert (a.index == b.index).all()  # the split is public and looks at no label
    assert abs(shared_noise(a.labels, b.labels, x[a.index], y[b.index])) < 4 / np.sqrt(20_000)
    differ = a.labels != b.labels  # before, both labels were known for certain on these rows
    assert 0.5 < (a.labels == x[a.index])[differ].mean() < 0.9


def test_two_columns_released_in_stages_or_groups_share_no_noise():
    x, y = np.random.default_rng(2).integers(0, 2, (2, 20_000))
    group, pair = np.arange(20_000) % 2, (br.rr(2, 1.0), br.rr(2, 1.0))
    for released in (
        [two_stage(c, 1.0, 2, seed=SEED)[0].labels for c in (x, y)],
        [release_in_groups(c, group, pair, 1.0, seed=SEED).labels for c in (x, y)],
    ):
        assert abs(shared_noise(*released, x, y)) < 4 / np.sqrt(20_000)


def test_groups_and_tables_have_noise_of_their_own():
    y = np.zeros(20_000, int)
    alike = release_in_groups(y, np.arange(20_000) % 2, [br.rr(2, 1.0)] * 2, 1.0, seed=SEED).labels
    assert abs(shared_noise(alike[::2], alike[1::2], y[::2], y[1::2])) < 4 / np.sqrt(10_000)
    a, b = (br.rr(2, e).privatize(y, seed=SEED) for e in (1.0, 1.0 + 1e-12))
    assert abs(shared_noise(a, b, y, y)) < 4 / np.sqrt(20_000)


def test_priors_of_one_seed_share_no_noise():
    n = 10_000
    noise = [n * br.estimate_prior(np.arange(n + shift) % 2, 2, 0.01, seed=SEED)[0] for shift in (0, 2, 4)]
    assert len({round(v) for v in noise}) == 3
    clusters = cluster_priors(np.arange(n) % 2, np.arange(n) // 2 % 2, 2, 2, 0.01, seed=SEED)
    assert clusters[0, 0] != clusters[1, 0]


def test_a_neighbour_changes_no_split():
    y = np.arange(1000) % 3
    for row in (0, 500, 999):
        other = y.copy()
        other[row] = (y[row] + 1) % 3
        assert (
            br.release(other, 1.0, 3, "block_rr", seed=7).index == br.release(y, 1.0, 3, "block_rr", seed=7).index
        ).all()


def test_seeds_that_look_alike_differ():
    m, z = br.rr(4, 0.5), np.arange(1000) % 4
    seeds = (7, [7], [7, 0], [0, 7], [7, 3], 7 + (3 << 32), [7 + (3 << 32)], seed_sequence(7), [7, 3, 0])
    released = [m.privatize(z, seed=s) for s in seeds]
    for a, b in combinations(released, 2):
        assert (a == b).mean() < 0.5
    assert (m.privatize(z, seed=[7, 3]) == m.privatize(z, seed=(7, np.int64(3)))).all()


def test_purposes_share_no_word():
    words = [
        RandomBits(7, *names).words(8).tolist()
        for names in (
            ("split", 10, 1),
            ("prior", 10, 1),
            ("responses", 10, 1),
            ("split", 101),
            ("split", "10", "1"),
            ("group", 10, 1),
        )
    ]
    assert len({w for one in words for w in one}) == 8 * len(words)
    rows = split(1000, 0.5, 7)[0]
    assert not np.array_equal(rows, split(1000, 0.5, [7])[0])


def test_intervals_share_no_noise_with_other_intervals():
    y = np.full(20_000, 2.0)
    a, b = (br.rp_with_prior([0, 1, 2, 3, 4], [1, 1, 1, 1], e).privatize(y, seed=SEED) for e in (1.0, 1.5))
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(20_000)


def seeds_on_offer():
    "Every public function of the privacy package that takes a seed, and what its signature and docstring say of it."
    for path in sorted((ROOT / "blockrr" / "privacy").glob("*.py")):
        if path.name in ("audit.py", "sampling.py"):
            continue
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.arg == "seed":
                    said = source.splitlines()[argument.lineno - 1].partition("#")[2]
                    section = re.search(r"^seed : .*\n((?:[ ]+.*\n?)+)", ast.get_docstring(node) or "", re.M)
                    yield f"{path.stem}.{node.name}", " ".join((said + " " + (section[1] if section else "")).split())


def test_every_seed_on_offer_says_what_it_costs():
    offered = list(seeds_on_offer())
    assert len(offered) >= 9
    for name, said in offered:
        told = "as in `privatize`" in said.lower() or all(
            words in said for words in ("one seed, one release", "can guess", "128")
        )
        assert told, (name, said)
    assert "can guess" in repr(br.release([0, 1] * 50, 1, 2, "rr", seed=1))
