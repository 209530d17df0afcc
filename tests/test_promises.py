"""The promises at scale: a little of what tools/promises counts, and all of it under the marker `slow`.

Then faults that its judges must find.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest

import blockrr as br

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "promises"))
import columns  # noqa: E402
import draws  # noqa: E402
import kills  # noqa: E402
import mechanisms  # noqa: E402

A_LITTLE = {"kills": 3, "mechanisms": 300, "draws": 10**6, "columns": 100}
IN_FULL = {"kills": 800, "mechanisms": 100_000, "draws": 10**9, "columns": 3_000}


def counted(output, *options) -> dict:
    "Run the program; its figures by part. It ends with status 1 where a promise was broken."
    command = [sys.executable, str(ROOT / "tools" / "promises"), "--output", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1) and output.exists(), done.stderr[-2000:]
    parts = json.loads(output.read_text())["parts"]
    assert done.returncode == any(part["failures"] for part in parts.values())
    return parts


@pytest.fixture(scope="module")
def a_little(tmp_path_factory):
    output = tmp_path_factory.mktemp("promises") / "promises.json"
    return counted(output, *(word for name, n in A_LITTLE.items() for word in (f"--{name}", str(n))))


@pytest.mark.parametrize("part", A_LITTLE)
def test_a_little(a_little, part):
    figures = a_little[part]
    assert figures["problems"] == [] and figures["failures"] == 0
    assert figures[part] >= A_LITTLE[part]


@pytest.mark.slow
def test_in_full():
    "Writes results/promises.json."
    parts = counted(ROOT / "results" / "promises.json")
    assert {part: figures["problems"] for part, figures in parts.items()} == {part: [] for part in IN_FULL}
    for part, n in IN_FULL.items():
        assert parts[part][part] >= n and parts[part]["failures"] == 0
    assert set(parts["mechanisms"]["by_constructor"]) == set(mechanisms.KINDS)
    stages = {"before the debit", "debited, no output", "debited, not released", "between releases"}
    assert stages <= set(parts["kills"]["killed"])


# judges that find nothing prove nothing


def test_bounds_of_exp_hold_and_are_close():
    many = np.exp(np.random.default_rng(0).uniform(-20, 7, 200)).tolist()
    for x in [5e-324, 1e-300, 1e-9, 0.1, math.log(2), 1.0, 44.0, 709.9, 1e3, *many]:
        low, high = mechanisms.exp_bounds(x, 200)
        with mpmath.workprec(2200):
            exact = mpmath.exp(mpmath.mpf(x)) * 2**200
            assert low <= exact <= high and high - low <= 2 + exact / 2**150


def test_a_unit_too_much_is_found():
    low = 10**18
    most = low * mechanisms.exp_bounds(1.0, 256)[0] >> 256

    def judge(high, denominator):
        return mechanisms.judge_table([[high, low], [low, high]], denominator, 1.0)[0]

    assert judge(most, most + low) == []
    assert judge(most + 1, most + 1 + low) == ["a ratio above e**epsilon"]
    assert judge(most, most + low + 1) == ["a row does not sum to the denominator"]


def test_a_mechanism_that_is_no_randomised_response_is_found():
    assert mechanisms.judge(br.rr(5, 1.0), 1.0, "rr") == []
    kept = br.rr_with_prior([4, 1, 1, 1, 1], 1.0, k=3)
    assert mechanisms.judge(kept, 1.0) == []
    assert mechanisms.judge(kept, 1.0, "rr") == ["randomised response does not follow its formula"]
    assert mechanisms.judge(kept, 2.0) == ["another epsilon than was asked for"]


@pytest.mark.parametrize(
    "change",
    [dict(epsilon=math.nextafter(1, 0)), dict(epsilon=math.nextafter(1, 2)), dict(holds=False), dict(claimed=2.0)],
)
def test_a_wrong_certificate_is_found(change):
    m = br.rr(5, 1.0)
    _, worst = mechanisms.judge_table(m.weights.tolist(), m.denominator, 1.0)
    honest = m.certify()
    assert mechanisms.judge_certificate(m, honest, 1.0, worst) == []
    assert mechanisms.judge_certificate(m, replace(honest, **change), 1.0, worst)


def test_a_window_too_heavy_is_found():
    m = br.rp_with_prior([0.0, 1.0, 2.0], [1, 1], 1.0, delta=0.5)
    c1, c0 = map(int, m.weights)

    def judge(c1, denominator):
        return mechanisms.judge_interval(c1, c0, m.window, m.cells, denominator, True, 1.0)[0]

    assert judge(c1, m.denominator) == []
    assert judge(2 * c1, m.denominator + 2 * m.window * c1)


def test_draws_at_another_epsilon_are_found():
    rng, n = np.random.default_rng(0), 10**6

    def table(epsilon):
        return br.rr(10, epsilon).weights / 2**62

    assert draws.Tally(300).add(table(1.0) * n, table(1.0)) == []
    assert draws.Tally(300).add(table(1.02) * n, table(1.0)) == ["draws do not fit the table"]
    counts = np.array([rng.multinomial(n, [0.5, 0.5, 0])])
    assert draws.Tally(300).add(counts, np.array([[0.5, 0.5, 0]])) == []
    counts[0, 2] = 1
    assert draws.Tally(300).add(counts, np.array([[0.5, 0.5, 0]])) == ["an output that has no chance came"]


@pytest.fixture
def run(tmp_path):
    "A release by the command that ended well, and was debited."
    run = kills.new_run(tmp_path / "run", tmp_path / "ledger.db", "d", np.random.default_rng(0))
    assert kills.finished(kills.in_fork(run)) == 0 and kills.debits(run.ledger, "d") == 1
    for path in run.folder.iterdir():
        path.chmod(0o600)
    return run


def test_a_finished_release_is_in_order(run):
    assert kills.faults(run, 1) == []


def test_faults_of_killed_releases_are_found(run):
    assert kills.faults(run, 0) == ["1 released columns and 0 debits"]
    text = run.target.read_text()
    run.target.write_text(text[:-20])
    assert kills.faults(run, 1) == ["a half-written output"]
    run.target.write_text(text)
    other = run.folder / ".out.csv.abcdefgh.tmp"
    os.link(run.target, other)
    assert kills.faults(run, 1) == []
    other.unlink()
    other.write_text(text[:1000])
    other.chmod(0o644)
    assert kills.faults(run, 1) == ["2 released columns and 1 debits", "others may read .out.csv.*.tmp"]
    other.write_text(run.source.read_text())
    assert "true labels in a file" in kills.faults(run, 2)
    other.unlink()
    run.statement.unlink()
    assert kills.faults(run, 1) == ["an output without its statement"]


def test_a_damaged_ledger_is_found(run):
    data = bytearray(run.ledger.read_bytes())
    data[100:4000] = bytes(3900)
    run.ledger.write_bytes(data)
    assert kills.sound(run.ledger)


def test_a_release_that_is_killed_before_it_is_announced(tmp_path):
    rng = np.random.default_rng(0)
    hit, _, wrong = kills.kill_library(tmp_path / "ledger.db", "d", 0.05, rng)
    assert hit and wrong == []


def fail(kind, text, cause=None):
    "A function that fails so."

    def act():
        raise kind(text) from cause

    return act


def test_bad_answers_to_bad_columns_are_found():
    assert columns.verdict(fail(ValueError, "labels: row 3 is missing")) == ""
    assert columns.verdict(fail(TypeError, "labels: needs a column, got int")) == ""
    assert columns.verdict(lambda: None) == "accepted"
    assert columns.verdict(fail(KeyError, "row 3")) == "KeyError instead of TypeError or ValueError"
    assert columns.verdict(fail(ValueError, "labels: 'quagga7041' is unknown")) == "a message shows a label"
    assert columns.verdict(fail(ValueError, "labels: unknown", KeyError("Quagga7041"))) == "a message shows a label"
    assert columns.verdict(fail(ValueError, "")) == "says nothing"
