"Advice is a pure function of public facts; bad input is named; extreme input is answered."

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.advise import GOALS, predict
from blockrr.privacy.methods import METHODS

COUNTS = [5000, 4900, 4700, 4600, 4500, 4800, 1000, 1500, 1000, 1500]  # of the paper's first data set
PLAIN = [("rr", {}), ("rr_with_prior", {})]


@pytest.fixture(autouse=True)
def quiet(recwarn):
    "Advice for few rows warns, as it should."


@pytest.mark.parametrize("prior", ([1, 1, 0, 0], [1, 0, 0], [1, 1, 1], [5, 3, 3, 3, 1]), ids=str)
@pytest.mark.parametrize("epsilon", (0, 1e-9, 1, 50, math.inf))
def test_extreme_input_is_answered(prior, epsilon):
    for goal in GOALS:
        best = br.advise(prior, epsilon, goal, n_prior=50).best
        assert best.mechanism.certify().holds and 0 <= best.quality <= 1


def test_advice_is_a_pure_function():
    one = br.advise(COUNTS, 1, n_prior=335)
    assert one.why == br.advise(COUNTS, 1, n_prior=335).why
    quality = [o.quality for o in one.ranking]
    assert quality == sorted(quality, reverse=True)
    assert br.advise([3, 2, 1], 1, n_prior=50, epsilon_prior=1).why == br.advise([3, 2, 1], 1, n_prior=50).why


def test_what_is_known_without_a_model():
    assert br.advise(COUNTS, math.inf).best.method == "rr"
    assert br.advise([1, 1, 1], 1).best.method == "rr"
    public = br.advise(COUNTS, 1)
    assert public.sure is None and public.loss is None and "taken as exact" in str(public)
    assert br.advise(COUNTS, 1, n_prior=1e7).loss <= br.advise(COUNTS, 1, n_prior=100).loss
    assert 0 <= br.advise([3, 2, 1], 1, n_prior=1e15, epsilon_prior=math.inf).sure <= 1
    assert len(br.advise(1 / np.arange(1, 1001), 4, "balanced", rows=1e6).ranking) > 10


def test_noise_in_the_prior_decides():
    assert br.advise(COUNTS, 0.6, n_prior=335, menu=PLAIN).best.method == "rr"
    assert br.advise(COUNTS, 0.6, menu=PLAIN).best.method == "rr_with_prior"


def test_the_upper_level():
    options = br.advise(COUNTS, 2.0).ranking
    assert {o.k for o in options if o.method == "rr"} == {10}
    assert {o.k for o in options if o.method in ("rr_with_prior", "optimal_rr")} == {br.best_k(COUNTS, 2.0)}
    for o in options:
        if o.method == "block_rr":
            assert o.k == len(br.partition_by_weight(np.array(COUNTS) / sum(COUNTS), o.settings["sigma"]).majority)


@pytest.mark.parametrize(
    "given, said",
    (
        (dict(prior=[1]), "at least 2 labels"),
        (dict(epsilon=-1), "epsilon"),
        (dict(goal="x"), "goal: needs one of"),
        (dict(n_prior=0), "n_prior: needs"),
        (dict(rows="many"), "rows: needs"),
        (dict(labels=3), "needs 3 weights"),
    ),
    ids=str,
)
def test_bad_input_is_named(given, said):
    with pytest.raises((TypeError, ValueError), match=said):
        br.advise(**{**dict(prior=[1, 1], epsilon=1), **given})


@pytest.mark.parametrize("bad", (0, -1, math.nan, math.inf, 1e16, True, "9", 1j, b"9", [9]), ids=repr)
def test_what_is_no_number_of_rows(bad):
    for name in ("n_prior", "rows"):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: needs"):
            br.advise([1, 1], 1, **{name: bad})
    with pytest.raises((TypeError, ValueError), match="^rows: needs"):
        predict(br.rr(2, 1), [1, 1], rows=bad)


@pytest.mark.parametrize("bad", (-1, math.nan, True, "1", [1], 1j), ids=repr)
@pytest.mark.parametrize("n_prior", (None, 50))
def test_what_is_no_cost_of_a_prior(bad, n_prior):
    with pytest.raises((TypeError, ValueError), match="epsilon_prior: needs"):
        br.advise([1, 1], 1, n_prior=n_prior, epsilon_prior=bad)


@pytest.mark.parametrize("bad", (None, 1, np.eye(2), "x"), ids=str)
def test_what_is_no_goal(bad):
    with pytest.raises(ValueError, match="goal: needs one of"):
        br.advise([1, 1], 1, bad)
    with pytest.raises(ValueError, match="goal: needs one of"):
        predict(br.rr(2, 1), [1, 1], bad)


def test_what_is_no_mechanism_or_domain():
    for bad in (None, "rr", np.eye(2)):
        with pytest.raises(TypeError, match="mechanism: needs a Mechanism"):
            predict(bad, [1, 1])
    for bad in ("ab", 1, [1, 1], 2.0):
        with pytest.raises((TypeError, ValueError), match="labels:"):
            br.advise([1, 1], 1, labels=bad)


@pytest.mark.parametrize("bad", ("rr", 3, None, {"rr": {}}, math.nan, []), ids=repr)
def test_what_is_no_menu(bad):
    if bad is not None:
        with pytest.raises((TypeError, ValueError), match="menu: needs"):
            br.advise([2, 1], 1, menu=bad)


@pytest.mark.parametrize("bad", ("rr", None, ("rr",), ("rr", {}, 1), ("rr", None), ("block_rr", [1.2, 5])), ids=repr)
def test_what_is_no_pair(bad):
    with pytest.raises(ValueError, match="as entry 1"):
        br.advise([2, 1], 1, menu=[("rr", {}), bad])


@pytest.mark.parametrize(
    "entry, said",
    (
        *[((bad, {}), f"methods among {', '.join(METHODS)}, got") for bad in ("best", None, 1, ("a",))],
        (("block_rr", {"sigma": 1.0}), "sigma and l for block_rr, got sigma in entry 0"),
        (("optimal_rr", {}), "floor for optimal_rr, got none"),
        (("rr", {"floor": 1}), "no settings for rr, got floor"),
    ),
    ids=str,
)
def test_what_is_no_rule(entry, said):
    with pytest.raises(ValueError, match=f"menu: needs {said}"):
        br.advise([2, 1], 1, menu=[entry])


@pytest.mark.parametrize("bad", (0, -1, math.nan, None, "1", True))
def test_a_bad_sigma(bad):
    with pytest.raises((TypeError, ValueError), match="menu: entry 0, block_rr: sigma: needs"):
        br.advise([2, 1], 1, menu=[("block_rr", {"sigma": bad, "l": 1})])


@pytest.mark.parametrize("bad", (-1, 1.5, None, "1", True))
def test_a_bad_l(bad):
    with pytest.raises((TypeError, ValueError), match="menu: entry 0, block_rr: l: needs"):
        br.advise([2, 1], 1, menu=[("block_rr", {"sigma": 1.0, "l": bad})])


@pytest.mark.parametrize("bad", (-0.1, 1.1, math.nan, None, "1", True))
def test_a_bad_floor(bad):
    with pytest.raises((TypeError, ValueError), match="menu: entry 0, optimal_rr: floor: needs"):
        br.advise([2, 1], 1, menu=[("optimal_rr", {"floor": bad})])
