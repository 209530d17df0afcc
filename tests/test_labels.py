"""Containers: what a released column is made of follows from the container's kind and the public domain alone."""

import io
import math
import pickle
import random
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockrr as br
from blockrr import Domain
from blockrr.privacy import containers
from blockrr.privacy.containers import floats_like

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
torch = pytest.importorskip("torch")

# ---- neighbouring columns differ in nothing but their labels

DOMAINS = {
    "three": [0, 1, 2],
    "two hundred": range(200),
    "three hundred": range(300),
    "gap": [0, 300],
    "deep": [0, 300, 2**40],
    "signs": [-1, 0, 1],
    "wide signs": [-1, 200],
    "halves": [0, 1, 2.5],
    "floats": [1.0, 1.5, 2.0],
    "no wholes": [0.5, 70000.5],
    "truths": [False, True],
    "mixed truths": [False, True, 2],
    "beyond": [0, 2**64],
    "unsigned": [0, 2**63 + 1],
    "words": ["never", "once", "often"],
    "lengths": ["a", "a much longer label", "é"],
    "many words": [f"l{i}" for i in range(300)],
    "nul": ["a", "a\0"],
    "bytes": [b"x", b"longer"],
    "numbers and words": [0, 1, "other"],
    "words and numbers": ["a", 1],
    "decimals": [Decimal("1"), Decimal("1.25"), Decimal("100.5")],
    "pairs": [(1, 2), (3, 4)],
    "intervals": [pd.Interval(0, 1), pd.Interval(1, 1.5)],
}
PAIRS = 16  # for each container


def objects(y):
    array = np.empty(len(y), object)
    array[:] = y
    return array


def shrunk(y):
    return np.array(y).astype(np.min_scalar_type(max(y)))


def shrunk_integers(y):
    "What one library shrinks another takes over: of integers that NumPy holds."
    if not all(type(v) is int and v < 2**63 for v in y):
        raise TypeError
    return shrunk(y)


def shrunk_by_all(y):
    return np.array(y).astype(np.result_type(*map(np.min_scalar_type, y)))


def with_metadata(y):
    "As h5py marks an enumeration: the labels that occur, in the dtype."
    array = np.array(y)
    return array.astype(np.dtype(array.dtype, metadata={"enum": sorted(set(y))}))


def with_attributes(y):
    column = pd.Series(objects(y), dtype="category")
    column.attrs["seen"] = [str(v) for v in sorted(set(y))]
    return column


def commonest_as_fill(y):
    return pd.Series(pd.arrays.SparseArray(np.array(y), fill_value=Counter(y).most_common(1)[0][0]))


def dictionary(y, index, values=None, ordered=False):
    found = pa.array(y).dictionary_encode()
    labels = found.dictionary if values is None else found.dictionary.cast(values)
    return pa.DictionaryArray.from_arrays(found.indices.cast(index), labels, ordered=ordered)


def in_runs(y, ends):
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(y) + 1), ends), pa.array(y))


def in_two(array):
    return pa.chunked_array([array[:2], array[2:]])


