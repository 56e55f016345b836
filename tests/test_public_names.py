"""The public face: few names, each loaded when it is used, and an import that costs and does nothing."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

import context_agent
from tests.support.fork_servers import MODELS
from tests.support.forked_programs import ForkedProgram, run_path


def test_there_are_at_most_25_public_names_in_order():
    assert len(context_agent.__all__) <= 25
    assert context_agent.__all__ == sorted(context_agent.__all__)


@pytest.mark.parametrize("name", context_agent.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(context_agent, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        context_agent.no_such_name  # noqa: B018


def test_importing_pulls_in_nothing_heavy():
    modules = _modules_after("import context_agent")
    assert not modules & {
        "chromadb",
        "cyclopts",
        "httpx",
        "numpy",
        "pydantic",
        "rich",
        "tantivy",
        "torch",
        "transformers",
    }


def test_help_pulls_in_nothing_heavy():
    code = "from context_agent.cli.app import run; run(['--help'])"
    assert not _modules_after(code) & {"chromadb", "httpx", "numpy", "pydantic", "tantivy", "torch", "transformers"}


def test_the_agent_needs_neither_store_nor_torch():
    code = "from context_agent import MemoryCorpus, SearchAgent"
    assert not _modules_after(code) & {"chromadb", "torch", "transformers"}


def test_a_search_on_this_machine_needs_no_http_client():
    code = "from context_agent.retrieval.rerankers import load_reranker; load_reranker('none')\n"
    code += "from context_agent import ChromaCorpus, SearchAgent"
    assert not _modules_after(code) & {"chromadb", "httpx", "torch", "transformers"}


def test_importing_any_module_prints_nothing_and_sets_up_no_logging(tmp_path):
    """The process has imported torch and its like before. It imports the package anew."""
    code = (
        "import contextlib, importlib, logging, pkgutil, sys, threading\n"
        "for name in [*sys.modules]:\n"
        "    if name.partition('.')[0] == 'context_agent': del sys.modules[name]\n"
        "import context_agent\n"
        "from context_agent.errors import MissingExtraError\n"
        "names = [m.name for m in pkgutil.walk_packages(context_agent.__path__, 'context_agent.')]\n"
        "for name in names:\n"
        "    if not name.endswith('__main__'):\n"
        "        with contextlib.suppress(MissingExtraError): importlib.import_module(name)\n"
        "assert not logging.getLogger().handlers and not logging.getLogger('context_agent').handlers\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    program = tmp_path / "imports.py"
    program.write_text(code, encoding="utf-8")
    process = ForkedProgram(run_path, str(program), (), MODELS).completed()
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_the_version_is_the_distribution_s():
    assert context_agent.__version__ == importlib.metadata.version("context-agent")


def _modules_after(code: str) -> set[str]:
    code += "\nimport json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout.splitlines()[-1]))
