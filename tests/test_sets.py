"""Releases of sets: containers, statements and files there and back, estimates, audit, advice, learners, bad input."""

import csv
import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import blockrr as br
from blockrr.learning.likelihood import label_likelihood
from blockrr.privacy.codebook import all_sets, cyclic_sets
from blockrr.privacy.set_columns import (
    check_separator,
    numbers_of_lists,
    numbers_of_texts,
    sets_as_lists,
    sets_as_texts,
)
from blockrr.privacy.set_offer import offer_sets
from blockrr.privacy.sets import estimate_frequencies
from blockrr.privacy.stages import release_in_groups
from blockrr.privacy.statement import Statement
from blockrr.privacy.subsets import SubsetResponse, respond_by_recipe, respond_with_sets
from blockrr.study.experiment import release_labels, run_all
from blockrr.study.files import release_file
from blockrr.study.learners import LEARNERS
from blockrr.study.spec import Spec, grid

WORDS = ["ale", "bun", "cod", "dip", "egg, fried", "fig"]
Y = np.random.default_rng(0).integers(0, 10, 3000)
SEED = 2**127 + 31
PARTITION = respond_with_sets(br.Domain(6), 0.5, br.Codebook(6, [[0, 1], [2, 3], [4, 5]]))
MECHANISMS = [
    br.subset_response(10, 0.6),
    br.subset_response(10, 0.6, 7),
    br.optimal_subsets(10, 0.6),
    br.optimal_subsets(8, 1.0, [5, 5, 5, 5, 1, 1, 1, 1]),
    br.subset_response(9, 0.5, codebook=cyclic_sets(9, 4)),
    br.subset_response(300, 1.0),
]


def released_by(mechanism, n=500):
    y = np.random.default_rng(1).integers(0, len(mechanism.labels), n)
    return mechanism.privatize(y, seed=SEED)


# the release


@pytest.mark.parametrize("method", ["subset", "optimal_subsets"])
def test_a_release_is_what_its_mechanism_says(method):
    out = br.release(Y, 0.6, 10, method, seed=SEED)
    m = out.mechanism
    assert out.certificate.holds and out.certificate.epsilon <= 0.6 and out.statement.n_outputs == m.n_outputs
    assert (out.likelihood == m.likelihood(out.labels)).all() and out.likelihood.shape == (3000, 10)
    assert list(map(tuple, out.sets)) == [m.outputs[i] for i in out.labels]
    assert (out.index == np.arange(3000)).all() and out.prior is None and "3,000 sets of labels" in repr(out)
    assert (br.release(Y.tolist(), 0.6, 10, method, seed=SEED).labels == out.labels).all()
    inside = m.contains(out.labels)[np.arange(3000), Y].mean()
    expected = (m.transition * m.members.T).sum(1)[Y].mean()
    assert inside == pytest.approx(expected, abs=5 * 0.5 / 3000**0.5) and inside > m.members.sum(1).mean() / 10


def test_where_no_set_says_more_it_is_randomized_response():
    for labels, epsilon in ((3, 1.0), (10, 4.0), (10, math.inf)):
        with pytest.warns(br.ReleaseWarning, match="no set says more than one label"):
            out = br.release(Y % labels, epsilon, labels, "subset", seed=SEED)
        plain = br.release(Y % labels, epsilon, labels, "rr", seed=SEED)
        assert (out.labels == plain.labels).all() and out.statement.mechanism == "RR" and out.statement.sets is None
        assert out.statement.settings == {"size": 1} and out.sets.shape == (3000, 1)
        assert out.statement.rebuild().integers.tolist() == plain.mechanism.integers.tolist()


def test_settings_and_priors():
    assert br.release(Y, 0.6, 10, "subset").statement.settings == {"size": 4}
    assert br.release(Y, 0.6, 10, "subset", size=3).sets.shape == (3000, 3)
    skewed = [5, 5, 5, 5, 5, 5, 1, 1, 1, 1]
    given = br.release(Y, 0.6, 10, "optimal_subsets", prior=skewed)
    assert np.allclose(given.prior, np.array(skewed) / 34) and "counted as public" in given.statement.composition
    assert (given.mechanism.integers == br.optimal_subsets(10, 0.6, given.prior).integers).all()
    assert br.release(Y, 0.6, 10, "subset", prior=skewed).prior is None


