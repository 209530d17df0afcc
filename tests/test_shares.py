"Frequencies from a release: unbiased, with errors that are right, for every kind of release."

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import blockrr as br
from blockrr.privacy.shares import estimate_shares, project_to_simplex
from blockrr.privacy.stages import release_in_groups

WORDS = ["never", "once", "often"]
TRUTH = np.array([0.6, 0.3, 0.1])
N, DRAWS = 2_000, 400


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ReleaseWarning)
        yield


def by_groups(y, seed):
    tables = [br.rr(3, 1.0), br.block_rr(br.Partition((0, 1), (2,), (0,)), 1.0)]
    return release_in_groups(y, np.arange(len(y)) % 2, tables, 1.0, seed=seed)


RELEASES = {
    "default": lambda y, seed: br.release(y, 1, 3, seed=seed),
    "block": lambda y, seed: br.release(y, 1, 3, "block_rr", prior=TRUTH, sigma=1.0, l=1, seed=seed),
    "stages": lambda y, seed: br.two_stage(y, 1, 3, "rr_with_prior", first=0.5, seed=seed)[0],
    "groups": by_groups,
}


@pytest.mark.parametrize("kind", RELEASES)
def test_intervals_cover_the_truth_95_times_of_100(kind):
    "Of 400 populations drawn anew: within four standard errors of a binomial share, 0.044; the mean within four, too."
    rng = np.random.default_rng(20_261_128)
    inside, estimates, errors = np.zeros(3), [], []
    for seed in range(DRAWS):
        found = RELEASES[kind](rng.choice(3, N, p=TRUTH), seed).frequencies(clamp=False)
        inside += (found.low <= TRUTH) & (found.high >= TRUTH)
        estimates.append(found.estimate)
        errors.append(found.error)
    assert np.abs(inside / DRAWS - 0.95).max() < 4 * math.sqrt(0.95 * 0.05 / DRAWS)
    spread = np.std(estimates, axis=0)
    assert (np.abs(np.mean(estimates, 0) - TRUTH) < 4 * spread / math.sqrt(DRAWS)).all()
    assert np.mean(errors, 0) == pytest.approx(spread, rel=0.15)  # a standard deviation of 400 has an error of 3.5 %


def test_one_table_gives_what_debias_gives():
    y = np.random.default_rng(0).choice(WORDS, 5_000, p=TRUTH)
    out = br.release(y, 1, WORDS, "block_rr", prior=TRUTH, sigma=1.0, l=1, seed=1)
    counts = [np.sum(out.labels == word) for word in out.mechanism.outputs]
    found = out.frequencies(clamp=False)
    assert found.estimate == pytest.approx(out.mechanism.debias(counts) / 5_000, abs=1e-9)
    assert found.labels == tuple(WORDS) and found.rows == 5_000 and found["once"] == found.estimate[1]
    with pytest.raises(KeyError, match="domain"):
        found["violet"]


def test_without_a_table():
    K = 5_000
    y = np.random.default_rng(0).integers(0, 50, 200_000)
    out = br.release(y, 9, K, "rr", seed=0)
    found = out.frequencies(clamp=False)
    assert np.abs(found.estimate[:50] - 0.02).max() < 5 * found.error[:50].max()
    assert found.estimate.sum() == pytest.approx(1) and out.frequencies().estimate.min() == 0
    small = br.rr(40, 2.0)
    counts = np.random.default_rng(1).integers(1, 1000, 40)
    large = br.RandomizedResponse(40, 2.0)
    a, b = (estimate_shares([m], [counts], clamp=False) for m in (small, large))
    assert a.estimate == pytest.approx(b.estimate, abs=1e-9) and a.error == pytest.approx(b.error, rel=1e-6)


def test_what_a_release_does_not_tell():
    out = br.release(np.arange(900) % 3, 1, WORDS_AS_NUMBERS, "rr_with_prior", prior=[9, 8, 0.1], seed=0)
    found = out.frequencies()
    assert np.isinf(found.error).all() and np.isnan(found.estimate).all()
    assert (found.low == 0).all() and (found.high == 1).all()
    assert np.isinf(br.release(np.arange(900) % 3, 0, 3, "rr").frequencies().error).all()
    assert "nan" in found.to_markdown()
    with pytest.raises(ValueError, match="at least one released label"):
        br.release([], 1, 3, "rr").frequencies()


WORDS_AS_NUMBERS = [0, 1, 2]


