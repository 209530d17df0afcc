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
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr.privacy import ledger as ledger_module
from blockrr.privacy import methods
from blockrr.privacy import release as release_module
from blockrr.privacy.amounts import total as add_up
from blockrr.privacy.ledger import Account, BudgetExceeded, Ledger, _spent, add_note, exact_amount, to_float


def start(code, *args):
    "A Python process that runs this code with these arguments."
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
    assert (account.spent, account.debits) == (0.5, 1)
    assert len(br.release([0, 1, 2] * 100, 0.5, 3, method, ledger=path, dataset_id="d").labels)
    with pytest.raises(BudgetExceeded):
        br.release([0, 1, 2] * 100, 0.5, 3, method, ledger=path, dataset_id="d")


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
        crowd.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SPEND), str(path), "8", "0.0625"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for p in crowd:
        p.stdin.write("\n")
        p.stdin.flush()  # let them all go at once: even the making of the file is raced for
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
        time.sleep(0.1)
        return amounts

    monkeypatch.setattr(ledger_module, "_amounts", dawdle)

    def spend():
        try:
            ledger.spend("d", 0.5)
            results.append("spent")
        except BudgetExceeded:
            results.append("refused")

    threads = [threading.Thread(target=spend) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == ["refused"] * 3 + ["spent"] * 2 and ledger.account("d").spent == 1


def test_kills_at_any_moment_never_lose_a_debit(tmp_path):
    path, said = tmp_path / "ledger.db", 0
    Ledger(path).spend("d", 0, budget=1)
    for lines in (0, 1, 2, 3, 5, 8):
        p = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SPEND), str(path), "100000", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        p.stdin.write("\n")
        p.stdin.flush()
        for _ in range(lines):
            p.stdout.readline()
        p.kill()
        rest, _ = p.communicate()
        said += lines + rest.count("spent\n")
        debits = Ledger(path).account("d").debits - 1
        assert debits >= said  # whoever said "spent" is in the ledger ...
        said = debits  # ... and at most the last one may be there without having said so
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_refused_release_draws_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(release_module, "RandomBits", lambda *_: pytest.fail("a bit was asked for"))
    with pytest.raises(BudgetExceeded) as e:
        br.release([0, 1] * 50, 2, 2, ledger=path, dataset_id="d", budget=1)
    assert (e.value.asked, e.value.account.spent, e.value.account.budget) == (2.0, 0.0, 1.0)
    for digits in ("0.0", "1.0", "2.0"):
        assert digits in str(e.value)


def test_the_debit_is_committed_before_the_first_bit(tmp_path, monkeypatch):
    path, seen, bits = tmp_path / "ledger.db", [], release_module.RandomBits

    def watch(*names):
        with sqlite3.connect(path) as db:
            seen.append(db.execute("SELECT epsilon FROM debits").fetchall())  # another connection: sees commits only
        return bits(*names)

    monkeypatch.setattr(release_module, "RandomBits", watch)
    br.release([0, 1] * 50, 0.5, 2, ledger=path, dataset_id="d", budget=1)
    assert seen and all(rows == [("0.5",)] for rows in seen)


def test_a_ledger_changes_no_seeded_result(tmp_path):
    y = np.arange(3000) % 3
    for method in ("rr", "rr_with_prior", "block_rr"):
        with_, without = (
            br.release(y, 1, 3, method, seed=3, **kw)
            for kw in (dict(ledger=tmp_path / "l.db", dataset_id="d", budget=9), {})
        )
        assert (with_.labels == without.labels).all() and with_.statement.table_sha256 == without.statement.table_sha256


def test_threads(tmp_path):
    ledger, results = Ledger(tmp_path / "ledger.db"), []

    def spend():
        for _ in range(4):
            try:
                ledger.spend("d", 0.125, budget=1)
                results.append(True)
            except BudgetExceeded:
                results.append(False)

    threads = [threading.Thread(target=spend) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
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
    assert Ledger(tmp_path / "ledger.db").account("d").spent == 0.75


def test_a_busy_ledger_is_an_error_and_spends_nothing(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0, budget=1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError, match="busy for 0.05 seconds; nothing was released"):
        Ledger(path, timeout=0.05).spend("d", 0.5)
    other.close()
    assert Ledger(path).account("d").debits == 1


def test_a_foreign_database_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="no blockrr ledger"):
        Ledger(path).spend("d", 0.5, budget=1)
    assert path.read_bytes() == before


