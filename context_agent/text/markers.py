"""Escaping of text that a server would read as a control token, or a model as a line of the harness.

A passage is data, but two kinds of text in it could be read as something else. The first kind is the harness's own
lines, which are block headers and the usage line. The second kind is the control markers of model families
(`<|im_start|>`, `[INST]`, `<tool_call>`, `</s>`). Many servers turn these markers into special tokens even inside a
message. `escape_markers` puts a backslash inside each marker and each line.

Markers are searched in the text's skeleton. To make it, compatibility forms are normalized (NFKC), case is folded,
invisible characters and combining marks are removed, and look-alikes of brackets, bars and colons become ASCII. The
backslash goes into the original text, so all other text stays byte-identical. The cost is linear in the text's length.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from functools import cache
from itertools import accumulate, pairwise

_TAGS = (
    "s|(?:bos|eos|pad|unk|sop|eop)(?:_token)?|sep|eoh|eoa|sys|role|tools|think(?:ing)?|thought|invoke"
    "|im_(?:start|end|sep)|(?:start|end)_of_(?:turn|image|utterance)|(?:start|end)_function_\\w{1,16}|longcat_\\w{1,16}"
    "|tool_?(?:calls?|code|responses?|results?|outputs?|sep)|available_tools|function_(?:calls?|responses?|results?)"
    "|arg_(?:key|value)|(?:unused|reserved_|special_|extra_id_)\\d{1,6}"
)
_BRACKETS = (
    "inst|img|img_break|img_end|think|args|call_id|gmask|smask|prefix|middle|suffix|system_prompt|available_tools"
    "|tool_(?:calls|results|content)|model_settings|begin_audio|control_\\d{1,6}"
)
_HEADER = re.compile(r"\n[^\S\n]*#[^\S\n]*(?=(?:document[^\S\n]+id|summary[^\S\n]+id|title)[^\S\n]*:)", re.IGNORECASE)
"""A block header. This pattern and the next one are searched in a skeleton with a newline before it."""
_TURN = re.compile(r"\n[^\S\n]*\n[^\S\n]*(?:human|assistant)(?=[^\S\n]*:)", re.IGNORECASE)
"""The start of a turn in Anthropic's text completions."""
_USAGE = re.compile(r"\[(?=token[^\S\n]+usage)", re.IGNORECASE)
_CONTROL = re.compile(
    r"[<\[](?:(?<=<)(?:"
    # ChatML, Llama 3, harmony, Phi, Command R, DeepSeek (whose bars are full-width); Gemma's `<turn|>`.
    r"(?=\||\w{1,32}\|>)"
    # Tags with or without a namespace (`antml:`, `minimax:`), attributes or an assigned name (`<function=search>`).
    rf"|(?=[<\s]{{0,2}}/?\s{{0,2}}(?:\w{{1,16}}:)?(?:{_TAGS})(?:\s{{0,2}}/?>|[\s/]{{1,8}}\w{{1,16}}\s?=))"
    r"|(?=(?:function|parameter)=)"
    # Mistral, Llama 2, GLM, EXAONE.
    r")|(?<=\[)(?:"
    rf"(?=\s{{0,2}}/?\s{{0,2}}(?:{_BRACKETS})\s{{0,2}}\]|\|\w{{1,32}}\|\])))"
    # MiniMax: `]~b]`, `]~!b[`, `[e~[`.
    r"|\](?=~!?b[\[\]]|![dp]~\[)|\[(?=e~\[)",
    re.IGNORECASE,
)
_BREAKS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LOOKALIKES = {
    **dict.fromkeys("‹〈⟨❮❬˂ᐸ𐌂❰⧼﹤＜", "<"),
    **dict.fromkeys("›〉⟩❯❭˃ᐳ❱⧽﹥＞", ">"),
    **dict.fromkeys("│┃∣ǀ❘¦⏐|｜￨", "|"),
    **dict.fromkeys("⁅【〔〚⟦❲［", "["),
    **dict.fromkeys("⁆】〕〛⟧❳］", "]"),
    **dict.fromkeys("▁‗＿", "_"),
    **dict.fromkeys("∕⁄⧸／", "/"),
    **dict.fromkeys("꞉∶ː։׃：", ":"),
    **dict.fromkeys("﹟＃♯⌗", "#"),
    "\u2800": " ",
    **dict.fromkeys(_BREAKS, "\n"),
}
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
)
"""The characters that a skeleton leaves out: control and format characters, fillers, variation selectors and combining
marks.
"""
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]+")
_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_ODD_ASCII = bytes([*range(9), 11, 12, *range(14, 32), 127])


def escape_markers(text: str, *, blocks: bool = True) -> str:
    r"""Return the text with a backslash inside every marker (`<\|im_start|>`, `[\INST]`), and with `\r` as a newline.

    Ordinary text is returned unchanged. Escaping twice has the same result as escaping once. If `blocks` is False,
    block headers and usage lines stay unchanged. Pass False for text that the harness has rendered.
    """
    text = text.replace("\r", "\n") if "\r" in text else text
    positions = _in_skeleton(text, blocks) if _is_plain(text) else _in_odd(text, blocks)
    if not positions:
        return text
    cuts = [0, *positions, len(text)]
    return "\\".join(text[start:end] for start, end in pairwise(cuts))


def escaped_line(text: str) -> str:
    """Remove control characters and escape markers, and return the text on one line. It can be used in a header."""
    return escape_markers(_LINE_BREAKS.sub(" ", text)).strip()


def _is_plain(text: str) -> bool:
    """Return True if the text equals its skeleton except for case."""
    if text.isascii():
        return len(text.encode().translate(None, _ODD_ASCII)) == len(text)
    return unicodedata.is_normalized("NFKC", text) and _odd().isdisjoint(text)


def _in_skeleton(skeleton: str, blocks: bool) -> list[int]:
    """Return the positions in a skeleton at which a backslash must be inserted, in order."""
    cuts = [match.end() for match in _CONTROL.finditer(skeleton)] if any(mark in skeleton for mark in "<[]") else []
    lines = (_TURN, _HEADER) if blocks else (_TURN,)
    cuts += [match.end() - 1 for pattern in lines for match in pattern.finditer(f"\n{skeleton}")]
    if blocks and "[" in skeleton:
        cuts += [match.end() for match in _USAGE.finditer(skeleton)]
    return sorted(cuts)


def _in_odd(text: str, blocks: bool) -> list[int]:
    """Return the positions for a text that differs from its skeleton.

    The positions are found in the skeleton and mapped back to the text.
    """
    pieces = list(map(_skeletons().__getitem__, text))
    cuts = _in_skeleton("".join(pieces), blocks)
    if not cuts:
        return []
    ends = list(accumulate(map(len, pieces)))
    return [bisect_left(ends, position) + 1 for position in cuts]


@cache
def _odd() -> frozenset[str]:
    """Return the characters, other than compatibility forms, that make a text differ from its skeleton."""
    ranges = re.findall("(.)(?:-(.))?", _INVISIBLE, re.DOTALL)
    invisible = (chr(code) for first, last in ranges for code in range(ord(first), ord(last or first) + 1))
    return frozenset([*invisible, *_LOOKALIKES])


class _Skeletons(dict[str, str]):
    """A cache of the skeleton of each character."""

    def __missing__(self, char: str) -> str:
        plain = (_LOOKALIKES.get(part, part) for part in unicodedata.normalize("NFKC", _LOOKALIKES.get(char, char)))
        self[char] = skeleton = _INVISIBLE_RUN.sub("", "".join(plain)).casefold()
        return skeleton


@cache
def _skeletons() -> _Skeletons:
    return _Skeletons()
