"""Domains by name: those that ship, and those of installed packages."""

from importlib.metadata import EntryPoint

import pytest

from context_agent.errors import ConfigError
from context_agent.retrieval.loaders import load
from context_agent.synth_data import domains
from context_agent.synth_data.domains import Domain, TruthType, domain_names, load_domain

OWN = Domain("recipes", "Recipes.", load, (TruthType("dish", "the name of a dish"),))


def make():
    return OWN


def broken():
    raise RuntimeError("no kitchen")


@pytest.fixture
def registered(monkeypatch):
    """Entry points that lead to this module, as an installed package would declare them."""
    module = "tests.synth_data.domains.test_domains"
    entries = [
        EntryPoint(name, f"{module}:{attribute}", domains.GROUP)
        for name, attribute in (("recipes", "OWN"), ("made", "make"), ("broken", "broken"), ("wrong", "pytest"))
    ]
    monkeypatch.setattr(domains, "entry_points", lambda group: entries)


@pytest.mark.parametrize("name", domains.SHIPPED_DOMAINS)
def test_what_ships_is_whole(name):
    domain = load_domain(name)
    assert domain.name == name
    assert domain.description
    assert len({kind.name for kind in domain.truth_types}) == len(domain.truth_types) >= 5
    assert all(kind.description for kind in domain.truth_types)
    assert {"explore", "write"} <= set(domain.hints)


def test_the_published_domains_have_their_numbers():
    web, filings = load_domain("web"), load_domain("filings")
    assert (len(web.truth_types), web.max_hops, web.positives) == (17, 4, "document")
    assert (filings.max_hops, filings.positives) == (3, "fact")


def test_a_name_nobody_has_gets_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'filings'"):
        load_domain("filling")
    with pytest.raises(ConfigError, match="Choose from documents, email"):
        load_domain("q")


@pytest.mark.usefixtures("registered")
def test_installed_packages_add_theirs():
    assert load_domain("recipes") == load_domain("made") == OWN
    assert set(domain_names()) >= {"documents", "recipes", "made"}


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("name", "words"), [("broken", "RuntimeError: no kitchen"), ("wrong", "must name a Domain|cannot be loaded")]
)
def test_an_entry_point_that_gives_no_domain_is_named(name, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_domain(name)
    assert f"domain '{name}'" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"truth_types": ()}, "at least one truth type"),
        ({"max_hops": 0}, "max_hops"),
        ({"positives": "chunk"}, "positives"),
        ({"hints": {"cook": "x"}}, "unknown step 'cook'"),
    ],
)
def test_a_domain_that_cannot_work_is_refused(fields, words):
    arguments = {"name": "x", "description": "", "load": load, "truth_types": (TruthType("a", "b"),), **fields}
    with pytest.raises(ConfigError, match=words):
        Domain(**arguments)
