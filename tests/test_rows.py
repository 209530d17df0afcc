"Noise by row: the same in any order and in any pieces, in every engine that is there, and as random as other noise."

import os
import pickle
import stat

import numpy as np
import pytest
from scipy.stats import chi2

import blockrr as br
from blockrr.privacy.rows import named_rows

KEY = br.RowKey(bytes(range(32)))
PRIOR = [0.5, 0.3, 0.2]
MECHANISMS = [
    br.rr(2, 1.0),
    br.rr(10, 1.0),
    br.rr(300, 0.5),  # by the alias method
    br.rr(5000, 2.0),  # by two integers
    br.rr(5000, 42.3),  # by two integers, of which about half of all first words are refused
    br.block_rr(br.partition_by_weight(PRIOR, 0.8, 1), 1.0),
]


def column(m, n=70_000, seed=0):
    return np.random.default_rng(seed).integers(0, len(m.labels), n)


@pytest.mark.parametrize("m", MECHANISMS, ids=repr)
def test_order_pieces_and_threads_make_no_difference(m):
    y, rows = column(m), np.arange(70_000) * 3 + 5
    whole = m.privatize(y, key=KEY, rows=rows)
    assert (m.privatize(y, key=KEY, rows=rows, threads=3) == whole).all()
    order = np.random.default_rng(1).permutation(len(y))
    assert (m.privatize(y[order], key=KEY, rows=rows[order]) == whole[order]).all()
    for cut in (1, 1000, 65_537):
        pieces = [
            m.privatize(y[i : i + cut], key=KEY, rows=rows[i : i + cut]) for i in range(0, min(9 * cut, 70_000), cut)
        ]
        assert (np.concatenate(pieces) == whole[: 9 * cut]).all()
    for other in ({"key": KEY.derive("b"), "rows": rows}, {"key": KEY, "rows": rows + 1}):
        assert m.epsilon > 40 or (m.privatize(y, **other) != whole).any()
    assert pickle.loads(pickle.dumps(m)).privatize(y[:9], key=KEY, rows=rows[:9]).tolist() == whole[:9].tolist()


@pytest.mark.parametrize("m", [br.subset_response(10, 0.6), br.subset_response(300, 1.0)], ids=repr)
def test_sets_are_drawn_by_row(m):
    y, rows = column(m, 20_000), np.arange(20_000) * 3 + 5
    whole = m.privatize(y, key=KEY, rows=rows)
    order = np.random.default_rng(1).permutation(len(y))
    assert (m.privatize(y[order], key=KEY, rows=rows[order]) == whole[order]).all()
    assert [m.privatize(y[i : i + 1], key=KEY, rows=rows[i : i + 1])[0] for i in range(20)] == whole[:20].tolist()
    assert (m.privatize(y, key=KEY.derive("b"), rows=rows) != whole).any()
    share = m.levels[0] * m.codebook.per_label  # of sets with the true label; five standard errors
    assert m.contains(whole)[np.arange(len(y)), y].mean() == pytest.approx(share, abs=2.5 / len(y) ** 0.5)


def test_a_piece_whose_words_are_refused_goes_on_with_its_own():
    m = br.rr(5000, 42.3)
    assert 0.2 < 1 - m.denominator / 2**62 < 0.8
    y, rows = column(m, 300), range(300)
    whole = m.privatize(y, key=KEY, rows=rows)
    assert [m.privatize([int(a)], key=KEY, rows=[i])[0] for i, a in enumerate(y)] == whole.tolist()


def test_a_row_has_the_same_noise_for_every_label():
    "Which is why one key serves one column: said in the docstring of `privatize`."
    m = br.rr(2, 1.0)
    y = column(m)
    a, b = (m.privatize(x, key=KEY, rows=range(len(y))) for x in (y, 1 - y))
    assert 0.6 < (a == y).mean() < 0.8 and not ((a != y) & (b != 1 - y)).any()  # independent noise: on 7 % of the rows
    other = br.rr(2, 1.5).privatize(y, key=KEY, rows=range(len(y)))
    assert abs(((a == y) & (other == y)).mean() - (a == y).mean() * (other == y).mean()) < 0.01


