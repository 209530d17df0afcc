"""Faults that were found by trying the library as an adversary would: one test for each, with the right value."""

import json
import math
import os
import sqlite3
import stat
import subprocess
import sys
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blockrr as br
from blockrr.privacy import comparators as C
from blockrr.privacy import stages as st
from blockrr.privacy.ledger import BudgetExceeded

DOMAIN = ["never", "once", "often"]
pytestmark = pytest.mark.filterwarnings("ignore::blockrr.ReleaseWarning")


def command(*words, folder, **more):
    return subprocess.run([sys.executable, "-m", "blockrr", *words], cwd=folder, capture_output=True, text=True, **more)


def test_1_neighbours_have_the_same_categories():
    columns = ["never"] * 60 + ["often"] * 41, ["never"] * 60 + ["often"] * 40 + ["once"]
    found = [
        br.release(pd.Series(c, dtype="category"), 0.01, DOMAIN, method="rr").labels.cat.categories for c in columns
    ]
    assert [list(f) for f in found] == [DOMAIN, DOMAIN]


def test_2_an_arrow_dictionary_in_pandas_is_released_with_a_ledger(tmp_path):
    dtype = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    account = dict(ledger=tmp_path / "ledger.db", dataset_id="d", budget=1)
    labels = br.release(pd.Series(["never"] * 90 + ["often"] * 10, dtype=dtype), 1, DOMAIN, "rr", **account).labels
    assert labels.dtype == dtype and set(labels) <= set(DOMAIN)


def test_3_an_arrow_table_takes_its_column_back():
    column = pa.array(["never"] * 60 + ["often"] * 41).dictionary_encode()
    table = pa.table({"x": range(101), "y": column})
    labels = br.release(table["y"], 1, DOMAIN, "rr").labels
    assert table.set_column(1, table.schema.field("y"), labels).schema == table.schema


def test_4_the_array_behind_a_text_column_is_a_column():
    values = pd.DataFrame({"y": ["never", "once"] * 20})["y"].values
    assert len(br.release(values, 1, DOMAIN, "rr").labels) == 40


def test_5_a_gaussian_never_has_a_pure_certificate():
    gaussian = C.gaussian(range(5), 1.0, 1e-2, cells=5)
    with pytest.raises((TypeError, ValueError), match="delta"):
        st.release_in_groups([0, 4] * 50, np.zeros(100, int), [gaussian], 1.0)
    assert br.certify(gaussian.weights).epsilon > 3


def test_6_numbers_never_pass_for_label_indices():
    bins = br.rr_on_bins([0, 1, 2, 4, 8], [0.4, 0.3, 0.15, 0.1, 0.05], 3.0)
    try:
        released = st.release_in_groups([8.0] * 200, np.zeros(200, int), [bins], 3.0).labels
    except (TypeError, ValueError) as e:
        assert "mechanisms" in str(e)
    else:
        assert np.mean(np.isclose(released, 4.315, atol=0.01)) > 0.5


def test_7_group_priors_are_the_callers_promise():
    out = st.release_in_groups([0, 1] * 50, np.zeros(100, int), [br.rr(2, 1.0)], 1.0)
    assert "promise" in out.to_json() or "provided" in out.to_json() or " if " in out.to_json()


def test_8_one_seed_for_two_columns_gives_neither_away():
    a, b = np.random.default_rng(1).integers(0, 2, (2, 20000))
    x, y = (br.release(c, 0.2, 2, "rr", seed=918273645546372819).labels for c in (a, b))
    differ = x != y
    assert abs((x == a)[differ].mean() - 0.5) < 0.1  # it was 1: both true labels were known


def test_9_seeds_that_look_alike_differ():
    m, z = br.rr(3, 0.5), np.arange(300) % 3
    pairs = (7, [7, 0]), (7 + (3 << 32), [7, 3])
    for one, other in pairs:
        assert (m.privatize(z, seed=one) != m.privatize(z, seed=other)).any()


def test_10_a_seed_can_be_guessed_and_that_is_said():
    assert "knows or can guess" in repr(br.release([0, 1] * 50, 1, 2, "rr", seed=20261128))


def test_11_a_table_that_is_too_large_is_refused_before_the_debit(tmp_path):
    path = tmp_path / "ledger.db"
    with pytest.raises(ValueError):
        br.release(
            np.zeros(100, int),
            1.0,
            30_000,
            "rr_with_prior",
            prior=np.ones(30_000),
            ledger=path,
            dataset_id="d",
            budget=1.0,
        )
    with pytest.raises(ValueError, match="d"):
        br.Ledger(path).account("d")


