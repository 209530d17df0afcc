"A release as a file and back: every kind of file, every method, and files that do not fit."

import json

import numpy as np
import pytest

import blockrr as br
from blockrr.privacy.stages import release_in_groups

KINDS = ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.arrow"]
DOMAIN = ["never", "once", "often", "a,b\n\"c'"]
LABELS = DOMAIN * 250


def saved(tmp_path, name="a.csv", **kwargs):
    if not name.split(".")[1].startswith(("csv", "tsv")):
        pytest.importorskip("pyarrow")
    out = br.release(LABELS, 1, DOMAIN, **kwargs)
    out.save(tmp_path / name, column="answer")
    return out, tmp_path / name


def same(one, other):
    assert list(one.labels) == list(other.labels) and one.statement == other.statement
    assert (one.index == other.index).all() and (one.group == other.group).all()
    assert (one.likelihood == other.likelihood).all() and repr(one) == repr(other)
    assert (one.prior is None) == (other.prior is None) and (one.prior is None or (one.prior == other.prior).all())
    assert one.certificate == other.certificate


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "options", [{"method": "rr"}, {"method": "block_rr"}, {"method": "optimal_rr", "floor": 0.5}], ids=str
)
def test_a_release_comes_back(tmp_path, name, options):
    out, path = saved(tmp_path, name, **options)
    same(br.load_release(path), out)
    same(br.load_release(path, "answer"), out)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("domain", [3, [10, 20, 30], [0.5, 1.5, 2.5], [True, False], [b"x", b"y"], [1, "b"]], ids=str)
def test_labels_of_other_kinds(tmp_path, name, domain):
    if not name.startswith(("a.csv", "a.tsv")):
        pytest.importorskip("pyarrow")
    values = br.Domain(domain).values
    out = br.release(list(values) * 100, 2, domain, "rr")
    out.save(tmp_path / name)
    back = br.load_release(tmp_path / name)
    assert list(back.labels) == list(out.labels) and back.mechanism.labels == values


def test_groups_and_large_domains(tmp_path):
    out = release_in_groups(LABELS, np.arange(1000) % 3, [br.rr(DOMAIN, e) for e in (0.5, 1, 2)], 2)
    out.save(tmp_path / "g.csv")
    same(br.load_release(tmp_path / "g.csv"), out)
    out = br.release(np.arange(6000), 3, 6000, "rr")
    out.save(tmp_path / "l.csv")
    assert (br.load_release(tmp_path / "l.csv").labels == out.labels).all()


def test_bad_arguments_write_nothing(tmp_path):
    out = br.release(LABELS, 1, DOMAIN, "rr")
    for path, error in (
        (3, TypeError),
        (tmp_path / "a.xlsx", ValueError),
        (tmp_path / "a", ValueError),
        (tmp_path / "a.parquet.gz", ValueError),
        (tmp_path / "no" / "a.csv", OSError),
    ):
        with pytest.raises(error):
            out.save(path)
    for column in ("", "row", 3, None):
        with pytest.raises(ValueError, match="^column: needs a name"):
            out.save(tmp_path / "a.csv", column)
    with pytest.raises(ValueError, match="^domain: needs labels that differ as text"):
        br.release([1, "1"] * 50, 1, [1, "1"], "rr").save(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("taken", ["a.csv", "a.csv.json"])
def test_nothing_is_overwritten(tmp_path, taken):
    (tmp_path / taken).write_text("precious")
    with pytest.raises(FileExistsError, match="one label, one release"):
        br.release(LABELS, 1, DOMAIN, "rr").save(tmp_path / "a.csv")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(taken, "precious")]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    import blockrr.privacy.released_file as module

    out, calls = br.release(LABELS, 1, DOMAIN, "rr"), []

    def full(number):
        calls.append(number)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        out.save(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_files_that_do_not_fit(tmp_path):
    out, path = saved(tmp_path, method="rr")
    text, beside = path.read_text(), tmp_path / "a.csv.json"

    def refused(word, error=ValueError, **kwargs):
        with pytest.raises(error, match=word) as caught:
            br.load_release(path, **kwargs)
        assert "often" not in str(caught.value)

    refused("^column: needs one of the released columns 'answer', got 'x'", column="x")
    refused("^column: needs a column's name", TypeError, column=3)
    path.write_text(text[: len(text) // 2])
    refused("needs 1,000 released labels|cut off|holds no label")
    path.write_text(text.replace("never", "nevre", 1))
    refused("holds no label")
    path.write_text(text.replace("answer", "antwort", 1))
    refused("needs the column 'answer' once, got 'antwort'")
    path.write_text("answer,x\n" + "never\n" * 1000)
    refused("data row 0 has 1 fields, the header 2")
    path.write_bytes("answer\n\u00e9\n".encode("latin-1"))
    refused("not UTF-8")
    path.write_text("")
    refused("got no column")
    path.unlink()
    refused("there is no file", FileNotFoundError)
    path.write_text(text)
    br.load_release(path)
    beside.rename(tmp_path / "other.json")
    refused("keep the two together", FileNotFoundError)


def test_a_wrong_codec(tmp_path):
    out, path = saved(tmp_path, "a.csv.gz", method="rr")
    data = path.read_bytes()
    for bad, word in ((data[:-20], "cut off"), (b"answer\nnever\n", "another kind")):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=word):
            br.load_release(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_arrow_files(tmp_path, name):
    out, path = saved(tmp_path, name, method="rr")
    data = path.read_bytes()
    for bad in (b"", data[:50], data[: len(data) // 2], b"answer\nnever\n"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="cut off|another kind|damaged"):
            br.load_release(path)


def _set(*keys, to):
    def change(facts):
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("tables_sha256", to=["0" * 64]),
        _set("epsilon_response", to=0.5),
        _set("n_labels", to=3),
        _set("companion", "mechanisms", to=[]),
        _set("companion", "mechanisms", 0, "integers", to=br.rr(4, 2.0).weights.tolist()),
        _set("companion", "mechanisms", 0, "domain", to=4),
        _set("companion", "prior", to=[0.5, 0.5]),
        _set("companion", "rows_left_out", to=[5, 3]),
        _set("companion", "rows_left_out", to=[5000]),
        _set("companion", "rows_left_out", to=[1]),
        _set("companion", "group", to=[0]),
        _set("companion", "file", to={}),
        _set("companion", "file", to=None),
        _set("companion", "format", to=9),
        _set("unknown", to=1),
    ],
)
def test_damaged_companions(tmp_path, change):
    out, path = saved(tmp_path)
    beside = tmp_path / "a.csv.json"
    facts = json.loads(beside.read_text())
    change(facts)
    beside.write_text(json.dumps(facts))
    with pytest.raises(ValueError):
        br.load_release(path)


def test_labels_that_are_never_released_are_noticed(tmp_path):
    prior = [0.9, 0.05, 0.03, 0.02]
    out = br.release(LABELS, 0.5, DOMAIN, "rr_with_prior", prior=prior)
    assert len(out.mechanism.outputs) < 4
    out.save(tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_text().replace("never", "often", 1)
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match="never releases"):
        br.load_release(tmp_path / "a.csv")


def test_the_statement_reads_a_companion(tmp_path):
    out, path = saved(tmp_path)
    assert br.privacy.statement.Statement.from_json((tmp_path / "a.csv.json").read_text()) == out.statement
