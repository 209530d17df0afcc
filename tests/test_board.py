"A statement in words: every part is there, and nothing of it is wrong for an odd release."

import json
import math
from dataclasses import replace

import pytest

import blockrr as br
from blockrr.privacy.board import NOT_COVERED, board_blocks, hazards, largest_posterior

LABELS = ["no", "yes", "perhaps"] * 200
OUT = br.release(LABELS, 1, ["no", "yes", "perhaps"], "rr")


def test_the_largest_posterior_is_reached_by_randomised_response():
    made = br.rr(2, 1.0)
    for p in (0.01, 0.3, 0.9):
        assert made.posterior([p, 1 - p])[0, 0] == pytest.approx(largest_posterior(p, 1.0), abs=1e-8)


@pytest.mark.parametrize("epsilon", [0, 1e-12, 1, 700, 5000, math.inf])
def test_limits(epsilon):
    assert largest_posterior(0, epsilon) == 0 and largest_posterior(1, epsilon) == 1
    assert 0.5 <= largest_posterior(0.5, epsilon) <= 1
    text = replace(OUT.statement, epsilon=float(epsilon)).to_markdown()
    assert ("NO privacy" in text) == (epsilon == math.inf)


def test_the_page_says_what_a_board_asks():
    text = OUT.statement.to_markdown("Survey")
    assert text.startswith("# Survey\n")
    for part in (
        "What epsilon means",
        "factor of at most 2.719",
        "Against whom",
        "What is not protected",
        "parallel composition",
        "How it was drawn",
        "secure randomness",
        "NIST SP 800-226",
        f"blockrr {br.__version__}",
        OUT.statement.table_sha256,
    ):
        assert part in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") - line.count("\\|") in (3, 4) for line in tables)


def test_html_holds_the_same_and_escapes_names():
    odd = replace(OUT.statement, dataset_id="<script>|x", reproducible=True)
    page = odd.to_html("a & b")
    assert "<script>" not in page and "&lt;script&gt;" in page and "<h1>a &amp; b</h1>" in page
    assert page.count("<h2>") == sum(block.kind == "heading" for block in board_blocks(odd))
    assert "NO privacy against them" in page and "\\|x" in odd.to_markdown()


def test_bad_releases_are_called_so():
    exceeds = replace(OUT.statement, holds=False, n_outputs=1).to_markdown()
    assert "EXCEED" in exceeds and "NOTHING can be learnt" in exceeds


def test_every_layer_is_answered_or_marked():
    found = hazards(OUT.statement)
    layers = "Parameters Definition Unit Algorithms Usefulness Bias Trust Side Access Data".split()
    assert {h.layer.split()[0] for h in found} == set(layers)
    assert all(len(h.answer) > 20 for h in found)
    assert sum(NOT_COVERED in h.answer for h in found) >= 4


def test_the_registry_entry_has_the_fields_of_the_template():
    entry = OUT.statement.to_registry()
    assert list(entry["deployment"]) == [
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "implementation",
        "administrative",
    ]
    assert set(entry["deployment"]["privacy_loss"]) == {
        "privacy_unit",
        "privacy_unit_details",
        "number_of_privacy_units",
        "privacy_parameters",
        "privacy_parameters_details",
    }
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    no_privacy = br.release(LABELS, "inf", ["no", "yes", "perhaps"], "rr").statement.to_registry()
    assert no_privacy["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": "inf"}
    assert "NIST SP 800-226" in entry["deployment"]["implementation"]["additional_information"]


def test_sets_are_named():
    out = br.release([f"l{i % 10}" for i in range(300)], 0.6, [f"l{i}" for i in range(10)], "subset")
    page, entry = out.statement.to_markdown(), out.statement.to_registry()
    assert "300 of 300 labels were released as sets of labels by SubsetResponse" in page
    assert "210 sets of the 10 labels can be released." in page and "210 of 10" not in page
    assert "| Labels in the domain, sets that can be released | 10, 210 |" in page
    assert entry["deployment"]["basic"]["description"] == "300 labels released as sets of labels by SubsetResponse"


def test_no_label_stands_in_any_form():
    secret = br.release(["zqx1", "zqx2"] * 300, 1, ["zqx1", "zqx2"])
    for text in (secret.statement.to_markdown(), secret.statement.to_html(), str(secret.statement.to_registry())):
        assert "zqx" not in text


def test_the_page_says_who_chose_the_mechanism_and_from_what():
    assert "| Why this one | Named by whoever ran the release. |" in OUT.statement.to_markdown()
    chosen = br.release(LABELS, 1, ["no", "yes", "perhaps"], prior_fraction=0.5)
    assert chosen.statement.choice and chosen.statement.choice in chosen.statement.to_markdown()
    (answer,) = [h.answer for h in hazards(chosen.statement) if h.hazard.startswith("Choices")]
    assert ("other rows" in answer) == bool(chosen.statement.rows_prior)


def test_a_notebook_shows_the_page():
    assert OUT.statement._repr_markdown_() == OUT.statement.to_markdown()


def test_settings_are_named_alike_everywhere():
    out = br.release([0, 1, 2, 3, 4] * 20, 0.5, 5, "subset")
    entry = out.statement.to_registry()["deployment"]["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert entry == "None; settings size = 2" and "| Settings | size = 2 |" in out.statement.to_markdown()