def test_12_a_line_of_the_ledger_is_never_replaced(tmp_path):
    ledger = br.Ledger(tmp_path / "ledger.db")
    ledger.spend("d", 1, budget=2)
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        columns = [c[1] for c in db.execute("PRAGMA table_info(debits)")]
        row = dict(zip(columns, db.execute("SELECT * FROM debits").fetchone()))
        row["epsilon"] = "0"
        with pytest.raises(sqlite3.DatabaseError):
            db.execute(f"INSERT OR REPLACE INTO debits VALUES ({', '.join('?' * len(row))})", list(row.values()))
    assert ledger.account("d").spent == 1


def test_13_what_is_written_is_as_private_as_what_was_read(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("x,y\n" + "1,never\n2,often\n" * 20)
    source.chmod(0o600)
    words = (
        "release",
        "in.csv",
        "--output",
        "out.csv",
        "--column",
        "y",
        "--domain",
        ",".join(DOMAIN),
        "--epsilon",
        "1",
        "--method",
        "rr",
    )
    done = command(*words, "--ledger", "ledger.db", "--dataset-id", "d", "--budget", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("out.csv", "ledger.db"):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) & 0o077 == 0, name


def test_14_ten_tenths_are_one(tmp_path):
    ledger = br.Ledger(tmp_path / "ledger.db")
    for amount in (0.1, "0.1", Decimal("0.1"), Fraction(1, 10), 0.1, 0.1, 0.1, 0.1, 0.1, 0.1):
        ledger.spend("d", amount, budget=1)
    assert ledger.account("d").left == 0
    with pytest.raises(BudgetExceeded):
        ledger.spend("d", 1e-300)


def test_15_a_bad_row_is_numbered_in_the_whole_column():
    with pytest.raises(ValueError, match=r"row 3 of the whole column.*2 labels of earlier chunks were released"):
        list(br.rr(["a", "b", "c"], 1.0).privatize_chunks(iter([["a", "b"], ["a", "zz"]])))


def test_16_counts_with_labels_go_by_their_labels():
    public = pd.Series(["often"] * 70 + ["never"] * 25 + ["once"] * 5)
    mechanism = br.rr_with_prior(public.value_counts(normalize=True), 1.0, k=1, labels=DOMAIN)
    assert mechanism.outputs == ("often",)


def test_17_an_empty_line_is_a_missing_label(tmp_path):
    (tmp_path / "in.csv").write_text("y\nnever\n\nonce\noften\nnever\n")
    done = command(
        "release",
        "in.csv",
        "--output",
        "out.csv",
        "--column",
        "y",
        "--domain",
        ",".join(DOMAIN),
        "--epsilon",
        "1",
        "--method",
        "rr",
        folder=tmp_path,
    )
    assert done.returncode and "missing" in done.stderr and not (tmp_path / "out.csv").exists()


def test_19_words_are_no_counts():
    with pytest.raises((TypeError, ValueError), match="^counts: needs") as e:
        br.rr(2, 1.0).debias(["a", "b"])
    assert "'a'" not in str(e.value)


def test_20_staircases_at_large_epsilon():
    assert br.certify(C.staircase([0, 1, 2], 745.0)).holds
    assert br.certify(C.staircase([4, 13, 15, 25, 27, 31, 39, 43, 55, 57, 59, 63], 65.0, cells=17)).holds


@pytest.mark.parametrize("K", [5_000, 9_140, 1 << 20])
def test_21_randomized_response_needs_no_table(K):
    out = br.release(np.arange(2_000) % K, 1, K, "rr")
    assert out.certificate.holds and out.certificate.epsilon <= 1 and len(out.labels) == 2_000


def test_22_a_projected_prior_does_better():
    shares = {
        rule: br.estimate_prior(np.zeros(200, int), 1_000, 1, seed=1, rule=rule)[0] for rule in ("clip", "project")
    }
    assert shares["clip"] < 0.4 and shares["project"] > 0.8


def test_23_an_epsilon_that_changes_nothing_is_said():
    with pytest.warns(br.ReleaseWarning, match="epsilon"):
        br.release(np.arange(100_000) % 10, 64, 10, "rr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        br.release(np.arange(100_000) % 10, 1, 10, "rr")


def test_24_disjoint_parts_cost_their_maximum(tmp_path):
    ledger = br.Ledger(tmp_path / "ledger.db")
    for part, amount in (("january", 0.5), ("february", 0.75), ("january", 0.25)):
        ledger.spend("d", amount, budget=1, part=part)
    assert ledger.account("d").spent == 0.75
    assert math.isclose(ledger.account("d").left, 0.25)
    done = command("ledger", "ledger.db", "--json", folder=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)


def test_a_decimal_columns_width_is_the_domains():
    domain = [Decimal("1"), Decimal("2.5"), Decimal("300")]
    columns = [pa.array([Decimal(v) for v in c]) for c in (["1", "1"], ["1", "2.5"], ["1", "300"])]
    assert len({c.type for c in columns}) == 3  # Arrow makes each as wide as its numbers
    assert {br.release(c, 0.1, domain, "rr").labels.type for c in columns} == {pa.decimal128(4, 1)}
    assert br.release(columns[0].cast(pa.decimal128(10, 2)), 0.1, domain, "rr").labels.type == pa.decimal128(10, 2)


def test_a_tensor_without_data_is_no_column():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="^labels: cannot read"):
        br.rr(2, 1.0).privatize(torch.empty(3, device="meta"))


def test_the_two_kinds_of_text_in_pandas_stay_apart():
    mechanism = br.rr(DOMAIN, 1.0)  # what is kept with the domain must not go by the name, which both share
    for storage in ("python", "pyarrow"):
        column = pd.Series(["never", "once"], dtype=pd.StringDtype(storage))
        assert mechanism.privatize(column).dtype.storage == storage


@pytest.mark.parametrize("kind", [np.asarray, pd.Series, pa.array, lambda z: pd.Series(z, dtype="Int64")])
def test_a_large_domain_is_not_walked_again(kind):
    mechanism = br.rr(1 << 20, 1.0)
    column = kind(np.arange(1000))
    mechanism.privatize(column)
    domain, values = mechanism.domain, mechanism.domain.values
    object.__setattr__(domain, "values", _Unread())
    try:
        again = domain.decode(domain.encode(column), like=column)
    finally:
        object.__setattr__(domain, "values", values)
    assert list(again) == list(column)


class _Unread:
    "The values of a domain, of which nothing but their number may be asked."

    def __len__(self):
        return 1 << 20


def test_a_constant_column_is_not_called_the_true_one():
    with pytest.warns(br.ReleaseWarning) as found:
        br.release(np.zeros(1000, int), 1e-9, 4, "rr_with_prior", prior=[1, 0, 0, 0])
    assert ["CONSTANT" in str(w.message) for w in found] == [True]


def test_groups_are_warned_of_before_the_debit(tmp_path):
    account = dict(ledger=tmp_path / "ledger.db", dataset_id="d", budget=1)
    constant, open_ = br.rr_with_prior([1, 0, 0], 0.5, k=1), br.rr(3, 40.0)
    with pytest.warns(br.ReleaseWarning, match="CONSTANT"):
        st.release_in_groups([0, 1] * 50, np.zeros(100, int), [constant], 1.0)
    with pytest.warns(br.ReleaseWarning, match="practically the true one"):
        st.release_in_groups([0, 1] * 50, np.zeros(100, int), [open_], 40.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st.release_in_groups([0, 1] * 50, [0, 1] * 50, [constant, br.rr(3, 0.5)], 1.0)
        with pytest.raises(br.ReleaseWarning):
            st.release_in_groups([0, 1] * 50, np.zeros(100, int), [constant], 1.0, **account)
    with pytest.raises(ValueError, match="d"):
        br.Ledger(tmp_path / "ledger.db").account("d")


@pytest.mark.parametrize("amount", ["0.1", Decimal("0.1"), Fraction(1, 10), 0.1])
def test_stages_take_exact_amounts(tmp_path, amount):
    account = dict(ledger=tmp_path / "ledger.db", dataset_id="d", budget="0.2")
    st.two_stage(np.arange(400) % 4, amount, 4, **account)
    st.release_in_groups([0, 1] * 50, np.zeros(100, int), [br.rr(2, 0.1)], amount, **account)
    assert br.Ledger(tmp_path / "ledger.db").account("d").left == 0


def test_one_mechanism_is_no_list_of_them():
    with pytest.raises(TypeError, match="^mechanisms: needs a list"):
        st.release_in_groups([0, 1] * 5, np.zeros(10, int), br.rr(2, 1.0), 1.0)
