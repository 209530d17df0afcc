"""Warnings: when, how often, with which way out, and from public facts alone."""

import csv
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy import stages
from blockrr.privacy.caution import rows_needed, rows_needed_by_rr
from blockrr.privacy.regression import guide

RNG = np.random.default_rng(0)
MANY = RNG.integers(0, 10, 100_000)


def said(f, *args, **kwargs):
    "The texts of the warnings of a call."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(*args, **kwargs)
    assert all(
        w.category is br.ReleaseWarning and w.filename == __file__ for w in caught
    )  # they point here, not into the library
    return [str(w.message) for w in caught]


def test_an_ordinary_release_warns_of_nothing():
    for method in ("rr", "block_rr", "optimal_rr"):
        for epsilon in (0.6, 1, 3, 8):
            assert said(br.release, MANY, epsilon, 10, method, floor=0.5 if method == "optimal_rr" else None) == []
    assert said(br.two_stage, MANY, 1, 10) == []
    assert said(br.estimate_prior, MANY, 10, 1) == []


def test_an_epsilon_that_changes_nothing():
    for epsilon in (64, math.inf):
        (text,) = said(br.release, MANY, epsilon, 10, "rr")
        assert (
            text.startswith(f"epsilon: at {epsilon:g} fewer than one of 100,000 labels is expected to change")
            and "at epsilon 6.8" in text
        )
    assert any(t.startswith("epsilon: ") for t in said(br.release, MANY, 64, 10, "block_rr"))
    assert any(t.startswith("epsilon: ") for t in said(br.two_stage, MANY, 64, 10, "rr_with_prior"))
    limit = math.log(9 * (100_000 - 1))  # one label of 100,000 is expected to change
    assert said(br.release, MANY, limit - 1e-6, 10, "rr") == [] != said(br.release, MANY, limit + 1e-6, 10, "rr")
    assert said(br.release, [0, 1, 0], 2.0, 2, "rr") == []  # less than one label is expected to change, but each may
    assert said(br.release, [0, 1, 0], 3.0, 2, "rr") != []
    assert said(br.release, [], 64, 2, "rr") == []
    assert len(said(br.release, np.arange(1_000) % 5_000, 64, 5_000, "rr")) == 1  # without a table


def test_labels_that_are_never_released():
    (text,) = said(br.release, MANY, 1, 10, "rr_with_prior", prior=[9, 9, 9] + [1] * 7)
    assert text.startswith("outputs: RRWithPrior never releases 7 of 10 labels") and '"block_rr"' in text
    (text,) = said(br.release, MANY, 1, 10, "rr_with_prior", prior=[9] + [0.1] * 9)
    assert "THE RELEASED COLUMN IS CONSTANT" in text and "keeps 1 of 10" in text and '"rr"' in text
    (text,) = said(br.release, MANY, 1, 10, "optimal_rr", prior=[9] + [0.1] * 9, floor=0)
    assert "CONSTANT" in text
    constant = np.zeros(20_000, int)
    assert any("CONSTANT" in t for t in said(br.release, constant, 1, 10, "rr_with_prior", seed=1))
    assert any(
        "the second stage, RRWithPrior," in t for t in said(br.two_stage, constant, 1, 10, "rr_with_prior", seed=1)
    )
    for method, floor in (("rr", None), ("block_rr", None), ("optimal_rr", 0.1)):
        assert said(br.release, constant, 1, 10, method, seed=1, floor=floor) == []


