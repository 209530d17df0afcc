"""Sets of labels: codebooks, exact certificates against rational arithmetic, the drawn distribution, bad input."""

import json
import math
import pickle
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

import blockrr as br
from blockrr.privacy import subsets
from blockrr.privacy.codebook import (
    MAX_SETS,
    all_sets,
    codebook_from_recipe,
    cyclic_sets,
    difference_set,
    make_codebook,
)
from blockrr.privacy.mechanism import label_columns
from blockrr.privacy.subsets import SubsetResponse, best_size, information_over_rr, respond_with_sets, set_weights

BITS = 256


def exp_bounds(x: Fraction) -> tuple[int, int]:
    "Integers around e**x 2**256, by the series of x / 2**k and k squarings: no code of the library, no floats."
    halvings = max(0, math.ceil(math.log2(max(x, Fraction(1))))) + 1
    small = x / 2**halvings
    low = high = term_low = term_high = 1 << BITS
    for i in range(1, 60):
        term_low = term_low * small.numerator // (small.denominator * i)
        term_high = -(-term_high * small.numerator // (small.denominator * i))
        low, high = low + term_low, high + term_high
    high += 2 * term_high  # the rest of a series whose terms at least halve
    for _ in range(halvings):
        low, high = low * low >> BITS, -(-high * high >> BITS)
    return low, high


def promised(epsilon: float) -> Fraction:
    return Fraction(min(Decimal(epsilon), Decimal(repr(epsilon))))


def most_unlike(weights) -> Fraction:
    "The largest ratio within a column, as a rational number."
    pairs = set(zip(weights.max(0).tolist(), weights.min(0).tolist()))
    return max(Fraction(high, low) for high, low in pairs)


def random_codebook(rng, n_labels):
    "All sets, chosen cyclic ones, random base sets, or a partition into sets of one size."
    kind = rng.integers(4)
    size = int(rng.integers(1, n_labels))
    if kind == 0:
        return all_sets(n_labels, size)
    if kind == 1:
        return cyclic_sets(n_labels, size, int(rng.integers(2**31)))
    if kind == 2:
        base = [rng.permutation(n_labels)[:size] for _ in range(rng.integers(1, 4))]
        return br.Codebook(n_labels, base, cyclic=True)
    size = int(rng.choice([d for d in range(1, n_labels) if n_labels % d == 0]))
    parts = [rng.permutation(n_labels).reshape(-1, size) for _ in range(rng.integers(1, 4))]
    return br.Codebook(n_labels, np.concatenate(parts))


def random_epsilon(rng) -> float:
    kind = rng.integers(8)
    if kind < 5:
        return round(float(rng.uniform(0, 6)), int(rng.integers(1, 17)))
    return float([10 ** rng.uniform(-12, 0), rng.uniform(6, 43), np.exp(rng.uniform(-300, 3))][kind - 5])


def check_certificate(mechanism, ratio):
    "The certificate of a mechanism, by the largest ratio of its own integers."
    epsilon, found = mechanism.epsilon, mechanism.certify()
    low, high = exp_bounds(promised(epsilon))
    assert ratio * 2**BITS <= low and found.holds and found.claimed == epsilon
    assert promised(found.epsilon) <= promised(epsilon) and ratio * 2**BITS <= exp_bounds(promised(found.epsilon))[1]
    just_less = promised(found.epsilon) * (1 - Fraction(1, 10**14))
    assert ratio * 2**BITS >= exp_bounds(just_less)[0] or found.epsilon == 0
    if 1e-6 < epsilon < 12:
        assert found.epsilon > epsilon * (1 - 1e-9)


def certificates(n, seed):
    "Check n random mechanisms; how many of them had a table."
    rng = np.random.default_rng(seed)
    tables = 0
    for _ in range(n):
        K = int(rng.integers(2, 9))
        book, epsilon = random_codebook(rng, K), random_epsilon(rng)
        if book.cyclic and rng.random() < 0.4:
            m = SubsetResponse(book, epsilon)
            assert m.denominator == book.per_label * m.inside + (book.n_sets - book.per_label) * m.outside <= 2**62
            check_certificate(m, Fraction(m.inside, m.outside))
            continue
        m = respond_with_sets(br.Domain(K), epsilon, book)
        W, members = m.weights, book.matrix().T
        assert {sum(row) for row in W.tolist()} == {2**62}
        if epsilon > 1e-12:
            assert (W[members].min() >= W[~members].max()) and (m.members.T == members).all()
        check_certificate(m, most_unlike(W))
        tables += 1
    return tables


def test_certificates_against_rational_arithmetic():
    assert certificates(1_000, 1) > 500


@pytest.mark.slow
def test_ten_thousand_certificates():
    assert certificates(10_000, 2) > 5_000


def test_bounds_of_exp_are_close():
    for x in (0.1, 1.0, 43.0, 1e-300):
        low, high = exp_bounds(promised(x))
        assert low <= high <= low * (1 + Fraction(1, 2**180)) + 2
        assert math.isclose(low / 2**BITS, math.exp(x), rel_tol=1e-14)


@pytest.mark.parametrize("K", [2, 3, 100, 4096, 2**16])
def test_two_integers_for_any_number_of_sets(K):
    for n_sets in (K, 16 * K):
        for per_label in {n_sets // K, n_sets // 2, n_sets - n_sets // K}:
            for epsilon in (0.0, 1e-9, 0.5, 1.0, 20.0, 43.9, 44.1, 700.0, math.inf):
                inside, outside = set_weights(n_sets, per_label, epsilon)
                assert per_label * inside + (n_sets - per_label) * outside <= 2**62 and inside >= outside >= 0
                if epsilon < 44:
                    assert Fraction(inside, outside) * 2**BITS <= exp_bounds(promised(epsilon))[0]


# the draw


@pytest.mark.parametrize(
    "book", [cyclic_sets(7, 3), cyclic_sets(9, 4), cyclic_sets(15, 11), cyclic_sets(4, 1)], ids=repr
)
def test_every_integer_goes_where_it_should(book):
    "All integers below the denominator, for every label: exactly `inside` of them for each set with the label."
    inside, outside = 5, 2
    sampler = subsets._SetSampler(book, inside, outside)
    u = np.arange(sampler.below, dtype=np.uint64)
    for y in range(book.n_labels):
        out = np.empty(len(u), sampler.dtype)
        sampler.fill(np.full(len(u), y, np.uint8), u << np.uint64(2), None, np.empty(len(u), np.int64), out)
        counts = np.bincount(out, minlength=book.n_sets)
        assert (counts == np.where(book.matrix()[:, y], inside, outside)).all()


def test_integers_above_are_drawn_again():
    book = cyclic_sets(7, 3)
    sampler = subsets._SetSampler(book, 5, 2)
    asked = []

    def more(n):
        asked.append(n)
        return np.full(n, (sampler.below if len(asked) == 1 else 3) << 2, np.uint64)

    random = np.full(4, sampler.below << 2, np.uint64)
    random[1] = 3 << 2
    out = np.empty(4, sampler.dtype)
    sampler.fill(np.zeros(4, np.uint8), random, more, np.empty(4, np.int64), out)
    assert asked == [3, 3] and len(set(out.tolist())) == 1


def chi_square(m, released, y) -> float:
    "The probability of counts as unlikely as these, all labels together."
    K, n_sets = len(m.labels), m.n_outputs
    table = np.bincount(y.astype(np.int64) * n_sets + m.numbers(released), minlength=K * n_sets).reshape(K, n_sets)
    expected = m.transition * np.bincount(y, minlength=K)[:, None]
    return float(chi2.sf(((table - expected) ** 2 / expected).sum(), K * (n_sets - 1)))


def without_a_table(K, epsilon, size):
    return SubsetResponse(cyclic_sets(K, size), epsilon)


@pytest.mark.parametrize(
    "m",
    [
        br.subset_response(10, 0.6),
        br.subset_response(20, 1.0),
        without_a_table(20, 1.0, 6),
        without_a_table(31, 0.3, 15),
    ],
    ids=repr,
)
def test_the_drawn_distribution(m):
    y = np.random.default_rng(3).integers(0, len(m.labels), 10**6).astype(np.uint8)
    assert 1e-5 < chi_square(m, m.privatize(y, seed=[2**127, 11]), y) < 1 - 1e-5  # a fixed seed: no luck in it
    assert chi_square(m, m.privatize((y + 1) % len(m.labels), seed=[2**127, 11]), y) < 1e-5  # and a wrong one is seen


@pytest.mark.parametrize("m", [br.subset_response(10, 0.6), without_a_table(200, 1.0, 50)], ids=repr)
def test_chunks_threads_and_pickles_draw_alike(m):
    K, seed = len(m.labels), 2**127 + 9
    y = np.random.default_rng(4).integers(0, K, 200_000)
    whole = m.privatize(y, seed=seed)
    assert (m.privatize(y, seed=seed, threads=2) == whole).all()
    pieces = m.privatize_chunks(np.split(y, [1, 7, 100_000]), seed=seed)
    assert (np.concatenate(list(pieces)) == whole).all()
    again = pickle.loads(pickle.dumps(m))
    assert (again.privatize(y, seed=seed) == whole).all() and again.codebook == m.codebook
    assert len(pickle.dumps(again)) < 20_000 + 16 * K * m.n_outputs * (type(m) is br.SetMechanism)
    assert not (m.privatize(y, seed=seed + 1) == whole).all()


def test_unlike_codebooks_have_streams_of_their_own():
    "At epsilon 0 their tables are alike; and one word of integers would give two releases the same noise."
    one, other = (br.Codebook(6, sets, cyclic=True) for sets in ([[0, 1]], [[0, 2]]))
    facts = [respond_with_sets(br.Domain(6), 0.0, book).stream_facts() for book in (one, other)]
    assert (facts[0][0] == facts[1][0]).all() and (facts[0][2] != facts[1][2]).any()
    a, b = (SubsetResponse(book, 1.0) for book in (one, other))
    assert (a.integers != b.integers).any() and (a.inside, a.outside) == (b.inside, b.outside)


def test_containers():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    m = br.subset_response(["cat", "dog", "eel", "fox", "gnu"], 0.5)
    names = pd.Series(["cat", "gnu"], index=["x", "y"], name="animal")
    released = m.privatize(names)
    assert list(released.index) == ["x", "y"] and released.name == "animal" and released.dtype.kind in "iu"
    assert m.sets(released).shape == (2, 2) and m.likelihood(released).shape == (2, 5)
    for column in (list(names), tuple(names), pl.Series(names.tolist()), names.astype("category"), names.to_numpy()):
        released = m.privatize(column)
        assert isinstance(released, type(column)) and m.likelihood(released).shape == (2, 5)
    big = without_a_table(300, 1.0, 80)
    assert big.privatize(np.arange(200, dtype=np.uint8)).dtype == np.uint16  # 7,200 sets


def test_dask_draws_alike():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    from dask.base import tokenize

    for m in (br.subset_response(list("abcdefgh"), 0.5), without_a_table(60, 1.0, 15)):
        y = pd.Series(list(m.labels) * 5)
        released = dd.from_pandas(y, npartitions=3).map_partitions(m.privatize, meta=(None, "int64")).compute()
        assert len(released) == len(y) and m.likelihood(released).shape == (len(y), len(m.labels))
        assert tokenize(m) == tokenize(pickle.loads(pickle.dumps(m)))
        assert tokenize(m) != tokenize(br.subset_response(m.labels, 0.51))


def test_memory_of_the_output_without_a_table():
    m = br.subset_response(1000, 1.0)
    y = np.arange(2_000_000, dtype=np.uint16) % 1000
    m.privatize(y[:10])
    tracemalloc.start()
    released = m.privatize(y)
    extra = tracemalloc.get_traced_memory()[1] - 2 * released.nbytes  # drawn, and in the container
    tracemalloc.stop()
    assert isinstance(m, SubsetResponse) and extra < 8_000_000


# codebooks


def test_the_criterion_of_all_sizes_up_to_twenty():
    for K in range(2, 21):
        for w in range(1, K):
            book = make_codebook(K, w)
            assert book.criterion >= 0.98 and book.size == w, book
            assert (np.bincount(book.members.ravel(), minlength=K) == book.per_label).all()


@pytest.mark.parametrize("K", [21, 26, 50, 64, 100, 257, 1000])
def test_the_criterion_up_to_a_thousand(K):
    for w in {2, *(best_size(K, epsilon) for epsilon in (0.2, 0.6, 1, 2, 4))} - {1}:
        assert make_codebook(K, w).criterion >= 0.95


@pytest.mark.parametrize(
    "book", [cyclic_sets(12, 5), all_sets(7, 3), br.Codebook(6, [[0, 1], [2, 3], [4, 5]])], ids=repr
)
def test_linear_maps_by_matrices(book):
    M, rng = book.matrix().astype(float), np.random.default_rng(5)
    v, t = rng.normal(size=book.n_labels), rng.normal(size=book.n_sets)
    assert np.allclose(book.sums(v), M @ v) and np.allclose(book.totals(t), M.T @ t)
    eigenvalues = np.linalg.eigvalsh(M.T @ M - book.per_label * book.size / book.n_labels)[1:]
    if eigenvalues.min() < 1e-9:
        assert book.criterion == 0
        with pytest.raises(ValueError, match="no estimate is unbiased"):
            book.solve(v)
        return
    assert book.criterion == pytest.approx(1 / ((1 / eigenvalues).mean() * eigenvalues.mean()))
    assert np.allclose(M.T @ M @ book.solve(v), v)


def test_difference_sets():
    found = {(K, w) for K in range(3, 140) for w in range(2, K) if difference_set(K, w)}
    assert {(7, 3), (11, 5), (13, 4), (19, 9), (21, 5), (31, 6), (31, 15), (73, 9), (133, 12)} <= found
    for K, w in found:
        assert cyclic_sets(K, w).criterion == pytest.approx(1) and cyclic_sets(K, w).n_sets == K


def test_recipes_come_back_from_json():
    for book in (all_sets(6, 2), cyclic_sets(40, 9), cyclic_sets(13, 4), cyclic_sets(30, 5, stream=2**100)):
        assert codebook_from_recipe(json.loads(json.dumps(book.recipe))) == book
    recipe = cyclic_sets(40, 9).recipe
    assert len(json.dumps(recipe)) < 400
    for wrong in ({"stream": 1}, {"size": 8}, {"picks": recipe["picks"][:-1]}, {"sha256": "0" * 64}, {"n_labels": 41}):
        with pytest.raises(ValueError, match="digest"):
            codebook_from_recipe({**recipe, **wrong})
    with pytest.raises(TypeError, match="recipe: needs a mapping"):
        codebook_from_recipe("all")
    with pytest.raises(ValueError, match="kind"):
        codebook_from_recipe({**recipe, "kind": "secret"})


def test_public_sets_never_change():
    "A digest in a statement names these sets for ever."
    assert cyclic_sets(20, 6).digest == "d27f494e44cccc5f52d816db83e337aafde99dae655d629e592fe1d9ae200e4b"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([], "got no set"),
        ([[]], "set 0 without a label"),
        ([[0, 1], [2]], "sets of one size, got 1 to 2"),
        ([[0, 0], [1, 2], [1, 2]], "distinct labels in a set, got one twice in set 0"),
        ([[0, 1], [1, 4]], "label indices from 0 to 3"),
        ([[-1, 1], [2, 3]], "label indices from 0 to 3"),
        ([[0, 1], [1, 2]], "in some set, got none with label 3"),
        ([[0, 1], [2, 3], [0, 2]], "equally many sets, got 1 with label 1 and 2 with label 0"),
        ([[0, 1, 2, 3], [0, 1, 2, 3]], "size: needs an integer from 1 to 3, got 4"),
    ],
)
def test_bad_codebooks(sets, words):
    with pytest.raises(ValueError, match=words):
        br.Codebook(4, sets)
    with pytest.raises(ValueError, match=words if "4]" not in f"{sets}" and "-1" not in f"{sets}" else "indices"):
        br.subset_response(4, 1.0, codebook=sets)


