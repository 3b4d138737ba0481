"""CITATION.cff names the papers of all rules."""

import re
from pathlib import Path

import pytest

import tallmc as tm
from tests.registry import RULES, SUBSAMPLING_RULES

TEXT = (Path(__file__).parents[1] / "CITATION.cff").read_text()
# As plain text, for a parser of YAML is no dependency: each begins with its type.
REFERENCES = re.split(r"^  - type: ", TEXT.split("references:")[1], flags=re.MULTILINE)[1:]
# That which makes no test promises nothing, so the laws of the registry do not ask it.
ASKED = RULES | SUBSAMPLING_RULES | {"always_accept": tm.AlwaysAccept}
SMALL_WORDS = {"a", "an", "the", "on", "of", "in"}


def first(name, reference):
    """What the first field of that name says."""
    found = re.search(rf"^[ -]*{name}: *(.+)$", reference, flags=re.MULTILINE)
    assert found, f"no {name} in {reference}"
    return found[1].strip('"')


def key_of(reference):
    """First author, year and the first word of the title that says something, as in `Promise.reference`."""
    title, author, year = (first(name, reference) for name in ("title", "family-names", "year"))
    words = re.findall(r"[a-z]+", title.lower())
    return f"{author.lower().replace(' ', '')}{year}{next(word for word in words if word not in SMALL_WORDS)}"


KEYS = [key_of(reference) for reference in REFERENCES]


@pytest.mark.parametrize("name", ASKED)
def test_the_paper_of_every_rule_is_there(name):
    rule = ASKED[name]()
    assert rule.promise.reference in KEYS


def test_every_rule_there_is_was_asked():
    """A rule that is exported and not in the registry would go unnoticed."""
    made = {type(make()).__name__ for make in ASKED.values()}
    exported = {
        name
        for name in tm.acceptance.__all__
        if isinstance(getattr(tm, name), type)
        and issubclass(getattr(tm, name), tm.AcceptanceRule)
        and not getattr(getattr(tm, name), "__abstractmethods__", None)
    }
    assert exported <= made


def test_keys_are_what_they_say():
    assert len(set(KEYS)) == len(KEYS)
    assert "korattikara2014austerity" in KEYS
    assert "korattikara2016sequential" in KEYS  # the optimiser
    assert "nobody1900nothing" not in KEYS


@pytest.mark.parametrize("reference", REFERENCES, ids=KEYS)
def test_a_reference_says_what_it_is_cited_for(reference):
    assert len(first("notes", reference)) > 10
    assert re.fullmatch(r"\d{4}", first("year", reference))
    assert "    authors:\n      - family-names:" in reference
