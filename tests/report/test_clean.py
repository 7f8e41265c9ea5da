from hypothesis import given
from hypothesis import strategies as st

from fuzzparity.report.clean import fenced, inline_markdown, plain_without_paths, printable, without_paths


@given(st.text())
def test_a_printable_text_is_one_line_that_controls_nothing(text):
    shown = printable(text)
    assert shown.isprintable() or shown == ""
    assert len(shown.splitlines()) <= 1


def test_absolute_directories_are_cut_and_names_of_nodes_are_kept():
    assert without_paths("at /home/me/code/net.py:3 in /usr/lib/x.so") == "at net.py:3 in x.so"
    assert without_paths("/a/.venv/lib/python3.11/site-packages/torch/nn/f.py:9") == "torch/nn/f.py:9"
    assert without_paths("/proj/models/net.py and /proj/models", "/proj/models") == "net.py and ."
    assert without_paths("~/x/net.py C:\\me\\net.py") == "net.py net.py"
    assert (
        without_paths("/layer1/conv/Conv and https://host/home/x 3/4")
        == "/layer1/conv/Conv and https://host/home/x 3/4"
    )


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_plain_data_keeps_its_form(value):
    assert type(plain_without_paths(value)) is type(value)


@given(st.text(alphabet="`a\n \x1b"))
def test_a_fence_is_closed_by_its_own_end_only(text):
    lines = fenced(text).splitlines()
    assert lines[0].strip("`") == ""
    assert lines[-1] == lines[0]
    assert all(lines[0] not in line for line in lines[1:-1])


def test_markdown_of_a_stranger_is_spelled():
    shown = inline_markdown("[x](http://e) <img> @someone `code`\n# title")
    assert "\\[x\\]" in shown
    assert "\\<img\\>" in shown
    assert "@someone" not in shown
    assert "\n" not in shown
