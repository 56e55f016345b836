"""Make question sets from texts in Debian packages, in the format that `multihop.py` reads.

    apt-get download manpages manpages-dev python3.11-doc postgresql-doc-15 doc-rfc-std
    apt-get download debian-policy developers-reference anarchism dict-jargon
    apt-get download sqlite3-doc gimp-help-en libreoffice-help-en-us git-doc gnucash-docs apache2-doc grass-doc
    apt-get download postfix-doc gnome-user-docs dict-foldoc debian-handbook lilypond-doc-html kicad-doc-en
    python benchmarks/technical_sets.py --out FOLDER --packages FOLDER_OF_DEB_FILES [--sets linux,python,postgresql,rfc]
        [--beside FOLDER_OF_OTHER_SETS]

The sets policy, essays, jargon, handbook, music and kicad are for tests. The weights that ship were not trained on
them.

Without `--packages`, the program reads the installed packages. `doc-rfc-std` is in Debian's non-free section, because
RFCs may be copied but not changed. A set is a folder with `corpus.jsonl.gz`, `queries.train.jsonl`,
`queries.dev.jsonl`, and a `README.md` that states versions and licenses. The same versions of the packages always give
the same files, byte for byte. Questions come from `technical_questions.jsonl` and, for training, from templates over
cross-references.

The program prints the share of a question's words that its gold documents contain, for these sets and for other ones. A
question that copies its documents is easy to find by words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from technical_documents import (
    Page,
    dictionary_entries,
    essay_sections,
    help_sections,
    mallard_page,
    manual_page,
    manual_sections,
    resolve,
    rfc_sections,
)
from technical_questions import Wording, copied_share, template_questions, written_questions

from context_agent._support.question_files import load_questions

QUESTIONS = Path(__file__).with_name("technical_questions.jsonl")
TEMPLATES = 80
"""The maximum number of questions from templates in a training file."""


@dataclass(frozen=True, slots=True)
class TechnicalSet:
    """A set: its packages, the function that reads its documents, and the wording of its templates."""

    name: str
    packages: tuple[str, ...]
    read: Callable[[Path], Iterator[Page]]
    wording: Wording | None
    """If it is None, there are no questions from templates."""
    license: str


@dataclass(frozen=True, slots=True)
class HelpPages:
    """A reader of the HTML help pages in a folder.

    It reads the files that match a pattern, but no tables of contents.
    """

    collection: str
    folder: str
    patterns: tuple[str, ...] = ("*.html",)

    def __call__(self, root: Path) -> Iterator[Page]:
        """Yield the documents. If several have the same id, only the first is yielded."""
        folder, seen = root / self.folder, set[str]()
        for file in sorted({file for pattern in self.patterns for file in folder.glob(pattern)}):
            if not re.search(r"(_toc|index|genindex|search)\.html$", file.name):
                name = file.relative_to(folder).with_suffix("").as_posix()
                for page in help_sections(_text(file), collection=self.collection, name=name):
                    if page.id not in seen:
                        seen.add(page.id)
                        yield page


def manual_pages(root: Path) -> Iterator[Page]:
    """Yield Linux manual pages. A link to a page is skipped, because the page's NAME line has its name."""
    for file in sorted(root.glob("usr/share/man/man[1-8]/*.gz"), key=lambda file: file.name):
        if not file.is_symlink():
            yield from manual_page(_text(file), collection="linux", name=file.name.removesuffix(".gz"))


def python_manual(root: Path) -> Iterator[Page]:
    """Yield sections and objects of Python's library and language references, tutorial, guides and FAQ."""
    for folder in ("c-api", "extending", "faq", "howto", "library", "reference", "tutorial", "using"):
        yield from _manual(root / "usr/share/doc/python3.11/html", folder, "python")


def postgresql_manual(root: Path) -> Iterator[Page]:
    """Return the sections of the PostgreSQL manual."""
    return _manual(root / "usr/share/doc/postgresql-doc-15/html", "", "postgresql")