NUMPY = {
    "array": np.array,
    "objects": objects,
    "shrunk": shrunk,
    "shrunk by all": shrunk_by_all,
    "metadata": with_metadata,
    "masked": lambda y: np.ma.array(np.array(y)),
    "backwards": lambda y: np.array(y[::-1])[::-1],
    **(
        {"variable strings": lambda y: np.array(y, np.dtypes.StringDType())}
        if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType")
        else {}
    ),
    **{
        dtype: (lambda y, dtype=dtype: np.array(y).astype(dtype))
        for dtype in ("?", "i1", "i2", ">i4", "i8", "u1", ">u2", "u4", "u8", "f2", "f4", ">f8")
    },
    **{
        f"downcast {how}": (lambda y, how=how: pd.to_numeric(np.array(y), downcast=how))
        for how in ("integer", "unsigned", "float")
    },
}
PANDAS = {
    "series": pd.Series,
    "objects": lambda y: pd.Series(objects(y), dtype=object),
    "attributes": with_attributes,
    "category": lambda y: pd.Series(objects(y), dtype="category"),
    "category as seen": lambda y: pd.Series(
        pd.Categorical(objects(y), categories=list(dict.fromkeys(y)), ordered=True)
    ),
    "converted": lambda y: pd.Series(objects(y), dtype=object).convert_dtypes(),
    "converted to Arrow": lambda y: pd.Series(objects(y), dtype=object).convert_dtypes(dtype_backend="pyarrow"),
    "sparse": lambda y: pd.Series(pd.arrays.SparseArray(np.array(y))),
    "sparse, commonest": commonest_as_fill,
    **{
        dtype: (lambda y, dtype=dtype: pd.Series(y, dtype=dtype))
        for dtype in (
            "str",
            "string[python]",
            "string[pyarrow]",
            "boolean",
            "Int8",
            "Int64",
            "UInt8",
            "UInt16",
            "Float32",
            "Float64",
        )
    },
    **{
        f"downcast {how}": (lambda y, how=how: pd.to_numeric(pd.Series(y), downcast=how))
        for how in ("integer", "unsigned", "float")
    },
    **{
        f"nullable, downcast {how}": (lambda y, how=how: pd.to_numeric(pd.Series(y).convert_dtypes(), downcast=how))
        for how in ("integer", "unsigned", "float")
    },
}
ARROW = {
    "array": pa.array,
    "chunked": lambda y: in_two(pa.array(y)),
    "slice": lambda y: pa.array([*y, *y])[len(y) :],
    "bitmap": lambda y: pa.array([*y, None])[: len(y)],
    "of pandas": lambda y: pa.array(pd.Categorical(objects(y))),
    "half": lambda y: pa.array(np.array(y, np.float16)),
    **{
        str(t): (lambda y, t=t: in_two(pa.array(y, t)))
        for t in (
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.bool_(),
            pa.int8(),
            pa.int16(),
            pa.uint8(),
            pa.float32(),
            pa.decimal128(9, 2),
        )
    },
    **{
        f"dictionary of {index}": (lambda y, index=index: dictionary(y, index))
        for index in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    "ordered": lambda y: in_two(dictionary(y, "int8", pa.large_string(), ordered=True)),
    "runs": lambda y: in_runs(y, pa.int16()),
    **(
        {
            "view": lambda y: in_two(pa.array(y, pa.string_view())),
            "dictionary of views": lambda y: dictionary(y, "int16", pa.string_view()),
        }
        if hasattr(pa, "string_view")
        else {}
    ),
}
POLARS = {
    "series": lambda y: pl.Series("y", y),
    "objects": lambda y: pl.Series("y", y, dtype=pl.Object),
    "shrunk": lambda y: pl.Series("y", y).shrink_dtype(),
    "from shrunk": lambda y: pl.Series("y", shrunk_integers(y)),
    "categorical": lambda y: pl.Series("y", y, dtype=pl.Categorical),
    "enum": lambda y: pl.Series("y", y, dtype=pl.Enum(sorted(set(y)))),
    "sorted": lambda y: pl.Series("y", sorted(y)).set_sorted(),
    **{
        name: (lambda y, name=name: pl.Series("y", y, dtype=getattr(pl, name)))
        for name in (
            "Boolean",
            "Int8",
            "Int16",
            "Int32",
            "Int64",
            "Int128",
            "UInt8",
            "UInt16",
            "UInt32",
            "UInt64",
            "Float32",
            "Float64",
            "Decimal",
            "Binary",
        )
        if hasattr(pl, name)
    },
}
TORCH = {
    "tensor": torch.tensor,
    "from shrunk": lambda y: torch.from_numpy(shrunk_integers(y)),
    **{
        name: (lambda y, name=name: torch.tensor(y, dtype=getattr(torch, name)))
        for name in (
            "bool",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "float8_e5m2",
        )
    },
}
SEQUENCES = {"list": list, "tuple": tuple, "mixed list": lambda y: [{0: False, 1: 1.0}.get(v, v) for v in y]}
CONTAINERS = {
    f"{library} {name}": make
    for library, all_ in {
        "": SEQUENCES,
        "NumPy": NUMPY,
        "pandas": PANDAS,
        "Arrow": ARROW,
        "Polars": POLARS,
        "torch": TORCH,
    }.items()
    for name, make in all_.items()
}
for name, make in PANDAS.items():
    CONTAINERS[f"values of pandas {name}"] = lambda y, make=make: make(y).values
for name, make in ARROW.items():
    if "string" in name or "dictionary" in name or "ordered" in name:
        CONTAINERS[f"pandas of Arrow {name}"] = lambda y, make=make: pd.Series(
            make(y), dtype=pd.ArrowDtype(make(y).type), index=range(3, 3 + len(y)), name="y"
        )


def listed(column):
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return getattr(column, name)()
    return list(column)


def made(make, y):
    "The column, or None where a container cannot be made of these labels or does not hold them as they are."
    try:
        with np.errstate(all="ignore"):
            column = make(y)
    except Exception:
        return None
    return column if listed(column) == y else None


def neighbours(make, rng):
    "Endless pairs of columns of a container that differ in one label: (name of the domain, domain, column, column)."
    names = list(DOMAINS)
    for attempt in range(100_000):
        name = names[attempt % len(names)]
        values = list(DOMAINS[name])
        few = [values[0], values[-1], values[len(values) // 2]][: 2 + attempt // len(names) % 2]
        y = [rng.choice(few[: 1 + attempt % 3]) for _ in range(6)]
        row = rng.randrange(6)
        z = [*y[:row], rng.choice([v for v in few if v != y[row]]), *y[row + 1 :]]
        if attempt > 40 * len(names):
            return
        pair = made(make, y), made(make, z)
        if pair[0] is not None and pair[1] is not None:
            yield name, values, *pair


def arrow_parts(array):
    "All that an Arrow array is made of."
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts = [type(array), array.type, len(chunks), array.to_pylist()]
    for chunk in chunks:
        parts += [chunk.offset, [None if b is None else b.size for b in chunk.buffers()]]
        if isinstance(chunk, pa.DictionaryArray):
            parts += [chunk.type.ordered, arrow_parts(chunk.dictionary), arrow_parts(chunk.indices)]
    return parts


def parquet(column):
    "A Parquet file of a column: its bytes, schema and metadata included; the error where it cannot be written."
    file = io.BytesIO()
    try:
        if isinstance(column, pl.Series):
            column.to_frame("y").write_parquet(file)
        elif isinstance(column, pd.Series):
            column.to_frame("y").to_parquet(file)
        else:
            pq.write_table(pa.table({"y": column}), file)
    except Exception as error:
        return type(error)
    return file.getvalue()


def pandas_parts(column):
    dtype, parts = (
        column.dtype,
        [type(column), column.dtype, column.attrs, str(column.flags), column.index, column.name, listed(column)],
    )
    parts += [type(column.array), *map(type, listed(column))]
    if hasattr(dtype, "categories"):
        parts += [
            list(dtype.categories),
            dtype.categories.dtype,
            dtype.categories.name,
            dtype.ordered,
            column.cat.codes.dtype,
            column.cat.codes.tolist(),
        ]
    if hasattr(column.array, "_pa_array"):
        parts += arrow_parts(column.array._pa_array)
    return [*parts, parquet(column)]


def polars_parts(column):
    parts = [column.dtype, column.name, column.flags, column.n_chunks(), column.to_list()]
    if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
        parts += [column.to_physical().dtype, column.to_physical().to_list()]
    if column.dtype == pl.Object:
        return parts  # it is written as addresses in memory
    return [*parts, *([] if "Int128" in str(column.dtype) else arrow_parts(column.to_arrow())), parquet(column)]


def everything(column):
    "All that can be seen of a column, for comparison: types, categories, codes, dictionaries, flags, widths, files."
    if isinstance(column, (list, tuple)):
        return [type(column), *column, *map(type, column)]
    if isinstance(column, np.ndarray):
        return [
            type(column),
            column.dtype.str,
            column.dtype.metadata,
            str(column.flags),
            column.strides,
            column.base is None,
            *map(repr, column.tolist()),
        ]
    if isinstance(column, torch.Tensor):
        return [
            type(column),
            column.dtype,
            column.device,
            column.stride(),
            column.storage_offset(),
            column.untyped_storage().nbytes(),
            column.tolist(),
        ]
    if isinstance(column, pd.api.extensions.ExtensionArray):
        return [type(column), *pandas_parts(pd.Series(column))]
    if isinstance(column, pd.Series):
        return pandas_parts(column)
    if isinstance(column, pl.Series):
        return polars_parts(column)
    return [*arrow_parts(column), parquet(column)]


def released(domain, column, codes):
    "What is seen of a release of given labels, or of the refusal."
    try:
        domain.encode(column)
    except (TypeError, ValueError) as error:
        return ["refused", type(error)]
    return everything(domain.decode(codes, like=column))


def same(a, b):
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, pd.Index):
        return a.identical(b)
    return type(a) is type(b) and (a == b or a != a and b != b)


def test_there_are_two_thousand_pairs():
    assert len(CONTAINERS) * PAIRS >= 2_000


@pytest.mark.parametrize("container", CONTAINERS)
def test_neighbouring_columns_are_equal_but_for_their_labels(container):
    "The same labels are released from both of two neighbouring columns; then nothing whatever may differ."
    rng, tried = random.Random(container), 0
    for name, values, y, z in neighbours(CONTAINERS[container], rng):
        domain = Domain(values)
        codes = np.array([rng.randrange(len(values)) for _ in range(6)])
        first, second = released(domain, y, codes), released(domain, z, codes)
        assert same(first, second), (name, first, second)
        tried += 1
        if tried == PAIRS:
            break
    assert tried == PAIRS, tried


# ---- one value for each case

WORDS = ["never", "once", "often"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("rare", [[], ["once"]])
def test_categories_are_the_domain_in_its_order(rare, ordered):
    seen = ["never"] * 60 + ["often"] * 41 if not rare else ["never"] * 60 + ["often"] * 40 + rare
    column = pd.Series(pd.Categorical(seen, ordered=ordered))
    out = br.release(column, 0.01, WORDS, method="rr").labels
    assert list(out.cat.categories) == WORDS and out.cat.ordered is ordered
    back = pq.read_table(io.BytesIO(parquet(out)))
    assert back.schema.field("y").type.ordered is ordered and back["y"].combine_chunks().dictionary.to_pylist() == WORDS


@pytest.mark.parametrize("seen", [WORDS, ["often", "never"], ["never"]])
def test_polars_enums_and_categoricals(seen):
    pl.Series(["zebra", *reversed(WORDS)], dtype=pl.Categorical)  # the process met them in another order
    for dtype in (pl.Enum(seen), pl.Enum([*WORDS, "and more"]), pl.Categorical):
        out = br.rr(WORDS, 0.0).privatize(pl.Series(seen * 50, dtype=dtype))
        assert out.dtype == pl.Enum(WORDS) and set(out) <= set(WORDS)
        assert [WORDS[code] for code in out.to_physical()] == out.to_list()


@pytest.mark.parametrize("index", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_arrow_backed_dictionaries_are_released_before_and_after_the_debit(index, tmp_path):
    dtype = pd.ArrowDtype(pa.dictionary(getattr(pa, index)(), pa.string()))
    column = pd.Series(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([dictionary(["often", "never"] * 20, index)])),
        index=range(40, 80),
        name="y",
    )
    out = br.release(column, 1.0, WORDS, "rr", ledger=tmp_path / "ledger", dataset_id="d", budget=1.0).labels
    assert out.dtype == dtype and out.index.equals(column.index) and out.name == "y" and set(out) <= set(WORDS)


@pytest.mark.parametrize("container", ARROW)
def test_an_arrow_column_fits_the_field_it_came_from(container):
    fits = 0
    for values in ([0, 1, 2], WORDS, [b"x", b"longer"], [False, True]):
        column = made(ARROW[container], values)
        if column is None:
            continue
        field = pa.field("y", column.type, nullable=False, metadata={"unit": "none"})
        table = pa.table({"x": range(len(values)), "y": column}).cast(pa.schema([pa.field("x", pa.int64()), field]))
        out = br.rr(values, 1.0).privatize(column)
        assert type(out) is type(column) and table.set_column(1, table.schema.field("y"), out).schema == table.schema
        fits += 1
    if container != "decimal128(9, 2)":
        assert fits


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="this Arrow has no such types")
def test_arrow_s_own_extension_types_fit_their_field():
    values = [b"a" * 16, b"b" * 16]
    for column in (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values * 9, pa.binary(16))),
        pa.array(["1", "[]"] * 9, pa.json_()),
    ):
        out = br.rr(values if column.type == pa.uuid() else ["1", "[]"], 1.0).privatize(column)
        table = pa.table({"y": column})
        assert table.set_column(0, table.schema.field("y"), out).schema == table.schema