def test_a_prior_from_too_few_rows():
    y = MANY[:2_000]  # 20 rows for the prior
    (text,) = said(br.release, y, 1, 10, "block_rr")
    assert (
        text.startswith("prior: needs about 77 rows")
        and "got 20" in text
        and "set prior_fraction to 0.039" in text
        and '"rr"' in text
    )
    assert (
        said(br.release, y, 1, 10, "block_rr", prior_fraction=0.039)
        == []
        == said(br.release, y, 1, 10, "block_rr", prior=np.ones(10))
        == said(br.release, y, 1, 10)
        == said(br.release, y, 1, 10, "rr")
    )
    (text,) = said(br.release, y, 0, 10, "block_rr")
    assert "endlessly many" in text and "epsilon 0" in text
    (text,) = said(br.two_stage, y, 1, 10)
    assert text.startswith("prior: needs about 1,675 rows") and "got 200" in text and "set first to" not in text
    (text,) = said(br.two_stage, MANY[:10_000], 1, 10)
    assert "set first to 0.168" in text
    assert (
        len(said(br.estimate_prior, np.zeros(200, int), 100, 1)) == 1
        and said(br.estimate_prior, np.zeros(200, int), 10, 1) == []
    )
    assert said(br.estimate_prior, np.zeros(200, int), 100, 1, quiet=True) == []
    (text,) = said(stages.cluster_priors, MANY[:600], np.arange(600) % 6 // 2 + (np.arange(600) == 0), 4, 10, 1)
    assert "got 0" in text or "got 1" in text  # once for all clusters


def test_numbers_of_one_bin():
    peaked = [1, 1, 1, 100, 1]
    (text,) = said(br.rr_on_bins, [0, 1, 2, 3, 4], peaked, 0.1, "absolute")
    assert (
        text.startswith("outputs: THE RELEASED COLUMN IS CONSTANT: RRonBins")
        and len(br.rr_on_bins([0, 1, 2, 3, 4], peaked, 8).outputs) > 1
    )
    assert (
        said(br.rr_on_bins, [0, 1, 2, 3, 4], peaked, 8) == [] == said(guide, [0, 1, 2, 3, 4], peaked, 0.1, "absolute")
    )


def test_advice_for_a_prior_from_too_few_rows():
    (text,) = said(br.advise, np.ones(10), 1, n_prior=20)
    assert text.startswith("prior: needs about 77 rows") and "got 20" in text
    assert said(br.advise, np.ones(10), 1, n_prior=100) == [] == said(br.advise, np.ones(10), 1)


@pytest.mark.parametrize("K, epsilon", [(2, 0.1), (3, 1), (10, 0.6), (10, 1e-5), (100, 1), (1_000, 30), (10, math.inf)])
def test_the_rule_in_exact_terms(K, epsilon):
    "Two standard errors of the share of an average label are 1/K at the number of rows that is named."
    m, q = rows_needed(K, epsilon), math.exp(-epsilon / 2)
    error = math.sqrt((1 / K) * (1 - 1 / K) / m + 2 * q / (1 - q) ** 2 / m**2)
    assert 2 * error == pytest.approx(1 / K, rel=1e-9)
    m, T = rows_needed_by_rr(K, epsilon), br.rr(K, epsilon).transition
    assert 2 * math.sqrt((1 / K) * (1 - 1 / K) / m) / (T[0, 0] - T[0, 1]) == pytest.approx(1 / K, rel=1e-6)


def test_no_warning_depends_on_true_labels_by_itself():
    "Columns that differ in every label, with one public prior or none, are warned of alike."
    for options in (
        dict(method="rr", epsilon=64),
        dict(method="rr", epsilon=1),
        dict(method="rr_with_prior", epsilon=1, prior=[5, 1, 1]),
        dict(method="block_rr", epsilon=1e-3),
        dict(method="block_rr", epsilon=0),
    ):
        texts = {
            tuple(said(br.release, y, domain=3, **options))
            for y in (np.zeros(300, int), np.full(300, 2), np.arange(300) % 3)
        }
        assert len(texts) == 1


def test_as_an_error_it_costs_as_little_as_it_can(tmp_path):
    ledger = br.Ledger(tmp_path / "ledger.db")
    account = {"ledger": ledger, "dataset_id": "d", "budget": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error", br.ReleaseWarning)
        for release in (br.release, br.two_stage):  # too few rows: known before the debit
            with pytest.raises(br.ReleaseWarning, match="^prior: "):
                release(MANY[:500], 1, 10, "block_rr", **account)
        assert not ledger.path.exists()


def test_python_shows_it_once_for_each_line():
    code = "import blockrr as br, numpy as np\nfor _ in range(3): br.release(np.arange(1000) % 10, 64, 10, 'rr')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("ReleaseWarning") == 1 and "<string>:2" in done.stderr


def test_the_command_line_says_it(tmp_path):
    with open(tmp_path / "s.csv", "w", newline="") as f:
        csv.writer(f).writerows([["y"], *[["yes"], ["no"]] * 50])
    blockrr = str(Path(sys.executable).parent / "blockrr")
    done = subprocess.run(
        [
            blockrr,
            "release",
            tmp_path / "s.csv",
            "--output",
            tmp_path / "o.csv",
            "--column",
            "y",
            "--domain",
            "yes,no",
            "--epsilon",
            "64",
            "--method",
            "rr",
        ],
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 0 and done.stderr.count("blockrr release: epsilon: at 64 fewer than one of 100 labels") == 1
    )
