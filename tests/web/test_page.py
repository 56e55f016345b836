"""Self-contained pages: external text cannot end an element, and only the page's own scripts may run."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser

import pytest

from context_agent.web.page import escape, page

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
    html = page("t", "<p>x</p>", data={"rows": [1]}, scripts=["let a = 1;\r\n"], styles=["p { color: red }"])
    (policy,) = [
        attributes["content"]
        for attributes, _ in elements(html, "meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    directives = {part.split()[0]: set(part.split()[1:]) for part in policy.split(";")}
    assert directives["default-src"] == {"'none'"}
    assert "'unsafe-inline'" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        contents = [text for attributes, text in elements(html, tag) if "type" not in attributes]
        hashes = {
            f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" for content in contents
        }
        assert len(hashes) == 2
        assert directives[rule] == hashes


def test_a_page_without_scripts_runs_none():
    html = page("t", "<p>x</p>")
    assert "script-src 'none'" in html
    assert not elements(html, "script")


def test_a_page_asks_for_no_address():
    html = page("t", "<p>x</p>", data={"rows": []}, scripts=["let a;"])
    assert not re.search(r"\b(?:src|href)\s*=|@import|https?://", html)


def test_any_data_is_read_back_unchanged():
    value = {"text": HOSTILE.replace("\ud800", ""), "numbers": [1, 0.5, None, True]}
    html = page("t", "", data={"rows-1": value})
    ((attributes, inner),) = [element for element in elements(html, "script") if element[0].get("id") == "data-rows-1"]
    assert json.loads(zlib.decompress(base64.b64decode(inner))) == value
    assert attributes["type"] == "application/octet-stream"


def test_external_text_ends_no_element():
    html = page(HOSTILE, f"<p title='{escape(HOSTILE)}'>{escape(HOSTILE)}</p>", data={"rows": HOSTILE})
    html.encode("utf-8")
    assert len(elements(html, "script")) == 2
    ((attributes, inner),) = elements(html, "p")
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
    with pytest.raises(ValueError, match=r"only lowercase|JSON"):
        page("t", "", data={name: value})
