"Mechanisms, domains and tables as JSON and back, and damaged ones."

import json
import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.companion import (
    array_from_json,
    array_to_json,
    domain_from_json,
    domain_to_json,
    mechanism_from_dict,
    mechanism_to_dict,
    read_companion,
)
from blockrr.privacy.labels import Domain
from blockrr.privacy.statement import table_digest

PRIOR = [0.5, 0.25, 0.15, 0.1]
MECHANISMS = [
    br.rr(2, 0),
    br.rr(["no", "yes"], 1e-9),
    br.rr(5, 700),
    br.rr(5, math.inf),
    br.rr(300, 1.0),
    br.rr(5000, 2.0),
    br.rr_with_prior(PRIOR, 1.0, k=2, labels=list("abcd")),
    br.block_rr(br.partition_by_weight(PRIOR, 0.8, 1), 1.0),
    br.optimal_rr(PRIOR, 1.0, 0.1, labels=[date(2026, 1, i + 1) for i in range(4)]),
    br.Mechanism([[0.7, 0.3], [0.3, 0.7]], 1, [True, False], name="mine"),
    br.subset_response(list("abcdef"), 0.4),
    br.subset_response(300, 1.0),
    br.optimal_subsets(list("abcdef"), 0.5, [1, 2, 3, 4, 5, 6]),
]


def through(value):
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("made", MECHANISMS, ids=repr)
def test_a_mechanism_comes_back(made):
    back = mechanism_from_dict(through(mechanism_to_dict(made)))
    assert (type(back), back.name, back.epsilon, back.labels, back.outputs) == (
        type(made),
        made.name,
        made.epsilon,
        made.labels,
        made.outputs,
    )
    assert [type(a) for a in back.labels] == [type(a) for a in made.labels]
    assert table_digest(back.integers) == table_digest(made.integers)
    assert back.certify() == made.certify()
    if len(made.labels) < 5000:
        assert (back.transition == made.transition).all()
    labels = list(made.labels) * 3
    assert back.privatize(labels, seed=5) == made.privatize(labels, seed=5)


@pytest.mark.parametrize(
    "labels",
    [
        3,
        ["", "a b", "\u00e9", "\n"],
        [0, True + 1, 2.5],
        [math.inf, -math.inf],
        [Decimal("0.10"), Fraction(1, 3), date(2026, 1, 1), datetime(2026, 1, 1, 12, 30), b"\xff"],
        [np.datetime64("2026-01-01"), np.datetime64("2026-01-02", "ns")],
        [10**30, -(10**30)],
    ],
)
def test_a_domain_comes_back(labels):
    domain = Domain(labels)
    back = domain_from_json(through(domain_to_json(domain)))
    assert back == domain and list(map(type, back.values)) == list(map(type, domain.values))


def test_labels_that_no_file_holds_are_refused_without_being_shown():
    with pytest.raises(TypeError, match="^domain: needs labels that a file can hold .* got complex$"):
        domain_to_json(Domain([1j, 2j]))
    with pytest.raises(TypeError, match="got tuple"):
        mechanism_to_dict(br.rr([("a", 1), ("b", 2)], 1))
    with pytest.raises(TypeError, match="^mechanism: needs one that a file can hold, got int"):
        mechanism_to_dict(3)


@pytest.mark.parametrize(
    "change",
    [
        {"form": "another"},
        {"form": None},
        {"name": None, "domain": None},
        {"domain": [1, 1, 2, 3]},
        {"domain": [{"kind": "date", "value": "soon"}, 1, 2, 3]},
        {"domain": 5},
        {"epsilon": "much"},
        {"epsilon": 0.1},
        {"epsilon": None},
        {"outputs": [0, 1, 2]},
        {"outputs": [0, 1, 2, 2]},
        {"outputs": [0, 1, 2, 4]},
        {"outputs": [0.0, 1, 2, 3]},
        {"transition": [[0.25] * 4] * 3},
        {"transition": [["a"] * 4] * 4},
        {"transition": [[float(2)] * 4] * 4},
        {"integers": [[2**60] * 4] * 4},
        {"integers": [[2**62, 0, 0, 0]] * 3},
        {"integers": [[2**64] * 4] * 4},
        {"integers": {"type": "<i8", "shape": [4, 4], "zlib": "eJwDAAAAAAE="}},
        {"integers": {"type": "<i8", "shape": [4, 4]}},
    ],
)
def test_a_damaged_mechanism_is_refused(change):
    written = mechanism_to_dict(br.block_rr(br.partition_by_weight(PRIOR, 0.8, 1), 1.0))
    with pytest.raises(ValueError):
        mechanism_from_dict(through({**written, **change}))


@pytest.mark.parametrize("written", [None, [], "table", 3, {}])
def test_what_is_no_mechanism_is_refused(written):
    with pytest.raises(ValueError, match="^companion: needs a mechanism"):
        mechanism_from_dict(written)


def test_integers_of_another_rounding_are_what_counts():
    made = br.rr(3, 1.0)
    written = mechanism_to_dict(made)
    moved = made.weights.copy()
    moved[:, 0] += np.array([-2, 1, 1])  # away from the diagonal: still within epsilon
    moved[:, 1] += np.array([2, -1, -1])
    written["integers"] = moved.tolist()
    if br.certify(moved, 1.0).holds:
        assert (mechanism_from_dict(written).weights == moved).all()
    else:
        with pytest.raises(ValueError, match="exceed the epsilon"):
            mechanism_from_dict(written)


def test_integers_that_cost_more_than_epsilon_are_refused():
    made = br.rr(2, 1.0)
    more = made.weights + np.array([[10**6, -(10**6)], [-(10**6), 10**6]])
    with pytest.raises(ValueError, match="exceed the epsilon"):
        mechanism_from_dict({**mechanism_to_dict(made), "integers": more.tolist()})


def test_a_packed_table_unpacks_to_no_more_than_is_expected():
    bomb = array_to_json(np.zeros(10**6))
    assert len(json.dumps(bomb)) < 20_000  # for 8 MB
    with pytest.raises(ValueError, match="damaged"):
        array_from_json(bomb, "<f8", 100)
    with pytest.raises(ValueError, match="damaged"):
        array_from_json({**bomb, "shape": [10]}, "<f8", 100)
    assert (array_from_json(bomb, "<f8", 10**6) == 0).all()


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "is no JSON"),
        ('{"companion": {', "is no JSON"),
        ("[]", "holds no companion"),
        ('{"epsilon": 1}', "holds no companion"),
        ('{"companion": {"format": 2}}', "newer blockrr"),
        ('{"companion": {}}', "got None"),
    ],
)
def test_what_is_no_companion_is_refused(text, word):
    with pytest.raises(ValueError, match=f"^a.json: .*{word}"):
        read_companion(text, "a.json")
