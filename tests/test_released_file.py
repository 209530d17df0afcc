"Kinds of files by their names, and labels as text."

import pytest

from blockrr.privacy.labels import Domain
from blockrr.privacy.released_file import codes_of, file_kind, label_texts, read_column, read_facts


@pytest.mark.parametrize(
    "name, kind, delimiter, gz",
    [
        ("A.CSV", "text", ",", False),
        ("x/b.tsv.gz", "text", "\t", True),
        ("c.pq", "parquet", "", False),
        ("d.feather", "arrow", "", False),
        ("e.f.arrow", "arrow", "", False),
    ],
)
def test_kinds(name, kind, delimiter, gz):
    assert file_kind(name) == (kind, delimiter, gz)


@pytest.mark.parametrize("bad, error", [(None, TypeError), (3, TypeError), ("a", ValueError), ("a.zip", ValueError)])
def test_other_names_are_refused_by_their_parameter(bad, error):
    with pytest.raises(error, match="^--output: needs"):
        file_kind(bad, "--output")


def test_texts_and_codes():
    assert label_texts(Domain([1, 2.5, True + 1, "x"])) == ["1", "2.5", "2", "x"]
    assert codes_of(["x", "1", 1], Domain([1, "x"]), "f").tolist() == [1, 0, 0]
    with pytest.raises(ValueError, match="^f: row 1 ") as caught:
        codes_of(["x", "secret"], Domain([1, "x"]), "f")
    assert "secret" not in str(caught.value)


def test_a_field_of_any_length(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\n{'x' * 300_000},yes\n")
    assert read_column(path, "label") == ["yes"]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="^path: there is no file"):
        read_facts(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("label\n")
    with pytest.raises(FileNotFoundError, match="has no companion a.csv.json"):
        read_facts(tmp_path / "a.csv")