def test_the_ledger_is_debited_after_all_checks(tmp_path):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget=2)
    for bad in (dict(size=10), dict(size=0), dict(size=2.0), dict(size=True), dict(l=1), dict(domain=2**16 + 1)):
        with pytest.raises((TypeError, ValueError), match="size|l: only|labels: needs"):
            br.release(**{**dict(labels=Y, epsilon=0.6, domain=10, method="subset"), **account, **bad})
    with pytest.raises(ValueError, match="labels: needs at most 14"):
        br.release(Y, 0.6, 15, "optimal_subsets", **account)
    with pytest.raises(ValueError, match="new to the ledger"):
        br.Ledger(tmp_path / "l.db").account("d")
    br.release(Y, 0.6, 10, "subset", **account)
    br.release(Y, 0.6, 10, "optimal_subsets", **account)
    assert br.Ledger(tmp_path / "l.db").account("d").spent == 1.2


# containers


def test_the_type_of_set_numbers_is_public():
    "It depends on how many sets there are, never on which were released nor on the labels' own type."
    small, large = br.subset_response(WORDS, 0.4), br.subset_response(12, 0.3)
    assert small.n_outputs <= 256 < large.n_outputs <= 65536
    for column in (["ale"], np.array(WORDS), np.array(WORDS, object)):
        assert np.asarray(small.privatize(np.asarray(column))).dtype == np.uint8
    for kind in (np.int64, np.uint8, float):
        assert large.privatize(np.zeros(3, kind)).dtype == np.uint16
    names = pd.Series(["fig", "ale"], index=["x", "y"], name="food")
    for column in (names, names.astype("category"), names.astype("string")):
        out = small.privatize(column)
        assert out.dtype == np.uint8 and list(out.index) == ["x", "y"] and out.name == "food"
    assert type(small.privatize(("ale",))) is tuple and type(small.privatize(["ale"])[0]) is int


def test_other_libraries():
    pl, pa, torch = (pytest.importorskip(name) for name in ("polars", "pyarrow", "torch"))
    m = br.subset_response(WORDS, 0.4)
    assert (
        m.privatize(pl.Series("food", WORDS)).dtype == pl.UInt8 and m.privatize(pl.Series("food", WORDS)).name == "food"
    )
    for column in (pa.array(WORDS), pa.chunked_array([WORDS[:2], WORDS[2:]])):
        out = m.privatize(column)
        assert out.type == pa.uint8() and isinstance(out, pa.ChunkedArray) == isinstance(column, pa.ChunkedArray)
    for labels, dtype in ((6, torch.uint8), (12, torch.int32)):
        numbers = br.subset_response(labels, 0.3).privatize(torch.arange(6))
        assert numbers.dtype == dtype and br.subset_response(labels, 0.3).likelihood(numbers).shape == (6, labels)


def test_a_release_keeps_the_rows_of_a_series():
    y = pd.Series(Y, index=np.arange(3000) * 2, name="y")
    out = br.release(y, 0.6, 10, "subset")
    assert (out.labels.index == y.index).all() and out.labels.dtype == np.uint8 and out.likelihood.shape == (3000, 10)


# statements


@pytest.mark.parametrize("m", MECHANISMS, ids=repr)
def test_recipes_there_and_back(m):
    again = respond_by_recipe(json.loads(json.dumps(m.recipe)), m.epsilon, name=m.name)
    assert (again.integers == m.integers).all() and repr(again) == repr(m) and again.recipe == m.recipe
    assert (released_by(again) == released_by(m)).all()