def internet_standards(root: Path) -> Iterator[Page]:
    """Yield the sections of the RFCs that are Internet Standards."""
    for file in sorted((root / "usr/share/doc/RFC/standard").glob("rfc*.txt*")):
        name = file.name.removesuffix(".gz")
        subject = json.loads(file.with_name(name).with_suffix(".json").read_text(encoding="utf-8"))["title"]
        yield from rfc_sections(_text(file), collection="rfc", name=name, subject=" ".join(subject.split()))


def distribution_policy(root: Path) -> Iterator[Page]:
    """Yield the sections of Debian's policy manual and developers' reference.

    The file that repeats all other files of the reference is left out.
    """
    for html in (root / "usr/share/doc/debian-policy/policy.html", root / "usr/share/developers-reference"):
        for page in _manual(html, "", "policy"):
            if not page.id.startswith("policy:developers-reference#"):
                yield page


def essays(root: Path) -> Iterator[Page]:
    """Yield the sections of An Anarchist FAQ.

    Some pages repeat a section's headings without its text. So the longest version of each section is kept.
    """
    pages: dict[str, Page] = {}
    for file in sorted((root / "usr/share/doc/anarchism/html").glob("sec*.html")):
        for page in essay_sections(_text(file), collection="essays"):
            pages[page.id] = max(pages.get(page.id, page), page, key=lambda page: len(page.text))
    yield from pages.values()


def desktop_help(root: Path) -> Iterator[Page]:
    """Yield the pages of GNOME's help."""
    for file in sorted((root / "usr/share/help/C").rglob("*.page")):
        yield from mallard_page(_text(file), collection="desktop", name=f"{file.parent.name}/{file.stem}")


def computing_dictionary(root: Path) -> Iterator[Page]:
    """Yield the entries of the Free On-line Dictionary of Computing."""
    data = gzip.decompress((root / "usr/share/dictd/foldoc.dict.dz").read_bytes())
    yield from dictionary_entries(data.decode("utf-8", errors="replace"), collection="foldoc")


def jargon_file(root: Path) -> Iterator[Page]:
    """Yield the entries of the Jargon File."""
    data = gzip.decompress((root / "usr/share/dictd/jargon.dict.dz").read_bytes())
    yield from dictionary_entries(data.decode("utf-8"), collection="jargon")


def _help(name: str, package: str, folder: str, patterns: Sequence[str] = ("*.html",), *, license: str) -> TechnicalSet:
    return TechnicalSet(name, (package,), HelpPages(name, folder, tuple(patterns)), None, license)


