"""A column that comes in chunks: a bad one says where, and what was released before."""

import math

import numpy as np
import pytest

import blockrr as br


def errors_of(mechanism_, chunks):
    "What came out, and what the error then says."
    out, it = [], mechanism_.privatize_chunks(iter(chunks))
    with pytest.raises((TypeError, ValueError)) as refused:
        for chunk in it:
            out.append(chunk)
    assert next(it, "ended") == "ended"
    return len(out), str(refused.value)


def test_a_bad_chunk_says_which_row_and_what_is_out():
    n, text = errors_of(br.rr(["a", "b", "c"], 1.0), [["a", "b"], ["a", "zz"]])
    assert (
        n == 1
        and "row 3 of the whole column, row 1 of this chunk" in text
        and "the 2 labels of earlier chunks were released" in text
    )
    assert "zz" not in text and "; nothing was released" not in text
    n, text = errors_of(br.rr(["a", "b", "c"], 1.0), [["a", "zz"]])
    assert n == 0 and "labels: row 1 (of type str)" in text and "nothing was released" in text
    n, text = errors_of(br.rr(3, 1.0), [np.zeros(1_500, int), np.array([0]), np.array([0, 1, 3])])
    assert (
        n == 2
        and "row 1503 of the whole column, row 2 of this chunk" in text
        and "the 1,501 labels of earlier chunks were released" in text
    )
    n, text = errors_of(br.RandomizedResponse(3, 1.0), [[2], [3]])
    assert (
        n == 1
        and "row 1 of the whole column, row 0 of this chunk" in text
        and "the 1 label of earlier chunks was released" in text
    )


@pytest.mark.parametrize(
    "m", [br.rp_with_prior([0, 1, 2, 3], [1, 2, 1], 1.0), br.rr_on_bins([0, 1, 2], [1, 1, 1], 3.0)]
)
@pytest.mark.parametrize("bad", ["x", math.nan, None])
def test_bad_numbers_in_chunks(m, bad):
    n, text = errors_of(m, [[1.0, 2.0], [0.0, bad]])
    assert n == 1 and "the 2 labels of earlier chunks were released" in text and "; nothing was released" not in text
    assert "row 3 of the whole column, row 1 of this chunk" in text


def test_chunks_must_be_columns():
    for m in (br.rr(2, 1.0), br.rp_with_prior([0, 1, 2], [1, 1], 1.0)):
        with pytest.raises(TypeError, match="^chunks: needs an iterable"):
            m.privatize_chunks(7)  # at once, not at the first chunk