def test_lines_cannot_be_changed_or_deleted(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0.5, budget=1)
    with sqlite3.connect(path) as db:
        for order in (
            "UPDATE debits SET epsilon = '0'",
            "DELETE FROM debits",
            "UPDATE accounts SET budget = 'inf'",
            "DELETE FROM accounts",
            "UPDATE OR REPLACE debits SET epsilon = '0'",
            "INSERT OR REPLACE INTO debits VALUES (1, 'd', '0', '', '', NULL)",
            "REPLACE INTO debits (rowid, dataset, epsilon, at, note) VALUES (1, 'd', '0', '', '')",
            "INSERT OR IGNORE INTO debits (id, dataset, epsilon, at, note) VALUES (1, 'd', '0', '', '')",
            "INSERT OR REPLACE INTO accounts VALUES ('d', 'inf', '')",
            "REPLACE INTO accounts (rowid, dataset, budget, opened) VALUES (1, 'e', 'inf', '')",
            "INSERT INTO accounts VALUES ('d', 'inf', '') ON CONFLICT (dataset) DO UPDATE SET budget = 'inf'",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                db.execute(order)
    assert Ledger(path).account("d") == Account("d", 1.0, 0.5, 0.5, 1)


@pytest.mark.parametrize(
    "order",
    [
        "DROP TRIGGER debits_DELETE",
        "DROP TRIGGER debits_INSERT",
        "DROP TRIGGER accounts_UPDATE; UPDATE accounts SET budget = 'inf'",
        "DROP TABLE debits",
        "ALTER TABLE debits RENAME COLUMN note TO remark",
        "PRAGMA user_version = 9",
        "CREATE TRIGGER soften AFTER INSERT ON debits BEGIN SELECT 1; END",
        "INSERT INTO debits VALUES (7, 'd', '0', '', '', NULL)",
    ],
)  # the line before it would have been lost
def test_a_ledger_that_was_tampered_with_is_closed(tmp_path, order):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0.5, budget=1)
    with sqlite3.connect(path) as db:
        db.executescript(order)
    for call in (
        lambda: Ledger(path).spend("d", 0),
        lambda: Ledger(path).account("d"),
        lambda: Ledger(path).accounts(),
    ):
        with pytest.raises(ValueError, match="damaged|newer blockrr"):
            call()


@pytest.mark.parametrize(
    "column, value",
    [
        ("epsilon", v)
        for v in ("nan", "-1", "", " ", "-inf", "0x", "1/0", "one", "1_0", b"1", "0x1.8p+1 ", "1e99999", "-0x1p+0")
    ]
    + [("budget", v) for v in ("nan", "-1", "", "many", "-inf", b"9")],
)
def test_a_line_that_is_no_amount_closes_the_account(tmp_path, column, value):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0.5, budget=1)
    with sqlite3.connect(path) as db:  # a plain insert is all that the triggers let through
        if column == "epsilon":
            db.execute("INSERT INTO debits (dataset, epsilon, at, note) VALUES ('d', ?, '', '')", (value,))
        else:
            db.execute("INSERT INTO accounts VALUES ('e', ?, '')", (value,))
    name = "d" if column == "epsilon" else "e"
    for call in (
        lambda: Ledger(path).spend(name, 0),
        lambda: Ledger(path).account(name),
        lambda: Ledger(path).accounts(),
    ):
        with pytest.raises(ValueError, match="damaged"):
            call()


def test_a_write_ahead_log_is_undone(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).spend("d", 0.25, budget=1)
    code = """
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        db.execute("INSERT INTO debits (dataset, epsilon, at, note) VALUES ('d', '0.25', '', '')")
        os._exit(0)
    """
    assert start(code, path).wait() == 0 and (tmp_path / "ledger.db-wal").exists()
    assert Ledger(path).spend("d", 0.25).spent == 0.75
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.db"]


def test_private_to_its_owner(tmp_path):
    path, old = tmp_path / "ledger.db", os.umask(0)
    try:
        Ledger(path).spend("d", 0.25, budget=1)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)  # shared with a group on purpose
    Ledger(path).spend("d", 0.25)
    assert path.stat().st_mode & 0o777 == 0o660


def test_the_path_does_not_follow_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger.db")
    ledger.spend("d", 1, budget=1)
    monkeypatch.chdir(tmp_path / "a")
    with pytest.raises(BudgetExceeded):
        ledger.spend("d", 1)
    assert not list((tmp_path / "a").iterdir())


