"What epsilons mean: bounds that mechanisms reach, rows that suffice, tables, commands, bad input."

import math

import numpy as np
import pytest

import blockrr as br
from blockrr.study.cli import main


@pytest.mark.parametrize("epsilon", (0.0, 1e-9, 0.3, 1.0, 5.0, 36.0))
@pytest.mark.parametrize("prior", ([0.5, 0.5], [0.999, 0.001], [3, 2, 1, 4], np.ones(40)))
def test_no_mechanism_tells_more(epsilon, prior):
    p = np.asarray(prior, float) / np.sum(prior)
    (line,) = br.explain(epsilon, len(p), p).lines
    for mechanism in (br.rr(len(p), epsilon), br.block_rr(br.partition_by_weight(p, 1.0, 1), epsilon)):
        found = mechanism.posterior(p)
        assert found[:, p.argmin()].max() <= line.belief_rare + 1e-9
        assert found[:, p.argmax()].max() <= line.belief_likely + 1e-9
    if len(p) == 2:  # randomized response reaches it
        assert br.rr(2, epsilon).posterior(p)[:, p.argmin()].max() == pytest.approx(line.belief_rare, abs=1e-9)
    assert line.kept == pytest.approx(br.rr(len(p), epsilon).transition[0, 0], abs=1e-9)
    assert line.odds == pytest.approx(math.exp(epsilon))


def test_the_rows_that_are_named_suffice():
    "The error that a release of so many rows states, averaged over 20, is within a tenth of the wanted one."
    prior, wanted = np.array([0.7, 0.25, 0.05]), 0.02
    (line,) = br.explain(1, 3, prior, error=wanted).lines
    n = math.ceil(line.rows_needed)
    y = np.repeat([0, 1, 2], np.round(prior * n).astype(int))
    errors = [br.release(y, 1, 3, "rr", seed=s).frequencies().error.max() for s in range(20)]
    assert np.mean(errors) == pytest.approx(wanted, rel=0.1)
    (same,) = br.explain(1, 3, prior, rows=n).lines
    assert same.error == pytest.approx(wanted, rel=1e-3)


def test_both_ends():
    zero, most = br.explain([0, math.inf], 4, [1, 2, 3, 4], rows=100).lines
    assert (zero.odds, zero.belief_rare, zero.kept, zero.rows_needed, zero.error) == (1, 0.1, 0.25, math.inf, math.inf)
    assert (most.odds, most.belief_likely, most.kept) == (math.inf, 1, 1) and most.rows_needed == pytest.approx(2400)
    assert br.explain(1, 3, [1, 1, 0]).lines[0].belief_rare == 0


@pytest.mark.parametrize(
    "bad, name",
    (
        (dict(epsilon=-1), "epsilon"),
        (dict(epsilon=[]), "epsilon: needs at least one"),
        (dict(epsilon="x"), "epsilon"),
        (dict(epsilon=[1, None]), "epsilon"),
        (dict(domain=1), "labels|domain"),
        (dict(prior=[1, 2]), "prior"),
        (dict(rows=0), "rows: needs an integer >= 1"),
        (dict(rows=1.5), "rows"),
        (dict(error=0), "error: needs"),
        (dict(error=2), "error: needs"),
    ),
    ids=str,
)
def test_bad_input(bad, name):
    with pytest.raises((TypeError, ValueError), match=name):
        br.explain(**{**dict(epsilon=1, domain=3), **bad})


def test_table_and_picture():
    found = br.explain([0.5, 1, 2, math.inf], ["<b>", "no"], [3, 97], rows=500)
    assert found.to_markdown().count("\n") == 5 and found._repr_html_().count("<tr>") == 5
    assert len({line.index("  ") for line in repr(found).splitlines()}) >= 1 and "odds change" in repr(found)
    left, right = found.plot()
    assert left.get_xlabel() == "epsilon" and right.get_yscale() == "log"
    assert len(br.explain(0, 3).plot()) == 2


def test_commands(capsys):
    main(["explain", "0.5", "1", "--domain", "no,yes", "--prior", "97,3", "--rows", "5000"])
    assert capsys.readouterr().out == f"{br.explain([0.5, 1], 2, [97, 3], rows=5000)}\n"
    main(["advise", "1", "2", "--domain", "4", "--prior", "70,20,6,4", "--prior-rows", "500"])
    said = capsys.readouterr().out
    assert said.count("of what clean labels would give") == 2 and said.startswith("epsilon 1: ")
    main(["advise", "1", "--domain", "a,b,c"])
    assert "A private prior would need about" in capsys.readouterr().out
    for bad in (["--domain", "a,b", "--prior", "1"], ["--domain", "a,,b"], ["--domain", "3", "--prior", "x,y,z"]):
        with pytest.raises(SystemExit, match="blockrr explain: --"):
            main(["explain", "1", *bad])


def test_advice_for_several_epsilons_and_without_a_prior():
    several = br.advise([70, 20, 6, 4], (e for e in (0.5, 1)), "balanced", rows=5_000)
    assert [a.epsilon for a in several] == [0.5, 1.0] and several.to_markdown().count("\n") == 3
    assert [a.why for a in several] == [br.advise([70, 20, 6, 4], e, "balanced", rows=5_000).why for e in (0.5, 1)]
    unknown = br.advise(None, 1, labels=20)
    assert unknown.best.method == "rr" and unknown.relative == pytest.approx(unknown.best.quality / unknown.clean)
    assert br.advise([3, 2, 1], math.inf).relative == pytest.approx(1)
    for bad in (dict(prior=None), dict(prior=None, labels=3, n_prior=10)):
        with pytest.raises(ValueError, match="prior: needs weights, or None"):
            br.advise(epsilon=1, **bad)
