"""A model of 0.2 million parameters that was taught one episode by heart: it searches, prunes, and ranks.

It is a Qwen3 in architecture and chat template, so that a server which knows that family parses its thoughts and its
tool calls. The lessons are the requests of a scripted episode, with the numbers in the usage lines varied.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from context_agent.policies.chat.messages import ToolFormat
from context_agent.policies.chat.scripted_server import ScriptedAnswer, ScriptedServer, says
from context_agent.policies.chat.text_calls import written
from context_agent.types import ToolCall
from tests.support.chatting import ask

THOUGHT = "First the comets, then the operas."
CALLS = (
    [("search_corpus", {"query": "comets", "limit": 2}), ("search_corpus", {"query": "operas", "limit": 1})],
    [("prune_chunks", {"chunk_ids": ["d19_0"]})],
)
RANKING = "<Document id=d34></Document>"

PROTOCOLS: tuple[ToolFormat, ...] = ("native", "text")

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content }}
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "system" and not tools %}<|im_start|>system
{{ message.content }}<|im_end|>
{% elif message.role == "user" %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role == "assistant" %}<|im_start|>assistant
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def replies(protocol: ToolFormat) -> list[str]:
    """What the model writes, turn by turn."""
    calls = ["\n".join(written(ToolCall(*call)) for call in turn) for turn in CALLS]
    thoughts = [THOUGHT, "", ""]
    texts = [*calls, RANKING]
    return [f"<think>\n{thought}\n</think>\n\n{text}" for thought, text in zip(thoughts, texts, strict=True)]


def lessons(protocol: ToolFormat) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the requests of a scripted episode, each with the reply to learn."""
    with ScriptedServer([_step(turn, protocol) for turn in CALLS]) as server:
        ask(server, tools=protocol)
    yield from zip(server.chat_bodies(), replies(protocol), strict=True)


def _step(calls: list[tuple[str, Any]], protocol: ToolFormat) -> ScriptedAnswer:
    return says(calls=calls) if protocol == "native" else says("\n".join(written(ToolCall(*call)) for call in calls))


def taught(folder: Path, *, most: int = 600, enough: float = 0.01) -> Path:
    """Teach the model until its loss is `enough`, and save it in `folder`: some five seconds of one core."""
    import torch

    torch.manual_seed(0)
    draw = random.Random(0)
    pairs = [pair for protocol in PROTOCOLS for pair in lessons(protocol)]
    tokenizer = _tokenizer([json.dumps(body, ensure_ascii=False) for body, _ in pairs] + [reply for _, reply in pairs])
    model = _model(tokenizer)
    rows = [(_prompt(tokenizer, body), f"{reply}<|im_end|>") for body, reply in pairs]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = [1.0] * len(rows) * 2
    for step in range(most):
        ids, reply = _row(tokenizer, *rows[step % len(rows)], draw)
        logits = model(input_ids=ids, logits_to_keep=len(reply) + 1).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, reply)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[step % len(losses)] = loss.item()
        if max(losses) < enough:
            break
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _prompt(tokenizer: Any, body: dict[str, Any]) -> str:
    messages = [{**message, "tool_calls": _parsed(message)} for message in body["messages"]]
    rendered: str = tokenizer.apply_chat_template(
        messages, tools=body.get("tools"), add_generation_prompt=True, tokenize=False
    )
    return rendered


def _row(tokenizer: Any, prompt: str, reply: str, draw: random.Random) -> tuple[Any, Any]:
    """Return the ids of prompt and reply, and of the reply alone. Numbers in usage lines vary between calls."""
    import torch

    varied = re.sub(r"usage: [\d,]+", lambda _: f"usage: {draw.randint(700, 2500):,}", prompt)
    head = tokenizer(varied, add_special_tokens=False)["input_ids"]
    tail = tokenizer(reply, add_special_tokens=False)["input_ids"]
    return torch.tensor([head + tail]), torch.tensor(tail)


def _parsed(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls with arguments as mappings, as the server hands them to the template."""
    calls = []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        calls.append({"function": {"name": function["name"], "arguments": json.loads(function["arguments"])}})
    return calls


def _tokenizer(texts: list[str]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    # Tokens may reach beyond a word, so the long prompts have half as many.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [
        AddedToken(name, special=True, normalized=False) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    ]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    chat_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    chat_tokenizer.chat_template = TEMPLATE
    return chat_tokenizer


def _model(tokenizer: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=40_960,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.do_sample = False
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model