def test_runs_are_those_of_the_released_labels():
    runs = in_runs(["never"] * 6, pa.int16())
    out = Domain(WORDS).decode([2, 2, 0, 0, 0, 1], like=runs)
    assert (
        out.type == runs.type
        and out.run_ends.to_pylist() == [2, 5, 6]
        and out.values.to_pylist() == ["often", "never", "once"]
    )
    many = pa.chunked_array([in_runs(["never"] * 30_000, pa.int16())] * 2)
    out = br.rr(WORDS, 1.0).privatize(many)
    assert out.type == many.type and len(out) == 60_000 and set(out.to_pylist()) <= set(WORDS)
    with pytest.raises(TypeError, match="whole domain"):
        Domain(40_000).encode(pa.array([], pa.run_end_encoded(pa.int16(), pa.int64())))


def test_strings_that_might_not_fit_one_arrow_array(monkeypatch, tmp_path):
    monkeypatch.setattr(containers, "_ARROW_BYTES", 100)
    domain = ["a", "b" * 25]
    out = Domain(domain).decode([0, 1] * 5, like=pa.chunked_array([["a"] * 10]))
    assert [len(chunk) for chunk in out.chunks] == [4, 4, 2] and out.to_pylist() == domain * 5
    assert len(Domain(domain).decode([0, 1], like=pa.array(["a", "a"]))) == 2
    for wide in (pa.array(["a"] * 10, pa.large_string()), pa.array(["a"] * 10).dictionary_encode()):
        br.rr(domain, 1.0).privatize(wide)
    ledger = br.Ledger(tmp_path / "ledger")
    with pytest.raises(ValueError, match="labels: needs at most 4 rows"):
        br.release(pa.array(["a"] * 10), 1.0, domain, "rr", ledger=ledger, dataset_id="d", budget=1.0)
    br.release([0, 1], 1.0, 2, "rr", ledger=ledger, dataset_id="d", budget=1.0)  # the whole budget is left


