import pytest

from tokenspace.web.parameters import BadRequest, Field, arguments, flag, text, whole

FIELDS = {
    "q": Field(text),
    "k": Field(whole),
    "n": Field(whole, label="how many (n)"),
    "center": Field(flag),
    "id": Field(whole, repeated=True),
}


def test_each_is_read_as_its_type():
    query = b"q=a%26b%3Dc+%F0%9F%91%A9%00%0A&k=007&center=1&id=3&id=4"
    assert arguments(query, FIELDS) == {"q": "a&b=c 👩\0\n", "k": 7, "center": True, "id": [3, 4]}
    assert arguments(b"", FIELDS) == {}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (b"z=1", "no parameter 'z' here; there are: q, k, n, center, id"),
        (b"q=a&q=b", "q is given twice"),
        (b"q=", "q is empty"),
        (b"k=-1", "k must be a whole number from 0 on, found '-1'"),
        (b"k=1.5", "whole number"),
        (b"k=%D9%A1", "whole number"),  # an Arabic one
        (b"k=12345678901", "whole number"),
        (b"center=yes", "center must be 0 or 1"),
        (b"q=%FF", "not UTF-8"),
        (b"q=%ED%A0%80", "not UTF-8"),  # a lone surrogate
        (b"q=\xc3\xa9", "not UTF-8"),  # not percent-encoded
        (b"n=x", r"how many \(n\) must be a whole number from 0 on, found 'x'"),
        (b"&".join(b"id=1" for _ in range(1_001)), "more than 1,000"),
    ],
)
def test_what_makes_no_sense_is_refused(query, message):
    with pytest.raises(BadRequest, match=message):
        arguments(query, FIELDS)
