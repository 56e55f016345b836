"""MkDocs hooks for links out of docs/, and for the page with every command's help.

Links in docs/ are relative to the repository, so they also work on a code host. On the site, pages of the root folder
are in `project/`, other files are copied to `source/`, and links to folders become plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cyclopts import App
from rich.console import Console

from context_agent.cli.app import cli
from context_agent.cli.help import TwoColumns, commands_of

if TYPE_CHECKING:
    from cyclopts import App
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"(?<!!)\[([^][]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
OPTIONS = "<!-- options of every command -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root folder, and the files outside docs/ that a page links to."""
    from mkdocs.structure.files import File, InclusionLevel

    for name in ROOT_PAGES:
        files.append(File.generated(config, site_path(name), abs_src_path=str(ROOT / name)))
    for target in all_linked_files(repository_path(page.src_uri) for page in files.documentation_pages()):
        if files.get_file_from_path(site_path(target)) is None:
            copy = File.generated(config, site_path(target), abs_src_path=str(ROOT / target))
            copy.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with the links of the site, and with the help of the commands."""
    return with_site_links(markdown, repository_path(page.file.src_uri)).replace(OPTIONS, command_help())


def repository_path(uri: str) -> str:
    """Return the path in the repository of a page on the site."""
    if uri.startswith("project/"):
        return PurePosixPath(uri).stem.upper() + ".md"
    return uri.removeprefix("source/") if uri.startswith("source/") else f"docs/{uri}"


def site_path(path: str) -> str:
    """Return the path on the site of a file in the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"project/{path.lower()}" if path in ROOT_PAGES else f"source/{path}"


def all_linked_files(pages: Iterable[str]) -> set[str]:
    """Return the files outside docs/ that pages link to, and those that these files link to in turn.

    `pages` are paths in the repository. Of the linked files, only Markdown is searched for links.
    """
    found: set[str] = set()
    unread = list(pages)
    while unread:
        page = unread.pop()
        fresh = linked_files(page, (ROOT / page).read_text(encoding="utf-8")) - found
        found |= fresh
        unread += [target for target in fresh if target.endswith(".md")]
    return found


def linked_files(page: str, markdown: str) -> set[str]:
    """Return the files outside docs/ that a page links to. `page` is its path in the repository."""
    targets = {link_target(page, match[2]) for match in LINK.finditer(markdown)}
    return {path for path in targets if (ROOT / path).is_file() and not path.startswith("docs/")}


def link_target(page: str, link: str) -> str:
    """Return the path in the repository of a page's relative link."""
    return os.path.normpath(PurePosixPath(page).parent / link)


def with_site_links(markdown: str, page: str) -> str:
    """Return the text with the relative links of the site. `page` is its path in the repository."""
    start = PurePosixPath(site_path(page)).parent

    def site_link(match: re.Match[str]) -> str:
        path = link_target(page, match[2])
        if (ROOT / path).is_dir():
            return match[1]
        return f"[{match[1]}]({os.path.relpath(site_path(path), start)}{match[3] or ''})"

    return LINK.sub(site_link, markdown)


def command_help() -> str:
    """Return the complete help of every command as Markdown."""
    return "\n\n".join(
        f"## {' '.join(['ctx1', *words])}\n\n```text\n{help_text(words)}\n```" for words in command_names(cli)
    )


def command_names(group: App) -> Iterator[list[str]]:
    """Yield the words that name each command of a group, in the order of its help."""
    for name, command in commands_of(group).items():
        if command.default_command is None:
            yield from ([name, *words] for words in command_names(command))
        else:
            yield [name]


def help_text(words: list[str]) -> str:
    """Return the help of a command with every option."""
    text = StringIO()
    cli.help_formatter = TwoColumns(cli, whole=True)
    cli.help_print(words, console=Console(file=text, width=100))
    return text.getvalue().strip()