@pytest.mark.parametrize(("method", "K"), [("subset", 10), ("optimal_subsets", 10), ("subset", 400)])
def test_statements_rebuild_their_mechanism(method, K):
    names = [f"label {i}" for i in range(K)]
    out = br.release([names[i] for i in Y % K], 0.6, names, method, seed=SEED)
    facts = Statement.from_json(out.to_json())
    assert facts == out.statement and facts.matches(out.mechanism) and "label 1" not in out.to_json()
    again = facts.rebuild(names)
    assert again.labels == tuple(names) and (again.likelihood(out.labels) == out.likelihood).all()
    assert not facts.matches(br.subset_response(K, 0.6, 2)) and not facts.matches(br.rr(K, 0.6))
    with pytest.raises(ValueError, match=f"labels: needs {K} labels, as the statement says, got 7"):
        facts.rebuild(7)
    damaged = json.loads(out.to_json())
    for change in ({"epsilon_asked": 0.7}, {"sets": {**damaged["sets"], "sha256": "0" * 64}}, {"n_labels": K + 1}):
        with pytest.raises(ValueError, match="digest|labels"):
            Statement.from_json(json.dumps({**damaged, **change})).rebuild()


def test_equal_tables_of_other_sets_do_not_match():
    "At epsilon 0 all entries are alike; the digest of the sets tells them apart."
    one, other = (br.Codebook(6, sets, cyclic=True) for sets in ([[0, 1]], [[0, 2]]))
    a, b = (respond_with_sets(br.Domain(6), 0.0, book) for book in (one, other))
    facts = br.release(np.arange(6), 0.6, 6, "subset").statement
    assert (a.integers == b.integers).all() and a.recipe["sha256"] != b.recipe["sha256"]
    assert not facts.matches(a)


def test_bad_recipes():
    recipe = br.optimal_subsets(6, 0.5).recipe
    with pytest.raises(TypeError, match="recipe: needs a mapping, got list"):
        respond_by_recipe([], 1.0)
    with pytest.raises(ValueError, match="recipe: needs sets, which is missing"):
        respond_by_recipe({k: v for k, v in recipe.items() if k != "sets"}, 0.5)
    with pytest.raises(ValueError, match="digest"):
        respond_by_recipe({**recipe, "sha256": "0" * 64}, 0.5)
    with pytest.raises(ValueError, match="statement: needs a release of sets, or by RR, to be rebuilt, got BlockRR"):
        br.release(Y, 1.0, 10, "block_rr").statement.rebuild()


# tables and files


@pytest.mark.parametrize("m", MECHANISMS, ids=repr)
def test_texts_and_lists_there_and_back(m):
    released = released_by(m)
    texts = sets_as_texts(m, released)
    assert len(texts) == 500 and (m.contains(numbers_of_texts(m, texts)) == m.contains(released)).all()
    assert [tuple(row) for row in sets_as_lists(m, released)] == [tuple(row) for row in m.sets(released).tolist()]
    assert (m.likelihood(numbers_of_lists(m, sets_as_lists(m, released))) == m.likelihood(released)).all()


def test_list_columns():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    m = br.subset_response(WORDS, 0.4)
    released = m.privatize(WORDS, seed=SEED)
    for column in (pl.Series("f", released), pa.array(released), pd.Series(released, name="f"), np.array(released)):
        lists = sets_as_lists(m, column)
        assert numbers_of_lists(m, lists).tolist() == released
    assert sets_as_lists(m, pl.Series("f", released, pl.UInt8)).dtype == pl.List(pl.String)
    assert sets_as_lists(m, pl.Series("f", [], pl.UInt8)).dtype == pl.List(pl.String)  # of no rows too
    assert sets_as_lists(m, pa.array(released)).type == pa.list_(pa.string())


