"Large tables in batches: the same as row by row, and what is wrong with a file."

import csv
import gzip
import io
import os
import subprocess
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402
from pyarrow import feather  # noqa: E402

import blockrr as br  # noqa: E402
from blockrr.privacy.labels import Domain  # noqa: E402
from blockrr.privacy.released_file import FileKind  # noqa: E402
from blockrr.study import arrow_files, files  # noqa: E402
from blockrr.study.arrow_files import spool_table, write_spooled  # noqa: E402
from blockrr.study.files import release_file  # noqa: E402

DOMAIN = ["yes", "no", "a;b"]
TEXTS = {
    "plain": "id,y\n01,yes\n2,no\n",
    "no end": "id,y\n01,yes\n2,no",
    "windows": "\ufeffid,y\r\n01,yes\r\n2,no\r\n\r\n",
    "blank end": "id,y\n01,yes\n2,no\n\n\n\n",
    "quotes": 'id,y\n"a ""b"", c",yes\n"x\ny",no\n,a;b\n',
    "one column": "y\nyes\nno\n",
    "odd quotes": 'id,y\n""" """,yes\n,no\n',
    "carriage": 'id,y\n"a\rb",yes\n',
}


@pytest.fixture
def batches(monkeypatch):
    "As if every file were large, and every batch small."
    monkeypatch.setattr(files, "LARGE", 0)
    monkeypatch.setattr(arrow_files, "_BLOCK", 1 << 10)


def fields(path, delimiter=","):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.reader(f, delimiter=delimiter))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("numbers", [False, True])
def test_the_same_as_row_by_row(tmp_path, monkeypatch, text, numbers):
    (tmp_path / "s.csv").write_bytes(text.encode())
    for name, large in (("a.csv", 1 << 40), ("b.csv", 0)):
        monkeypatch.setattr(files, "LARGE", large)
        release_file(tmp_path / "s.csv", tmp_path / name, "y", DOMAIN, "inf", method="rr", row_numbers=numbers)
    assert fields(tmp_path / "a.csv") == fields(tmp_path / "b.csv")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "text, word",
    [
        ("y\n", "no rows"),
        ("", "is empty"),
        ('id,y\n1,"yes\n2,no\n', "domain|never closes"),
        ('y,id\nyes,"1\nno,2\n', "never closes|cannot be read|can be read|fields"),
        ('id,y\n"1"2,yes\n', "inside a field"),
        ("id,y\n1,yes,2\n", "3 fields"),
        ("id,y\n1,yes\n2\n", "1 fields, the header 2"),
        ("id,y\n1,yes\n2,maybe\n", "data row 1 is not one of the 3 labels"),
        ("id,y\n1,yes\n2, \n", "data row 1 has no label: a missing label"),
        ("id,y\n1,yes\n\n2,no\n", "data row 1 has no label"),
        ("y\nyes\n\n", "data row 1 has no label"),
        (b"id,y\n\xe9,yes\n", "not UTF-8"),
        (b"id,y\n1,\xe9\n", "not UTF-8"),
    ],
)
def test_what_is_refused(tmp_path, batches, text, word):
    (tmp_path / "s.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    options = {"ledger": tmp_path / "l.db", "dataset_id": "d", "budget": 1}
    with pytest.raises(ValueError, match=word) as caught:
        release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", DOMAIN, 1, method="rr", **options)
    assert "maybe" not in str(caught.value) and [p.name for p in tmp_path.iterdir()] == ["s.csv"]


def table(rows=5000):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(rows),
            "y": pa.array(DOMAIN).take(pa.array(rng.integers(0, 3, rows))),
            "x": pa.array(rng.random(rows)),
            "text": pa.array([None, 'a"b', "c,d", "e\nf"]).take(pa.array(rng.integers(0, 4, rows))),
        }
    )


