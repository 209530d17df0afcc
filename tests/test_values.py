"""Public values, columns of numbers, losses, and mechanisms whose labels and outputs are numbers."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import blockrr as br
from blockrr.privacy import bins
from blockrr.privacy.containers import floats_like
from blockrr.privacy.values import (
    LOSSES,
    ValueMechanism,
    check_loss,
    check_values,
    clipped,
    loss_table,
    numeric_column,
    risk,
    to_values,
)

VALUES = [0, 1, 2, 4, 8]
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]


def response(epsilon):
    return ValueMechanism(br.rr(5, epsilon).transition, epsilon, VALUES, name="RR")


@pytest.mark.parametrize(
    "bad, word",
    [
        ([0, 2, 1], "followed by 1"),
        ([0, 1, 1], "strictly"),
        ([0, math.nan], "finite"),
        ([0, math.inf], "finite"),
        ([1], "at least 2"),
        ([], "at least 2"),
        ([[1, 2]], "dimension"),
        ([[0], [1, 2]], "values"),
        ("ab", "values"),
        (None, "values"),
        (["x", "y"], "values"),
        ([0, 10**400], "values"),
        (["0", "1"], "needs numbers"),
        ([False, True], "needs numbers"),
        (np.array(["0", "1"], object), "needs numbers"),
        (np.array(["2020", "2021"], "M8[Y]"), "needs numbers"),
        ([-1.7e308, 1.7e308], "range must fit a float"),
        ([0, 5e-324], "at least 1e-290"),
    ],
)
def test_bad_values(bad, word):
    with pytest.raises((TypeError, ValueError), match=f"^values: .*{word}|^{word}: "):
        check_values(bad)


def test_values():
    assert check_values(np.array([0, Fraction(1, 2), 1], object)).tolist() == [0, 0.5, 1]
    assert check_values(pd.Series([1, 2])).tolist() == [1, 2]
    assert math.copysign(1, check_values([-0.0, 1])[0]) == 1


def test_columns():
    assert numeric_column(np.array([1, 2], "float32")).dtype == float
    for bad in (["1"], [None], np.array(["1"])):
        with pytest.raises(TypeError, match="row 0 is not a number; nothing was released"):
            numeric_column(bad)
    with pytest.raises(ValueError, match="missing"):
        numeric_column(pl.Series([1.0, None]))
    assert floats_like(np.array([0.5]), pl.Series("y", [1])).to_list() == [0.5]
    assert floats_like(np.array([0.5]), pa.chunked_array([[1]])).to_pylist() == [0.5]
    assert floats_like(np.array([0.5]), pd.Series([1], dtype="Int64", index=["a"])).to_dict() == {"a": 0.5}
    assert floats_like(np.array([0.5, 1]), np.array([1, 2], "uint8")).dtype == float
    assert floats_like(np.array([0.5]), (1,)) == (0.5,)
    assert to_values([0.5, 9, -3], [0, 1]).tolist() == [0, 1, 0]


def test_losses():
    assert (loss_table([0, 2], [0, 3], "absolute") == [[0, 3], [2, 1]]).all()
    for bad in ("huber", None, 1, ["squared"]):
        with pytest.raises(ValueError, match="loss: needs one of squared, absolute, poisson, got"):
            check_loss(bad)
    for loss in ("squared", "absolute"):
        assert risk(response(math.inf), PRIOR, loss) == 0
    assert risk(response(math.inf), PRIOR, "poisson") < math.inf
    assert risk(response(1), PRIOR, "poisson") == math.inf  # releasing 0 for a 1


def test_releases():
    m = response(1)
    assert risk(response(4), PRIOR) == pytest.approx(1.2202, abs=5e-5)
    released = m.privatize(pd.Series([0, 1, 9, -5, 2.9], name="visits"), seed=3)
    assert released.name == "visits" and set(released) <= {0.0, 1.0, 2.0, 4.0, 8.0}
    assert response(math.inf).mse([3, 9]).tolist() == [1, 1]
    for bad in (["1"], [math.nan], [None]):
        with pytest.raises((TypeError, ValueError), match="row 0"):
            m.privatize(bad)
    assert pickle.loads(pickle.dumps(m)).privatize([0, 1], seed=1) == m.privatize([0, 1], seed=1)
    assert br.certify(m) == m.certify()
    chunks = m.privatize_chunks([np.array([0, 1]), np.array([8.0])], seed=2)
    assert list(np.concatenate(list(chunks))) == m.privatize([0, 1, 8], seed=2)


def test_long_columns_go_in_pieces():
    m = response(2)
    column = np.random.default_rng(0).uniform(-1, 9, 600_000)
    assert (m.privatize(column, seed=3) == np.array(m.privatize(column.tolist(), seed=3))).all()
    column[550_000] = math.nan
    with pytest.raises(ValueError, match="row 550000 is missing"):
        m.privatize(column, seed=3)


def test_outputs():
    T = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    wide = ValueMechanism(T, 1, [0, 1], outputs=[-3, 0.5, 4])
    assert np.abs(clipped(wide).transition - T).max() < 1e-15
    assert clipped(clipped(wide)).outputs == clipped(wide).outputs
    for bad in ([0, 0, 1], [0, math.nan, 1]):
        with pytest.raises(ValueError, match="outputs: .*distinct finite"):
            ValueMechanism(T, 1, [0, 1], outputs=bad)
    for bad in (br.rr(3, 1.0), np.eye(3)):
        for f in (lambda: risk(bad, [1, 1, 1]), lambda: clipped(bad)):
            with pytest.raises(TypeError, match="mechanism: needs a ValueMechanism"):
                f()


def test_counts():
    assert response(2).debias([30, 20, 25, 15, 10]).sum() == pytest.approx(100)


def test_old_places_warn():
    for name in ("LOSSES", "loss_table", "risk", "clipped"):
        with pytest.warns(DeprecationWarning, match=f"bins.{name} is deprecated.* blockrr.privacy.values.{name}"):
            getattr(bins, name)
    assert LOSSES == ("squared", "absolute", "poisson")
