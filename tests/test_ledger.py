"""The ledger under races, kills, threads, forks and odd files."""
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import blockrr as br
from blockrr.privacy import ledger as ledger_module, release as release_module
from blockrr.privacy.ledger import BudgetExceeded, Ledger, _rounded, _total


def start(code, *args):
    "A Python process that runs this code with these arguments."
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


RELEASE = """
    import sys, time
    import blockrr as br
    from blockrr.privacy import release as module
    def stop(*_): print("first bit asked for", flush=True); time.sleep(60)
    module.RandomBits = stop
    br.release([0, 1, 2] * 100, .5, 3, {method!r}, ledger=sys.argv[1], dataset_id="d", budget=1)
    print("released", flush=True)
"""


@pytest.mark.parametrize("method", ["rr", "rr_with_prior", "block_rr"])
def test_kill_between_debit_and_release_leaves_the_debit(tmp_path, method):
    path = tmp_path / "ledger.db"
    process = start(RELEASE.format(method=method), path)
    assert process.stdout.readline() == "first bit asked for\n", process.stderr.read()
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL and "released" not in out
    account = Ledger(path).account("d")
    assert (account.spent, account.debits) == (.5, 1)
    assert len(br.release([0, 1, 2] * 100, .5, 3, method, ledger=path, dataset_id="d").labels)
    with pytest.raises(BudgetExceeded): br.release([0, 1, 2] * 100, .5, 3, method, ledger=path, dataset_id="d")


SPEND = """
    import sys
    from blockrr.privacy.ledger import BudgetExceeded, Ledger
    ledger = Ledger(sys.argv[1])
    sys.stdin.readline()
    for i in range(int(sys.argv[2])):
        try: ledger.spend("d", float(sys.argv[3]), budget=1)
        except BudgetExceeded: print("refused", flush=True)
        else: print("spent", flush=True)
"""