@pytest.mark.parametrize("source", ["s.csv", "s.csv.gz", "s.parquet", "s.arrow"])
@pytest.mark.parametrize("target", ["o.csv", "o.tsv", "o.csv.gz", "o.parquet", "o.arrow"])
@pytest.mark.parametrize("method", ["rr", "block_rr"])
def test_every_kind_into_every_kind(tmp_path, batches, source, target, method):
    made, path = table(), tmp_path / source
    if source == "s.parquet":
        pq.write_table(made, path, row_group_size=999)
    elif source == "s.arrow":
        with pa.ipc.new_file(str(path), made.schema) as writer:
            writer.write_table(made, max_chunksize=777)
    else:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([made.column_names, *zip(*(made[c].to_pylist() for c in made.column_names))])
        data = text.getvalue().encode()
        path.write_bytes(gzip.compress(data) if source.endswith("gz") else data)
    out = release_file(path, tmp_path / target, "y", DOMAIN, 1, method=method)
    back = br.load_release(tmp_path / target)
    assert list(back.labels) == list(out.labels) and (back.index == out.index).all()
    assert (back.likelihood == out.likelihood).all()
    if target == "o.parquet":
        written = pq.read_table(tmp_path / target)
        assert written.column_names == made.column_names and b"blockrr" in written.schema.metadata
        ids = [int(i) for i in written["id"].to_pylist()]
    elif target == "o.csv":
        rows = fields(tmp_path / target)
        ids = [int(r[0]) for r in rows[1:]]
        texts = [made["text"][i].as_py() or "" for i in ids]
        assert [r[3] for r in rows[1:]] == texts
    else:
        return
    assert ids == out.index.tolist()


def test_a_field_longer_than_a_block(tmp_path, batches):
    (tmp_path / "s.csv").write_text(f"id,y\n{'x' * 300_000},yes\n2,no\n")
    release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", DOMAIN, "inf", method="rr")
    assert (tmp_path / "o.csv").read_text() == (tmp_path / "s.csv").read_text()


@pytest.mark.parametrize("name", ["s.parquet", "s.arrow", "s.csv.gz"])
def test_broken_files(tmp_path, name):
    good = {"s.parquet": b"PAR1", "s.arrow": b"ARROW1", "s.csv.gz": gzip.compress(b"y\n" + b"yes\n" * 9999)}[name]
    for data in (b"", b"y\nyes\n", good[:-9] if name == "s.csv.gz" else good):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match="cut off|of another kind|is empty|cannot be read"):
            release_file(tmp_path / name, tmp_path / "o.csv", "y", DOMAIN, 1, method="rr")
        assert [p.name for p in tmp_path.iterdir()] == [name]


def test_missing_labels_of_parquet(tmp_path):
    pq.write_table(pa.table({"y": ["yes", None, " ", "no"], "x": [1, 2, 3, 4]}), tmp_path / "s.parquet")
    with pytest.raises(ValueError, match=r"data row 1 has no label \(and 1 rows more"):
        release_file(tmp_path / "s.parquet", tmp_path / "o.csv", "y", ["yes", "no"], "inf", method="rr")
    release_file(tmp_path / "s.parquet", tmp_path / "o.csv", "y", ["yes", "no"], "inf", method="rr", missing="no")
    assert (tmp_path / "o.csv").read_text() == "y,x\nyes,1\nno,2\nno,3\nno,4\n"


def test_memory_holds_no_more_than_labels_and_batches(tmp_path):
    path, n = tmp_path / "s.csv", 300_000
    path.write_text("text,y\n" + f"{'x' * 60},yes\n" * n)
    before = pa.default_memory_pool().max_memory()
    kind = FileKind("text", ",")
    found = spool_table(path, kind, ["text", "y"], [1], [Domain(DOMAIN)], spool=tmp_path / "spool")
    assert found.rows == n and found.codes[0].dtype == np.uint8
    with open(tmp_path / "o.csv", "wb") as f:
        write_spooled(f, found, np.arange(n), [np.zeros(n, np.uint8)], kind=kind)
    assert (tmp_path / "o.csv").read_bytes() == path.read_bytes()
    assert pa.default_memory_pool().max_memory() <= max(before, 20 * arrow_files._BLOCK)


PAUSED = """
import sys, time
from blockrr.study import files
def pause(*args, **kwargs):
    print("here", flush=True)
    time.sleep(60)
files.{name} = pause
options = dict(ledger="l.db", dataset_id="d", budget=1)
files.release_file("s.parquet", "o.csv", "y", ["yes", "no", "a;b"], "0.5", method="rr", **options)
"""


