"""The documentation: its Python runs, its links lead somewhere, and the site's navigation has every page."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import context_agent
from context_agent.cli.app import cli
from context_agent.cli.help import commands_of
from context_agent.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NAVIGATION = ROOT / "mkdocs.yml"
PAGES = sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
ROOT_PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
WALK_THROUGHS = ("tutorial/", "how-to/", "newcomer-tasks.md")
"""Pages whose blocks run one after the other: tests/cli/test_walk_throughs.py."""
FRAMEWORKS = {
    "integrations/deepagents.md": "deepagents",
    "integrations/langchain-agents.md": "langchain",
    "integrations/litellm.md": "litellm",
    "integrations/openai-agents.md": "agents",
    "integrations/pydantic-ai.md": "pydantic_ai",
}
"""What the snippets of a page need: `scripts/test --agents` installs it."""
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ (.+?)$", re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SNIPPETS = [
    (str(page.relative_to(DOCS)), code) for page in PAGES for code in BLOCK.findall(page.read_text(encoding="utf-8"))
]
STANDALONE = [(page, code) for page, code in SNIPPETS if not page.startswith(WALK_THROUGHS)]

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not part of the source distribution")


@pytest.mark.parametrize(("page", "code"), STANDALONE, ids=[f"{page}-{i}" for i, (page, _) in enumerate(STANDALONE)])
def test_a_snippet_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (framework := FRAMEWORKS.get(page)) and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    exec(compile(code, page, "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_a_notebook_runs_and_holds_no_outputs(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in cells_of(notebook) if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    assert "Brasko is a market town on the river Lume." in capsys.readouterr().out
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)


def test_the_navigation_has_every_page_once_and_no_other() -> None:
    config = yaml.safe_load(NAVIGATION.read_text(encoding="utf-8"))
    targets = list(nav_targets(config["nav"]))
    root_pages = {f"project/{name.lower()}" for name in ROOT_PAGES[1:]}
    assert sorted(targets) == sorted({str(path.relative_to(DOCS)) for path in [*PAGES, *NOTEBOOKS]} | root_pages)


def test_the_site_loads_nothing_from_elsewhere() -> None:
    config = yaml.safe_load(NAVIGATION.read_text(encoding="utf-8"))
    assert config["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript", "offline", "privacy"} & {*config, *map(str, config["plugins"])}


@pytest.mark.parametrize("path", [*map(str, PAGES), *map(str, NOTEBOOKS), *ROOT_PAGES])
def test_every_link_and_anchor_leads_somewhere(path: str) -> None:
    page = ROOT / path
    for link in LINK.findall(CODE.sub("", prose_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{path}: {link}"
        assert not anchor or anchor in anchors_of(file), f"{path}: {link}"


def test_the_glossary_explains_each_term_in_one_sentence() -> None:
    entries = re.findall(r"^## (.+)\n\n((?:.+\n)+)", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.M)
    terms = [term for term, _ in entries]
    assert len(terms) >= 60
    assert terms == sorted(terms, key=str.lower)
    assert [term for term, text in entries if not text.endswith(".\n") or ". " in text.replace("\n", " ").strip()] == []


def test_the_reading_path_has_ten_files_of_a_sitting() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"^\d+\. `(context_agent/[\w/]+\.py)`", text, re.M)
    assert len(set(paths)) == 10
    lines = sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths)
    assert 2_000 < lines < 4_000


def test_the_picture_of_the_layers_shows_the_import_contracts() -> None:
    script = loaded_script("layers_picture")
    assert (DOCS / "layers.svg").read_text(encoding="utf-8") == script.picture(), "run scripts/layers_picture.py"


def test_the_list_of_how_to_guides_has_every_guide() -> None:
    text = (DOCS / "how-to" / "index.md").read_text(encoding="utf-8")
    guides = {path.name for path in (DOCS / "how-to").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", text)) == guides
    assert len(guides) >= 30


def test_the_api_reference_has_every_public_name() -> None:
    directives = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "api").glob("*.md"))
    entries = re.findall(r"^::: (\S+)$", directives, re.M)
    assert {f"context_agent.{name}" for name in context_agent.__all__} <= {*entries}
    assert len(entries) == len({*entries})
    assert [entry for entry in entries if not resolves(entry)] == []


@pytest.fixture(scope="module")
def hooks() -> Any:
    return loaded_script("site_pages")


def loaded_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "link", "in_site"),
    [
        ("docs/engines.md", "[e](../examples/search_engines.py)", "[e](source/examples/search_engines.py)"),
        ("docs/index.md", "[s](../SECURITY.md#limits)", "[s](project/security.md#limits)"),
        ("docs/how-to/train-a-policy.md", "[t](../training.md)", "[t](../training.md)"),
        ("docs/benchmarks.md", "[programs](../benchmarks)", "programs"),
        ("CONTRIBUTING.md", "[a](docs/architecture.md)", "[a](../architecture.md)"),
        ("tests/security/README.md", "[p](../../SECURITY.md)", "[p](../../../project/security.md)"),
        (
            "docs/index.md",
            "![plot](loop.svg) [web](https://example.org)",
            "![plot](loop.svg) [web](https://example.org)",
        ),
    ],
)
def test_links_out_of_docs_are_rewritten_for_the_site(hooks: Any, page: str, link: str, in_site: str) -> None:
    assert hooks.with_site_links(link, page) == in_site


def test_the_site_has_the_files_that_a_linked_page_outside_docs_links_to(hooks: Any) -> None:
    files = hooks.all_linked_files(["docs/how-to/compare-two-policies.md"])
    assert {"recipes/compare-policies/README.md", "recipes/compare-policies/a.toml"} <= files
    linked = {file for file in files if file.endswith(".md")}
    assert all(hooks.linked_files(page, (ROOT / page).read_text(encoding="utf-8")) <= files for page in linked)


def test_the_site_shows_the_example_of_a_docstring_as_code() -> None:
    pytest.importorskip("griffe")
    examples = loaded_script("site_examples")
    docstring = "Search.\n\nExample:\n    >>> search()['a']\n    1\n\nRaises:\n    ConfigError: Never."
    assert examples.with_fenced_examples(docstring) == (
        "Search.\n\nExample:\n    ```python\n    >>> search()['a']\n    1\n    ```\n\nRaises:\n    ConfigError: Never."
    )


@pytest.mark.parametrize("path", ["docs/how-to/index.md", "SECURITY.md", "tests/security/README.md"])
def test_a_page_of_the_site_is_traced_to_its_file(hooks: Any, path: str) -> None:
    assert hooks.repository_path(hooks.site_path(path)) == path


def test_the_page_of_options_has_every_command_and_option(hooks: Any) -> None:
    text = hooks.command_help()
    assert {"## ctx1 search", "## ctx1 synth tasks", "## ctx1 train bridge"} <= {*text.splitlines()}
    assert "--reranker" in text
    assert "More options" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_name_of_the_package_that_a_page_names_exists(page: Path) -> None:
    names = {*re.findall(r"\bcontext_agent(?:\.\w+)+", page.read_text(encoding="utf-8"))} - {"context_agent.domains"}
    missing = [name for name in names if not resolves(name)]
    assert missing == []


@pytest.mark.parametrize("page", [*map(str, PAGES), *ROOT_PAGES[:3]])
def test_every_command_that_a_page_shows_has_the_options_that_follow_it(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    unknown = []
    for line in re.findall(r"\bctx1 ([a-z][^`\n#|]*)", text):
        path, words = command_of(line.split(" -- ")[0].split())
        options = [word for word in words if re.match(r"--[a-z-]+$", word)]
        unknown += [(path, option) for option in options if option not in options_of(path)]
    assert unknown == []


def command_of(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the command that the words begin with, and the words behind them."""
    command, count = cli, 0
    while count < len(words) and words[count] in (commands := commands_of(command)):
        command, count = commands[words[count]], count + 1
    return tuple(words[:count]), words[count:]