def test_ids_are_data_not_sql(tmp_path):
    ledger, name = Ledger(tmp_path / "ledger.db"), "'; DROP TABLE debits; -- Übung\n\0x"
    assert ledger.spend(name, 0.5, budget=1).spent == 0.5 and ledger.spend("d", 1, budget=1).debits == 1
    assert ledger.account(name).dataset_id == name


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(0, 1e-300), st.floats(0, 10), st.floats(0, allow_nan=False), st.just(math.inf)), max_size=12
    )
)
def test_sums_are_exact_and_rounded_outwards(values):
    total = add_up(map(exact_amount, values))
    up, down = to_float(total, up=True), to_float(total, up=False)
    assert total == (math.inf if math.inf in values else sum(Fraction(str(v)) for v in values))
    assert exact_amount(down) <= total <= exact_amount(up)
    assert up == down or up == math.nextafter(down, math.inf)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.fractions(0, 10**6),
        st.floats(0).map(exact_amount),
        st.builds(lambda a, n: Fraction(a, 2**n), st.integers(0, 10**9), st.integers(0, 1300)),
        st.builds(lambda a, n: Fraction(10**a + 1, 3 * 10**n), st.integers(0, 307), st.integers(0, 398)),
        st.decimals(0, 10**9, allow_nan=False, places=30).map(exact_amount),
    )
)
def test_every_amount_is_kept_as_it_is(amount):
    assert ledger_module._stored(ledger_module.amount_text(exact_amount(amount)), "d") == amount


def test_ten_tenths_are_one(tmp_path):
    y = [0, 1] * 50
    for name, spend in (
        ("spend", lambda e, **k: Ledger(tmp_path / "l.db").spend("spend", e, **k)),
        ("release", lambda e, **k: br.release(y, e, 2, "rr", ledger=tmp_path / "l.db", dataset_id="release", **k)),
    ):
        for e in (0.1, "0.1", Decimal("0.1"), Fraction(1, 10), np.float64(0.1)) * 2:
            spend(e, budget=1)
        assert Ledger(tmp_path / "l.db").account(name) == Account(name, 1.0, 1.0, 0.0, 10)
        for e in (0.1, 5e-324, Fraction(1, 10**300)):
            with pytest.raises(BudgetExceeded):
                spend(e)


def log_ratio(weights):
    "The exact epsilon of a table, to 60 digits, from above; by another way than the library's."
    import mpmath

    with mpmath.workdps(80):
        return Fraction(
            mpmath.nstr(
                max(mpmath.log(mpmath.mpf(int(w.max())) / int(w.min())) for w in weights.T if w.any())
                * (1 + mpmath.mpf(10) ** -60),
                70,
            )
        )


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.integers(1, 60_000).map(lambda i: i / 1000), st.floats(1e-12, 40)), st.integers(2, 12))
def test_a_debit_is_never_below_what_is_certified(epsilon, K):
    debit = exact_amount(epsilon)
    assert debit == Fraction(str(epsilon))
    prior = np.arange(1, K + 1)
    for mechanism in (
        br.rr(K, epsilon),
        br.rr_with_prior(prior, epsilon),
        br.block_rr(br.partition_by_weight(prior, 0.8, 1), epsilon),
    ):
        found = mechanism.certify()
        assert (
            found.holds
            and log_ratio(mechanism.weights) <= min(exact_amount(found.epsilon), Fraction(found.epsilon)) <= debit
        )


def test_an_amount_between_two_floats_is_debited_in_full(tmp_path):
    for amount in (
        Fraction(1, 3),
        Fraction(2, 3),
        "5/3",
        Decimal("0.10000000000000000001"),
        Decimal("0.09999999999999999999"),
        2**53 + 1,
    ):
        out = br.release(
            [0, 1, 2] * 20, amount, 3, "rr", ledger=tmp_path / "l.db", dataset_id=str(amount), budget=amount
        )
        account = Ledger(tmp_path / "l.db").account(str(amount))
        assert account.left == 0 and exact_amount(out.statement.epsilon_asked) <= exact_amount(amount) <= exact_amount(
            account.spent
        )
        with pytest.raises(BudgetExceeded):
            Ledger(tmp_path / "l.db").spend(str(amount), 5e-324)


OLD = """
CREATE TABLE accounts (dataset TEXT PRIMARY KEY, budget TEXT NOT NULL, opened TEXT NOT NULL);
CREATE TABLE debits (id INTEGER PRIMARY KEY, dataset TEXT NOT NULL REFERENCES accounts, \
epsilon TEXT NOT NULL, at TEXT NOT NULL, note TEXT NOT NULL);
CREATE TRIGGER accounts_UPDATE BEFORE UPDATE ON accounts BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER accounts_DELETE BEFORE DELETE ON accounts BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER debits_UPDATE BEFORE UPDATE ON debits BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
CREATE TRIGGER debits_DELETE BEFORE DELETE ON debits BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END;
PRAGMA application_id = 1651272562;
"""