@pytest.mark.parametrize(
    "column, domain",
    [
        (pl.Series([0, 1]), [0, 1, "other"]),
        (pl.Series(["a"]), ["a", 1]),
        (pa.array([0, 1]), [0, 1, "other"]),
        (torch.tensor([0, 1]), [0, 1, "other"]),
        (pl.Series(["a"], dtype=pl.Enum(["a"])), ["a", 1]),
        (pa.array(["a"]).dictionary_encode(), ["a", 1]),
    ],
)
def test_a_container_that_cannot_hold_the_domain_is_refused_before_the_debit(column, domain, tmp_path):
    ledger = br.Ledger(tmp_path / "ledger")
    with pytest.raises(TypeError, match="^labels: ") as refused:
        br.release(column, 1.0, domain, "rr", ledger=ledger, dataset_id="d", budget=1.0)
    assert "'a'" not in str(refused.value)
    br.release([0, 1], 1.0, 2, "rr", ledger=ledger, dataset_id="d", budget=1.0)  # the whole budget is left


def test_no_message_shows_labels_through_a_type():
    secret = ["secret"]
    for column in (
        pl.Series(secret, dtype=pl.Enum(secret)),
        pd.Series(secret, dtype="category"),
        pa.array(secret).dictionary_encode(),
    ):
        for domain in (2, ["a", 1]):
            with pytest.raises((TypeError, ValueError)) as refused:
                Domain(domain).encode(column)
            assert "secret" not in str(refused.value).removesuffix("because labels are secret")
    with pytest.raises(TypeError) as refused:
        Domain(2).encode(np.array([b"secret"]))
    assert "6" not in str(refused.value)


