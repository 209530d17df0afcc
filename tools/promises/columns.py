"""Columns that no release may take, and what is said about them."""

import contextlib
import datetime
import decimal
import io
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch
from faults import Faults

import blockrr as br
from blockrr.privacy import comparators

# labels and junk that no message would hold by chance; a part of each value that would betray it
TEXT = ["quagga7041", "okapi9923", "bongo5518"]
WHOLE = [91827364, 91827371, 91827388]
DAYS = [datetime.date(1911, 3, 7), datetime.date(1911, 5, 9), datetime.date(1911, 8, 2)]
REALS = [91827.25, 91828.5, 91830.75]
STRANGE = "axolotl3377"
SECRETS = "quagga", "okapi", "bongo", "axolotl", "91827", "91828", "91830", "1911", "datetime.date(", "70417041", "3377"


def one_of(rng, values):
    return values[int(rng.integers(len(values)))]


def column(rng, domain, n):
    return [one_of(rng, domain) for _ in range(n)]


def strays(rng, domain):
    "A value that is no label of the domain, in place of a label."
    value, huge = one_of(rng, domain), int("7041" * 12)
    pool = [
        None,
        float("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        decimal.Decimal("NaN"),
        float("inf"),
        Ellipsis,
        "",
        STRANGE,
        STRANGE.encode(),
        bytearray(b"axolotl"),
        memoryview(b"axolotl"),
        True,
        np.bool_(False),
        3377.5,
        -3377,
        3377 + 1j,
        huge,
        -huge,
        np.datetime64("1911-04-01"),
        pd.Timestamp("1911-04-01"),
        [value],
        (value,),
        {value: 1},
        {value},
        np.array([value] * 2),
        type(value),
        slice(value),
        strays,
        object(),
    ]
    near = {str: _near_text, int: _near_whole, datetime.date: _near_day}.get(type(value))
    return one_of(rng, pool + (near(value) if near else []))


def _near_text(v):
    return [f"{v} ", f"{v}\n", v.upper(), v.encode(), v[:-1], np.str_(f"{v}\0x")]


def _near_whole(v):
    return [str(v), f"{v}.0", -v, v + 0.5, v * 2**64, np.uint64(2**64 - 1)]


def _near_day(v):
    return [str(v), v.toordinal(), datetime.datetime(v.year, v.month, v.day, 1)]


def spoiled(rng, domain) -> list:
    "A list of labels in which one or more are strays."
    labels = column(rng, domain, int(rng.integers(1, 30)))
    for at in rng.integers(0, len(labels), rng.integers(1, 4)):
        labels[at] = strays(rng, domain)
    return labels


def objects(values) -> np.ndarray:
    array = np.empty(len(values), object)
    for i, v in enumerate(values):
        array[i] = v
    return array


def with_one(rng, domain, value) -> list:
    "Labels of the domain and, somewhere among them, another value."
    labels = column(rng, domain, int(rng.integers(0, 30)))
    labels.insert(int(rng.integers(0, len(labels) + 1)), value)
    return labels


def unknown(rng, domain):
    "Labels of the domain's own type, one of them unknown."
    others = {str: STRANGE, int: 33770000, float: float("nan"), datetime.date: datetime.date(1911, 1, 1)}
    return with_one(rng, domain, others[type(domain[0])])


def holed(rng, domain):
    "Labels of the domain, one of them missing."
    return with_one(rng, domain, None)


def masked(rng, domain):
    array = np.ma.array(np.array(column(rng, domain, 9)), mask=False)
    array[int(rng.integers(9))] = np.ma.masked
    return array


def _arrow_dtype(values):
    return pa.array(values).to_pandas(types_mapper=pd.ArrowDtype)


def _dictionary(values):
    return pa.chunked_array([pa.array(values).dictionary_encode()])


def _good(rng, domain):
    return np.array(column(rng, domain, 12))


# name -> (rng, domain) -> a column; these fit every domain
ANY = {
    "list with strays": spoiled,
    "tuple with strays": lambda rng, d: tuple(spoiled(rng, d)),
    "object array with strays": lambda rng, d: objects(spoiled(rng, d)),
    "object series with strays": lambda rng, d: pd.Series(objects(spoiled(rng, d)), dtype=object),
    "polars objects": lambda rng, d: pl.Series(spoiled(rng, d), dtype=pl.Object),
    "unknown in an array": lambda rng, d: np.array(unknown(rng, d)),
    "unknown in pandas": lambda rng, d: pd.Series(unknown(rng, d)),
    "unknown in a category": lambda rng, d: pd.Series(unknown(rng, d), dtype="category"),
    "unknown in Polars": lambda rng, d: pl.Series(unknown(rng, d)),
    "unknown in Arrow": lambda rng, d: pa.chunked_array([pa.array(unknown(rng, d))]),
    "unknown in a dictionary": lambda rng, d: _dictionary(unknown(rng, d)),
    "missing in a list": holed,
    "missing in an array": lambda rng, d: objects(holed(rng, d)),
    "missing in pandas": lambda rng, d: pd.Series(holed(rng, d)),
    "missing in a category": lambda rng, d: pd.Series(holed(rng, d), dtype=pd.CategoricalDtype(d)),
    "missing in Polars": lambda rng, d: pl.Series(holed(rng, d)),
    "missing in Arrow": lambda rng, d: pa.chunked_array([pa.array(holed(rng, d))]),
    "missing in a dictionary": lambda rng, d: _dictionary(holed(rng, d)),
    "missing in an Arrow dtype": lambda rng, d: _arrow_dtype(holed(rng, d)),
    "masked": masked,
    "nested list": lambda rng, d: [[v] for v in column(rng, d, 5)],
    "ragged list": lambda rng, d: [column(rng, d, 2), column(rng, d, 3)],
    "two dimensions": lambda rng, d: _good(rng, d).reshape(3, 4),
    "one column of two dimensions": lambda rng, d: _good(rng, d)[:, None],
    "no dimension": lambda rng, d: np.array(one_of(rng, d)),
    "structured array": lambda rng, d: np.array([(1, 2.0)] * 5, dtype="i4,f8"),
    "times": lambda rng, d: np.array(["1911-03-07", "1911-03-08"], "M8[ns]"),
    "time differences": lambda rng, d: np.array([33770000, 33770001], "m8[s]"),
    "times in pandas": lambda rng, d: pd.Series(pd.to_datetime(["1911-03-07", None])),
    "periods in pandas": lambda rng, d: pd.Series(pd.period_range("1911-03", periods=3, freq="M")),
    "intervals in pandas": lambda rng, d: pd.Series(pd.interval_range(91827, 91830)),
    "bytes": lambda rng, d: np.array([STRANGE.encode()] * 4),
    "raw bytes": lambda rng, d: np.array([STRANGE.encode()] * 4).view("V11"),
    "complex": lambda rng, d: rng.normal(size=5) + 3377j,
    "long double": lambda rng, d: np.full(4, 91827.125, np.longdouble),
    "half precision": lambda rng, d: np.full(4, np.nan, np.float16),
    "not a number": lambda rng, d: np.full(4, np.nan),
    "infinite": lambda rng, d: np.array([np.inf, -np.inf]),
    "list column of Polars": lambda rng, d: pl.Series([[v] for v in column(rng, d, 4)]),
    "struct column of Polars": lambda rng, d: pl.Series([{"y": v} for v in column(rng, d, 4)]),
    "times in Polars": lambda rng, d: pl.Series([datetime.datetime(1911, 3, 7, 1)]),
    "durations in Polars": lambda rng, d: pl.Series([datetime.timedelta(91827)]),
    "bytes in Polars": lambda rng, d: pl.Series([STRANGE.encode()] * 3),
    "nulls in Polars": lambda rng, d: pl.Series([None] * 3),
    "list column of Arrow": lambda rng, d: pa.array([[v] for v in column(rng, d, 4)]),
    "struct column of Arrow": lambda rng, d: pa.array([{"y": v} for v in column(rng, d, 4)]),
    "bytes in Arrow": lambda rng, d: pa.array([STRANGE.encode()] * 3),
    "nulls in Arrow": lambda rng, d: pa.nulls(3),
    "decimals in Arrow": lambda rng, d: pa.array([decimal.Decimal("91827.5")] * 3),
    "tensor of two dimensions": lambda rng, d: torch.full((3, 2), 33770000),
    "tensor without dimension": lambda rng, d: torch.tensor(33770000),
    "tensor of NaN": lambda rng, d: torch.full((3,), float("nan")),
    "complex tensor": lambda rng, d: torch.full((3,), 3377 + 1j),
    "bfloat16 tensor": lambda rng, d: torch.full((3,), 33770000.0, dtype=torch.bfloat16),
    "sparse tensor": lambda rng, d: torch.full((3,), 33770000).to_sparse(),
    "tensor without data": lambda rng, d: torch.empty(3, dtype=torch.int64, device="meta"),
    "unknown in a tensor": lambda rng, d: torch.full((3,), 33770000),
    "data frame": lambda rng, d: pd.DataFrame({"y": column(rng, d, 4)}),
    "Polars frame": lambda rng, d: pl.DataFrame({"y": column(rng, d, 4)}),
    "lazy frame": lambda rng, d: pl.DataFrame({"y": column(rng, d, 4)}).lazy(),
    "Arrow table": lambda rng, d: pa.table({"y": column(rng, d, 4)}),
    "expression": lambda rng, d: pl.col("y"),
    "generator": lambda rng, d: iter(column(rng, d, 4)),
    "map": lambda rng, d: map(lambda v: v, column(rng, d, 4)),
    "set": lambda rng, d: set(column(rng, d, 4)),
    "frozen set": lambda rng, d: frozenset(column(rng, d, 4)),
    "dictionary": lambda rng, d: dict.fromkeys(column(rng, d, 4)),
    "values of a dictionary": lambda rng, d: dict.fromkeys(column(rng, d, 4)).keys(),
    "one label": lambda rng, d: one_of(rng, d),
    "text": lambda rng, d: STRANGE,
    "byte string": lambda rng, d: STRANGE.encode(),
    "byte array": lambda rng, d: bytearray(STRANGE.encode()),
    "view": lambda rng, d: memoryview(STRANGE.encode()),
    "nothing": lambda rng, d: None,
    "number": lambda rng, d: 3377,
    "object": lambda rng, d: object(),
    "function": lambda rng, d: strays,
    "type": lambda rng, d: list,
    "range": lambda rng, d: range(33770000, 33770005),
}
# and these are labels of another type than the domain's; for numeric mechanisms dates and numbers are no such junk
FOREIGN = {
    "text for another domain": lambda rng, d: np.array([STRANGE] * 3),
    "text in pandas": lambda rng, d: pd.Series([STRANGE] * 3, dtype="string"),
    "text in Polars": lambda rng, d: pl.Series([STRANGE] * 3, dtype=pl.Categorical),
    "another Enum": lambda rng, d: pl.Series([STRANGE] * 3, dtype=pl.Enum([STRANGE, *TEXT])),
    "text in Arrow": lambda rng, d: pa.array([STRANGE] * 3, pa.large_string()),
    "numbers for labels": lambda rng, d: np.array([3377, 33770000]),
    "nullable numbers": lambda rng, d: pd.Series([33770000, None], dtype="Int64"),
    "largest number": lambda rng, d: np.array([2**64 - 1], np.uint64),
    "fractions": lambda rng, d: np.array([91827.125, 3377.5]),
    "booleans": lambda rng, d: np.array([True, False]),
    "booleans in pandas": lambda rng, d: pd.Series([True, None], dtype="boolean"),
}
# what a mechanism for numbers may take, as it moves every number into its range
NUMBERS = {
    "long double",
    "unknown in a tensor",
    "range",
    "numbers for labels",
    "largest number",
    "fractions",
    "booleans",
    "unknown in a dictionary",
    "unknown in a category",
    "polars objects",
    "bfloat16 tensor",
}


# what is said


def spoken(error) -> str:
    "All that a traceback of this error would show of its messages."
    texts = []
    while error is not None:
        texts += [str(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


def verdict(act) -> str:
    "What is wrong with how a bad column was received; empty if it was refused as it should be."
    out = io.StringIO()
    with warnings.catch_warnings(record=True) as said, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        warnings.simplefilter("always")
        try:
            act()
        except (TypeError, ValueError) as e:
            text, fault = spoken(e), ""
        except Exception as e:
            text, fault = spoken(e), f"{type(e).__name__} instead of TypeError or ValueError"
        else:
            text, fault = "", "accepted"
    text = " ".join([text, out.getvalue(), *(str(w.message) for w in said)]).lower()
    shown = [s for s in SECRETS if s in text]
    faults = [fault, "a message shows a label" if shown else "", "" if text.strip() or fault else "says nothing"]
    return "; ".join(filter(None, faults))


def numeric(rng):
    "A mechanism for numbers."
    if rng.integers(2):
        return br.rr_on_bins(REALS, [3, 2, 1], 1.0)
    return one_of(rng, [br.rp_with_prior(REALS, [2, 1], 1.0), comparators.laplace(REALS, 1.0, cells=32)])


def bad(rng, i) -> tuple:
    "The i-th bad column: its name, the column, its domain and a mechanism that must refuse it."
    domain, pool = [TEXT, WHOLE, DAYS, REALS][i % 4], ANY | FOREIGN
    if domain is not REALS:
        mechanism = br.rr(domain, 1.0)
    else:
        mechanism = numeric(rng)
        pool = {name: make for name, make in pool.items() if name not in NUMBERS and "strays" not in name}
    name = one_of(rng, sorted(pool))
    return name, pool[name](rng, domain), domain, mechanism


def offer(labels, domain, mechanism, method, ledger) -> list:
    "What is wrong with how a mechanism and a release receive a bad column."
    wrong = [verdict(lambda: mechanism.privatize(labels))]
    if domain is not REALS:
        before = ledger.account("d")
        budget = dict(ledger=ledger, dataset_id="d", budget=1e9)
        wrong.append(verdict(lambda: br.release(labels, 1.0, domain, method=method, **budget)))
        if ledger.account("d") != before:
            wrong.append("the ledger was debited")
    return sorted(set(wrong) - {""})


def run(count, seed, say=print) -> dict:
    "Offer `count` bad columns to mechanisms, and to releases that would be paid from a ledger."
    faults, names = Faults(), Counter()
    with tempfile.TemporaryDirectory() as place:
        ledger = br.Ledger(Path(place) / "ledger.db")
        ledger.spend("d", 0.5, budget=1e9)
        for i in range(count):
            rng = np.random.default_rng([seed, i])
            name, labels, domain, mechanism = bad(rng, i)
            wrong = offer(labels, domain, mechanism, one_of(rng, ["rr", "rr_with_prior", "block_rr"]), ledger)
            faults.add(f"column {i}, domain of {type(domain[0]).__name__}", [f"{name}: {w}" for w in wrong])
            names[name] += 1
            if (i + 1) % 1_000 == 0:
                say(f"columns: {i + 1:,} offered, {faults.trials} with faults")
    return {"columns": count, "kinds": len(names), **faults.figures()}