def test_processes_cannot_overspend_together(tmp_path):
    path, crowd = tmp_path / "ledger.db", []
    for _ in range(5):
        crowd.append(subprocess.Popen([sys.executable, "-c", textwrap.dedent(SPEND), str(path), "8", "0.0625"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for p in crowd: p.stdin.write("\n"); p.stdin.flush()  # let them all go at once: even the making of the file is raced for
    lines = [line for p in crowd for line in p.communicate()[0].split()]
    assert all(p.returncode == 0 for p in crowd)
    assert (lines.count("spent"), lines.count("refused")) == (16, 24)
    account = Ledger(path).account("d")
    assert (account.spent, account.left, account.debits) == (1.0, 0.0, 16)


def test_reading_the_sum_and_writing_the_debit_are_one_step(tmp_path, monkeypatch):
    "Everybody dawdles between reading and writing, so that without the lock all would see an empty account."
    ledger, read, results = Ledger(tmp_path / "ledger.db"), ledger_module._amounts, []
    ledger.spend("d", 0, budget=1)
    def dawdle(db, name):
        amounts = read(db, name)
        time.sleep(.1)
        return amounts
    monkeypatch.setattr(ledger_module, "_amounts", dawdle)
    def spend():
        try: ledger.spend("d", .5); results.append("spent")
        except BudgetExceeded: results.append("refused")
    threads = [threading.Thread(target=spend) for _ in range(5)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert sorted(results) == ["refused"] * 3 + ["spent"] * 2 and ledger.account("d").spent == 1


def test_kills_at_any_moment_never_lose_a_debit(tmp_path):
    path, said = tmp_path / "ledger.db", 0
    Ledger(path).spend("d", 0, budget=1)
    for lines in (0, 1, 2, 3, 5, 8):
        p = subprocess.Popen([sys.executable, "-c", textwrap.dedent(SPEND), str(path), "100000", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        p.stdin.write("\n"); p.stdin.flush()
        for _ in range(lines): p.stdout.readline()
        p.kill()
        rest, _ = p.communicate()
        said += lines + rest.count("spent\n")
        debits = Ledger(path).account("d").debits - 1
        assert debits >= said  # whoever said "spent" is in the ledger ...
        said = debits          # ... and at most the last one may be there without having said so
    with sqlite3.connect(path) as db: assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_refused_release_draws_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(release_module, "RandomBits", lambda *_: pytest.fail("a bit was asked for"))
    with pytest.raises(BudgetExceeded) as e: br.release([0, 1] * 50, 2, 2, ledger=path, dataset_id="d", budget=1)
    assert (e.value.asked, e.value.account.spent, e.value.account.budget) == (2.0, 0.0, 1.0)
    for digits in ("0.0", "1.0", "2.0"): assert digits in str(e.value)


def test_the_debit_is_committed_before_the_first_bit(tmp_path, monkeypatch):
    path, seen, bits = tmp_path / "ledger.db", [], release_module.RandomBits
    def watch(*names):
        with sqlite3.connect(path) as db: seen.append(db.execute("SELECT epsilon FROM debits").fetchall())  # another connection: sees commits only
        return bits(*names)
    monkeypatch.setattr(release_module, "RandomBits", watch)
    br.release([0, 1] * 50, .5, 2, ledger=path, dataset_id="d", budget=1)
    assert seen and all(rows == [((.5).hex(),)] for rows in seen)


def test_a_ledger_changes_no_seeded_result(tmp_path):
    y = np.arange(3000) % 3
    for method in ("rr", "rr_with_prior", "block_rr"):
        with_, without = (br.release(y, 1, 3, method, seed=3, **kw) for kw in (dict(ledger=tmp_path / "l.db", dataset_id="d", budget=9), {}))
        assert (with_.labels == without.labels).all() and with_.statement.table_sha256 == without.statement.table_sha256


def test_threads(tmp_path):
    ledger, results = Ledger(tmp_path / "ledger.db"), []
    def spend():
        for _ in range(4):
            try: ledger.spend("d", .125, budget=1); results.append(True)
            except BudgetExceeded: results.append(False)
    threads = [threading.Thread(target=spend) for _ in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert (results.count(True), results.count(False)) == (8, 16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork(tmp_path):
    code = """
        import os, sys
        from blockrr.privacy.ledger import Ledger
        ledger = Ledger(sys.argv[1])
        ledger.spend("d", .25, budget=1)
        child = os.fork()
        ledger.spend("d", .25)
        if child: assert os.waitpid(child, 0)[1] == 0
        else: os._exit(0)
    """
    p = start(code, tmp_path / "ledger.db")
    _, error = p.communicate()
    assert p.returncode == 0, error
    assert Ledger(tmp_path / "ledger.db").account("d").spent == .75


def test_a_busy_ledger_is_an_error_and_spends_nothing(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0, budget=1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError, match="busy for 0.05 seconds; nothing was released"): Ledger(path, timeout=.05).spend("d", .5)
    other.close()
    assert Ledger(path).account("d").debits == 1


def test_a_foreign_database_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db: db.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="no blockrr ledger"): Ledger(path).spend("d", .5, budget=1)
    assert path.read_bytes() == before


def test_lines_cannot_be_changed_or_deleted(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", .5, budget=1)
    with sqlite3.connect(path) as db:
        for order in ("UPDATE debits SET epsilon = '0x0p+0'", "DELETE FROM debits", "UPDATE accounts SET budget = 'inf'", "DELETE FROM accounts"):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"): db.execute(order)
    assert Ledger(path).account("d").spent == .5


def test_the_path_does_not_follow_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger.db")
    ledger.spend("d", 1, budget=1)
    monkeypatch.chdir(tmp_path / "a")
    with pytest.raises(BudgetExceeded): ledger.spend("d", 1)
    assert not list((tmp_path / "a").iterdir())


def test_ids_are_data_not_sql(tmp_path):
    ledger, name = Ledger(tmp_path / "ledger.db"), "'; DROP TABLE debits; -- Übung\n\0x"
    assert ledger.spend(name, .5, budget=1).spent == .5 and ledger.spend("d", 1, budget=1).debits == 1
    assert ledger.account(name).dataset_id == name


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1e-300), st.floats(0, 10), st.floats(0, allow_nan=False), st.just(math.inf)), max_size=12))
def test_sums_are_exact_and_rounded_outwards(values):
    total = _total(values)
    up, down = _rounded(total, up=True), _rounded(total, up=False)
    assert total == (math.inf if math.inf in values else sum(map(Fraction, values)))
    assert down <= total <= up
    assert up == down or up == math.nextafter(down, math.inf)


def test_the_statement_is_strict_json(tmp_path):
    def no_constants(x): raise AssertionError(f"{x} is not JSON")
    for epsilon in (0, 1e-300, 1, 700, math.inf):
        text = br.release([0, 1, 2] * 50, epsilon, 3, seed=0, ledger=tmp_path / "l.db", dataset_id="d", budget=math.inf).to_json()
        facts = json.loads(text, parse_constant=no_constants)
        assert facts["rows"] == facts["rows_prior"] + facts["rows_released"] and facts["dataset_id"] == "d"
        assert len(facts["table_sha256"]) == 64 and facts["version"] == br.__version__


def test_import_stays_light():
    code = "import sys, blockrr; print(*[m for m in ('sqlite3', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