@pytest.mark.parametrize(
    "name, word, spent",
    [
        ("spool_table", "before anything was drawn", 0),
        ("write_spooled", "may have been drawn and the budget debited", 0.5),
    ],
)
def test_a_run_that_was_killed_is_noticed(tmp_path, name, word, spent):
    pq.write_table(table(100), tmp_path / "s.parquet")
    command = [sys.executable, "-c", PAUSED.format(name=name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as run:
        assert run.stdout.readline() == "here\n"
        run.kill()
    assert (tmp_path / "l.db").exists() == bool(spent)
    assert not spent or br.Ledger(tmp_path / "l.db").account("d").spent == spent
    left = sorted(p.name for p in tmp_path.glob(".*"))
    assert ".o.csv.spool.tmp" in left and all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.glob(".*"))
    options = {"column": "y", "domain": DOMAIN, "epsilon": 1, "method": "rr"}
    with pytest.raises(FileExistsError, match=word):
        release_file(tmp_path / "s.parquet", tmp_path / "o.csv", **options)
    with pytest.warns(UserWarning, match="removed .*spool"):
        release_file(tmp_path / "s.parquet", tmp_path / "o.csv", again=True, **options)
    assert not list(tmp_path.glob(".*")) and len(br.load_release(tmp_path / "o.csv").labels) == 100


def test_a_full_disk_costs_nothing_before_the_debit(tmp_path, monkeypatch, batches):
    (tmp_path / "s.csv").write_text("id,y\n" + "1,yes\n" * 500)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    options = {"ledger": tmp_path / "l.db", "dataset_id": "d", "budget": 1}
    with pytest.raises(OSError, match="No space"):
        release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", DOMAIN, 1, method="rr", **options)
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


def test_an_error_while_writing_says_what_is_spent(tmp_path, monkeypatch, batches):
    (tmp_path / "s.csv").write_text("id,y\n" + "1,yes\n" * 500)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_spooled", full)
    options = {"ledger": tmp_path / "l.db", "dataset_id": "d", "budget": 1}
    with pytest.raises(OSError, match="No space") as caught:
        release_file(tmp_path / "s.csv", tmp_path / "o.csv", "y", DOMAIN, 1, method="rr", **options)
    assert "is spent" in " ".join(caught.value.__notes__)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["l.db", "s.csv"]


def shape(path):
    "Everything about batches that can be read off a released file, but for its label column."
    if path.suffix == ".arrow":
        reader = pa.ipc.open_file(path)
        return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    groups = [pq.ParquetFile(path).metadata.row_group(i) for i in range(pq.ParquetFile(path).num_row_groups)]
    return [(group.num_rows, group.column(0).total_compressed_size, group.column(0).num_values) for group in groups]


@pytest.mark.parametrize("target", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("method", ["rr", "rr_with_prior"])
def test_batches_say_nothing_of_true_labels(tmp_path, monkeypatch, batches, target, method):
    monkeypatch.setattr(arrow_files, "_UNIT", 16)
    monkeypatch.setattr(arrow_files, "_MOST_ROWS", 512)
    domain, long = ["a", "b" * 40], "b" * 40
    truths = {"s": ["a"] * 3000, "l": [long] * 3000, "m": [long] * 1000 + ["a"] * 2000}
    shapes = []
    for name, labels in truths.items():
        for source in (f"{name}.csv", f"{name}.parquet"):
            if source.endswith("csv"):
                (tmp_path / source).write_text("id,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(labels)))
            else:
                table = pa.table({"id": [str(i) for i in range(3000)], "y": labels})
                pq.write_table(table, tmp_path / source, row_group_size=200 + 7 * len(labels[0]))
            out = tmp_path / f"{source}.{target}"
            release_file(
                tmp_path / source, out, "y", domain, 1, method=method, prior_fraction=0.1, seed=[0] * 4, again=True
            )
            shapes.append(shape(out))
    assert len(shapes[0]) > 5 and all(one == shapes[0] for one in shapes)


def test_long_fields_keep_batches_small(tmp_path):
    texts = ["x" * (10 if i % 40 else 400_000) for i in range(4000)]
    pq.write_table(pa.table({"id": texts, "y": ["yes", "no"] * 2000}), tmp_path / "s.parquet")
    release_file(tmp_path / "s.parquet", tmp_path / "t.parquet", "y", DOMAIN, 1, method="rr")
    back = pq.ParquetFile(tmp_path / "t.parquet")
    assert back.read().column("id").to_pylist() == texts and back.num_row_groups > 1


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_same_bytes_whatever_the_size(tmp_path, monkeypatch, name, text):
    "The size of a file says how long its true labels are: it may not choose how the released file is written."
    (tmp_path / "s.csv").write_bytes(text.encode())
    made = []
    for large in (0, 1 << 40):
        monkeypatch.setattr(files, "LARGE", large)
        release_file(tmp_path / "s.csv", tmp_path / name, "y", DOMAIN, "inf", method="rr", row_numbers=True)
        made.append((tmp_path / name).read_bytes())
        (tmp_path / name).unlink()
        (tmp_path / f"{name}.json").unlink()
    assert made[0] == made[1]


def test_packed_text_is_the_same_in_any_pieces():
    text, packs = os.urandom(300_000).hex().encode(), []
    for step in (1000, 70_001, len(text)):
        held = io.BytesIO()
        with arrow_files.packed(held) as f:
            for start in range(0, len(text), step):
                f.write(text[start : start + step])
        packs.append(held.getvalue())
    assert packs[0] == packs[1] == packs[2] and gzip.decompress(packs[0]) == text


@pytest.mark.parametrize("name", ["s.csv.gz", "s.parquet", "s.arrow"])
def test_a_damaged_source_is_named_and_nothing_is_drawn(tmp_path, name):
    table = pa.table({"id": [f"{i * 7919 % 10007}" for i in range(4000)], "y": ["yes", "no"] * 2000})
    path, rng = tmp_path / name, np.random.default_rng(3)
    if name == "s.csv.gz":
        rows = zip(*(column.to_pylist() for column in table.columns))
        path.write_bytes(gzip.compress(("id,y\n" + "".join(f"{i},{y}\n" for i, y in rows)).encode(), mtime=0))
    elif name == "s.parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path, compression="uncompressed")
    data, refused = path.read_bytes(), 0
    for _ in range(40):
        at = int(rng.integers(len(data)))
        path.write_bytes(data[:at] + rng.bytes(12) + data[at + 12 :])
        try:
            release_file(path, tmp_path / "t.csv", "y", DOMAIN, 1, method="rr")
        except ValueError as e:
            assert str(path) in str(e) or str(e).startswith(("--column", "labels")), str(e)
            refused += 1
            assert not list(tmp_path.glob("*t.csv*"))
        for made in tmp_path.glob("t.csv*"):
            made.unlink()
    assert refused


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.parquet.gz", "t.csv.zip"])
def test_an_output_that_no_one_could_load_is_refused(tmp_path, name):
    (tmp_path / "s.csv").write_text("id,y\n1,yes\n2,no\n")
    with pytest.raises(ValueError, match="^--output: needs a name that ends with one of .csv, "):
        release_file(tmp_path / "s.csv", tmp_path / name, "y", DOMAIN, 1, method="rr")
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


@pytest.mark.parametrize(
    "column", [[[1.0, 2.0]] * 4, [{"a": 1}] * 4, [b"\xff\xfe"] * 4], ids=["list", "struct", "bytes"]
)
def test_what_is_no_text_is_refused_before_the_debit(tmp_path, column):
    pq.write_table(pa.table({"x": column, "y": ["yes", "no"] * 2}), tmp_path / "s.parquet")
    account = {"ledger": tmp_path / "l.db", "dataset_id": "d", "budget": 1}
    with pytest.raises(ValueError, match="column 'x' of type .* cannot be written as text"):
        release_file(tmp_path / "s.parquet", tmp_path / "t.csv", "y", DOMAIN, 1, method="rr", **account)
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]
    release_file(tmp_path / "s.parquet", tmp_path / "t.parquet", "y", DOMAIN, 1, method="rr", **account)
    assert pq.read_table(tmp_path / "t.parquet").column("x").to_pylist() == column


def test_numbers_dates_and_categories_become_text(tmp_path):
    day = pa.array([0, 86400, None], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("ms"))
    table = pa.table({"n": [1.5, None, -2.0], "t": day, "c": pa.array(["u", "v", "u"]).dictionary_encode()})
    pq.write_table(table.append_column("y", pa.array(["yes", "no", "no"])), tmp_path / "s.parquet")
    release_file(tmp_path / "s.parquet", tmp_path / "t.csv", "y", DOMAIN, "inf", method="rr")
    assert fields(tmp_path / "t.csv") == [
        ["n", "t", "c", "y"],
        ["1.5", "1970-01-01 00:00:00.000", "u", "yes"],
        ["", "1970-01-02 00:00:00.000", "v", "no"],
        ["-2", "", "u", "no"],
    ]