@pytest.mark.parametrize("m", MECHANISMS[:4] + MECHANISMS[5:], ids=repr)
@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_the_distribution_is_that_of_the_integers(m, kind):
    n, label = 200_000 if kind == "integers" else 50_000, 1
    rows = range(n) if kind == "integers" else [f"patient {i}" for i in range(n)]
    counts = np.bincount(m.privatize(np.full(n, label), key=KEY, rows=rows), minlength=len(m.labels))
    if len(m.labels) > 300:
        keep = m.keep
        observed, expected = np.array([counts[label], n - counts[label]]), np.array([keep, 1 - keep]) * n
    else:
        observed, expected = counts, m.square()[label] * n
    kept = expected > 0
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert observed[~kept].sum() == 0
    assert 1e-5 < chi2.sf(statistic, kept.sum() - 1) < 1 - 1e-5  # fixed key


def test_neighbouring_rows_share_nothing():
    m, n = br.rr(2, 1.0), 200_000
    kept = m.privatize(np.zeros(n, int), key=KEY, rows=range(n)) == 0
    for lag in (1, 2, 8, 256, 65_536):
        assert abs(np.corrcoef(kept[:-lag], kept[lag:])[0, 1]) < 5 / np.sqrt(n - lag)


def test_containers_of_labels_and_rows():
    m = br.rr(["no", "yes"], 1.0)
    y = ["no", "yes", "yes", "no"] * 5
    expected = m.privatize(y, key=KEY, rows=range(20))
    pd, pl, pa, torch = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow", "torch"))
    for rows in (list(range(20)), np.arange(20, dtype=np.int8), pd.Series(range(20)), pl.Series(range(20))):
        assert m.privatize(y, key=KEY, rows=rows) == expected
    for rows in (pd.RangeIndex(20), pd.Index(np.arange(20))):
        assert m.privatize(y, key=KEY, rows=rows) == expected
    for rows in (pa.array(range(20)), torch.arange(20)):
        assert m.privatize(pd.Series(y), key=KEY, rows=rows).tolist() == expected
    names = [f"patient {i}" for i in range(20)]
    assert m.privatize(y, key=KEY, rows=pd.Index(names)) == m.privatize(y, key=KEY, rows=names)
    assert m.privatize([], key=KEY, rows=[]) == []


@pytest.mark.parametrize(
    "rows",
    [
        None,
        3,
        "ab",
        [1],
        [1, 2, 3],
        [1, 1],
        [2, 1, 2],
        [-1, 0],
        [0, 2**63],
        [0.0, 1.0],
        [True, False],
        np.array([True, False]),
        [None, 1],
        ["a", 1],
        ["a", "a"],
        [b"a", b"b"],
        [[0], [1]],
        {0, 1},
    ],
    ids=repr,
)
def test_bad_rows(rows):
    with pytest.raises((TypeError, ValueError), match="^rows: needs") as caught:
        br.rr(2, 1.0).privatize([0, 1], key=KEY, rows=rows)
    assert "patient" not in str(caught.value)


@pytest.mark.parametrize("key", [None, 3, "secret", b"x" * 32, "survey.key", bytes(32)], ids=repr)
def test_bad_keys(key):
    with pytest.raises(TypeError, match="^key: needs a RowKey") as caught:
        br.rr(2, 1.0).privatize([0, 1], key=key, rows=[0, 1])
    assert "secret'" not in str(caught.value) and "xxx" not in str(caught.value)


def test_other_bad_arguments():
    m = br.rr(2, 1.0)
    with pytest.raises(ValueError, match="^seed: needs to be None"):
        m.privatize([0, 1], 3, key=KEY, rows=[0, 1])
    with pytest.raises(ValueError, match="^labels: row 1"):
        m.privatize([0, 7], key=KEY, rows=[0, 1])
    with pytest.raises(ValueError, match="^threads"):
        m.privatize([0, 1], key=KEY, rows=[0, 1], threads=0)
    for bad in (3, "", None):
        with pytest.raises(TypeError, match="^name: needs"):
            KEY.derive(bad)


@pytest.mark.parametrize("bad", ["x", 3, None, b"short", bytes(32), b"a" * 32, bytearray(range(32))], ids=repr)
def test_what_is_no_secret(bad):
    with pytest.raises((TypeError, ValueError), match="^key: needs") as caught:
        br.RowKey(bad)
    assert "short" not in str(caught.value)


def test_mechanisms_without_a_stream_for_each_row_say_so():
    edges = [0.0, 1.0, 2.0]
    m = br.rp_with_prior(edges, [0.5, 0.5], 1.0)
    with pytest.raises(TypeError, match="^key: needs a mechanism that draws each label by its row"):
        m.privatize([0.5], key=KEY, rows=[0])


