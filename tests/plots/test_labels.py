import pytest
from rich.cells import cell_len

from tokenspace.plots.labels import PAGE_WIDTH, fitted, on_page

TOKENS = ["cat", "embedding", "東京タワー", "e\u0301te\u0301", "Ġking", "🙂🙂🙂", ""]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 20])
def test_a_label_is_exactly_as_wide_as_asked(token, width):
    assert cell_len(fitted(token, width)) == width


def test_what_is_cut_says_so():
    assert fitted("embedding", 5) == "embe…"
    assert fitted("embedding", 9) == "embedding"
    assert fitted("東京タワー", 6) == "東京… "  # half a character would not fit


@pytest.mark.parametrize("token", ["<script>alert(1)</script>", "<b>x</b>", "&lt;", "<a href='http://x'>"])
def test_markup_is_spelled_out(token):
    assert "<" not in on_page(token)
    assert on_page(token).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == token


def test_a_page_gets_no_control_characters_and_no_endless_label():
    assert on_page("\x1b[31m") == r"'\x1b[31m'"
    assert on_page("\udcff") == r"'\udcff'"
    assert on_page("a" * 1000) == "a" * (PAGE_WIDTH - 1) + "…"
