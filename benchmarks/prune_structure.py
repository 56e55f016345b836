"""Measure whether pruning keeps a value whose name is in the lines around it: in headings, in classes, or in parents.

    python benchmarks/prune_structure.py [--forms markdown,table] [--efforts fast,careful,thorough] [--shares 0.25,0.1]
        [--results 4] [--seed 0]

The results are invented. Each has six environments with three services, and each service has the same eight settings.
A question asks for one setting of one service in one environment. Beside the result are two smaller ones in the same
form, and the names also occur as words of the text. The forms are Markdown, lists, settings, code, listings, mail,
pages and tables, as tools of agents write them, and files whose paths alone name the service. For each effort, form
and share of the tokens, the program prints the share of the questions whose value is still there, and the mean over
the forms with a bootstrap 95% interval.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prune_any import ALWAYS

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner

WORDS = (
    "login payment export import cache timeout worker queue mail sender index token session database upload invoice "
    "report user admin"
).split()
ENVIRONMENTS = "staging production canary sandbox preview legacy nightly demo".split()
SETTINGS = "port retries timeout replicas memory owner bucket region".split()
QUESTIONS_OF_A_RESULT = 3

Settings = Mapping[str, str]
Environments = Mapping[str, Mapping[str, Settings]]


def environments(draw: random.Random, count: int, services: int) -> dict[str, dict[str, dict[str, str]]]:
    """Return the settings of the services of some environments."""
    return {
        name: {
            service: {setting: str(draw.randrange(1_000, 99_999)) for setting in SETTINGS}
            for service in draw.sample(WORDS, services)
        }
        for name in draw.sample(ENVIRONMENTS, count)
    }


class Writer:
    """Writes environments in several forms, with random words between the settings."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._references = 0

    def words(self, count: int) -> str:
        """Return random words."""
        return " ".join(self._draw.choices(WORDS, k=count))

    def _said(self, settings: Settings) -> str:
        return ", ".join(f"{name} is {value}" for name, value in settings.items())

    def _titled(self, them: Environments, outer: Callable[[str], str], inner: Callable[[str], str]) -> str:
        parts: list[str] = []
        for name, services in them.items():
            parts += [outer(name), self.words(20) + "."]
            for service, settings in services.items():
                parts += [inner(service), f"{self.words(60)}. {self._said(settings)}. {self.words(30)}."]
        return "\n\n".join(parts)

    def _lines(
        self,
        them: Environments,
        outer: Callable[[str], str],
        inner: Callable[[str], str],
        line: Callable[[str, str], str],
        *,
        inner_end: str = "",
        outer_end: str = "",
    ) -> str:
        lines: list[str] = []
        for name, services in them.items():
            lines.append(outer(name))
            for service, settings in services.items():
                lines += [inner(service), *(line(*setting) for setting in settings.items()), inner_end]
            lines.append(outer_end)
        return "\n".join(filter(None, lines))

    def markdown(self, them: Environments) -> str:
        """Return sections of Markdown."""
        return self._titled(them, "## {}".format, "### {}".format)

    def underlined(self, them: Environments) -> str:
        """Return sections whose titles are underlined."""
        return self._titled(them, lambda it: f"{it}\n{'=' * len(it)}", lambda it: f"{it}\n{'-' * len(it)}")

    def page(self, them: Environments) -> str:
        """Return a page of HTML."""
        parts = ["<html><body>"]
        for name, services in them.items():
            parts += [f"<section>\n<h2>{name}</h2>", f"<p>{self.words(20)}</p>"]
            for service, settings in services.items():
                rows = "\n".join(f"<dt>{it}</dt><dd>{value}</dd>" for it, value in settings.items())
                parts += [f"<h3>{service}</h3>", f"<dl>\n{rows}\n</dl>", f"<p>{self.words(30)}</p>"]
            parts.append("</section>")
        return "\n".join([*parts, "</body></html>"])

    def listed(self, them: Environments) -> str:
        """Return nested lists."""
        return self._lines(
            them, "- {}".format, "  - {}".format, lambda name, value: f"    - {name}: {value} ({self.words(4)})"
        )

    def sections(self, them: Environments) -> str:
        """Return sections of settings, as TOML has them."""
        parts: list[str] = []
        for name, services in them.items():
            parts.append(f'[{name}]\nabout = "{self.words(20)}"\n')
            for service, settings in services.items():
                lines = [f'{it} = "{value}"  # {self.words(5)}' for it, value in settings.items()]
                parts.append("\n".join([f"[{name}.{service}]", *lines, ""]))
        return "\n".join(parts)

    def python(self, them: Environments) -> str:
        """Return classes of Python."""
        return self._lines(
            them,
            lambda it: f'class {it.title()}:\n    """{self.words(15)}."""',
            lambda it: f'    def {it}(self, {self.words(1)}):\n        """{self.words(12)}."""',
            lambda name, value: f"        self.{self.words(1)}_{name} = {value}  # {self.words(4)}",
            inner_end="        return self\n",
        )

    def javascript(self, them: Environments) -> str:
        """Return classes of JavaScript."""
        return self._lines(
            them,
            lambda it: f"export class {it.title()} {{",
            lambda it: f"  {it}({self.words(1)}) {{",
            lambda name, value: f"    this.{self.words(1)}.{name} = {value}; // {self.words(4)}",
            inner_end="  }\n",
            outer_end="}\n",
        )

    def modules(self, them: Environments) -> str:
        """Return blocks of Terraform."""
        return self._lines(
            them,
            lambda it: f'module "{it}" {{\n  source = "./modules/{self.words(1)}"',
            "  {} {{".format,
            lambda name, value: f'    {name} = "{value}" # {self.words(4)}',
            inner_end="  }",
            outer_end="}\n",
        )

    def described(self, them: Environments) -> str:
        """Return descriptions, as those of `kubectl describe`."""
        return self._lines(
            them,
            lambda it: f"Name:         {it}\nAbout:        {self.words(12)}\nContainers:",
            "  {}:".format,
            lambda name, value: f"    {name.title() + ':':13}{value}",
            inner_end=f"    Args:\n      {self.words(8)}",
            outer_end="Events:  <none>\n",
        )

    def tree(self, them: Environments) -> str:
        """Return a tree of files with sizes."""
        return self._lines(
            them, "├── {}".format, "│   ├── {}".format, lambda name, value: f"│   │   ├── [{value:>6}]  {name}.txt"
        )

    def snapshot(self, them: Environments) -> str:
        """Return the accessibility tree of a page, as browsers' tools write it."""

        def node(indent: int, role: str, name: str = "") -> str:
            self._references += 1
            quoted = f' "{name}"' if name else ""
            return f"{' ' * indent}- {role}{quoted} [ref=e{self._references}]"

        return self._lines(
            them,
            lambda it: f"{node(0, 'region', it)}:\n{node(2, 'heading', it)}",
            lambda it: f"{node(2, 'group', it)}:",
            lambda name, value: f"{node(4, 'generic')}: {name}\n{node(4, 'textbox', name)}: {value}",
        )

    def headings(self, them: Environments) -> str:
        """Return the accessibility tree of a page whose headings are next to what they name."""
        lines: list[str] = []
        for name, services in them.items():
            lines += [f'- heading "{name}" [level=2] [ref=e1]', f"- paragraph [ref=e2]: {self.words(12)}"]
            for service, settings in services.items():
                lines += [f'- heading "{service}" [level=3] [ref=e3]', "- list [ref=e4]:"]
                for setting, value in settings.items():
                    lines += [f"  - listitem [ref=e5]:\n    - text: {setting}", f'    - strong [ref=e6]: "{value}"']
        return "\n".join(lines)

    def commits(self, them: Environments) -> str:
        """Return the commits of `git log`, one for each service."""
        parts: list[str] = []
        for name, services in them.items():
            for service, settings in services.items():
                head = (
                    f"commit {self._draw.randrange(16**40):040x}\nAuthor: Ana <ana@example.com>\nDate:   Mon Mar 2 2026"
                )
                said = "\n".join(
                    f"    {setting} is now {value}, {self.words(6)}" for setting, value in settings.items()
                )
                body = "".join(f"\n\n    {self.words(40)}." for _ in range(2))
                parts.append(f"{head}\n\n    {name}: tune the {service}{body}\n\n{said}\n\n    {self.words(30)}.\n")
        return "\n".join(parts)

    def records(self, them: Environments) -> str:
        """Return the rows of a wide table as lines, as `psql` writes them in its expanded display."""
        parts: list[str] = []
        for name, services in them.items():
            for service, settings in services.items():
                parts.append(f"-[ RECORD {len(parts) + 1} ]{'-' * 40}\nenvironment | {name}\nservice     | {service}")
                parts[-1] += "".join(
                    f"\n{setting:11} | {value}\nnote        | {self.words(25)}" for setting, value in settings.items()
                )
        return "\n".join(parts)

    def instances(self, them: Environments) -> str:
        """Return the machines of a cloud, whose tags have their names."""
        instances = [
            {
                "InstanceId": f"i-{self._draw.randrange(16**12):012x}",
                "Placement": {"Zone": "eu-1a", "Tenancy": "default", "Note": self.words(8)},
                "Interfaces": [{"Description": self.words(8), "Status": "attached", **settings}],
                "Volumes": [{"Device": "/dev/xvda", "Note": self.words(20)} for _ in range(4)],
                "Tags": [{"Key": "Environment", "Value": name}, {"Key": "Name", "Value": service}],
            }
            for name, services in them.items()
            for service, settings in services.items()
        ]
        return json.dumps({"Instances": instances}, indent=4)

    def mail(self, them: Environments) -> str:
        """Return letters, one from each environment."""
        letters: list[str] = []
        for name, services in them.items():
            head = f"From: {name}@example.com\nTo: team@example.com\nSubject: {self.words(4)}"
            letters.append("\n\n".join([head, *(f"On {it}: {self.words(50)}.\n{self._said(own)}.\n{self.words(30)}."
                                                for it, own in services.items())]))  # fmt: skip
        return "\n\n---\n\n".join(letters)

    def tables(self, them: Environments) -> str:
        """Return a table for each service, as databases describe theirs."""
        parts: list[str] = []
        for name, services in them.items():
            for service, settings in services.items():
                rows = [f" {it} | integer | {value} | {self.words(4)}" for it, value in settings.items()]
                head = f'   Table "{name}.{service}"\n Column | Type | Default | Note\n--------+------+---------+------'
                parts.append("\n".join([head, *rows, f'Indexes:\n    "{service}_pkey" PRIMARY KEY, btree (id)']))
        return "\n\n".join(parts)

    def table(self, them: Environments) -> str:
        """Return one table, with the name of an environment in its first row alone."""
        head = f"| env | service | {' | '.join(SETTINGS)} |\n{'|---' * (len(SETTINGS) + 2)}|"
        rows = [
            f"| {'' if number else name} | {service} | {' | '.join(settings.values())} |"
            for name, services in them.items()
            for number, (service, settings) in enumerate(services.items())
        ]
        return "\n".join([head, *rows])

    def files(self, them: Environments) -> dict[str, str]:
        """Return a file for each service, by its path. The file itself does not say whose it is."""
        return {
            f"deploy/{name}/{service}.toml": "\n".join(
                [
                    *(f"# {self.words(12)}" for _ in range(6)),
                    *(f'{it} = "{value}"  # {self.words(6)}' for it, value in settings.items()),
                    *(f"# {self.words(12)}" for _ in range(6)),
                ]
            )
            for name, services in them.items()
            for service, settings in services.items()
        }


