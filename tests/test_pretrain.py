"""Pre-training: no label counts, killed runs resume, budgets are kept, and files of something else are refused."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from blockrr.learning import pretrain as P
from blockrr.learning.contrastive import LAPTOP, PretrainRecipe
from blockrr.learning.encoder import Encoder, embedder, fit_pca
from blockrr.learning.features import Features
from blockrr.learning.images import ImageData, digits, imbalanced
from blockrr.learning.pretrained import pretrained
from blockrr.learning.probe import Probe

SETTINGS = dict(
    size=8,
    views=4,
    batch=32,
    width=4,
    embed=32,
    area=0.4,
    mirror=False,
    hue=0.0,
    grey=0.0,
    rate=5e-3,
)
TINY = PretrainRecipe(**SETTINGS)
DIGITS = digits()
IMAGES = DIGITS.train_images, DIGITS.test_images


def export(images, folder, recipe=TINY, **options):
    return P.pretrain_and_export(*images, "digits", output=folder, recipe=recipe, device="cpu", **options)


def states(*encoders):
    return zip(*(e.net.state_dict().values() for e in encoders))


def test_labels_change_nothing(tmp_path):
    "Permuted labels: the same file, which is found and read under the other labels as well."
    export(IMAGES, tmp_path, dims=8, steps=3)
    rng = np.random.default_rng(0)
    shuffled = {f"{split}_labels": rng.permutation(getattr(DIGITS, f"{split}_labels")) for split in ("train", "test")}
    a, b = (pretrained(d, folder=tmp_path) for d in (DIGITS, replace(DIGITS, **shuffled)))
    assert np.array_equal(a.train, b.train) and a.recipe == b.recipe


def test_test_images_change_no_feature_of_training_images(tmp_path):
    "Encoder and axes see training images only."
    changed = DIGITS.test_images[::-1] // 2
    for name, test in (("a", DIGITS.test_images), ("b", changed)):
        export((DIGITS.train_images, test), tmp_path / name, dims=8, steps=3)
    a, b = (np.load(tmp_path / name / "digits.npz") for name in "ab")
    assert np.array_equal(a["train"], b["train"]) and not np.array_equal(a["test"], b["test"])
    c, d = (Encoder.load(tmp_path / name / "encoder.pt").basis for name in "ab")
    assert np.array_equal(c.axes, d.axes) and np.array_equal(c.mean, d.mean) and c.step == d.step


def accuracy(encoder):
    "Of the probe on four principal axes of the features."
    train, test = (encoder.features(x, "cpu") for x in IMAGES)
    b = fit_pca(train, 4)
    probe = Probe(Features(b.codes(train), b.codes(test), {}), cache=False)
    fit = probe.fit(DIGITS.train_labels[None].astype(int))
    return 100 * float((fit.predictions[0] == DIGITS.test_labels).mean())


def test_pretraining_helps():
    "Pre-trained against untrained networks, the same probe. Two seeds gained 15 and 30 points."
    gain = []
    for seed in (0, 1):
        recipe = replace(TINY, width=8, embed=64, seed=seed)
        before = Encoder(embedder(DIGITS.train_images, recipe).eval(), recipe, {"white": 16.0})
        after = P.pretrain(DIGITS.train_images, recipe, steps=120, device="cpu")
        gain.append(accuracy(after) - accuracy(before))
    # the standard error of a difference on 286 images is at most 4, of this mean at most 3
    assert np.mean(gain) > 8


SCRIPT = f"""
import sys, torch
torch.set_num_threads(1)
from blockrr.learning.contrastive import PretrainRecipe
from blockrr.learning.images import digits
from blockrr.learning.pretrain import pretrain
def say(line): print(line, flush=True)
how = dict(steps=40, device="cpu", checkpoint=sys.argv[1], every=.1, report=say)
pretrain(digits().train_images, PretrainRecipe(**{SETTINGS}), **how).save(sys.argv[2])
"""


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def start(folder):
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(folder / "killed.ck"),
        str(folder / "killed.pt"),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_and_resumed(tmp_path, one_thread):
    victim = start(tmp_path)
    line = victim.stdout.readline()  # the first checkpoint is there
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert line.startswith("step ") and not (tmp_path / "killed.pt").exists()
    assert 0 < torch.load(tmp_path / "killed.ck")["step"] < 40
    resumed = start(tmp_path)
    resumed.communicate()
    assert resumed.returncode == 0
    how = dict(steps=40, device="cpu", checkpoint=tmp_path / "whole.ck")
    P.pretrain(DIGITS.train_images, TINY, **how).save(tmp_path / "whole.pt")
    a, b = (Encoder.load(tmp_path / f"{name}.pt") for name in ("killed", "whole"))
    assert all(torch.equal(x, y) for x, y in states(a, b))
    assert a.about["loss"] == b.about["loss"] and a.about["steps"] == 40
    with pytest.raises(ValueError, match="another recipe"):
        P.pretrain(DIGITS.train_images, replace(TINY, seed=9), **how)


def test_a_taught_run_resumes_where_it_stopped(tmp_path, one_thread):
    recipe = replace(LAPTOP, size=8, batch=32, width=4, embed=32, mirror=False, hue=0.0, grey=0.0)
    teacher = np.random.default_rng(0).normal(size=(len(DIGITS.train_images), 6)).astype(np.float32)
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)

    def run(name, teacher=teacher, **more):
        how = dict(steps=12, device="cpu", checkpoint=tmp_path / name, teacher=teacher)
        return P.pretrain(DIGITS.train_images, recipe, **how, **more)

    def stop(line):
        if line.startswith("step 5 "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("halted", every=0, report=stop)
    assert torch.load(tmp_path / "halted")["step"] == 5
    with pytest.raises(ValueError, match="another recipe"):
        run("halted", np.roll(teacher, 1, 0))
    halted, whole, other = (
        run("halted"),
        run("whole"),
        run("other", np.roll(teacher, 1, 0)),
    )
    assert halted.about["loss"] == whole.about["loss"]
    assert all(torch.equal(x, y) for x, y in states(halted, whole))
    assert other.about["loss"] != whole.about["loss"] and other.about["teacher"] != whole.about["teacher"]
    whole.save(tmp_path / "encoder.pt")
    again = Encoder.load(tmp_path / "encoder.pt")
    some = DIGITS.test_images[:9]
    assert np.array_equal(again.features(some, "cpu"), whole.features(some, "cpu"))


def test_budget_is_kept_and_fixed_by_measurement(tmp_path):
    how = dict(minutes=0.05, device="cpu", checkpoint=tmp_path / "ck", every=1e9)
    encoder = P.pretrain(DIGITS.train_images, TINY, **how)
    state = torch.load(tmp_path / "ck")
    assert len(state["losses"]) == encoder.about["steps"] == state["step"] and encoder.about["seconds"] < 30


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no CUDA device"):
        P.pretrain(DIGITS.train_images, TINY, steps=1, device="cuda")
    assert P.pretrain(DIGITS.train_images, TINY, steps=1).about["steps"] == 1  # the processor is chosen

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(P, "views", full)
    with pytest.raises(RuntimeError, match="try a batch of 16"):
        P.pretrain(DIGITS.train_images, TINY, steps=1, device="cpu")


TEACHER = np.ones((869, 1), np.float32)


@pytest.mark.parametrize(
    "images, change, options, error, word",
    [
        (DIGITS.train_images, {}, {}, ValueError, "steps or minutes"),
        (
            DIGITS.train_images,
            {},
            dict(steps=1, minutes=1.0),
            ValueError,
            "steps or minutes",
        ),
        (DIGITS.train_images, {}, dict(steps=-1), ValueError, "steps or minutes"),
        (
            DIGITS.train_images[:31],
            {},
            dict(steps=1),
            ValueError,
            "batch: needs at most the 31 images",
        ),
        (
            DIGITS.train_images / 16,
            {},
            dict(steps=1),
            TypeError,
            "images: needs a uint8 array",
        ),
        (
            DIGITS.train_images[..., 0],
            {},
            dict(steps=1),
            TypeError,
            "images: needs a uint8 array",
        ),
        (
            DIGITS.train_images,
            {},
            dict(steps=1, teacher=TEACHER),
            ValueError,
            "got some and 0.0",
        ),
        (
            DIGITS.train_images,
            dict(teacher=1.0),
            dict(steps=1),
            ValueError,
            "got none and 1.0",
        ),
        (
            DIGITS.train_images,
            dict(teacher=1.0),
            dict(steps=1, teacher=2 * TEACHER),
            ValueError,
            "of length 1",
        ),
        (
            DIGITS.train_images,
            dict(teacher=1.0),
            dict(steps=1, teacher=TEACHER[1:]),
            ValueError,
            "each of 869",
        ),
    ],
)
def test_refused_before_the_first_step(images, change, options, error, word):
    with pytest.raises(error, match=word):
        P.pretrain(images, replace(TINY, **change), device="cpu", **options)


def test_compiles(monkeypatch):
    "The graph that a GPU compiles, without a backend: the same steps as uncompiled."
    plain = P.pretrain(DIGITS.train_images, TINY, steps=3, device="cpu")
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: original(f, backend="eager", **options))
    graph = P.pretrain(DIGITS.train_images, TINY, steps=3, device="cpu", compiled=True)
    assert abs(np.subtract(plain.about["loss"], graph.about["loss"])).max() < 0.3


def test_provenance(tmp_path):
    made = export(IMAGES, tmp_path, dims=8, steps=1)
    about = json.loads((tmp_path / "digits.json").read_text())
    assert about["encoder"] == made.about and about["encoder"]["steps"] == 1
    assert PretrainRecipe(**about["recipe"]) == TINY
    assert about["images_sha256"] and about["sha256"]
    assert about["encoder"]["versions"]["torch"] == str(torch.__version__)


def test_subsets_and_larger_sets(tmp_path):
    "An encoder describes the shared images of a larger set by the same integers."
    small = imbalanced(DIGITS, [20] * 10, [5] * 10)
    encoder = export((small.train_images, small.test_images), tmp_path / "small", dims=8, steps=2)
    export(IMAGES, tmp_path / "all", encoder=encoder)
    part = pretrained(small, base=DIGITS, folder=tmp_path / "all")
    own = pretrained(small, folder=tmp_path / "small")
    assert part.train.shape == own.train.shape
    assert (part.train != own.train).mean() < 0.01  # batches of another size may round otherwise
    assert abs(part.train.astype(int) - own.train).max() <= 1


def test_the_encoder_has_as_many_axes_as_the_file_has_room_for(tmp_path, monkeypatch):
    monkeypatch.setattr(P, "write_features", partial(P.write_features, limit=6000))
    made = export(IMAGES, tmp_path, dims=16, steps=2)
    described = pretrained(DIGITS, folder=tmp_path).train
    assert 1 <= described.shape[1] < 16
    kept = Encoder.load(tmp_path / "encoder.pt")
    assert np.array_equal(kept.codes(DIGITS.train_images, "cpu"), described)
    assert kept.basis.axes.shape == made.basis.axes.shape


SIZES = "--size 8 --views 4 --batch 32 --width 4 --embed 32 --dims 16".split()


@pytest.fixture
def commanded(tmp_path, monkeypatch):
    "Features made by the command, in the folder in which the study looks."
    from blockrr.study.cli import main

    monkeypatch.setenv("BLOCKRR_CACHE", str(tmp_path / "cache"))  # for the teacher, too
    made = tmp_path / "made"
    made.mkdir()
    options = [
        "--name",
        "digits",
        "--steps",
        "4",
        "--output",
        str(made),
        "--device",
        "cpu",
    ]
    assert main(["pretrain", *options, *SIZES]) == 0
    monkeypatch.setenv("BLOCKRR_PRETRAINED", str(made))
    return made


def test_command_line(commanded, capsys):
    "Made by the command, found by the study; the usual records do not change."
    from blockrr.study.experiment import Spec, run_all

    assert sorted(p.name for p in commanded.iterdir()) == [
        "digits.json",
        "digits.npz",
        "encoder.pt",
    ]
    usual = Spec("digits", "rr", 3.0)
    with_features = [replace(usual, options={"features": kind}) for kind in ("pretrained", "both")]
    plain, deep, both = run_all([usual, *with_features])
    assert run_all([usual])[0].to_dict() == plain.to_dict() and "features" not in plain.details
    assert deep.details["features"] != both.details["features"] and deep.accuracy > 30
    aware = replace(usual, learner="forward")
    patches, joint = run_all([aware, replace(aware, options={"features": "both"})])
    assert "features" not in patches.details and joint.details["features"]
    assert patches.details["held_out"] != joint.details["held_out"]
    network = Spec("digits", "rr", 3.0, learner="network_posterior", options={"features": "both", "epochs": 1})
    assert run_all([network])[0].details["features"] == joint.details["features"]


def test_refused_commands(tmp_path, monkeypatch):
    from blockrr.study.cli import main

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = ["pretrain", "--name", "digits", "--output", str(tmp_path)]
    with pytest.raises(SystemExit, match="no CUDA device"):
        main([*options, "--device", "cuda"])
    with pytest.raises(SystemExit, match="need one of them"):
        main([*options, "--pack", "x"])


BARE = """
import sys
blocked = "cryptography narwhals PIL tqdm torchvision sklearn threadpoolctl fastcore IPython pandas papermill"
for name in blocked.split(): sys.modules[name] = None
import numpy as np
from blockrr.learning.contrastive import PretrainRecipe
from blockrr.learning.pretrain import pretrain_and_export
images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
recipe = PretrainRecipe(size=8, batch=8, width=2, embed=8)
how = dict(steps=2, device="cpu", checkpoint=sys.argv[1] + "/ck")
pretrain_and_export(images[:30], images[30:], "noise", output=sys.argv[1], recipe=recipe, **how)
"""


def test_bare_machine(tmp_path):
    "PyTorch, NumPy and SciPy are enough."
    subprocess.run([sys.executable, "-c", BARE, str(tmp_path)], check=True)
    assert (tmp_path / "noise.npz").exists()


def test_old_names_warn():
    with pytest.warns(DeprecationWarning, match="use blockrr.learning.pretrained.pretrained"):
        assert P.pretrained is pretrained


def test_images_may_be_grey_or_coloured(tmp_path):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (40, 8, 8, 3), np.uint8), np.zeros(40, np.uint8)] * 2
    data = ImageData("digits", *arrays, ("one",))
    made = export((data.train_images, data.test_images), tmp_path, dims=4, steps=1)
    assert made.net.mean.shape == (3, 1, 1) and pretrained(data, folder=tmp_path).train.shape == (40, 4)


def test_an_encoder_describes_images_that_it_never_saw(tmp_path, monkeypatch):
    "A data set without a file of its own: the encoder's numbers, computed once."
    made = export(IMAGES, tmp_path / "made", dims=8, steps=3)
    few = replace(DIGITS, name="others", train_images=DIGITS.train_images[:30], train_labels=DIGITS.train_labels[:30])
    how = {"folder": tmp_path / "made", "cache": tmp_path / "cache"}
    found = pretrained(few, **how)
    assert found.train.shape == (30, 8) and np.array_equal(found.train, made.codes(few.train_images, "cpu"))
    assert np.array_equal(found.test, pretrained(DIGITS, **how).test)
    monkeypatch.setattr(Encoder, "codes", None)
    assert np.array_equal(pretrained(few, **how).train, found.train)
    part = pretrained(replace(few, train_images=few.train_images[:9], train_labels=few.train_labels[:9]), few, **how)
    assert np.array_equal(part.train, found.train[:9]) and part.key != found.key


def test_an_encoder_of_other_images_is_no_substitute(tmp_path):
    "The advice for a missing file, and why the encoder beside it does not serve."
    export(IMAGES, tmp_path / "made", dims=8, steps=1)
    coloured = [np.repeat(x, 3, 3) for x in IMAGES]
    other = replace(DIGITS, name="others", train_images=coloured[0], test_images=coloured[1])
    with pytest.raises(FileNotFoundError, match="(?s)blockrr pretrain --name others.*does not serve.*1 channels"):
        pretrained(other, folder=tmp_path / "made", cache=False)


@pytest.mark.parametrize("change, word", [(lambda x: np.repeat(x, 3, 3), "channels"), (lambda x: x / 16.0, "uint8")])
def test_images_that_an_encoder_cannot_describe(tmp_path, change, word):
    made = export(IMAGES, tmp_path, dims=8, steps=3)
    with pytest.raises((TypeError, ValueError), match=f"images: .*{word}"):
        made.codes(change(DIGITS.test_images))
    with pytest.raises(ValueError, match="basis: needs axes"):
        replace(made, basis=None).codes(DIGITS.test_images)
