"""Pages that stand alone: nothing foreign can end an element, and only what was written in may run."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser

import pytest

from context_agent.eval.page import escape, page

HOSTILE = "</script><script>alert(1)</script><!-- ]]> \u2028\u2029 \ud800 \u202e javascript:x"


class Elements(HTMLParser):
    """The elements of a page as a parser sees them: (tag, attributes, text)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append([tag, dict(attributes), ""])
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, text):
        if self.inside:
            self.found[-1][2] += text


def elements(text, tag):
    return [(attributes, inner) for name, attributes, inner in Elements(text).found if name == tag]


def test_the_policy_allows_the_pages_own_scripts_and_styles_by_hash_and_nothing_else():
    result = page("t", "<p>x</p>", data={"rows": [1]}, scripts=["let a = 1;\r\n"], styles=["p { color: red }"])
    (policy,) = [a["content"] for a, _ in elements(result, "meta") if a.get("http-equiv") == "Content-Security-Policy"]
    allowed = {part.split()[0]: set(part.split()[1:]) for part in policy.split(";")}
    assert allowed["default-src"] == {"'none'"}
    assert "'unsafe-inline'" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        inner = [text for attributes, text in elements(result, tag) if "type" not in attributes]
        hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in inner}
        assert len(hashes) == 2
        assert allowed[rule] == hashes


def test_a_page_without_scripts_runs_none():
    result = page("t", "<p>x</p>")
    assert "script-src 'none'" in result
    assert not elements(result, "script")


def test_a_page_asks_for_no_address():
    result = page("t", "<p>x</p>", data={"rows": []}, scripts=["let a;"])
    assert not re.search(r"\b(?:src|href)\s*=|@import|https?://", result)


def test_any_data_is_read_back_unchanged():
    value = {"text": HOSTILE.replace("\ud800", ""), "numbers": [1, 0.5, None, True]}
    result = page("t", "", data={"rows-1": value})
    ((attributes, inner),) = [e for e in elements(result, "script") if e[0].get("id") == "data-rows-1"]
    assert json.loads(zlib.decompress(base64.b64decode(inner))) == value
    assert attributes["type"] == "application/octet-stream"


def test_external_text_ends_no_element():
    result = page(HOSTILE, f"<p title='{escape(HOSTILE)}'>{escape(HOSTILE)}</p>", data={"rows": HOSTILE})
    result.encode("utf-8")
    assert len(elements(result, "script")) == 2
    ((attributes, inner),) = elements(result, "p")
    assert "<script>alert(1)</script>" in inner
    assert "⟨U+202E⟩" in inner
    assert "⟨U+202E⟩" in attributes["title"]


@pytest.mark.parametrize("text", ["let a = '</script>'", "// <!-- old", "</STYLE >"])
def test_a_script_or_style_that_would_end_its_element_is_refused(text):
    with pytest.raises(ValueError, match="end its own element"):
        page("t", "", scripts=[text])
    with pytest.raises(ValueError, match="end its own element"):
        page("t", "", styles=[text])


@pytest.mark.parametrize(("name", "value"), [("Rows", 1), ("a b", 1), ("", 1), ("rows", float("nan"))])
def test_data_that_is_no_json_or_has_no_plain_name_is_refused(name, value):
    with pytest.raises(ValueError, match=r"use lowercase|JSON"):
        page("t", "", data={name: value})
