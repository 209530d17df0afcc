"""Files of features: what is refused, how large they are, and that reading them asks for no torch."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from blockrr.learning import pretrained as F
from blockrr.learning.features import FeatureSettings
from blockrr.learning.images import digits, imbalanced
from blockrr.learning.store import array_digest

DIGITS = digits()


@pytest.fixture
def made(tmp_path):
    "A folder with features of the digits: eight made-up integers an image."
    rng = np.random.default_rng(0)
    train, test = (rng.integers(-9, 10, (n, 8)).astype(np.int8) for n in (869, 286))
    digest = array_digest(DIGITS.train_images, DIGITS.test_images)
    F.write_features(tmp_path / "digits.npz", train, test, about=dict(images_sha256=digest))
    return tmp_path


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(sha256="0" * 64), "has SHA-256"),
        (dict(format="x"), "no file of features"),
        (dict(images_sha256="0" * 64), "other images"),
    ],
)
def test_files_of_something_else(made, change, message):
    about = json.loads((made / "digits.json").read_text())
    (made / "digits.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(ValueError, match=message):
        F.pretrained(DIGITS, folder=made)


def test_a_file_without_its_description(made):
    (made / "digits.json").write_text("{")
    with pytest.raises(ValueError, match="does not say where"):
        F.pretrained(DIGITS, folder=made)
    (made / "digits.json").unlink()
    with pytest.raises(ValueError, match="does not say where"):
        F.pretrained(DIGITS, folder=made)
    with pytest.raises(FileNotFoundError, match="blockrr pretrain --name digits"):
        F.pretrained(DIGITS, folder=made / "none")


def test_labels_change_nothing(made):
    rng = np.random.default_rng(0)
    shuffled = {name: rng.permutation(getattr(DIGITS, name)) for name in ("train_labels", "test_labels")}
    a, b = (F.pretrained(data, folder=made) for data in (DIGITS, replace(DIGITS, **shuffled)))
    assert (a.train == b.train).all() and a.key == b.key


def test_a_subset_takes_rows(made):
    small = imbalanced(DIGITS, [20] * 10, [5] * 10)
    part = F.pretrained(small, base=DIGITS, folder=made)
    assert part.sizes == (200, 50) and part.key != F.pretrained(DIGITS, folder=made).key


def test_reading_asks_for_no_torch(made):
    "Nor do the committed features: sklearn and torch are hidden, images come as they are."
    np.savez(made / "images.npz", *DIGITS.arrays)
    code = f"""
import sys
for name in ("torch", "torchvision", "sklearn", "PIL", "tqdm"): sys.modules[name] = None
import numpy as np
from blockrr.learning.pretrained import pretrained
from blockrr.learning.images import ImageData
arrays = np.load({str(made / "images.npz")!r}).values()
data = ImageData("digits", *arrays, tuple("0123456789"))
print(pretrained(data, folder={str(made)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "Features(869 + 286 images, 8 each)\n", done.stderr


@pytest.mark.parametrize("n", [36_850, 60_000])
def test_files_stay_small(tmp_path, n):
    "What 128 features with a slowly falling spectrum take, at 32 steps for the first."
    rng = np.random.default_rng(0)
    spread = 32 * np.arange(1, 129) ** -0.25
    codes = np.clip(np.rint(rng.standard_normal((n, 128)) * spread), -127, 127).astype(np.int8)
    about = F.write_features(tmp_path / "x.npz", codes[:-1000], codes[-1000:], about={})
    kept = about["shape"][2]
    if n < 40_000:
        assert kept == 128 and about["bytes"] < F.MAX_BYTES
    else:
        assert 100 < kept < 128 and 0.95 * F.MAX_BYTES < about["bytes"] < F.MAX_BYTES
    assert (np.load(tmp_path / "x.npz")["test"].T == codes[-1000:, :kept]).all()


@pytest.mark.parametrize(
    "name, bad",
    [
        ("patch", 0),
        ("steps", 0),
        ("rounds", -1),
        ("contrast", 0),
        ("precision", "half"),
    ],
)
def test_bad_settings(name, bad):
    with pytest.raises(ValueError, match=f"^{name}: needs"):
        FeatureSettings(**{name: bad})


@pytest.mark.parametrize("rows", [[869], [-1], [0.5], [[0]]])
def test_rows_that_are_not_there(made, rows):
    with pytest.raises(ValueError, match="rows: needs a list of integers from 0 to 868"):
        F.pretrained(DIGITS, folder=made).take(rows, [0])