def test_an_older_ledger_is_read_and_goes_on(tmp_path):
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as db:
        db.executescript(OLD)
        db.execute("INSERT INTO accounts VALUES ('d', ?, '')", ((1.0).hex(),))
        db.execute("INSERT INTO accounts VALUES ('open', 'inf', '')")
        db.execute("INSERT INTO accounts VALUES ('tenth', ?, '')", ((0.1).hex(),))
        db.executemany(
            "INSERT INTO debits (dataset, epsilon, at, note) VALUES ('d', ?, '2026-01-01', 'old')", [((0.1).hex(),)] * 9
        )
    before = path.read_bytes()
    ledger = Ledger(path)
    old = ledger.account("d")  # counted to the last bit, as the tables of that version were
    assert (old.spent, old.debits) == (to_float(9 * Fraction(0.1), up=True), 9) and ledger.account(
        "open"
    ).budget == math.inf
    assert ledger.debits("d")[0].part is None and path.read_bytes() == before  # reading changes nothing
    with pytest.raises(BudgetExceeded):
        ledger.spend("d", 0.1)
    assert ledger.spend("d", old.left, budget=1).debits == 10 and ledger.account("d", part="x").left < 1e-16
    assert ledger.spend("tenth", 0.1, budget=0.1).left < 1e-17  # a budget is repeated as it was stated
    with sqlite3.connect(path) as db:
        with pytest.raises(sqlite3.IntegrityError, match="only grows"):
            db.execute("INSERT OR REPLACE INTO debits VALUES (1, 'd', '0', '', '', NULL)")
        assert (
            db.execute("PRAGMA application_id").fetchone()[0] != 1651272562
        )  # which locks out the version that would read decimals as hexadecimals


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9).map(lambda i: Fraction(i, 10)), st.sampled_from([None, "a", "b", "c"])), max_size=12
    )
)
def test_disjoint_parts_cost_the_dearest_row(lines):
    rows = {
        row: sum((e for e, part in lines if part in (None, row)), Fraction(0)) for row in "abcd"
    }  # one row in each part, "d" in none that was named
    assert _spent(lines) == max(rows.values())
    assert all(_spent(lines, row) == spent for row, spent in rows.items())


def test_parts(tmp_path):
    y, account = [0, 1, 2] * 40, dict(ledger=tmp_path / "l.db", dataset_id="d", budget=1)
    for month in ("2026-01", "2026-02", "2026-03"):
        assert br.release(y, 0.6, 3, **account, part=month).statement.part == month
    assert Ledger(tmp_path / "l.db").account("d") == Account("d", 1.0, 0.6, 0.4, 3)
    with pytest.raises(BudgetExceeded, match="part '2026-02'") as e:
        br.release(y, 0.5, 3, **account, part="2026-02")
    assert e.value.account == Account("d", 1.0, 0.6, 0.4, 1, "2026-02")
    br.release(y, 0.4, 3, **account)  # all rows
    with pytest.raises(BudgetExceeded):
        br.release(y, 0.1, 3, **account, part="2026-02")
    assert br.release(y, 0.6, 3, **account, part="2026-04").statement.dataset_id == "d"
    assert [d.part for d in Ledger(tmp_path / "l.db").debits("d")] == ["2026-01", "2026-02", "2026-03", None, "2026-04"]


def notes(error):
    return " ".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), OSError(28, "No space left on device"), SystemExit(1)]
)
@pytest.mark.parametrize("method", ["rr", "rr_with_prior", "block_rr"])
def test_whatever_fails_after_the_debit_says_so(tmp_path, monkeypatch, error, method):
    def fail(*_):
        raise error

    error = type(error)(*error.args)
    monkeypatch.setattr(release_module, "RandomBits", fail)
    with pytest.raises(type(error)) as e:
        br.release([0, 1, 2] * 50, ".25", 3, method, ledger=tmp_path / "l.db", dataset_id="visits", budget=1)
    for word in ("epsilon 0.25 of data set 'visits' is spent", str(tmp_path / "l.db"), "without ledger="):
        assert word in notes(e.value)
    assert Ledger(tmp_path / "l.db").account("visits").spent == 0.25
    with pytest.raises(type(error)) as e:
        br.release([0, 1, 2] * 50, 0.25, 3, method)
    assert e.value is error


