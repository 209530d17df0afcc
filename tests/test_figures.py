"""Figures draw every mechanism of the table that a frame has; those of the paper's three do not change for it."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import blockrr as br
from blockrr.privacy.methods import METHODS, Method
from blockrr.study.figures import plot_accuracy, plot_per_class

EPSILONS = (0.6, 1.0, 2.0)


def frame_of(*mechanisms):
    "Two seeds of each mechanism at each budget, as `read_records` gives them."
    rows = []
    for i, mechanism in enumerate(mechanisms):
        for epsilon in EPSILONS:
            for seed in (0, 1):
                level = 40.0 + 10 * i + seed
                classes = {f"class_{j}": level + j for j in range(10)}
                block = {"sigma": np.nan, "l": np.nan}
                spec = {"dataset": "cifar10_1", "mechanism": mechanism, "epsilon": epsilon, "seed": seed, **block}
                rows.append({**spec, "learner": "probe", "accuracy": level, "average": level, **classes})
    return pd.DataFrame(rows)


@pytest.fixture
def toy(monkeypatch):
    def build(domain, epsilon, prior):
        return br.rr(domain, epsilon), {}

    monkeypatch.setitem(METHODS, "lazy", Method("lazy", "LazyRR", build, uses_prior=False, colour="#123456"))


def measured_lines(ax, title):
    "Horizontal places and heights of a mechanism's own points."
    handles = dict(zip(*reversed(ax.get_legend_handles_labels())))
    return handles[title][0].get_xydata(), to_hex(handles[title][0].get_color())


def test_accuracy_draws_a_new_mechanism_in_its_colour(toy):
    left, right = plot_accuracy(frame_of("rr", "rr_with_prior", "lazy"), "cifar10_1").axes
    points, colour = measured_lines(left, "LazyRR")
    assert colour == "#123456" and points[:, 1] == pytest.approx(60.5) and len(points) == len(EPSILONS)
    gaps, _ = measured_lines(right, "LazyRR")
    assert gaps[:, 1] == pytest.approx(20)  # above RR
    assert "LazyRR, paper" not in left.get_legend_handles_labels()[1]  # of which nothing is printed


def test_accuracy_of_a_mechanism_alone_and_of_none(toy):
    left, _ = plot_accuracy(frame_of("lazy"), "cifar10_1").axes
    assert {"LazyRR", "RR, paper"} <= set(left.get_legend_handles_labels()[1])
    left, _ = plot_accuracy(frame_of("rr", "unheard_of"), "cifar10_1").axes
    assert set(left.get_legend_handles_labels()[1]) == {"RR", "RR, paper", "RRWithPrior, paper", "BlockRR, paper"}


def test_classes_have_a_bar_for_a_new_mechanism(toy):
    ax = plot_per_class(frame_of("rr", "rr_with_prior", "lazy"), "cifar10_1", 1.0).axes[0]
    bars = {c.get_label(): c for c in ax.containers if len(c) == 10 and hasattr(c[0], "get_height")}
    assert set(bars) == {"RR", "RRWithPrior", "LazyRR"} and to_hex(bars["LazyRR"][0].get_facecolor()) == "#123456"
    assert [bar.get_height() for bar in bars["LazyRR"]] == pytest.approx([60.5 + j for j in range(10)])
    first = [bars[name][0] for name in ("RR", "RRWithPrior", "LazyRR")]
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in first]
    assert all(a[1] < b[0] for a, b in zip(ends, ends[1:]))  # none hides another
    assert -0.5 < ends[0][0] and ends[-1][1] < 0.5
    assert "LazyRR" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_papers_three_are_drawn_as_before(toy):
    "In thirds of 0.81, and 3 % apart on the axis of epsilon, whatever else the table holds."
    frame = frame_of("rr", "rr_with_prior")
    ax = plot_per_class(frame, "cifar10_1", 1.0).axes[0]
    bars = [c for c in ax.containers if len(c) == 10 and hasattr(c[0], "get_height")]
    assert [c[0].get_x() for c in bars] == pytest.approx([-0.27 - 0.125, -0.125])
    assert bars[0][0].get_width() == pytest.approx(0.25)
    left, _ = plot_accuracy(frame, "cifar10_1").axes
    assert measured_lines(left, "RR")[0][:, 0] == pytest.approx(0.97 * np.array(EPSILONS))
    assert measured_lines(left, "RRWithPrior")[0][:, 0] == pytest.approx(EPSILONS)


def test_one_setting_a_mechanism():
    both = pd.concat([frame_of("optimal_rr"), frame_of("optimal_rr")], ignore_index=True)
    with pytest.raises(ValueError, match="frame: needs each seed once in a cell"):
        plot_accuracy(both, "cifar10_1")
