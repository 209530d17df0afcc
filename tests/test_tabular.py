"""Tables from files, good and bad; what a table refuses."""

import gzip
import hashlib
import io
import math
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from blockrr.learning import tabular as T


def table(n=12):
    features = np.arange(2.0 * n).reshape(n, 2)
    public = T.PublicRange(0, 5, 1, "", "")
    return T.TabularData("toy", features, ("a", "b"), np.arange(float(n)), public, np.arange(n) % 4 == 0)


@pytest.mark.parametrize(
    "change, word",
    [
        (dict(features=np.full((12, 2), math.nan)), "toy: row 0 has a feature"),
        (dict(target=np.full(12, math.inf)), "toy: row 0 has no finite target"),
        (dict(target=np.zeros(3)), "needs features"),
        (dict(test=np.zeros(12, bool)), "test: needs"),
        (dict(test=np.ones(12, bool)), "test: needs"),
        (dict(columns=("a",)), "needs features"),
    ],
)
def test_bad_tables(change, word):
    with pytest.raises(ValueError, match=word):
        replace(table(), **change)


def test_a_table_copies_and_locks_its_arrays():
    target = np.arange(12.0)
    data = replace(table(), target=target)
    target[0] = 7
    assert data.target[0] == 0
    for a in (data.features, data.target, data.test):
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1


def district(rng):
    place = -122 + rng.random(), 37 + rng.random()
    houses = (
        rng.integers(1, 52),
        rng.integers(500, 3000),
        400,
        900,
        rng.integers(1, 500),
    )
    values = *place, *houses, 3 * rng.random() + 1, rng.integers(50_000, 500_001)
    return ",".join(f"{v:.4f}" for v in values)


@pytest.fixture
def districts():
    rng = np.random.default_rng(0)
    return "\n".join(district(rng) for _ in range(40))


def test_california_from_an_archive(tmp_path, districts):
    plain = tmp_path / "cal_housing.data"
    plain.write_text(districts)
    archive = tmp_path / "cal_housing.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("CaliforniaHousing/cal_housing.data")
        info.size = len(districts)
        tar.addfile(info, io.BytesIO(districts.encode()))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert T.california(archive, 40, sha256).sha256 == T.california(plain, 40).sha256
    with pytest.raises(ValueError, match="expected aaa5c9"):
        T.california(archive)


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda text: text.replace(",", ";", 1), "line 1 has 8 fields"),
        (lambda text: text + "\na,1,1,1,1,1,1,1,1", "line 41 has a field"),
        (lambda text: "", "got 0"),
        (lambda text: "1,2,3,4,5,6,0,8,9\n" * 40, "line 1 has no household"),
        (lambda text: "1,2,3,4,5,6,7,8,9\n" * 40, "outside California"),
        (lambda text: "nan," * 8 + "1\n", "needs 40 lines"),
    ],
)
def test_bad_district_files(tmp_path, districts, change, word):
    path = tmp_path / "cal_housing.data"
    path.write_text(change(districts))
    with pytest.raises(ValueError, match=word):
        T.california(path, rows=40)


def click(rng, i):
    if i % 2 == 0:
        return ["0", "-1", "-1", "1598891821", *["-1"] * 18, "u"]
    amount = f"{rng.gamma(1, 80):.2f}"
    numbers = str(rng.integers(-1, 90)), f"{rng.gamma(1, 50):.2f}"
    identifiers = [f"{rng.integers(4):08X}" for _ in range(16)]
    return ["1", amount, "3600", "1598891820", *numbers, *identifiers, f"user{i % 25}"]


@pytest.fixture
def clicks():
    rng = np.random.default_rng(0)
    return "".join("\t".join(click(rng, i)) + "\n" for i in range(60))


def test_criteo_compressed_and_cut(tmp_path, clicks):
    plain = tmp_path / "CriteoSearchData"
    plain.write_text(clicks)
    packed = tmp_path / "CriteoSearchData.gz"
    with gzip.open(packed, "wt") as f:
        f.write(clicks)
    sales = T.criteo(plain)
    assert T.criteo(packed).sha256 == sales.sha256
    first = T.criteo(plain, rows=20)
    assert (first.target == sales.target[:20]).all()
    users = np.array([line.split("\t")[-1] for line in clicks.splitlines()[1::2]])
    assert not set(users[sales.test]) & set(users[~sales.test])  # a user's rows stay together


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda text: text.replace("\t", ",", 1), "line 1 has 22 fields"),
        (lambda text: "Sale" + text[1:], "line 1, field 1"),
        (
            lambda text: text.replace("\t3600", "x\t3600", 1),
            "line 2, fields 2, 5 and 6",
        ),
        (lambda text: "1\t-1" + text[text.index("\t3600") :], "line 1, field 2"),
        (lambda text: "", "got 0"),
    ],
)
def test_bad_logs(tmp_path, clicks, change, word):
    path = tmp_path / "CriteoSearchData"
    path.write_text(change(clicks))
    with pytest.raises(ValueError, match=word):
        T.criteo(path)


def test_digests_are_checked():
    visits = T.randhie()
    assert visits.target.max() == 77 and visits.sha256 == T.TABLE_SHA256["randhie"]
    with pytest.raises(ValueError, match="expected"):
        T._verified(replace(visits, target=visits.target + 1))


@pytest.mark.parametrize(
    "bad, word",
    [
        ("1,2,3\n", "line 1 has 3 fields"),
        ("a," * 8 + "1\n", "not a number"),
        ("", "needs 20,640 lines, got 0"),
        ("\0\x01PNG", "line 1"),
    ],
)
def test_bad_california(tmp_path, bad, word):
    path = tmp_path / "cal_housing.data"
    path.write_text(bad)
    with pytest.raises(ValueError, match=word):
        T.california(path)
    with pytest.raises(ValueError, match=word):
        T.tabular("california", tmp_path)


def test_bad_archive(tmp_path):
    path = tmp_path / "cal_housing.tgz"
    path.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="has SHA-256"):
        T.california(path)


@pytest.mark.parametrize(
    "k, value, word",
    [
        (0, "2", "field 1"),
        (1, "-1", "field 2"),
        (1, "secret", "fields 2, 5 and 6"),
        (5, "", "fields 2, 5 and 6"),
        (22, "u\tv", "24 fields"),
    ],
)
def test_bad_criteo(tmp_path, k, value, word):
    path = tmp_path / "log.gz"
    line = ["1", "12.5", "60", "1598891820", "3", "19.9", *["AB12"] * 17]
    assert len(line) == len(T.CRITEO)
    rows = [line[:-1] + [f"user{i}"] for i in range(40)]
    with gzip.open(path, "wt") as f:
        f.write("\n".join("\t".join(r) for r in rows) + "\n")
    assert len(T.criteo(path).target) == 40
    rows[20][k] = value
    with gzip.open(path, "wt") as f:
        f.write("\n".join("\t".join(r) for r in rows) + "\n")
    with pytest.raises(ValueError, match=f"line 21.*{word}") as error:
        T.criteo(path)
    assert "secret" not in str(error.value)
    assert len(T.criteo(path, rows=20).target) == 20  # what comes before it is fine


def test_truncated_gzip(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"1\t2\n" * 1000)[:20])
    with pytest.raises((ValueError, EOFError, OSError)):
        T.criteo(path)


def test_ranges_are_constants():
    assert set(T.RANGES) == set(T.TABLES)
    for name, r in T.RANGES.items():
        assert r.reason and r.unit and len(r.grid) <= 64, name  # 64: the linear program