def test_other_bad_input():
    for size, error in ((0, ValueError), (10, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="size: needs an integer from 1 to 9"):
            br.subset_response(10, 1.0, size)
    with pytest.raises(ValueError, match="size: needs 2, that of the codebook, or None, got 3"):
        br.subset_response(4, 1.0, 3, codebook=[[0, 1], [2, 3]])
    with pytest.raises(ValueError, match="codebook: needs 5 labels"):
        br.subset_response(5, 1.0, codebook=all_sets(4, 2))
    for wrong in ("abcd", 3, [1, 2]):
        with pytest.raises(TypeError, match="codebook: needs"):
            br.subset_response(4, 1.0, codebook=wrong)
    for sets in ([["a", 1.5]], [[0.5, 1]]):
        with pytest.raises(TypeError, match="label indices"):
            br.Codebook(4, sets)
    with pytest.raises(ValueError, match="epsilon"):
        br.subset_response(4, -1.0)
    with pytest.raises(ValueError, match="labels: needs an integer from 2 to 65536"):
        br.subset_response(2**16 + 1, 1.0)
    with pytest.raises(ValueError, match="codebook: needs a cyclic Codebook"):
        SubsetResponse(all_sets(4, 2), 1.0)
    assert MAX_SETS == 2**20


def test_a_label_that_is_not_there_is_not_shown():
    for m in (br.subset_response(["a", "b", "c", "d", "e"], 0.5), without_a_table(60, 1.0, 15)):
        with pytest.raises(ValueError) as error:
            m.privatize(["zebra"])
        assert "zebra" not in str(error.value) and "row 0" in str(error.value)


# what is read from sets


def test_a_set_is_no_label():
    for m in (br.subset_response(10, 0.6), without_a_table(60, 1.0, 15)):
        with pytest.raises(ValueError, match="outputs are sets of labels"):
            m.columns  # noqa: B018
        with pytest.raises(ValueError):
            label_columns(m)
        for wrong in ([m.n_outputs], [-1], ["a"], [None]):
            with pytest.raises(ValueError, match="released: needs set numbers from 0 to"):
                m.likelihood(wrong)


@pytest.mark.parametrize("m", [br.subset_response(6, 0.4), without_a_table(40, 1.0, 9)], ids=repr)
def test_sets_likelihood_and_posterior_agree(m):
    K, every = len(m.labels), np.arange(m.n_outputs)
    assert (m.contains(every) == m.codebook.matrix()).all() and (m.members == m.contains(every)).all()
    assert (m.sets(every) == m.codebook.members).all()
    assert np.allclose(m.likelihood(every), m.transition.T) and np.allclose(m.transition.sum(1), 1)
    ratio = m.likelihood(every)[m.contains(every)].max() / m.likelihood(every)[~m.contains(every)].min()
    assert ratio == pytest.approx(math.exp(m.epsilon))
    prior = np.arange(K)
    joint = m.transition.T * prior
    assert np.allclose(m.posterior(prior), joint / joint.sum(1, keepdims=True))
    assert np.allclose(m.posterior(prior, [3]), m.posterior(prior)[[3]])
    assert m.outputs[5] == tuple(m.codebook.members[5].tolist())


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.5, 3.0, 40.0, 700.0, math.inf])
def test_estimates_are_unbiased(epsilon):
    for m in (respond_with_sets(br.Domain(6), epsilon, all_sets(6, 2)), without_a_table(25, epsilon, 6)):
        truth = np.random.default_rng(6).integers(0, 1000, len(m.labels)).astype(float)
        noise = 1e-6 if epsilon > 1e-4 else 1e-14 / epsilon  # a table's entries are right to 1e-12
        inside, outside = m.transition.max(), m.transition.min()
        expected = outside * truth.sum() + (inside - outside) * m.codebook.sums(truth)
        if epsilon > 1e-4:
            assert np.allclose(expected, truth @ m.transition)
            assert np.allclose(m.debias(expected), truth, atol=noise * truth.sum())
        assert m.debias(expected).sum() == pytest.approx(truth.sum(), rel=max(1e-9, noise))
    with pytest.raises(ValueError, match="epsilon 0"):
        respond_with_sets(br.Domain(6), 0.0, all_sets(6, 2)).debias(np.ones(15))