def test_separators():
    m = br.subset_response(["a|b", "c", "d", "e", "f"], 0.4)
    with pytest.raises(ValueError, match=r"separator: needs a text that no label .* got '\|', which is in label 0"):
        sets_as_texts(m, [0])
    assert sets_as_texts(m, [0], " & ") == ["a|b & c"]
    for wrong, error in (("", ValueError), ("\n", ValueError), (3, TypeError)):
        with pytest.raises(error, match="separator: needs"):
            sets_as_texts(m, [0], wrong)
    with pytest.raises(ValueError, match="domain: needs labels whose texts are distinct"):
        check_separator("|", [1, "1"])
    for wrong in (["c", "zebra"], ["c|c"], ["c|d|e"], [""]):
        with pytest.raises(ValueError, match="texts: needs sets that") as error:
            numbers_of_texts(br.subset_response(WORDS[:5], 0.4), wrong)
        assert "zebra" not in str(error.value) and "row 0" in str(error.value)
    with pytest.raises(TypeError, match="lists: needs a column of lists"):
        numbers_of_lists(m, [3])


def write_survey(path, n=200):
    foods = np.random.default_rng(2).choice(WORDS, n)
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows([["age", "food"], *([20 + i % 60, food] for i, food in enumerate(foods))])


@pytest.mark.parametrize("method", ["subset", "optimal_subsets"])
def test_files_there_and_back(method, tmp_path):
    write_survey(tmp_path / "s.csv")
    out = release_file(tmp_path / "s.csv", tmp_path / "o.csv", "food", WORDS, 0.4, method=method, separator=" + ")
    with open(tmp_path / "o.csv", newline="") as f:
        rows = list(csv.reader(f))
    assert rows[0] == ["age", "food"] and tuple(rows[1][1].split(" + ")) == out.mechanism.outputs[out.labels[0]]
    back = br.load_release(tmp_path / "o.csv")
    assert (back.likelihood == out.likelihood).all() and back.labels.tolist() == list(out.labels)
    assert back.statement == out.statement and back.certificate == out.certificate and back.labels.dtype == np.uint8
    assert label_likelihood(back).shape == (200, 6)


def test_a_file_of_randomized_response(tmp_path):
    write_survey(tmp_path / "s.csv")
    out = release_file(tmp_path / "s.csv", tmp_path / "o.csv", "food", WORDS, 3, method="subset")
    assert out.statement.mechanism == "RR"
    back = br.load_release(tmp_path / "o.csv")
    assert (back.likelihood == out.likelihood).all() and back.labels.tolist() == out.labels


def test_damaged_files(tmp_path):
    write_survey(tmp_path / "s.csv")
    release_file(tmp_path / "s.csv", tmp_path / "o.csv", "food", WORDS, 0.4, method="subset")
    text = (tmp_path / "o.csv").read_text()

    def refused(changed, message):
        (tmp_path / "o.csv").write_text(changed)
        with pytest.raises(ValueError, match=message) as error:
            br.load_release(tmp_path / "o.csv")
        assert "zebra" not in str(error.value)

    lines = text.splitlines(True)
    refused("".join(lines[:-1]), "needs 200 released labels as its companion says, got 199")
    for wrong in ("ale|ale", "zebra", "ale", "ale|zebra", "ale|bun|cod|dip"):
        refused("".join([lines[0], f"20,{wrong}\n", *lines[2:]]), "o.csv: needs sets that .* got another in row 0")
    (tmp_path / "o.csv").write_text(text)
    facts = json.loads((tmp_path / "o.csv.json").read_text())
    mechanism = facts["companion"]["mechanisms"][0]
    for change, message in (
        ({"recipe": {**mechanism["recipe"], "sha256": "0" * 64}}, "recipe: needs sets with the digest"),
        ({"recipe": []}, "companion: is damaged, its mechanism cannot be read"),
        ({"recipe": br.subset_response(6, 0.4, 3).recipe}, "its tables are not those whose digests it states"),
        ({"epsilon": 0.3}, "its tables are not those whose digests it states"),
        ({"domain": WORDS[:5]}, "codebook: needs 5 labels"),
    ):
        changed = {**facts["companion"], "mechanisms": [{**mechanism, **change}]}
        (tmp_path / "o.csv.json").write_text(json.dumps({**facts, "companion": changed}))
        refused(text, message)
    for separator, message in (("", "separator: needs"), (",", "choose another"), ("+", "needs sets that")):
        changed = {**facts["companion"], "file": {**facts["companion"]["file"], "separator": separator}}
        (tmp_path / "o.csv.json").write_text(json.dumps({**facts, "companion": changed}))
        refused(text, message)


