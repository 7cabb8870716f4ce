from tokenspace.web.facts import facts


def test_whatever_provenance_holds_becomes_short_lines():
    told = facts(
        {
            "made_by": "x" * 400,
            "seeds": [1, 2],
            "nested": {"a": {"b_c": 1}, "empty": None, "yes": True},
            "nothing": None,
            "none": [],
            "name" * 50: 1.5,
        }
    )
    assert [line["label"] for line in told] == ["made by", "seeds", "nested", ("name" * 50)[:59] + "…"]
    assert [line["value"] for line in told] == ["x" * 299 + "…", "1; 2", "a b c 1, yes yes", "1.5"]
    assert len(facts({str(n): n for n in range(1_000)})) == 40