def test_debias_is_least_squares():
    m = br.subset_response(9, 0.7)
    counts = np.random.default_rng(7).integers(0, 50, m.n_outputs)
    assert np.allclose(m.debias(counts), np.linalg.lstsq(m.transition.T, counts, rcond=None)[0])
    assert np.allclose(m.debias(dict(enumerate(counts.tolist()))), m.debias(counts))


# size and limits


@pytest.mark.parametrize("K", [2, 3, 4, 5, 10, 33, 100])
def test_the_best_size_by_definition(K):
    for epsilon in (0.01, 0.3, 1.0, 2.5, 5.0):
        e = Fraction(math.exp(epsilon))
        worth = []
        for w in range(1, K):
            q = w * e / (w * e + K - w)
            other = (q * (w - 1) + (1 - q) * w) / (K - 1)
            worth.append((q - other) ** 2 / (Fraction(w, K) * (1 - Fraction(w, K))))
        found = best_size(K, epsilon)
        assert worth[found - 1] >= max(worth) * (1 - Fraction(1, 10**12))
        assert information_over_rr(K, found, epsilon) == pytest.approx(float(worth[found - 1] / worth[0]))


def test_rr_where_it_is_as_good():
    for K, epsilon in ((2, 0.1), (3, 1.0), (10, 2.0), (100, 8.0), (10, 0), (10, 700), (10, math.inf), (5000, 12.0)):
        with pytest.warns(br.ReleaseWarning, match="no set says more than one label"):
            m = br.subset_response(K, epsilon)
        assert not isinstance(m, br.SetMechanism) and (m.integers == br.rr(K, epsilon).integers).all()
        assert repr(m) == repr(br.rr(K, epsilon))
    assert (br.subset_response(10, 0.5, 1).integers == br.rr(10, 0.5).integers).all()


