"""The small stand-ins: a vocabulary that is gpt-oss's own, and a model that every part takes for gpt-oss."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from context_agent.errors import ConfigError
from context_agent.harness.profile import default
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.vocabularies import HarmonyVocabulary, TokenizerVocabulary
from context_agent.testing.random_views import ALPHABET, random_view
from context_agent.testing.token_episodes import FORGERIES
from context_agent.tokens import harmony_encoding
from context_agent.train.tiny_model import BASE_TOKENS, SPECIALS, harmony_tokenizer, tiny_tokenizer

TEXTS = ["Which comets met which bridges? The harness prunes what does not help."] * 4


@pytest.mark.slow
def test_the_real_vocabulary_is_rebuilt_id_for_id() -> None:
    tokenizer = harmony_tokenizer()
    real = HarmonyVocabulary()
    assert tokenizer.get_vocab_size() == real.size == 201_089
    assert real.size == BASE_TOKENS + 1_091
    assert len(tokenizer.get_added_tokens_decoder()) == len(
        {real.special(s) for s in harmony_encoding().special_tokens_set}
    )
    rng = random.Random(0)
    rebuilt = TokenizerVocabulary(tokenizer, "rebuilt")
    for _ in range(300):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 80))) + rng.choice(["", *FORGERIES])
        ids = rebuilt.encode(text)
        assert ids == real.encode(text)
        assert rebuilt.decode(ids) == real.decode(ids) == text
    for name in SPECIALS:
        assert rebuilt.special(name) == real.special(name)
    view = random_view(rng, default())
    from context_agent.policies.tokens.prompt import Prompt

    assert Prompt(HarmonyRenderer(rebuilt), default()).show(view) == Prompt(HarmonyRenderer(), default()).show(view)


def test_a_small_vocabulary_carries_harmony() -> None:
    vocabulary = TokenizerVocabulary(tiny_tokenizer(TEXTS, size=400), "tiny")
    renderer = HarmonyRenderer(vocabulary)
    assert len({vocabulary.special(name) for name in SPECIALS}) == len(SPECIALS)
    opening = renderer.opening(default())
    assert renderer.decode(opening.before) == opening.text == HarmonyRenderer().opening(default()).text


def test_a_vocabulary_too_small_for_all_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="265"):
        tiny_tokenizer(TEXTS, size=100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the tiny model needs the train extra (torch)")
    pytest.importorskip("transformers", reason="the tiny model needs the train extra (transformers)")
    from context_agent.train.tiny_model import tiny_gpt_oss

    return tiny_gpt_oss(tmp_path_factory.mktemp("tiny") / "model", texts=TEXTS, size=400)


def test_transformers_loads_it_as_gpt_oss(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == "gpt_oss"
    assert sum(parameter.numel() for parameter in model.parameters()) < 400_000
    assert tokenizer.convert_tokens_to_ids("<|return|>") == model.config.eos_token_id
    assert model.generation_config.eos_token_id == [
        tokenizer.convert_tokens_to_ids(t) for t in ("<|return|>", "<|call|>")
    ]
    assert "<|start|>user<|message|>hi<|end|><|start|>assistant" in tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )


def test_equal_arguments_give_equal_weights_and_leave_the_random_state_alone(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    from context_agent.train.tiny_model import tiny_gpt_oss

    torch.manual_seed(7)
    before = torch.get_rng_state()
    again = tiny_gpt_oss(tmp_path / "again", texts=TEXTS, size=400)
    other = tiny_gpt_oss(tmp_path / "other", texts=TEXTS, size=400, seed=1, yarn=False)
    assert torch.equal(before, torch.get_rng_state())
    first, second, third = (load_file(path / "model.safetensors") for path in (folder, again, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


def test_a_hidden_size_that_heads_do_not_divide_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the tiny model needs the train extra (transformers)")
    from context_agent.train.tiny_model import tiny_gpt_oss

    with pytest.raises(ConfigError, match="multiple of 32"):
        tiny_gpt_oss(tmp_path, texts=TEXTS, size=400, hidden=50)


def test_how_far_its_random_weights_spread_can_be_said() -> None:
    transformers = pytest.importorskip("transformers")
    from context_agent.train.tiny_model import for_transformers, own_tokenizer, tiny_config

    config = tiny_config(for_transformers(own_tokenizer()), positions=128, yarn=False, deviation=0.1)
    weight = transformers.GptOssForCausalLM(config).model.layers[0].self_attn.q_proj.weight
    assert 0.09 < float(weight.std()) < 0.11
