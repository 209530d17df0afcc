"Delimiters, headers, and typos."

import pytest

from blockrr.study.dialect import check_delimiter, find_header, kind_by_name


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found_in_the_header(tmp_path, delimiter):
    path = tmp_path / "s.txt"
    path.write_text(delimiter.join(["id", "y", "z"]) + "\n" + delimiter.join("123") + "\n")
    header, kind = find_header(path, ["y", "z"])
    assert header == ["id", "y", "z"] and kind.delimiter == delimiter
    assert find_header(path, ["y"], delimiter=delimiter)[1].delimiter == delimiter


def test_labels_have_no_say(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("id,y\n1;2;3;4,a;b;c\n" * 1)
    assert find_header(path, ["y"])[1].delimiter == ","


def test_a_typo_lists_the_columns_and_a_headerless_file_shows_nothing(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("name;answer\nx;yes\n")
    with pytest.raises(ValueError, match="'anwser' names 0 of the 1 columns .*: 'name;answer'"):
        find_header(path, ["anwser"])
    path.write_text("name,answer\nx,yes\n")
    with pytest.raises(ValueError, match=": 'name', 'answer'$"):
        find_header(path, ["anwser"], {"yes", "no"})
    path.write_text("alice,yes\nx,no\n")
    with pytest.raises(ValueError, match="must be a header$"):
        find_header(path, ["answer"], {"yes", "no"})


@pytest.mark.parametrize("bad", ["", ",,", "a", "1", '"', "\n", "\r", "\u00e9", 3, b","])
def test_bad_delimiters(bad):
    with pytest.raises(ValueError, match="^--delimiter: needs"):
        check_delimiter(bad)


def test_names():
    assert kind_by_name("a.dat") == ("text", ",", False) and kind_by_name("a.dat.gz").gz
    assert kind_by_name("a.tsv").delimiter == "\t" and kind_by_name("a.parquet").kind == "parquet"
    with pytest.raises(ValueError, match="^--columns: needs"):
        find_header(__file__, [], ())