@pytest.mark.parametrize("epsilon", [0, 5e-324, 1e-300, 1e-12, 30, 44.5, 700, 1e6, math.inf])
def test_limits_of_epsilon(epsilon):
    for m in (br.subset_response(10, epsilon, 3), without_a_table(40, epsilon, 9)):
        found = m.certify()
        assert found.holds and found.epsilon <= epsilon
        y = np.arange(len(m.labels)).repeat(50)
        inside = m.contains(m.privatize(y, seed=2**127 + 12))[np.arange(len(y)), y]
        if epsilon >= 30:
            assert inside.all()
        elif epsilon < 1e-9:
            assert 0.1 < inside.mean() < 0.5


def test_as_many_labels_as_there_may_be():
    K = 2**16
    m = SubsetResponse(cyclic_sets(K, best_size(K, 1.0), aim=0.3), 1.0)
    y = np.random.default_rng(8).integers(0, K, 3000)
    released = m.privatize(y, seed=2**127 + 13)
    inside = sum(int(np.isin(t, m.codebook.take([s]))) for t, s in zip(y, released)) / len(y)
    assert inside == pytest.approx(m.codebook.per_label * m.levels[0], abs=4 * 0.5 / 3000**0.5)
    assert m.certify().holds and m.sets(released[:2]).shape == (2, m.codebook.size)
    counts = m.counts(released)
    assert m.debias(counts).sum() == pytest.approx(3000)
    with pytest.raises(ValueError, match="transition: needs at most"):
        m.transition  # noqa: B018
    with pytest.raises(ValueError, match="rows at a time"):
        m.likelihood(np.zeros(2**15, int))


def test_every_pair_of_labels_is_told_apart():
    for K in (4, 9, 21, 60):
        book = make_codebook(K, max(2, K // 4))
        M = book.matrix()
        assert all((M[:, i] != M[:, j]).any() for i, j in combinations(range(K), 2))