@cache
def options_of(path: tuple[str, ...]) -> frozenset[str]:
    """Return the options of a command. Many lines of the pages have the same one."""
    command = cli
    for name in path:
        command = commands_of(command)[name]
    arguments = command.assemble_argument_collection() if command.default_command else ()
    return frozenset({"--help", "--help-all", *(name for argument in arguments for name in argument.names)})


def resolves(name: str) -> bool:
    """Return whether it is a module, which may need an extra and is not imported, or a name in one."""
    module, _, attribute = name.rpartition(".")
    if (ROOT / name.replace(".", "/")).is_dir() or (ROOT / f"{name.replace('.', '/')}.py").is_file():
        return True
    try:
        return hasattr(importlib.import_module(module), attribute)
    except MissingExtraError:
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        return re.search(rf"^(?:async )?(?:def|class) {attribute}\b", source, re.M) is not None
    except ModuleNotFoundError:
        return False


def nav_targets(entries: list[Any]) -> Iterator[str]:
    """Yield the paths in the navigation. The index page of a section has no title of its own."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        elif isinstance(value := next(iter(entry.values())), str):
            yield value
        else:
            yield from nav_targets(value)


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def prose_of(page: Path) -> str:
    """The text of a page or notebook, without its code."""
    if page.suffix == ".ipynb":
        return "\n\n".join("".join(cell["source"]) for cell in cells_of(page) if cell["cell_type"] == "markdown")
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """The anchors that a heading has both in the site and on a code host."""
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", heading) for heading in HEADING.findall(prose_of(page))]
    return {site_anchor(heading) for heading in headings} & {host_anchor(heading) for heading in headings}


def site_anchor(heading: str) -> str:
    """As the table of contents of Python-Markdown makes it."""
    ascii_text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text).strip().lower())


def host_anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