@pytest.mark.parametrize(
    "dtype", ["str", "string", "category", "Int64", "boolean", "int8", "object", "string[pyarrow]"]
)
def test_bare_pandas_arrays(dtype):
    values = {"Int64": [0, 1, 2], "int8": [0, 1, 2], "boolean": [False, True]}.get(dtype, WORDS)
    frame = pd.DataFrame({"y": pd.Series(values * 30, dtype=dtype)})
    out = br.rr(values, 1.0).privatize(frame["y"].values)
    assert type(out) is type(frame["y"].values) and out.dtype == (
        pd.CategoricalDtype(values) if dtype == "category" else frame["y"].dtype
    )
    assert len(out) == len(frame) and set(out) <= set(values)
    frame["z"] = out
    part = br.release(frame["y"].values, 1.0, values, "rr_with_prior", prior_fraction=0.5)
    assert type(part.labels) is type(out) and len(part.labels) == len(part.index) < len(frame)
    for missing in (pd.array(["never", None], dtype="string"), pd.Categorical(["never", None])):
        with pytest.raises(ValueError, match="missing"):
            Domain(WORDS).encode(missing)


@pytest.mark.parametrize(
    "dtype, domain, want",
    [
        ("uint8", [0, 300], "uint16"),
        ("uint16", [0, 300], "uint16"),
        ("int8", [0, 300], "int16"),
        ("int16", [0, 300], "int16"),
        ("int64", [0, 300], "int64"),
        ("uint8", [-1, 1], "int64"),
        ("int8", [-1, 1], "int64"),
        ("int64", [0, 1, 2.5], "float64"),
        ("float32", [0, 1, 2.5], "float64"),
        ("float32", [0.5, 1.5], "float32"),
        ("float16", 3000, "float32"),
        ("float64", 3, "float64"),
        ("float64", [0, 2**53 + 1], "int64"),
        ("int64", [0, 2**63 + 1], "uint64"),
        ("int64", [0, 2**64], "object"),
        ("bool", 3, "int64"),
        ("bool", [0, 1], "bool"),
        ("uint8", [False, True], "uint8"),
        ("int64", [0, 1, "other"], "object"),
        (">i2", 300, ">i2"),
        ("<U5", ["a", "bcd"], "<U3"),
        ("<U1", ["a", "bcd"], "<U3"),
        ("object", WORDS, "object"),
        ("uint8", 256, "uint8"),
        ("int8", 256, "int16"),
        ("S", 2, None),
    ],
)
def test_widths_come_from_the_domain(dtype, domain, want):
    like = np.zeros(2, dtype)
    if want is None:
        with pytest.raises(TypeError, match="not supported"):
            Domain(domain).encode(like)
        return
    domain = Domain(domain)
    out = domain.decode(np.arange(len(domain)), like=like)
    assert out.dtype == np.dtype(want) and out.tolist() == list(domain.values)
    if want in ("object", "<U3"):
        return
    assert domain.decode(
        np.arange(len(domain)), like=pd.Series(like), rows=np.zeros(len(domain), int)
    ).dtype == np.dtype(want)


def test_a_released_label_is_the_domain_s_own():
    label = "".join(["ne", "ver"])
    for like in ([label], (label,), np.array([label], object), pd.Series([label], dtype=object)):
        for out in Domain(WORDS).decode([2], like=like):
            assert any(out is own for own in WORDS)
    out = br.rr([0, 1, 2.5], 5.0).privatize([True, 1.0, 1, 2.5, False] * 50)
    assert {type(v) for v in out} == {int, float} and all(type(v) is float for v in out if v == 2.5)
    assert {type(v) for v in br.rr([False, True], 1.0).privatize([0.0, 1, True] * 20)} == {bool}


def test_released_strings_keep_their_type_whichever_were_drawn():
    for codes in ([0, 0], [1, 1]):
        assert Domain(["a", 1]).decode(codes, like=pd.Series(["a", "a"])).dtype == object


def test_nothing_of_the_input_is_kept():
    column = pd.Series(pd.Categorical(["once", "never"] * 20), index=range(40, 80), name="y")
    column.attrs["note"] = "read from a file"
    out = br.release(column, 5.0, WORDS, "rr_with_prior", prior_fraction=0.5)
    assert out.labels.attrs == {} and out.labels.name == "y" and list(out.labels.index) == list(column.index[out.index])
    y = np.arange(400, dtype=np.uint8) % 3
    columns = [
        y,
        y.astype(np.int64),
        pd.Series(y),
        pd.Series(y, dtype="Int64"),
        torch.from_numpy(y),
        pl.Series(y),
        pa.array(y),
        pa.chunked_array([pa.array(y)]),
    ]
    for one in columns:
        out = br.rr(3, math.inf).privatize(one)
        assert listed(out) == y.tolist() and not np.shares_memory(np.asarray(out), np.asarray(one))
    assert br.rr(3, 1.0).privatize(y).base is None