def test_an_interrupt_around_the_commit_tells_the_truth(tmp_path, monkeypatch):
    "The interrupt comes before the commit, or just after SQLite has done it."
    ledger, leave = Ledger(tmp_path / "l.db"), ledger_module.Transaction.__exit__
    ledger.spend("d", 0, budget=1)
    for late in (False, True):

        class Interrupted:
            def __init__(self, db):
                self.db = db

            def __getattr__(self, name):
                return getattr(self.db, name)

            def execute(self, order):
                if late:
                    self.db.execute(order)
                raise KeyboardInterrupt

        def stop(self, *args):
            self.db = Interrupted(self.db)
            return leave(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(ledger_module.Transaction, "__exit__", stop)
            with pytest.raises(KeyboardInterrupt) as e:
                ledger.spend("d", 0.25)
        assert ("is spent" in notes(e.value)) == late == (ledger.account("d").spent == 0.25)


def test_a_full_disk_at_the_commit_spends_nothing(tmp_path, monkeypatch):
    ledger, leave = Ledger(tmp_path / "l.db"), ledger_module.Transaction.__exit__
    ledger.spend("d", 0, budget=1)

    def full(self, *args):
        self.db.execute("PRAGMA max_page_count = 1")
        self.db.execute("CREATE TABLE big (x)")
        return leave(self, *args)

    monkeypatch.setattr(ledger_module.Transaction, "__exit__", full)
    with pytest.raises(OSError, match="full; nothing was released") as e:
        ledger.spend("d", 0.25)
    monkeypatch.undo()
    assert "is spent" not in notes(e.value) and ledger.account("d").spent == 0


def test_before_python_3_11_the_note_is_printed(capsys):
    class Old(OSError):
        add_note = property()  # an exception without notes

    error = Old(28, "No space left on device")
    add_note(error, "It is spent.")
    assert error.__notes__ == ["It is spent."] and capsys.readouterr().err == "It is spent.\n"


def test_a_table_too_large_costs_nothing(tmp_path, monkeypatch):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget=1.0)
    with pytest.raises(ValueError, match="would need about"):
        br.release(np.zeros(100, int), 1.0, 30_000, "rr_with_prior", prior=np.ones(30_000), **account)
    with pytest.raises(ValueError, match="would need about"):
        br.release(np.zeros(100, int), 1.0, 30_000, "block_rr", **account)
    with pytest.raises(ValueError, match="new to the ledger"):
        Ledger(tmp_path / "l.db").account("d")
    monkeypatch.setattr(methods, "MAX_ENTRIES", 300)  # a private prior may not make a table that is too large
    monkeypatch.setattr(methods, "best_k", lambda *_: 50)
    out = br.release(np.arange(1000) % 100, 1.0, 100, "rr_with_prior", **account)
    assert len(out.mechanism.outputs) == 3 and out.certificate.holds
    monkeypatch.setattr(methods, "best_k", lambda *_: 100)  # all of them: randomized response, which needs no table
    assert br.release(np.arange(1000) % 100, 1.0, 100, "rr_with_prior").mechanism.name == "RR"


def test_a_warning_that_is_an_error_costs_nothing_where_it_could_be_foreseen(tmp_path):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epsilon, method, more in (
            (64, "rr", {}),
            (1, "rr_with_prior", dict(prior=[9, 1, 1e-9])),
            (1, "block_rr", {}),
        ):
            with pytest.raises(br.ReleaseWarning):
                br.release(np.arange(100) % 3, epsilon, 3, method, **more, **account)
    with pytest.raises(ValueError, match="new to the ledger"):
        Ledger(tmp_path / "l.db").account("d")


def test_the_statement_is_strict_json(tmp_path):
    def no_constants(x):
        raise AssertionError(f"{x} is not JSON")

    for epsilon in (0, 1e-300, 1, 700, math.inf):
        text = br.release(
            [0, 1, 2] * 50, epsilon, 3, seed=0, ledger=tmp_path / "l.db", dataset_id="d", budget=math.inf
        ).to_json()
        facts = json.loads(text, parse_constant=no_constants)
        assert facts["rows"] == facts["rows_prior"] + facts["rows_released"] and facts["dataset_id"] == "d"
        assert len(facts["table_sha256"]) == 64 and facts["version"] == br.__version__


def test_import_stays_light():
    code = "import sys, blockrr; print(*[m for m in ('sqlite3', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