SETS = (
    TechnicalSet(
        "linux",
        ("manpages", "manpages-dev"),
        manual_pages,
        Wording("manual page", "the call to"),
        "free licenses stated in each page, mostly GPL-2.0-or-later, BSD and the verbatim license of Linux man-pages",
    ),
    TechnicalSet(
        "python",
        ("python3.11-doc",),
        python_manual,
        Wording("part of the Python manual", "the call to"),
        "Python Software Foundation License Version 2; examples also Zero-Clause BSD",
    ),
    TechnicalSet(
        "postgresql",
        ("postgresql-doc-15",),
        postgresql_manual,
        Wording("part of the PostgreSQL manual", "the command to"),
        "PostgreSQL License",
    ),
    TechnicalSet(
        "rfc",
        ("doc-rfc-std",),
        internet_standards,
        Wording("section of a standard", "the text to", "the text on"),
        "IETF Trust Legal Provisions and earlier RFC copyright notices: copies allowed, changed versions not",
    ),
    TechnicalSet(
        "policy",
        ("debian-policy", "developers-reference"),
        distribution_policy,
        Wording("part of the policy", "the rule to"),
        "GPL-2.0-or-later, GPL-2.0",
    ),
    TechnicalSet("essays", ("anarchism",), essays, Wording("section", "the argument to"), "GPL-2.0-or-later"),
    TechnicalSet("jargon", ("dict-jargon",), jargon_file, Wording("entry", "the word to"), "public domain"),
    _help("sqlite", "sqlite3-doc", "usr/share/doc/sqlite3", license="public domain"),
    _help("gimp", "gimp-help-en", "usr/share/gimp/2.0/help/en", license="GFDL-1.2-or-later"),
    _help(
        "office",
        "libreoffice-help-en-us",
        "usr/share/libreoffice/help/en-US/text",
        ("*/guide/*.html", "shared/0*/*.html", "scalc/01/*.html", "swriter/0*/*.html", "simpress/**/*.html"),
        license="MPL-2.0",
    ),
    _help("git", "git-doc", "usr/share/doc/git-doc", ("*.html", "howto/*.html"), license="GPL-2.0"),
    _help(
        "finance",
        "gnucash-docs",
        "usr/share/doc/gnucash-docs",
        ("gnucash-guide-en/*.html", "gnucash-help-en/*.html"),
        license="GFDL-1.1-or-later",
    ),
    _help("apache", "apache2-doc", "usr/share/doc/apache2-doc/manual/en", ("**/*.html",), license="Apache-2.0"),
    _help("gis", "grass-doc", "usr/share/doc/grass-doc/html", license="GPL-2.0-or-later"),
    _help("mail", "postfix-doc", "usr/share/doc/postfix/html", license="IPL-1.0 or EPL-2.0"),
    TechnicalSet("desktop", ("gnome-user-docs",), desktop_help, None, "CC BY-SA 3.0"),
    TechnicalSet("foldoc", ("dict-foldoc",), computing_dictionary, None, "GFDL-1.2-or-later"),
    _help(
        "handbook",
        "debian-handbook",
        "usr/share/doc/debian-handbook/html/en-US",
        license="CC BY-SA 3.0 or GPL-2.0-or-later",
    ),
    _help(
        "music",
        "lilypond-doc-html",
        "usr/share/doc/lilypond/html/Documentation",
        tuple(f"{folder}/*.html" for folder in ("notation", "learning", "usage", "music-glossary")),
        license="GFDL-1.3-or-later",
    ),
    _help("kicad", "kicad-doc-en", "usr/share/doc/kicad/help/en", license="GPL-3.0-or-later or CC BY 3.0"),
)


def _manual(html: Path, folder: str, collection: str) -> Iterator[Page]:
    for file in sorted((html / folder).rglob("*.html")):
        name = file.relative_to(html).with_suffix("").as_posix()
        yield from manual_sections(_text(file), collection=collection, name=name)