def test_what_follows_from_a_domain_is_made_once_and_not_pickled():
    domain = Domain(range(3, 1003))
    size = len(pickle.dumps(domain))
    domain.encode(np.arange(3, 1003)), domain.decode([5], like=["x"]), domain.decode([5], like=np.empty(0, ">i2"))
    again = pickle.loads(pickle.dumps(domain))
    assert (
        len(pickle.dumps(domain)) == size
        and again == domain
        and hash(again) == hash(domain)
        and again.decode([5], like=[3]) == [8]
    )


def test_integers_of_128_bits():
    if not hasattr(pl, "Int128"):
        pytest.skip("this Polars has none")
    for values in ([0, 1, 2], [-1, 2**63], [0, 2**100]):
        out = br.rr(values, 1.0).privatize(pl.Series(values * 20, dtype=pl.Int128))
        assert out.dtype == pl.Int128 and set(out) <= set(values)


@pytest.mark.parametrize(
    "container, kind",
    [
        (list, list),
        (tuple, tuple),
        (np.array, np.ndarray),
        (pd.Series, pd.Series),
        (lambda y: pd.array(y), np.ndarray),
        (pl.Series, pl.Series),
        (pa.array, pa.DoubleArray),
        (lambda y: pa.chunked_array([y]), pa.ChunkedArray),
        (torch.tensor, torch.Tensor),
    ],
)
def test_numbers_come_back_as_float64(container, kind):
    like = container([1, 2, 3])
    out = floats_like(np.array([0.5, 1.5, 2.5]), like)
    assert listed(out) == [0.5, 1.5, 2.5] and isinstance(out, kind)
    out = br.rr_on_bins([1, 2, 3], [1, 1, 1], 9.0).privatize(like)
    assert isinstance(out, kind) and {type(v) for v in listed(out)} == {float}


# ---- the same labels in every container


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=50), st.integers(0, 2**63))
def test_same_seed_same_labels_in_every_container(codes, seed):
    torch = pytest.importorskip("torch")
    m = br.rr(5, 1.0)
    want = m.privatize(codes, seed=seed)
    for column in (
        tuple(codes),
        np.array(codes, np.int8),
        pd.Series(codes, dtype="int64"),
        pl.Series(codes, dtype=pl.Int32),
        torch.tensor(codes, dtype=torch.int64),
    ):
        out = m.privatize(column, seed=seed)
        assert type(out) is type(column) and list(map(int, out)) == want
        if hasattr(column, "dtype"):
            assert out.dtype == column.dtype


def test_container_details():
    m = br.rr(["a", "b", "c"], 1.0)
    frame = pd.DataFrame({"y": ["a", "b", "c", "a"]}, index=[7, 5, 3, 1])
    frame["z"] = m.privatize(frame["y"], seed=1)
    assert frame["z"].notna().all()
    ordered = pd.Categorical(["a", "b"], categories=["b", "a"], ordered=True)
    out = m.privatize(pd.Series(ordered), seed=3)
    assert out.cat.ordered and list(out.cat.categories) == ["a", "b", "c"] and out.notna().all()
    assert m.privatize(pl.Series("y", ["a", "b"], dtype=pl.Categorical), seed=1).dtype == pl.Enum(
        ["a", "b", "c"]
    )  # not numbered as met
    torch = pytest.importorskip("torch")
    assert br.rr([0, 300], 0).privatize(torch.zeros(50, dtype=torch.uint8), seed=0).max() == 300


@pytest.mark.parametrize(
    "bad",
    [
        [0, None],
        [0, float("nan")],
        [0, 9],
        np.array([0, np.nan]),
        pd.Series([0, None]),
        pl.Series([0, None]),
        [[0], [1]],
        "01",
        3,
        None,
        {0, 1},
    ],
)
def test_bad_labels_release_nothing(bad):
    with pytest.raises((ValueError, TypeError), match="labels"):
        br.rr(3, 1).privatize(bad)


# ---- unusual input


@pytest.mark.parametrize(
    "dtype", ["i1", "u1", "<i2", ">i2", ">u2", "<i4", ">i4", "<i8", ">i8", ">u8", "f4", ">f8", "O"]
)
def test_every_dtype_gives_the_same_labels_and_comes_back(dtype):
    for K in (5, 300):
        m, plain = br.rr(K, 1.0), np.arange(2_000) % 5
        out = m.privatize(plain.astype(dtype), seed=9)
        assert (out == m.privatize(plain, seed=9)).all()
        assert out.dtype == np.dtype(dtype) if K == 5 or np.dtype(dtype).itemsize > 1 else out.max() > 255


