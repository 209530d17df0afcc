"""The small network: sizes, bad input, memory, killed processes, kinds of targets that agree, batches of a profile."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import blockrr as br
from blockrr.learning import network_rounds
from blockrr.learning import network_training as training
from blockrr.learning.device import Execution
from blockrr.learning.images import digits
from blockrr.learning.network import Network, NetworkRecipe, network_bytes
from blockrr.learning.network_rounds import cross_fit_networks, fit_posterior_network, mixture_weights
from blockrr.learning.network_targets import Targets, label_targets
from blockrr.learning.network_training import NetworkTrainer, fit_network, view_logits
from blockrr.study.cli import main
from blockrr.study.experiment import release_labels, run
from blockrr.study.learners import LEARNERS
from blockrr.study.records import load
from blockrr.study.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
RECIPE = NetworkRecipe(width=4, rate=3.0, epochs=3, batch=32, flip=False, pad=1)
CPU = Execution("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def coloured(n, size, channels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, size, size, channels), dtype=np.uint8)


def trainer_of(images, recipe=RECIPE, n_classes=4, how=CPU):
    return NetworkTrainer(images, images[:10], n_classes, recipe=recipe, how=how)


@pytest.mark.parametrize("size", [8, 13, 28, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_any_size_that_is_stated(size, channels):
    trainer = trainer_of(coloured(40, size, channels), replace(RECIPE, epochs=1, flip=True))
    fit = fit_network(trainer, label_targets(np.arange(40) % 4, 4))
    assert fit.logits.shape == fit.plain.shape == (10, 4) and np.isfinite(fit.logits).all()


@pytest.mark.parametrize(
    "images, error, words",
    [
        (np.zeros((40, 7, 8, 3), np.uint8), ValueError, "images: needs images of 8 to 64 pixels"),
        (np.zeros((40, 65, 65, 3), np.uint8), ValueError, "images: needs images of 8 to 64 pixels"),
        (np.zeros((40, 8, 8, 4), np.uint8), ValueError, "1 or 3 channels"),
        (np.zeros((0, 8, 8, 3), np.uint8), ValueError, "images: needs images"),
        (np.zeros((40, 8, 8, 3)), TypeError, "images: needs a uint8 array"),
        (np.zeros((40, 8, 8), np.uint8), TypeError, "images: needs a uint8 array"),
        ("images", TypeError, "images: needs a uint8 array"),
        (np.zeros((20, 8, 8, 3), np.uint8), ValueError, "batch: needs at most the 20 images"),
    ],
)
def test_images_that_are_refused(images, error, words):
    with pytest.raises(error, match=words):
        trainer_of(images)


def test_test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"test_images: needs shape \(8, 8, 3\)"):
        NetworkTrainer(coloured(40, 8, 3), coloured(40, 9, 3), 4, recipe=RECIPE, how=CPU)


@pytest.mark.parametrize(
    "targets, words",
    [
        (Targets("likelihood", np.ones((40, 3)), np.arange(40)), r"targets: needs \[rows, 4\]"),
        (Targets("likelihood", np.ones((40, 4)), np.arange(39)), r"targets: needs \[rows, 4\]"),
        (Targets("likelihood", np.full((40, 4), np.nan), np.arange(40)), "numbers from 0 to 1"),
        (Targets("likelihood", np.zeros((40, 4)), np.arange(40)), "not all 0 in a row"),
        (Targets("likelihood", np.ones((40, 4)), np.arange(1, 41)), "rows from 0 to 39"),
        (Targets("soft", np.ones((40, 4)), np.arange(40)), "sum to 1"),
        (Targets("soft", np.ones((0, 4)), np.arange(0)), r"targets: needs \[rows, 4\]"),
        (Targets("soft", np.eye(4)[:1], np.arange(1)), "2 rows at least"),
        (Targets("soft", np.eye(4), np.arange(4) + 0.5), "as integers"),
    ],
)
def test_targets_that_are_refused(targets, words):
    with pytest.raises(ValueError, match=words):
        fit_network(trainer_of(coloured(40, 8, 3)), targets)


def test_too_little_memory_is_said_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(training, "free_memory", lambda device: 1e6)
    with pytest.raises(RuntimeError, match="batches of 32 needs about .* free are 1.0 MiB; choose a smaller batch"):
        trainer_of(coloured(40, 32, 3))


def test_a_rate_that_diverges_is_named():
    with pytest.raises(RuntimeError, match="rate: needs a loss that stays finite"):
        fit_network(trainer_of(coloured(64, 8, 3), replace(RECIPE, rate=1e12)), label_targets(np.arange(64) % 4, 4))


def test_memory_grows_with_width_batch_and_precision():
    of = {w: network_bytes(NetworkRecipe(width=w), (32, 32, 3)) for w in (16, 32, 64)}
    assert of[16] < of[32] < of[64] < 3 * 2**30
    assert network_bytes(NetworkRecipe(), (32, 32, 3), itemsize=2) < of[64]
    assert network_bytes(NetworkRecipe(batch=1024), (32, 32, 3)) > 1.9 * of[64]


def test_certain_likelihoods_are_labels():
    "A likelihood of 1 for one class and 0 for the others is that label, to the last bit of the loss."
    images, labels = coloured(64, 8, 1), np.arange(64) % 4
    believed = label_targets(labels, 4)
    a = fit_network(trainer_of(images), believed)
    b = fit_network(trainer_of(images), believed._replace(kind="likelihood"))
    np.testing.assert_allclose(a.losses, b.losses, rtol=1e-5)
    np.testing.assert_allclose(a.logits, b.logits, atol=1e-3)


def test_rows_without_a_label_teach_nothing():
    images, labels = coloured(64, 8, 1), np.arange(64) % 4
    L = br.rr(4, 2.0).transition.T[labels].astype(np.float32)
    L[::2] = 0.25
    trainer = trainer_of(images, replace(RECIPE, batch=64, epochs=1))
    fit = fit_network(trainer, Targets("likelihood", L, np.arange(64)))
    assert np.isfinite(fit.losses).all()
    with torch.no_grad():
        silent = training.target_loss(torch.randn(8, 4), torch.full((8, 4), 0.25), "likelihood")
    np.testing.assert_allclose(silent.numpy(), -np.log(0.25), rtol=1e-6)


def test_smoothing_mixup_and_cutout_train_too():
    images, labels = coloured(64, 12, 3), np.arange(64) % 4
    for changes in ({"smoothing": 0.3}, {"mixup": 2}, {"cutout": 4}, {"momentum": 0.0}, {"whitening_epochs": 0}):
        fit = fit_network(trainer_of(images, replace(RECIPE, **changes)), label_targets(labels, 4))
        assert np.isfinite(fit.losses).all(), changes


def test_an_image_is_mirrored_in_every_second_epoch(monkeypatch):
    seen = []
    real = training.augment

    def spy(images, draws, settings, **how):
        seen.append((images[:, 0, 0, 0].clone(), draws.flip.clone()))
        return real(images, draws, settings, **how)

    monkeypatch.setattr(training, "augment", spy)
    images = coloured(32, 8, 1)
    images[:, 0, 0, 0] = np.arange(32)  # each knows its number
    fit_network(trainer_of(images, replace(RECIPE, flip=True, batch=32)), label_targets(np.arange(32) % 4, 4))
    first, second, third = (dict(zip(n.tolist(), f.tolist())) for n, f in seen)
    assert all(first[i] != second[i] == (not third[i]) for i in range(32))
    assert 0 < sum(first.values()) < 32


def test_views_are_the_image_and_two_shifts_and_their_mirror_images():
    trainer = trainer_of(coloured(64, 8, 1), replace(RECIPE, flip=True))
    fit_network(trainer, label_targets(np.arange(64) % 4, 4))
    images = trainer.images[:6]
    averaged, plain = view_logits(trainer, images)
    x = training.normalise(images, trainer.settings)
    wide = torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")
    trainer.network.eval()
    with torch.no_grad():
        views = [trainer.network(v) for v in (x, x.flip(3))]
        shifted = [wide[:, :, :8, :8], wide[:, :, 2:, 2:]]
        views += [trainer.network(v) for s in shifted for v in (s, s.flip(3))]
    by_hand = sum(views[:2]) / 4 + sum(views[2:]) / 8
    np.testing.assert_allclose(averaged, by_hand.numpy(), atol=1e-5)
    np.testing.assert_allclose(plain, views[0].numpy(), atol=1e-5)
    assert np.abs(plain - averaged).max() > 1e-3


# --- kill and resume

KILLED = """
import sys, numpy as np, torch
torch.set_num_threads(1)
sys.path.insert(0, "tests")
from test_network import coloured, trainer_of, RECIPE
from dataclasses import replace
from blockrr.learning.network_targets import label_targets
from blockrr.learning.network_training import fit_network
trainer = trainer_of(coloured(512, 16, 3), replace(RECIPE, epochs=int(sys.argv[2]), width=8))
say = lambda epoch, loss: print(epoch, flush=True)
fit = fit_network(trainer, label_targets(np.arange(512) % 4, 4), seed=3, checkpoint=sys.argv[1] or None, report=say)
print("logits", fit.logits.tobytes().hex())
"""


def process(path, epochs=12):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", KILLED, str(path), str(epochs)]
    return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_training_goes_on_to_the_same_bits(tmp_path):
    path = tmp_path / "made" / "network.pt"
    victim = process(path)
    for line in victim.stdout:
        if line.startswith("2"):
            victim.send_signal(signal.SIGKILL)
            break
    victim.wait()
    assert path.exists()
    resumed = process(path).communicate()[0].splitlines()
    whole = process("").communicate()[0].splitlines()
    assert resumed[-1] == whole[-1] and resumed[-1].startswith("logits")
    assert 0 < len(resumed) < len(whole) and not path.exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "network.pt"
    images, labels = coloured(64, 8, 1), np.arange(64) % 4

    def stop(epoch, loss):
        raise KeyboardInterrupt

    def fit(recipe=RECIPE, targets=labels, **how):
        return fit_network(trainer_of(images, recipe), label_targets(targets, 4), checkpoint=path, **how)

    with pytest.raises(KeyboardInterrupt):
        fit(report=stop)
    kept = path.read_bytes()
    for other in ({"seed": 1}, {"recipe": replace(RECIPE, decay=0.01)}, {"targets": labels[::-1]}):
        with pytest.raises(ValueError, match="checkpoint: needs a file of this training, got .*network.pt, of another"):
            fit(**other)
    assert path.read_bytes() == kept
    fit()
    for junk in (b"", b"junk", kept[: len(kept) // 2], b"PK" + kept[2:200]):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match="checkpoint: needs a file of this training, got .* cannot be read"):
            fit()
        assert path.read_bytes() == junk
        with pytest.warns(UserWarning, match="training begins anew"):
            fit(replaces=True)
        assert not path.exists()


def test_a_checkpoint_that_is_kept_trains_nothing(tmp_path):
    images, targets = coloured(64, 8, 1), label_targets(np.arange(64) % 4, 4)
    first = fit_network(trainer_of(images), targets, checkpoint=tmp_path / "kept.pt", keeps=True)
    epochs = []
    again = fit_network(
        trainer_of(images), targets, checkpoint=tmp_path / "kept.pt", report=lambda e, _: epochs.append(e)
    )
    assert epochs == [] and (again.logits == first.logits).all() and not list(tmp_path.glob("*.pt"))


def test_an_interruption_anywhere_leaves_no_trace_in_the_next_training(monkeypatch):
    images, targets = coloured(64, 8, 1), label_targets(np.arange(64) % 4, 4)
    whole = fit_network(trainer_of(images), targets)
    trainer = trainer_of(images)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_view_logits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit_network(trainer, targets)
    monkeypatch.undo()
    trainer.network.eval()
    for p in trainer.network.parameters():
        p.grad = torch.full_like(p, torch.nan)
    assert (fit_network(trainer, targets).logits == whole.logits).all()


def test_a_recipe_that_the_images_do_not_allow_is_refused_later_too():
    trainer = trainer_of(coloured(64, 8, 1))
    with pytest.raises(ValueError, match="pad: needs less than the image's 8 pixels"):
        trainer.with_recipe(replace(RECIPE, pad=8))
    assert trainer.recipe == RECIPE


def test_small_likelihoods_teach_as_large_ones_do():
    images, L = coloured(64, 8, 1), br.rr(4, 2.0).transition.T[np.arange(64) % 4].astype(np.float32)
    a, b = (fit_network(trainer_of(images), Targets("likelihood", L * f, np.arange(64))) for f in (1.0, 1e-36))
    np.testing.assert_allclose(a.logits, b.logits, atol=1e-4)


@pytest.mark.parametrize("bad", [{"rate": np.inf}, {"batch": 1}, {"momentum": -0.1}, {"width": 2.0}, {"flip": 1}])
def test_recipes_that_are_refused(bad):
    with pytest.raises((ValueError, TypeError), match=f"{[*bad][0]}: needs"):
        NetworkRecipe(**bad)


# --- the fastest execution


def test_a_compiled_step_of_another_gradient_is_not_taken(monkeypatch, tmp_path):
    trainer = trainer_of(coloured(64, 16, 3))
    seconds = {"off": 2.0, "default": 1.0}
    compiled = []

    def step_seconds(trainer, how=None):
        for p in trainer.network.parameters():
            p.grad = torch.ones_like(p) * (compiled[-1] if how.compile == "default" else 1.0)
        return seconds[how.compile] + (how.precision == "float32")

    monkeypatch.setattr(training, "step_seconds", step_seconds)
    for gradient, expected in ((float("nan"), "off"), (2.0, "off"), (1.01, "default")):
        compiled.append(gradient)
        found = training._timed(trainer)
        assert (str(found["precision"]), str(found["compile"])) == ("bfloat16", expected)


def test_execution_is_found_once_and_remembered(monkeypatch, tmp_path):
    calls = []

    def timed(trainer):
        calls.append(1)
        return {"precision": np.array("float32"), "compile": np.array("off")}

    monkeypatch.setattr(training, "_timed", timed)
    trainer = trainer_of(coloured(600, 32, 3), replace(RECIPE, width=8, batch=512))
    found = [training.fastest_execution(trainer, cache=tmp_path) for _ in range(2)]
    assert found == [Execution("cpu")] * 2 and len(calls) == 1


# --- rounds


def test_a_cross_fit_never_sees_the_label_of_the_row_that_it_scores(monkeypatch):
    images, labels = coloured(128, 8, 1), np.arange(128) % 4
    L = br.rr(4, 2.0).transition.T[labels].astype(np.float32)
    given, learnt, asked = [], [], []

    def teach(likelihood):
        given.append(likelihood)
        return np.full(likelihood.shape, 0.25)

    def fitted(trainer, targets, **how):
        learnt.append(targets.rows)

    real = network_rounds.view_logits
    monkeypatch.setattr(network_rounds, "fit_network", fitted)
    monkeypatch.setattr(network_rounds, "view_logits", lambda t, x: asked.append(len(x)) or real(t, x))
    rows = np.arange(128)
    p = cross_fit_networks(trainer_of(images), teach, L, rows=rows, seed=np.random.SeedSequence(0))
    assert p.shape == (128, 4) and sorted([*learnt[0], *learnt[1]]) == [*rows]
    assert asked == [len(learnt[1]), len(learnt[0])]
    for likelihood, others in zip(given, learnt[::-1]):
        assert (likelihood[others] == 0.25).all()  # the teacher's labels of the rows asked about
        kept = np.setdiff1d(rows, others)
        assert (likelihood[kept] == L[kept]).all()


def test_a_second_round_that_is_cut_off_keeps_its_halves(tmp_path, monkeypatch):
    images, labels = coloured(128, 8, 1), np.arange(128) % 4
    L = br.rr(4, 2.0).transition.T[labels].astype(np.float32)
    how = {"rounds": 2, "seed": 1, "checkpoint": tmp_path / "made.pt"}

    def teach(likelihood):
        return np.full(likelihood.shape, 0.25, np.float32)

    whole = fit_posterior_network(trainer_of(images), teach, L, rounds=2, seed=1)
    real, calls = network_rounds.fit_network, []

    def third_fails(trainer, targets, **options):
        calls.append(len(targets.rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(trainer, targets, **options)

    monkeypatch.setattr(network_rounds, "fit_network", third_fails)
    with pytest.raises(KeyboardInterrupt):
        fit_posterior_network(trainer_of(images), teach, L, **how)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made.pt.half0", "made.pt.half1"]
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.undo()
    epochs = []
    monkeypatch.setattr(training._Training, "epoch", counted(training._Training.epoch, epochs))
    resumed = fit_posterior_network(trainer_of(images), teach, L, **how)
    assert len(epochs) == RECIPE.epochs and before and not list(tmp_path.iterdir())
    assert (resumed.network.logits == whole.network.logits).all() and resumed.details == whole.details


def counted(function, calls):
    def wrapper(*args):
        calls.append(1)
        return function(*args)

    return wrapper


def test_shares_of_models_do_not_fall_in_likelihood():
    rng = np.random.default_rng(1)
    models = [rng.dirichlet(np.ones(3), 300) for _ in range(3)]
    likelihood = br.rr(3, 1.0).transition[:, rng.integers(3, size=300)].T

    def value(weights):
        return np.log(sum(w * (p * likelihood).sum(1) for w, p in zip(weights, models))).mean()

    found = mixture_weights(models, likelihood)
    assert abs(found.sum() - 1) < 1e-12
    assert value(found) >= max(value(w) for w in [*np.eye(3), np.full(3, 1 / 3), *rng.dirichlet(np.ones(3), 200)])


def test_what_a_posterior_network_refuses():
    trainer = trainer_of(coloured(64, 8, 1))
    L = np.full((64, 4), 0.25)
    for teach, likelihood, rounds, words in (
        (lambda L: L[:, :3], L, 1, r"teach: needs probabilities of shape \(64, 4\), got \(64, 3\)"),
        (lambda L: L, 0 * L, 1, "zero for every class"),
        (lambda L: L, L[None], 1, r"likelihood: needs \[n, K\]"),
        (lambda L: L, L, True, "rounds: needs 1 or 2, got True"),
    ):
        with pytest.raises(ValueError, match=words):
            fit_posterior_network(trainer, teach, likelihood, rounds=rounds)


# --- the study

DIGITS = dict(dataset="digits", mechanism="rr", epsilon=3.0, options={"epochs": 2})


@pytest.mark.parametrize("learner", ["network", "network_forward", "network_posterior"])
def test_records_are_a_function_of_the_spec(learner):
    spec = Spec(learner=learner, **DIGITS)
    first, again = run(spec), run(spec)
    assert first.accuracy == again.accuracy and first.details["losses"] == again.details["losses"]
    assert "without views" in first.details["others"]
    assert run(replace(spec, seed=1)).details["losses"] != first.details["losses"]


def test_sets_go_to_the_learners_of_likelihoods_alone():
    sets = {**DIGITS, "mechanism": "subset", "epsilon": 1.0}
    for learner in ("network_forward", "network_posterior"):
        assert run(Spec(learner=learner, **sets)).accuracy > 0
    with pytest.raises(ValueError, match="one label a row"):
        run(Spec(learner="network", **sets))


def test_labels_of_few_classes_train_as_the_paper_does():
    "RRWithPrior may never release some classes; they are then never predicted."
    spec = Spec("digits", "rr_with_prior", 0.2, learner="network", prior_fraction=0.1, options={"epochs": 1})
    labels = digits().train_labels
    released = release_labels(spec, labels, 10)
    assert len(set(released.labels.tolist())) < 10
    assert run(spec).per_class.count(0.0) > 0


def test_options_are_those_of_the_recipe():
    for learner, options, word in (
        ("network", {"rounds": 2}, "rounds"),
        ("network_forward", {"depth": 2}, "network_forward has width, epochs, .* got depth"),
        ("network_posterior", {"features": "all"}, "features: needs one of"),
        ("network_posterior", {"width": -1}, "width: needs"),
    ):
        spec = Spec(learner=learner, **{**DIGITS, "options": options})
        with pytest.raises(ValueError, match=word):
            run(spec)
    assert LEARNERS["network_posterior"].pace.epochs(Spec("cifar10_1", "rr", 4.0, learner="network_posterior")) == 10


def test_a_batch_says_what_fits_before_it_starts(tmp_path, capsys, monkeypatch):
    from blockrr.study import profile_batch

    profile = {"study": "resnet", "datasets": ["digits"], "epsilons": [2.0], "mechanisms": ["rr"], "seeds": 3}
    profile |= {"learner": "network", "prior_fraction": 0.1, "options": {"epochs": 1}}
    start = time.monotonic()
    out = profile_batch.run_profile(profile, tmp_path, 2, device="cpu")
    said = capsys.readouterr().out
    assert out.done == 3 and time.monotonic() - start < 120
    assert "0 of 3 trainings are on disk\nnetwork on digits takes about 0.0 minutes here\nabout 3 of 3" in said
    found = sorted((tmp_path / "records").glob("*.json"))
    assert sorted(r.spec.seed for path in found for r in load(path)) == [0, 1, 2]
    assert all(json.loads(path.read_text())["provenance"]["wall_seconds"] >= 0 for path in found)
    profile_batch.run_profile(profile, tmp_path, 2, device="cpu")
    assert "3 of 3 trainings are on disk\n0 trainings done" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, words",
    [
        (["--profile", "nothing"], "profile: needs one of"),
        (["--profile", "laptop"], "profile: needs one of trainings"),
        (["--profile", "network", "--minutes", "0"], "minutes: needs a number > 0"),
    ],
)
def test_what_the_command_refuses(tmp_path, options, words):
    with pytest.raises(SystemExit, match=words):
        main(["batch", "--output", str(tmp_path), "--device", "cpu", *options])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_code_on_a_gpu():
    trainer = trainer_of(coloured(512, 32, 3), replace(RECIPE, width=16), how=None)
    fit = fit_network(trainer, label_targets(np.arange(512) % 4, 4))
    assert trainer.images.is_cuda and np.isfinite(fit.losses).all()


def test_the_network_is_small():
    n = sum(p.numel() for p in Network(10, 3, 64).parameters() if p.requires_grad)
    assert 1e6 < n < 2e6