def _text(file: Path) -> str:
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package: its name, its version, and the folder of its files."""

    name: str
    version: str
    root: Path


def find_package(name: str, debs: Path | None, scratch: Path) -> Package:
    """Return the package, unpacked from its `.deb` file in `debs`. If `debs` is None, return the installed package.

    If there is no such package, raise `FileNotFoundError`.
    """
    if debs is None:
        query = subprocess.run(["dpkg-query", "-W", "-f=${Version}", name], capture_output=True, text=True, check=False)
        if not query.stdout:
            raise FileNotFoundError(f"package {name} is not installed: apt-get install {name}, or pass --packages")
        return Package(name, query.stdout, Path("/"))
    files = sorted(debs.glob(f"{name}_*.deb"))
    if not files:
        raise FileNotFoundError(f"{debs} holds no {name}_*.deb: run apt-get download {name} in it")
    root = scratch / name
    subprocess.run(["dpkg-deb", "-x", files[-1], root], check=True)
    version = subprocess.run(["dpkg-deb", "-f", files[-1], "Version"], capture_output=True, text=True, check=True)
    return Package(name, version.stdout.strip(), root)


def make(technical: TechnicalSet, packages: Sequence[Package], out: Path) -> str:
    """Write a set, and return a text with its size. If the packages have no documents, raise `FileNotFoundError`."""
    roots = dict.fromkeys(package.root for package in packages)
    pages = resolve([page for root in roots for page in technical.read(root)])
    if not pages:
        raise FileNotFoundError(
            f"no documents of set {technical.name} in {', '.join(map(str, roots))}: the system may have been told to"
            " leave documentation out; fetch the packages with apt-get download and pass --packages"
        )
    by_id = {page.id: page for page in pages}
    dev, dev_problems = written_questions(QUESTIONS, technical.name, "dev", by_id)
    train, train_problems = written_questions(QUESTIONS, technical.name, "train", by_id)
    used = {gold for item in [*dev, *train] for gold in item.gold}
    if technical.wording:
        train += template_questions(pages, technical.wording, limit=TEMPLATES, without=used, seed=technical.name)
    for problem in [*dev_problems, *train_problems]:
        print(f"{technical.name}: left out: {problem}", file=sys.stderr)
    folder = out / technical.name
    folder.mkdir(parents=True, exist_ok=True)
    _write_corpus(folder / "corpus.jsonl.gz", pages)
    for split, items in (("train", train), ("dev", dev)):
        rows = [item.row(f"{technical.name}-{split}-{number}") for number, item in enumerate(items, 1)]
        (folder / f"queries.{split}.jsonl").write_text(_lines(rows), encoding="utf-8")
    versions = ", ".join(f"{package.name} {package.version}" for package in packages)
    (folder / "README.md").write_text(
        f"# {technical.name}\n\nFrom Debian packages: {versions}. License of the text: {technical.license}.\n\n"
        f"{len(pages):,} documents, {len(train)} train and {len(dev)} dev questions. Made by"
        " `benchmarks/technical_sets.py`.\n",
        encoding="utf-8",
    )
    return f"{len(pages):,} documents, {len(train)} train and {len(dev)} dev questions"


def copied_words(folder: Path) -> float:
    """Return the mean share of a question's words that its gold documents contain.

    The questions are the set's dev questions. If it has none, they are its train questions.
    """
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    questions = load_questions(folder / "queries.dev.jsonl") or load_questions(folder / "queries.train.jsonl")
    return fmean(copied_share(item.question, [texts[gold] for gold in item.gold]) for item in questions)


def _write_corpus(file: Path, pages: Sequence[Page]) -> None:
    rows = [{"id": page.id, "title": page.title, "text": page.text} for page in pages]
    with file.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
        stream.write(_lines(rows).encode())


def _lines(rows: Sequence[dict[str, object]] | Sequence[dict[str, str]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> int:
    """Make the sets, and print a line about each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write a folder for each set into")
    parser.add_argument("--packages", type=Path, help="folder of .deb files, instead of the installed packages")
    parser.add_argument("--sets", default=",".join(technical.name for technical in SETS), help="comma-separated names")
    parser.add_argument("--beside", type=Path, help="folder of other sets, to compare the words of their questions")
    options = parser.parse_args()
    names = options.sets.split(",")
    if unknown := set(names) - {technical.name for technical in SETS}:
        parser.error(f"unknown set {min(unknown)}; choose from {', '.join(technical.name for technical in SETS)}")
    for technical in SETS:
        if technical.name in names:
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    packages = [find_package(name, options.packages, Path(scratch)) for name in technical.packages]
                    print(f"{technical.name:12} {make(technical, packages, options.out)}", flush=True)
                except FileNotFoundError as error:
                    print(error, file=sys.stderr)
                    return 2
    beside = sorted(file.parent for file in options.beside.glob("*/corpus.jsonl.gz")) if options.beside else []
    for folder in [*(options.out / name for name in names), *beside]:
        print(f"{folder.name:12} words of a question that its gold has: {copied_words(folder):.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