def test_by_a_public_column():
    rng = np.random.default_rng(0)
    region = rng.choice(["n", "s"], 40_000)
    y = np.where(region == "n", rng.choice(3, 40_000, p=TRUTH), rng.choice(3, 40_000, p=TRUTH[::-1]))
    out = br.release(y, 1, 3, "block_rr", seed=0)  # the prior's rows are not released
    found = out.frequencies(by=region)
    assert list(found) == ["n", "s"] and found["n"].rows + found["s"].rows == len(out.index) < 40_000
    assert found["n"].estimate == pytest.approx(TRUTH, abs=0.06)
    assert found["s"].estimate == pytest.approx(TRUTH[::-1], abs=0.06)
    same = out.frequencies(by=region[out.index])
    assert all((same[k].estimate == found[k].estimate).all() for k in found)
    with pytest.raises(ValueError, match="by: needs a value for each of 40,000 rows, got 7"):
        out.frequencies(by=region[:7])
    for level in (0, 1, "x"):
        with pytest.raises((TypeError, ValueError), match="level"):
            out.frequencies(level=level)


@pytest.mark.parametrize("method, K", (("subset", 10), ("optimal_subsets", 10), ("subset", 300)))
def test_sets_go_the_way_of_their_mechanism(method, K):
    rng = np.random.default_rng(0)
    y = np.minimum(rng.geometric(0.4, 50_000), K) - 1
    out = br.release(y, 0.6, K, method, seed=1)
    own = out.mechanism.frequencies(out.labels)
    found = out.frequencies(clamp=False)
    assert (found.estimate == own.estimate).all() and found.error == pytest.approx(own.error)
    assert found.low == pytest.approx(own.interval()[:, 0]) and found.rows == 50_000
    assert (np.abs(found.estimate - np.bincount(y, minlength=K) / 50_000) < 5 * found.error).all()
    clamped, halves = out.frequencies(), out.frequencies(by=np.arange(50_000) % 2)
    assert clamped.estimate.min() >= 0 and clamped.estimate.sum() == pytest.approx(1)
    assert halves[1].rows == 25_000 and (halves[1].error > found.error).all()


def test_sets_that_do_not_tell():
    found = br.release(np.arange(900) % 10, 0, 10, "subset", seed=0).frequencies()
    assert np.isinf(found.error).all() and np.isnan(found.estimate).all()


def test_projection():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.normal(size=6)
        x += (1 - x.sum()) / 6
        p = project_to_simplex(x)
        assert p.min() >= 0 and p.sum() == pytest.approx(1)
        others = rng.dirichlet(np.ones(6), 200)
        assert ((p - x) ** 2).sum() <= ((others - x) ** 2).sum(1).min() + 1e-12


def test_tables_to_show():
    found = br.release(["never", "once"] * 500, 1, WORDS, seed=0).frequencies()
    assert found.to_markdown().count("\n") == 4 and "never" in repr(found) and "+-" in repr(found)
    assert list(found.to_dict()) == ["label", "estimate", "error", "low", "high"]
    assert found.to_dict()["label"] == WORDS


def test_groups_of_any_column_with_values_missing():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    out = br.release(np.arange(1200) % 3, 1, 3, "rr")
    values = [None if i % 4 == 3 else "b" if i % 2 else "a" for i in range(1200)]
    columns = [
        values,
        np.array(values, object),
        pd.Series(values),
        pd.Series(values, dtype="category"),
        pd.Series(values, dtype="string"),
        pl.Series(values),
        pa.chunked_array([values[:700], values[700:]]),
    ]
    whole = [out.frequencies(by).items() for by in columns]
    assert all([(key, shares.rows) for key, shares in one] == [("a", 600), ("b", 300), (None, 300)] for one in whole)
    numbers = out.frequencies([float("nan") if i % 4 == 3 else i % 2 for i in range(1200)])
    assert [(key, shares.rows) for key, shares in numbers.items()] == [(0, 600), (1, 300), (None, 300)]
    mixed = out.frequencies([1, "a", (2, 3), 1] * 300)
    assert {key: shares.rows for key, shares in mixed.items()} == {1: 600, "a": 300, (2, 3): 300}
    days = np.array(["2026-01-01", "2026-01-02", "NaT"] * 400, "datetime64[ns]")
    assert list(out.frequencies(days)) == [days[0], days[1], None]
    for bad in (
        pd.DataFrame({"a": values}),
        "region",
        {"a": values},
        [[1]] * 1200,
        np.zeros((1200, 2)),
        3,
        iter(values),
    ):
        with pytest.raises(TypeError, match="^by: needs a column"):
            out.frequencies(bad)