KINDS = ["o.csv", "o.tsv", "o.csv.gz", "o.parquet", "o.arrow"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("method", ["subset", "optimal_subsets"])
def test_a_release_of_sets_is_saved_and_loaded(method, name, tmp_path):
    if name.endswith(("parquet", "arrow")):
        pytest.importorskip("pyarrow")
    for domain, labels in ((WORDS, WORDS * 50), (6, np.arange(300) % 6), ([0.5, 2, "b", b"c", False], [0.5, "b"] * 99)):
        out = br.release(labels, 0.4, domain, method, seed=SEED)
        out.save(tmp_path / name, separator="; ")
        back = br.load_release(tmp_path / name)
        assert back.labels.tolist() == list(out.labels) and back.statement == out.statement
        assert (back.likelihood == out.likelihood).all() and back.mechanism.labels == out.mechanism.labels
        for path in tmp_path.iterdir():
            path.unlink()


def test_saving_sets_refuses_a_bad_separator(tmp_path):
    labels = ["a|b", "c", "d", "e", "f|"]
    out = br.release(labels * 9, 0.4, labels, "subset")
    for separator, error in (("|", ValueError), ("||", ValueError), ("", ValueError), (3, TypeError)):
        with pytest.raises(error, match="separator: needs"):
            out.save(tmp_path / "o.csv", separator=separator)
    assert not list(tmp_path.iterdir())
    out.save(tmp_path / "o.csv", separator=" & ")
    assert br.load_release(tmp_path / "o.csv").labels.tolist() == list(out.labels)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("method", ["subset", "optimal_subsets"])
def test_sets_in_batches_are_those_row_by_row(method, name, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from blockrr.study import arrow_files, files

    write_survey(tmp_path / "s.csv", 3000)
    given = dict(column="food", domain=WORDS, epsilon=0.4, method=method, seed=SEED)
    plain = release_file(tmp_path / "s.csv", tmp_path / "plain.csv", **given)
    monkeypatch.setattr(files, "LARGE", 0)
    monkeypatch.setattr(arrow_files, "_BLOCK", 1 << 10)
    out = release_file(tmp_path / "s.csv", tmp_path / name, **given)
    back, first = br.load_release(tmp_path / name), br.load_release(tmp_path / "plain.csv")
    assert list(out.labels) == list(plain.labels) == back.labels.tolist() == first.labels.tolist()
    if name == "o.csv":
        assert (tmp_path / name).read_text().replace('"', "") == (tmp_path / "plain.csv").read_text().replace('"', "")
    if name == "o.parquet":
        column = pa.parquet.read_table(tmp_path / name)["food"]
        assert column.type == pa.list_(pa.string()) and [tuple(row) for row in column.to_pylist()] == [
            tuple(row) for row in out.sets.tolist()
        ]
    monkeypatch.setattr(arrow_files, "_LONGEST", 100)  # a few rows at a time
    release_file(tmp_path / "s.csv", tmp_path / f"few_{name}", **given)
    assert br.load_release(tmp_path / f"few_{name}").labels.tolist() == list(out.labels)
    assert not list(tmp_path.glob(".*"))


def test_several_columns_of_sets(tmp_path):
    with open(tmp_path / "s.csv", "w", newline="") as f:
        csv.writer(f).writerows([["food", "drink"], *([WORDS[i % 6], "wxyz"[i % 4]] for i in range(200))])
    domains = [WORDS, list("wxyz")]
    outs = release_file(tmp_path / "s.csv", tmp_path / "o.csv", ["food", "drink"], domains, 0.8, method="subset")
    for name, out in zip(("food", "drink"), outs):
        back = br.load_release(tmp_path / "o.csv", name)
        assert back.labels.tolist() == list(out.labels) and back.statement.epsilon_asked == 0.4
    text = (tmp_path / "o.csv").read_text()
    with pytest.raises(ValueError, match="column: needs one of the released columns"):
        br.load_release(tmp_path / "o.csv")
    assert "|" in text and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
@pytest.mark.parametrize("method", ["subset", "optimal_subsets"])
def test_the_room_taken_before_the_draw_is_enough(method, name, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from blockrr.study import files

    labels = [f'the "{i}"th, {"o" * i}' for i in range(14)]  # the largest program of optimal sets
    with open(tmp_path / "s.csv", "w", newline="") as f:
        csv.writer(f).writerows([["y"], *([label] for label in labels * 40)])
    taken, begin = [], files._begin

    def noted(statement, *facts):
        begin(statement, *facts)
        taken[:] = [(tmp_path / f".{name}{end}.tmp").stat().st_size for end in ("", ".json")]

    monkeypatch.setattr(files, "_begin", noted)
    release_file(tmp_path / "s.csv", tmp_path / name, "y", labels, 0.1, method=method)
    sizes = [(tmp_path / f"{name}{end}").stat().st_size for end in ("", ".json")]
    assert sizes[1] <= taken[1] and (name != "o.csv" or sizes[0] <= taken[0])


def test_nothing_is_drawn_for_a_bad_separator(tmp_path):
    write_survey(tmp_path / "s.csv")
    account = {"ledger": tmp_path / "l.db", "dataset_id": "d", "budget": 1}
    for options, message in (
        (dict(method="subset", separator=","), "separator: needs a text that no label of the domain contains"),
        (dict(method="rr", separator="|"), "separator: only sets of labels in text have one"),
        (dict(method="subset", size=6), "size: needs an integer from 1 to 5"),
    ):
        with pytest.raises(ValueError, match=message):
            release_file(tmp_path / "s.csv", tmp_path / "o.csv", "food", WORDS, 0.4, **options, **account)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(("o", ".o"))] == []
    if (tmp_path / "l.db").exists():
        with pytest.raises(ValueError, match="new to the ledger"):
            br.Ledger(tmp_path / "l.db").account("d")


def test_the_command_line(tmp_path):
    write_survey(tmp_path / "s.csv")
    (tmp_path / "domain.txt").write_text("\n".join(WORDS))
    command = [sys.executable, "-m", "blockrr", "release", "s.csv", "--output", "o.csv", "--column", "food"]
    command += ["--domain", "@domain.txt", "--epsilon", "0.4", "--method", "subset", "--size", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Release of 200 sets of labels by SubsetResponse" in done.stdout, done.stderr
    facts = json.loads((tmp_path / "o.csv.json").read_text())
    assert facts["companion"]["file"]["separator"] == "|" and facts["settings"] == {"size": 2}
    assert facts["sets"]["size"] == 2 and br.load_release(tmp_path / "o.csv").sets.shape == (200, 2)


# estimates


@pytest.mark.parametrize("m", [*MECHANISMS, SubsetResponse(cyclic_sets(20, 6), 1.0)], ids=repr)
def test_frequencies_by_hand(m):
    "Estimates are the debiased shares, and the covariance that of the rows' own vectors."
    released = released_by(m)
    found = m.frequencies(released)
    T, D = m.transition, np.diag(1 / m.transition.sum(0))
    rows = (np.linalg.inv(T @ D @ T.T) @ T @ D).T[m.numbers(released)]
    assert np.allclose(found.estimate, m.debias(m.counts(released)) / 500) and np.allclose(found.estimate, rows.mean(0))
    assert np.allclose(found.covariance, np.cov(rows.T, bias=True) / 500)
    assert np.allclose(found.error, rows.std(0) / 500**0.5) and found.estimate.sum() == pytest.approx(1)
    low, high = found.interval(0.9).T
    assert np.allclose((low + high) / 2, found.estimate) and np.allclose(high - low, 2 * 1.6448536 * found.error)


def test_weighted_least_squares_is_unbiased_and_better():
    m, truth = br.optimal_subsets(10, 0.6), np.arange(10) / 45
    plain = np.linalg.pinv(m.transition.T)
    assert np.allclose(m.debias(truth @ m.transition), truth) and np.allclose(plain @ (truth @ m.transition), truth)
    q = np.full(10, 0.1) @ m.transition
    spread = ((plain**2) @ q - (plain @ q) ** 2).mean()
    assert 3000 * (estimate_frequencies(m, 3000 * q).error ** 2).mean() < spread * (1 - 1e-6)


def test_intervals_cover_as_often_as_they_say():
    "1,000 samples with releases: 95 % within four standard errors of a share, 2.8 points."
    m, rng = br.subset_response(10, 0.6), np.random.default_rng(4)
    truth = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.04, 0.01])
    counts = rng.multinomial(3000, truth @ m.transition, 1000)
    covered = np.zeros(10)
    for c in counts:
        low, high = estimate_frequencies(m, c).interval().T
        covered += (low < truth) & (truth < high)
    assert (np.abs(covered / 1000 - 0.95) < 0.028).all()


def test_sets_estimate_better_than_rr():
    m, plain = br.subset_response(10, 0.6), br.rr(10, 0.6)
    y = np.repeat(np.arange(10), 2000)
    errors = m.frequencies(m.privatize(y, seed=SEED)).error
    T, n = plain.transition, len(y)
    rows = np.linalg.inv(T)[plain.privatize(y, seed=SEED)]
    assert (rows.std(0) / n**0.5 / errors).mean() ** 2 == pytest.approx(1.77, abs=0.1)


def test_what_cannot_be_estimated():
    for mechanism, message in (
        (br.subset_response(6, 0.0, 2), "epsilon 0"),
        (PARTITION, "no set tells apart"),
    ):
        with pytest.raises(ValueError, match=message):
            mechanism.frequencies([0, 1])
    m = br.subset_response(6, 0.4)
    for wrong in ([], [99], ["a"]):
        with pytest.raises(ValueError, match="released: needs"):
            m.frequencies(wrong)
    with pytest.raises(ValueError, match="confidence: needs"):
        m.frequencies([1, 2]).interval(1)


def test_the_most_likely_frequencies_take_sets_too():
    m, truth = br.subset_response(6, 0.8), np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    fit = br.prior_by_em(1e5 * truth @ m.transition, m.transition)
    assert np.allclose(fit.prior, truth, atol=1e-6)


# audit and advice


@pytest.mark.parametrize(
    "m", [br.subset_response(10, 1.0), br.optimal_subsets(10, 1.0), br.subset_response(1000, 1.0)], ids=repr
)
def test_an_audit_comes_close_and_never_above(m):
    labels = m.labels if len(m.labels) < 100 else [3, 7, 500]
    found = br.audit(m, labels, samples=400_000, seed=3)
    assert 0.95 < found.epsilon_lower < 1 and not found.refutes(1) and found.refutes(0.9)
    a, b = (m.labels.index(label) for label in found.pair)
    assert m.contains(list(found.event))[:, a].all() and not m.contains(list(found.event))[:, b].any()


def test_an_audit_finds_a_false_claim():
    wrong = br.subset_response(100, 1.1)
    assert br.audit(wrong, samples=1_000_000, seed=4).refutes(1)
    honest = [br.audit(br.subset_response(20, 0.5), samples=20_000, seed=i, confidence=0.8) for i in range(60)]
    assert sum(a.refutes(0.5) for a in honest) <= 21  # at most a fifth is wrong: 12, and three standard deviations
    assert br.audit(wrong, [3, 7], tests=2, samples=10_000, seed=5).epsilon_lower > 0.7


def test_advice_offers_sets():
    even = br.advise(np.ones(10), 0.6)
    assert even.sets.method == "subset" and even.sets.settings == {"size": 4}
    assert (
        even.sets.gain == pytest.approx(1.77, abs=0.01)
        and "1.8 times as much" in str(even)
        and "Sets of 4" in repr(even)
    )
    out = br.release(Y, 0.6, 10, even.sets.method, **even.sets.settings)
    assert out.sets.shape == (3000, 4)
    assert br.advise(np.ones(10), 3.0).sets is None and br.advise(np.ones(3), 0.5).sets is None
    assert br.advise(np.ones(10), 0.6, menu=[("rr", {})]).sets is None
    assert offer_sets(np.full(1000, 1e-3), 1.0).gain == pytest.approx(92, abs=1)
    with pytest.raises(ValueError, match="menu: needs methods that release single labels, got subset in entry 0"):
        br.advise(np.ones(10), 0.6, menu=[("subset", {"size": 4})])


# where a hard label is needed


def test_what_needs_a_label_says_what_to_do():
    m = br.subset_response(10, 0.6)
    with pytest.raises(ValueError, match="mechanisms: .* outputs are sets of labels; .* take randomized response"):
        release_in_groups(Y, Y * 0, [m], 0.6)
    single = "rr_with_prior, block_rr, optimal_rr, frequent_rr"
    with pytest.raises(ValueError, match=f"method: needs one of {single}, got 'subset'"):
        br.two_stage(Y, 0.6, 10, "subset")
    with pytest.raises(ValueError, match="outputs are sets of labels"):
        m.square()


def test_likelihoods_of_set_numbers():
    m = br.subset_response(10, 0.6)
    released = m.privatize(Y, seed=SEED)
    some = np.where(np.arange(3000) % 2, released.astype(int), -1)  # -1 needs a signed type
    found = label_likelihood(some, m)
    assert np.allclose(found[1::2], m.likelihood(released[1::2])) and (found[::2] == np.float32(0.1)).all()
    with pytest.warns(UserWarning, match="do not fit the stated mechanism"):
        label_likelihood(br.subset_response(10, 3.0, 4).privatize(Y * 0, seed=SEED), m, prior=np.ones(10))
    for wrong, error in (([210], ValueError), ([0.5], TypeError), (["a"], TypeError)):
        with pytest.raises(error, match="needs set numbers"):
            label_likelihood(wrong, m)


def test_specs_and_learners():
    specs = grid("digits", ["subset", "optimal_subsets"], [0.6, "inf"], 1, learner="posterior", settings={"size": 3})
    assert [(s.mechanism, s.epsilon, s.settings) for s in specs] == [
        ("subset", 0.6, (("size", 3),)),
        ("optimal_subsets", 0.6, ()),
        ("subset", math.inf, ()),
        ("optimal_subsets", math.inf, ()),
    ]
    sets, optimal = run_all(specs[:2])
    assert sets.details["sizes"] == [3] and sets.details["sets"] == 120 and sets.details["certified_epsilon"] <= 0.6
    assert sets.accuracy > 50 and optimal.accuracy > 50  # one class in ten, or four in ten where the largest is said
    with pytest.raises(ValueError, match="size: needs an integer"):
        Spec("digits", "subset", 0.6, settings={"size": 0})
    released = release_labels(Spec("digits", "subset", 0.6), np.arange(100, dtype=np.uint8) % 10, 10)
    assert released.are_sets and released.likelihood.shape == (100, 10)
    for learner in ("probe", "backward", "consensus", "resnet18"):
        with pytest.raises(
            ValueError, match=f"learner: {learner} needs one label a row, and sets of labels were released"
        ):
            LEARNERS[learner].fit(None, specs[:1], [released])


def test_codebooks_agree_on_mean_squares():
    rng = np.random.default_rng(9)
    for book in (cyclic_sets(12, 5), all_sets(7, 3)):
        shares = rng.dirichlet(np.ones(book.n_sets))
        rows = np.array([book.solve(row) for row in book.matrix().astype(float)])
        assert np.allclose(book.mean_squares(shares), shares @ rows**2)
