"""The command `ctx1 completion`, which installs the completion of commands and options in a shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import CommonOptions
from context_agent.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")


def completion(
    action: Literal["install", "show"] = "show",
    /,
    *,
    shell: Annotated[Literal["bash", "zsh", "fish"] | None, Parameter(show_default="$SHELL")] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Complete commands and options with the Tab key.

    `install` writes the completion script and loads it in the start-up file of your shell (~/.bashrc or ~/.zshrc; fish
    needs no line there). `show` prints the script.

    Args:
        action: What to do with the completion script.
        shell: Shell to complete in.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        reason = f"ctx1 has no completion for the shell {name!r}" if name else "the variable SHELL names no shell"
        raise ConfigError(f"{reason}. Pass --shell with one of {', '.join(SHELLS)}.")
    from context_agent.cli.app import cli

    script = cli.generate_completion(shell=name)  # type: ignore[arg-type]
    if name == "zsh":
        # Only a script in a folder of completions registers itself.
        script += "compdef _cyclopts_ctx1 ctx1\n"
    if action == "show":
        output.result({"shell": name, "script": script}, script, as_json=common.json)
        return 0
    file, startup = _install(name, script, Path.home())
    loaded = "" if startup is None else f", loaded by {startup}"
    message = f"{file}{loaded}. Open a new {name} to use it."
    files = {"script": str(file), "startup": None if startup is None else str(startup)}
    output.result({"shell": name, **files}, message, as_json=common.json)
    return 0


def _install(shell: str, script: str, home: Path) -> tuple[Path, Path | None]:
    """Write the script, and add the line that loads it to the start-up file, unless the line is there.

    Return both files. If the shell needs no such line, the second file is None.
    """
    if shell == "fish":
        file = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions" / "ctx1.fish"
        startup, line = None, ""
    else:
        file = home / f".ctx1-complete.{shell}"
        startup = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
        # Zsh's own completion has to run before, and many start-up files do not run it.
        prefix = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; " if shell == "zsh" else ""
        line = f'{prefix}. "{file}"'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script, encoding="utf-8")
    if startup is not None:
        present = startup.read_text(encoding="utf-8", errors="replace") if startup.exists() else ""
        if line not in present.splitlines():
            gap = "" if present.endswith("\n") or not present else "\n"
            with startup.open("a", encoding="utf-8") as lines:
                lines.write(f"{gap}{line}\n")
    return file, startup
