"A mechanism that is added at run time is found everywhere, and each method keeps its promises."

import json
import math

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy import methods, stages
from blockrr.privacy.methods import METHODS, Method, Setting, method_named
from blockrr.privacy.statement import Statement

LABELS = np.arange(3000) % 3
PRIOR = [6, 3, 1]


def check_share(share):
    if share is None:
        return 0.5
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise TypeError(f"share: needs a number, got {share!r}")
    if not 0 < share <= 1:
        raise ValueError(f"share: needs 0 < share <= 1, got {share}")
    return float(share)


def build_weak(domain, epsilon, prior, share):
    "Randomized response that uses a share of epsilon only."
    table = br.rr(domain, share * epsilon).transition
    return br.Mechanism(table, epsilon, domain, name="Weak"), {"share": share}


def candidates(prior, epsilon):
    return [{"share": 0.5}, {"share": 1.0}]


@pytest.fixture
def weak(monkeypatch):
    setting = Setting(check_share, "share of epsilon that is used, > 0 to 1")
    method = Method("weak", "Weak", build_weak, {"share": setting}, colour="#123456", candidates=candidates)
    monkeypatch.setitem(METHODS, "weak", method)
    return method


def test_release_finds_a_new_method_and_its_setting(weak):
    out = br.release(LABELS, 1.0, 3, "weak", seed=1, share=0.25)
    assert out.mechanism.name == "Weak" and out.certificate.holds and len(out.labels) == 2970
    assert out.certificate.epsilon == 1.0 and out.statement.epsilon_response <= 0.2500001
    assert br.release(LABELS, 1.0, 3, "weak", seed=1).statement.settings == {"share": 0.5}  # its default
    with pytest.raises(ValueError, match="share: needs 0 < share <= 1, got 2"):
        br.release(LABELS, 1.0, 3, "weak", share=2)
    with pytest.raises(ValueError, match="share: only the method 'weak' has one, got 0.5 for 'block_rr'"):
        br.release(LABELS, 1.0, 3, share=0.5)
    with pytest.raises(ValueError, match=f"method: needs one of {', '.join(METHODS)}, got"):
        br.release(LABELS, 1.0, 3, "strong")


def test_a_bad_setting_of_a_new_method_costs_nothing(weak, tmp_path):
    account = dict(ledger=tmp_path / "l.db", dataset_id="d", budget=1)
    with pytest.raises(TypeError, match="share: needs a number"):
        br.release(LABELS, 1.0, 3, "weak", share="half", **account)
    with pytest.raises(TypeError, match="strength: needs a setting of the method 'weak', which has share, got another"):
        br.release(LABELS, 1.0, 3, "weak", strength=1, **account)
    with pytest.raises(ValueError, match="new to the ledger"):
        br.Ledger(account["ledger"]).account("d")


def test_two_stage_finds_a_new_method(weak):
    out, fit = br.two_stage(LABELS, 1.0, 3, "weak", seed=1, share=0.25)
    assert [m.name for m in out.mechanisms] == ["RR", "Weak"] and out.statement.settings == {"share": 0.25}
    assert out.certificate.holds and fit.prior.shape == (3,)
    assert out.likelihood.shape == (3000, 3) and (out.likelihood[np.arange(3000), LABELS] > 0).all()


def test_the_statement_of_a_new_method_is_read_back(weak):
    for out in (br.release(LABELS, 1.0, 3, "weak", share=0.25), br.two_stage(LABELS, 1.0, 3, "weak", share=0.25)[0]):
        facts = json.loads(out.to_json())
        assert facts["settings"] == {"share": 0.25} and facts["sigma"] is None and "floor" not in facts
        assert Statement.from_json(out.to_json()) == out.statement
        assert all(out.statement.matches(m) for m in out.mechanisms)


def test_advise_tries_and_draws_a_new_method(weak):
    advice = br.advise(PRIOR, 2.0, n_prior=500)
    tried = {(o.method, o.settings.get("share")) for o in advice.ranking if o.method == "weak"}
    assert tried == {("weak", 0.5), ("weak", 1.0)}
    assert any(str(o).startswith("Weak share=0.5") for o in advice.ranking)
    axes = advice.plot()
    assert any("Weak" in text.get_text() for text in axes.get_yticklabels())
    drawn = {tuple(colour) for colour in axes.collections[-1].get_facecolors().round(3)}
    assert tuple(np.round([0x12 / 255, 0x34 / 255, 0x56 / 255, 1], 3)) in drawn
    only = br.advise(PRIOR, 2.0, menu=[("weak", {"share": 0.5}), ("rr", {})])
    assert only.best.method == "rr"  # it uses all of epsilon
    with pytest.raises(ValueError, match="menu: needs share for weak, got none in entry 0"):
        br.advise(PRIOR, 2.0, menu=[("weak", {})])
    with pytest.raises(ValueError, match="menu: entry 0, weak: share: needs 0 < share <= 1, got 7"):
        br.advise(PRIOR, 2.0, menu=[("weak", {"share": 7})])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("epsilon", (0.0, 1e-9, 1.0, 4.0, 60.0, math.inf))
def test_every_method_keeps_epsilon_and_says_what_it_used(name, epsilon):
    method = method_named(name)
    given = {"floor": 0.5} if "floor" in method.settings else {}
    prior = np.array([0.6, 0.3, 0.1])
    mechanism, used = method.build(br.Domain(3), epsilon, prior, **given)
    assert mechanism.certify(epsilon).holds and set(used) == set(method.settings)
    again, same = method.build(br.Domain(3), epsilon, prior, **used)
    assert (again.integers == mechanism.integers).all() and same == used
    for settings in method.candidates(prior, epsilon):
        checked = method.check(settings)
        assert checked.items() >= settings.items() and method.check(checked) == checked
        assert method.build(br.Domain(3), epsilon, prior, **settings)[0].certify(epsilon).holds


def test_settings_are_checked_and_none_is_not_given():
    block = METHODS["block_rr"]
    assert block.check({}) == block.check({"sigma": None, "l": None, "floor": None}) == {}
    assert block.check({"sigma": 2, "l": np.int64(3)}) == {"sigma": 2.0, "l": 3}
    for bad in (0, -1, math.nan, "1", True):
        with pytest.raises((TypeError, ValueError), match="sigma: needs"):
            block.check({"sigma": bad})
    for bad in (-1, 1.5, "1", True):
        with pytest.raises((TypeError, ValueError), match="l: needs"):
            block.check({"l": bad})
    for bad in (-0.1, 1.1, math.nan, "1", True, None):
        with pytest.raises((TypeError, ValueError), match="floor: needs"):
            METHODS["optimal_rr"].check({"floor": bad})
    with pytest.raises(ValueError, match="l: only the method 'block_rr' has one, got 1 for 'rr'"):
        METHODS["rr"].check({"l": 1})
    for bad in ("best", None, 1, ["rr"]):
        with pytest.raises(ValueError, match=f"method: needs one of {', '.join(METHODS)}, got"):
            method_named(bad)


def test_old_places_warn():
    from blockrr.privacy import release as old

    for name in ("METHODS", "check_floor", "default_settings"):
        with pytest.warns(DeprecationWarning, match=f"use blockrr.privacy.methods.{name}"):
            assert getattr(old, name) is getattr(methods, name)
    with pytest.warns(DeprecationWarning, match="use blockrr.privacy.release.Release"):
        assert stages.GroupedRelease is br.Release