def test_key_files(tmp_path):
    path = tmp_path / "a.key"
    before = os.umask(0)
    try:
        key = br.new_key(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and br.RowKey.load(path) == key
    assert key != br.new_key(tmp_path / "b.key") and key.secret.hex() not in repr(key) and len(key.fingerprint) == 16
    with pytest.raises(FileExistsError):
        br.new_key(path)
    with pytest.raises(TypeError, match="^path: needs"):
        br.new_key(3)
    with pytest.raises(FileNotFoundError):
        br.RowKey.load(tmp_path / "c.key")
    text = path.read_text()
    for bad in ("", text[:40], text.replace("key 1", "key 2"), text + "00", "\u00e9" * 80):
        path.write_text(bad)
        with pytest.raises(ValueError, match="holds no row key") as caught:
            br.RowKey.load(path)
        assert key.secret.hex()[:8] not in str(caught.value)
    path.write_text(text)
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="mode 600"):
        br.RowKey.load(path)


def test_a_full_disk_leaves_no_key(tmp_path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("blockrr.privacy.rows.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        br.new_key(tmp_path / "a.key")
    assert not list(tmp_path.iterdir())


def test_names_of_rows_are_hashed_with_the_key():
    a, b = (named_rows(["x", "y"], 2, key) for key in (KEY, KEY.derive("z")))
    assert not (a == b).any() and not (a[:, 1] >> np.uint64(56)).any()


# --- engines


M = br.rr(["no", "yes"], 1.0)
Y = (["no", "yes", "yes"] * 400)[:1000]
EXPECTED = M.privatize(Y, key=KEY, rows=range(1000))


def test_polars_lazy():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"id": range(1000), "y": Y}).lazy()

    def draw(s):
        return M.privatize(s.struct.field("y"), key=KEY, rows=s.struct.field("id"))

    plan = frame.with_columns(pl.struct("id", "y").map_batches(draw, return_dtype=pl.String).alias("y"))
    assert plan.collect()["y"].to_list() == plan.collect()["y"].to_list() == EXPECTED
    shuffled = frame.sort(pl.col("id") * 7919 % 1000).with_columns(
        pl.struct("id", "y").map_batches(draw, return_dtype=pl.String).alias("y")
    )
    assert shuffled.collect().sort("id")["y"].to_list() == EXPECTED


def test_dask():
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    def draw(frame):
        return frame.assign(y=M.privatize(frame["y"], key=KEY, rows=frame["id"]))

    frame = pd.DataFrame({"id": range(1000), "y": Y})
    for pieces in (1, 3, 7):
        plan = dd.from_pandas(frame, npartitions=pieces).map_partitions(draw, meta=frame)
        assert plan["y"].compute().tolist() == plan["y"].compute().tolist() == EXPECTED


def test_torch_dataset():
    torch = pytest.importorskip("torch")

    class Answers(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return i, M.privatize([Y[i]], key=KEY, rows=[i])[0]

    loader = torch.utils.data.DataLoader(Answers(), batch_size=16, shuffle=True)
    for _ in range(3):
        seen = {int(i): y for indices, ys in loader for i, y in zip(indices, ys)}
        assert [seen[i] for i in range(100)] == EXPECTED[:100]


def test_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")

    def draw(batch, indices):
        return {"y": M.privatize(batch["y"], key=KEY, rows=indices)}

    data = datasets.Dataset.from_dict({"y": Y})
    for size in (1000, 64):
        made = data.map(draw, batched=True, with_indices=True, batch_size=size, load_from_cache_file=False)
        assert list(made["y"]) == EXPECTED


def test_spark():
    pyspark = pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import pandas_udf

    try:
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    except Exception as e:
        pytest.skip(f"pyspark {pyspark.__version__} does not start here: {type(e).__name__}")

    def draw(ids, answers):
        return M.privatize(answers, key=KEY, rows=ids)

    import pandas as pd

    draw.__annotations__ = {"ids": pd.Series, "answers": pd.Series, "return": pd.Series}
    try:
        frame = spark.createDataFrame(list(enumerate(Y)), ["id", "y"])
        for pieces in (1, 5):
            made = frame.repartition(pieces).select("id", pandas_udf(draw, "string")("id", "y").alias("y"))
            for _ in range(2):
                assert [row["y"] for row in sorted(made.collect())] == EXPECTED
    finally:
        spark.stop()