Form = Callable[[Writer, Environments], str | dict[str, str]]
FORMS: tuple[Form, ...] = (
    Writer.markdown, Writer.underlined, Writer.page, Writer.listed, Writer.sections, Writer.python, Writer.javascript,
    Writer.modules, Writer.described, Writer.tree, Writer.snapshot, Writer.mail, Writer.tables, Writer.table,
    Writer.files, Writer.headings, Writer.commits, Writer.records, Writer.instances,
)  # fmt: skip


def measure(form: Form, seed: str, effort: str, share: float) -> Iterator[bool]:
    """Yield whether the value stays, for some questions about one result."""
    draw = random.Random(seed)
    writer, them = Writer(draw), environments(draw, 6, 3)
    results = [form(writer, it) for it in (environments(draw, 3, 2), them, environments(draw, 3, 2))]
    read = [(path, text) for it in results for path, text in (it.items() if isinstance(it, dict) else [("", it)])]
    for _ in range(QUESTIONS_OF_A_RESULT):
        name = draw.choice([*them])
        service, setting = draw.choice([*them[name]]), draw.choice(SETTINGS)
        question = f"What is the {setting} of {service} in {name}?"
        messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
        for number, (path, content) in enumerate([*read, ("", "done")]):
            function = {"name": "read", "arguments": json.dumps({"path": path} if path else {})}
            call = {"id": f"c{number}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        pruned = ContextPruner(share, effort=effort, prices=ALWAYS).prune(messages)  # type: ignore[arg-type]
        value = them[name][service][setting]
        left = "\n".join(str(message["content"]) for message in pruned.messages[1:])
        yield re.search(rf"(?<!\d){value}(?!\d)", left) is not None


def main() -> None:
    """Print a table for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--efforts", default="fast,careful,thorough")
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--results", type=int, default=4, help="results of each form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forms", help="names of forms, separated by commas; all of them by default")
    options = parser.parse_args()
    forms = [it for it in FORMS if options.forms is None or it.__name__ in options.forms.split(",")]
    efforts = options.efforts.split(",")
    for share in map(float, options.shares.split(",")):
        print(f"\n{share:.0%} of the tokens\n{'':14}" + "".join(f"{effort:>24}" for effort in efforts), flush=True)
        all_kept: dict[str, list[float]] = {effort: [] for effort in efforts}
        for form in forms:
            line = f"{form.__name__:14}"
            for effort in efforts:
                seeds = (f"{options.seed}:{form.__name__}:{number}" for number in range(options.results))
                kept = [float(it) for seed in seeds for it in measure(form, seed, effort, share)]
                all_kept[effort] += kept
                line += f"{sum(kept) / len(kept):24.3f}"
            print(line, flush=True)
        print(f"{'all':14}" + "".join(f"{Figure.of(all_kept[effort])!s:>24}" for effort in efforts), flush=True)


if __name__ == "__main__":
    main()