def test_read_only_and_strided_columns():
    m, column = br.rr(10, 1.0), (np.arange(300_000) % 10).astype(np.uint8)
    want = m.privatize(column, seed=2)
    wide = np.zeros((len(column), 3), np.uint8)
    wide[:, 1] = column
    column.setflags(write=False)
    for other in (column, wide[:, 1], np.ascontiguousarray(column[::-1])[::-1]):
        kept = other.copy()
        out = m.privatize(other, seed=2, threads=2)
        assert (
            (out == want).all() and (other == kept).all() and out.flags.writeable and not np.shares_memory(out, other)
        )
    assert len(br.rr(10, math.inf).privatize(column)) == len(column) and not np.shares_memory(
        br.rr(10, math.inf).privatize(column), column
    )


def test_mixed_objects():
    m = br.rr([1, "1", None.__class__, 2.5, (3, 4)], 1.0)
    column = np.empty(5, object)
    column[:] = [1, "1", type(None), 2.5, (3, 4)]
    out = m.privatize(np.tile(column, 100), seed=1)
    assert (
        out.dtype == object and set(out) == set(m.labels) and {type(v) for v in out} == {int, str, type, float, tuple}
    )
    with pytest.raises(ValueError, match="row 1"):
        m.privatize(np.array([1, 1.5], object))
    with pytest.raises(TypeError, match="hashable"):
        m.privatize([1, [2]])


@pytest.mark.parametrize("huge", [2**62, 2**63 - 1, 2**63, 2**64, 10**40, -(2**63), -(10**40)])
def test_huge_integers(huge):
    m = br.rr([0, huge], 1.0)
    out = m.privatize([0, huge] * 50, seed=1)
    assert set(out) == {0, huge} and m.privatize((huge,), seed=1)[0] in (0, huge)
    for bad in (huge + 1, huge - 1):
        with pytest.raises(ValueError, match="row 1"):
            m.privatize([0, bad])
    with pytest.raises(ValueError, match="row 1"):
        br.rr(3, 1.0).privatize([0, huge])
    if 0 < huge < 2**64:
        with pytest.raises(ValueError, match="row 1"):
            br.rr([5, 7], 1.0).privatize(np.array([5, huge], np.uint64))


def test_booleans():
    column = np.array([True, False] * 200)
    for m in (br.rr(2, 1.0), br.rr([False, True], 1.0)):
        out = m.privatize(column, seed=3)
        assert out.dtype == bool and (out == m.privatize(column.astype(int), seed=3)).all()
        assert (
            m.privatize(pl.Series(column), seed=3).dtype == pl.Boolean
            and m.privatize(pd.Series(column), seed=3).dtype == bool
        )
    assert set(br.rr(["no", "yes", True], 0).privatize([True] * 200)) == {"no", "yes", True}


def test_empty_and_scalar_columns():
    m = br.rr(3, 1.0)
    for empty in (
        [],
        (),
        np.empty(0, np.uint8),
        np.empty(0),
        pd.Series([], dtype="int8"),
        pl.Series([], dtype=pl.UInt8),
    ):
        for out in (m.privatize(empty), m.privatize(empty, seed=1), *m.privatize_chunks([empty, empty])):
            assert len(out) == 0 and type(out) is type(empty) and getattr(out, "dtype", 0) == getattr(empty, "dtype", 0)
    assert list(m.privatize_chunks([])) == []
    for bad in (np.array(1), np.int64(1), 1, (c for c in [1]), iter([1]), map(int, "1"), range):
        with pytest.raises((TypeError, ValueError), match="labels: needs"):
            m.privatize(bad)
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="one dimension"):
        m.privatize(torch.tensor(1))


# ---- the domain itself, and what is refused

COLOURS = Domain(["red", "green", "blue"])


def test_a_domain_is_given_as_a_number_or_as_a_sequence():
    assert Domain(3).values == Domain(np.arange(3)).values == Domain(Domain(3)).values == (0, 1, 2)
    assert Domain(3) == Domain([0, 1, 2]) and hash(Domain(3)) == hash(Domain(range(3)))
    assert repr(Domain(2)) == "Domain(values=(0, 1))"


@pytest.mark.parametrize("dtype", "bhilqBHILQ")
def test_integers_of_every_width_are_encoded(dtype):
    assert Domain(3).encode(np.array([2, 0], dtype)).tolist() == [2, 0]


def test_codes_are_small_and_read_only():
    small = np.array([2, 0], np.uint8)
    assert not Domain(3).encode(small).flags.writeable
    assert Domain(3).encode(small).dtype == np.uint8 and Domain(300).encode(small).dtype == np.uint16
    assert Domain(3).decode(small).dtype == np.int64 and Domain(3).encode([]).tolist() == []
    for bad in ([3], [-1]):
        with pytest.raises(ValueError, match="^codes: needs"):
            Domain(3).decode(bad)


