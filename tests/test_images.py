"""Subsets against a loop, and packs: plain files, any damage, other contents."""

import io
import json
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockrr.learning import images as D

SMALL_1 = [n // 125 for n in D.CIFAR10_1]


def miniature(seed=0, train=400, test=80, name="cifar10"):
    rng = np.random.default_rng(seed)
    parts = []
    for n in (train, test):
        parts += [
            rng.integers(0, 256, (n, 32, 32, 3), np.uint8),
            rng.permutation(np.arange(n) % 10).astype(np.uint8),
        ]
    return D.ImageData(name, *parts, D.CIFAR10_CLASSES)


TINY_1 = D.imbalanced(miniature(), SMALL_1, name="cifar10_1")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    "The miniature's digest stands in for CIFAR-10_1's."
    monkeypatch.setitem(D.SHA256, "cifar10_1", TINY_1.sha256)


@pytest.fixture
def pack(tmp_path):
    return D.write_pack(tmp_path / "p.zip", TINY_1)


@given(st.lists(st.integers(0, 4), max_size=40), st.data())
def test_first_rows_against_a_loop(labels, draw):
    have = [labels.count(c) for c in range(5)]
    counts = [draw.draw(st.integers(0, h)) for h in have]
    left, expected = list(counts), []
    for i, y in enumerate(labels):
        if left[y] > 0:
            left[y] -= 1
            expected.append(i)
    assert D.first_rows(np.array(labels, int), counts).tolist() == expected


def test_pack_is_plain_zip_of_lossless_webp(tmp_path):
    from PIL import Image

    path = D.write_pack(tmp_path / "p.zip", TINY_1)
    with zipfile.ZipFile(path) as z:
        assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist())
        with Image.open(io.BytesIO(z.read("train_000.webp"))) as image:
            assert np.array_equal(np.asarray(image).reshape(-1, 32, 32, 3), TINY_1.train_images[:500])
        assert z.read("test_labels.bin") == TINY_1.test_labels.tobytes()


def test_pack_of_several_strips_keeps_the_order(tmp_path):
    big = miniature(3, 1210, 510, name="other")
    assert D.read_pack(D.write_pack(tmp_path / "p.zip", big)).sha256 == big.sha256


@pytest.mark.parametrize("where", np.linspace(0, 0.999, 25))
def test_any_flipped_bit_in_a_pack_is_harmless(tmp_path, where):
    """Either refused, or in bytes that carry no content (zip's own bookkeeping)."""
    path = D.write_pack(tmp_path / "p.zip", TINY_1)
    blob = bytearray(path.read_bytes())
    blob[int(where * len(blob))] ^= 4
    path.write_bytes(blob)
    try:
        assert D.read_pack(path).sha256 == TINY_1.sha256
    except ValueError as e:
        assert "no readable pack" in str(e)


def test_pack_without_pillow_says_so(tmp_path, monkeypatch):
    D.write_pack(tmp_path / D.WEBP_PACK, TINY_1)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="needs Pillow"):
        D.read_pack(tmp_path / D.WEBP_PACK)


def test_cut_packs_are_refused(tmp_path, pack):
    blob = pack.read_bytes()
    flipped = blob[:5000] + bytes([blob[5000] ^ 1]) + blob[5001:]
    for bad in (blob[:-5000], blob[:2000], b"", flipped):
        pack.write_bytes(bad)
        with pytest.raises(ValueError, match="no readable pack"):
            D.read_pack(pack)
    with pytest.raises(FileNotFoundError):
        D.read_pack(tmp_path / "absent.zip")


@pytest.mark.parametrize("change", [{"format": "other"}, {"version": 3}, {"sha256": "0" * 64}])
def test_foreign_manifests_are_refused(tmp_path, pack, change):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(pack) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            blob = old.read(name)
            if name == "manifest.json":
                blob = json.dumps({**json.loads(blob), **change})
            new.writestr(name, blob)
    with pytest.raises(ValueError, match="no readable pack"):
        D.read_pack(other)


def test_an_impostor_is_refused(tmp_path):
    "A healthy pack of other images under a known name."
    impostor = miniature(1, 20, 10, name="cifar10_1")
    with pytest.raises(ValueError, match="expected"):
        D.read_pack(D.write_pack(tmp_path / "p.zip", impostor))


def test_bare_packs_keep_all_but_the_name_of_the_file(tmp_path):
    data = D.imbalanced(D.digits(), [3] * 10, [2] * 10, name="some digits")
    again = D.read_pack(D.write_bare_pack(tmp_path / "bare.zip", data, steps=5))
    assert (again.name, again.classes, again.sha256) == (
        data.name,
        data.classes,
        data.sha256,
    )


def test_arrays_are_views_that_cannot_be_written():
    data = miniature(2, 20, 10)
    for a in data.arrays:
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 0


def test_no_label_is_in_a_message():
    with pytest.raises(ValueError, match="below 9") as error:
        D.ImageData("x", *miniature(0, 20, 10).arrays, D.CIFAR10_CLASSES[:9])
    assert "got" not in str(error.value)