def test_one_and_true_are_one_label():
    for both in (Domain([False, True]), Domain(2)):
        assert both.encode(np.array([True, False])).tolist() == [1, 0]
        assert both.decode([1, 0], like=np.array([True])).dtype == bool
        assert both.decode([1, 0], like=[True]) == [True, False]
    assert Domain(3).decode([2], like=np.array([True])).dtype == np.int64
    assert Domain([1, 2]).encode([1.0, 2.0]).tolist() == [0, 1]


def test_masks():
    assert type(Domain(3).encode(np.ma.array([2, 0]))) is np.ndarray
    with pytest.raises(ValueError, match="masked"):
        Domain(3).encode(np.ma.array([2, 0], mask=[0, 1]))


@pytest.mark.parametrize("dtype", ["int8", "Int64", "float64", "object"])
def test_a_pandas_type_that_holds_the_domain_is_kept(dtype):
    like = pd.Series([0, 1], dtype=dtype)
    assert Domain(3).decode([2, 1], like=like).dtype == like.dtype


def test_text_columns():
    back = COLOURS.decode([0, 2], like=pd.Series(["red", "blue"], dtype="str"))
    assert back.dtype == pd.Series(["red"], dtype="str").dtype and back.tolist() == ["red", "blue"]
    assert COLOURS.decode([0], like=pd.Series(["red"], dtype=object)).dtype == object
    ordered = pd.Series(pd.Categorical(["lo"], categories=["lo", "hi"], ordered=True))
    out = Domain(["lo", "mid", "hi"]).decode([1], like=ordered)
    assert out.cat.categories.tolist() == ["lo", "mid", "hi"] and out.cat.ordered
    assert COLOURS.encode(pl.Series(["blue", "red"])).tolist() == [2, 0]
    whole = pl.Series("c", ["red"], dtype=pl.Enum(COLOURS.values))
    assert COLOURS.decode([2], like=whole).dtype == whole.dtype
    assert COLOURS.decode([2], like=pl.Series("c", ["red"], dtype=pl.Enum(["red"]))).to_list() == ["blue"]
    assert Domain(["a", "longer"]).decode([1], like=np.array(["a"])).tolist() == ["longer"]
    for dtype, domain in (("Int64", [0, 1, 2.5]), ("int64", [0, 1])):
        like = pd.Series([0, 1], dtype=dtype)
        assert Domain(domain).decode([1, 0], like=like).tolist() == [domain[1], domain[0]]


@pytest.mark.parametrize("bad", [None, math.nan, np.nan, pd.NA, "violet", 1, 3, -1, 1.5, math.inf, "1"])
def test_unknown_labels_are_refused_by_their_row(bad):
    for domain, known in ((COLOURS, "red"), (Domain(["a", "b", "c"]), "a")):
        with pytest.raises(ValueError, match="^labels: row 1 .*nothing was released") as refused:
            domain.encode([known, bad])
        assert "violet" not in str(refused.value)


@pytest.mark.parametrize(
    "bad", [pd.Series(["red", None]), pl.Series(["red", None]), pd.Series([1, None], dtype="Int64")]
)
def test_missing_values_are_refused(bad):
    with pytest.raises(ValueError, match="^labels: 1 missing values"):
        COLOURS.encode(bad)


@pytest.mark.parametrize("bad", ["red", 3, {"red"}, iter(["red"]), pd.DataFrame({"a": ["red"]}), pd.Index(["red"])])
def test_what_is_no_column(bad):
    with pytest.raises(TypeError, match="^labels: needs a column"):
        COLOURS.encode(bad)


def test_other_columns_that_are_refused():
    for bad in ([["red"]], [{}]):
        with pytest.raises(TypeError, match="^labels: needs hashable"):
            COLOURS.encode(bad)
    for dtype in ("M8[D]", "S1", "c8"):
        with pytest.raises(TypeError, match="^labels: .*not supported"):
            Domain(3).encode(np.zeros(2, dtype))
    for bad in (np.array(1), np.array("red"), np.zeros((2, 2), int)):
        with pytest.raises(ValueError, match="^labels: needs one dimension"):
            Domain(3).encode(bad)
    with pytest.raises(TypeError, match="privatize_chunks"):
        COLOURS.encode(c for c in ["red"])
    with pytest.raises(ValueError, match="^labels: row 1 is missing"):
        Domain(3).encode(np.array([0, np.nan]))


@pytest.mark.parametrize("bad", [1, 0, -3, ["a"], [], ["a", "a"], "ab", {"a", "b"}, 2.5, None, [[], 1]])
def test_what_is_no_domain(bad):
    with pytest.raises((TypeError, ValueError), match="^domain: needs"):
        Domain(bad)


def test_at_most_a_million_labels():
    assert len(Domain(2**20)) == 2**20
    with pytest.raises(ValueError, match="at most 1,048,576"):
        Domain(range(2**20 + 1))


def test_one_label_is_no_domain():
    for make in (
        lambda: br.rr(1, 1),
        lambda: br.rr(["only"], 1),
        lambda: br.rr_with_prior([1], 1),
        lambda: br.rr(0, 1),
    ):
        with pytest.raises(ValueError, match="at least 2"):
            make()
