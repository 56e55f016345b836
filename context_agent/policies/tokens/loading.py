"""The loading of token policies: a model on a server, a packaged model, or a folder with weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from context_agent._support.http_client import API_KEY_ENV, BASE_URL
from context_agent.errors import ConfigError, MissingExtraError, reason_of
from context_agent.policies.tokens.harmony import HarmonyRenderer, harmony_renderer
from context_agent.policies.tokens.model_files import LOADING_ERRORS, check_model
from context_agent.policies.tokens.packaged import (
    MODELS,
    adapter_digest,
    import_libraries,
    model_folder,
    packaged_policy,
    with_adapter,
)
from context_agent.policies.tokens.policy import MAX_TOKENS, TokenPolicy
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.policies.tokens.trained import PolicyDescription, trained_model


def served(
    model: str,
    *,
    base_url: str = BASE_URL,
    api_key_env: str | None = API_KEY_ENV,
    tokenizer: str | None = None,
    reasoning_effort: str = "high",
    parallel: bool = False,
    temperature: float = 1.0,
    top_p: float = 0.9,
    max_tokens: int = MAX_TOKENS,
    seeded: bool = True,
    cache_salt: str | None = None,
    timeout: float = 600.0,
    retries: int = 6,
    concurrency: int = 128,
) -> TokenPolicy:
    """Return the policy for a model behind vLLM.

    Args:
        model: The name of the model on the server.
        base_url: The address of the server.
        api_key_env: The environment variable with the key.
        tokenizer: A folder or a model's name. Prompts then have the chat template of its tokenizer. By default they
            have the harmony format.
        reasoning_effort: The reasoning effort, in the harmony format.
        parallel: True if a reply may have several calls, in the harmony format.
        temperature: The sampling temperature.
        top_p: The probability mass for nucleus sampling.
        max_tokens: Maximum number of tokens of one reply.
        seeded: As in `VllmEngine`.
        cache_salt: As in `VllmEngine`.
        timeout: The seconds that a response may take.
        retries: The number of times that a failed request is repeated.
        concurrency: Maximum number of requests at a time.

    Returns:
        The policy.

    Raises:
        ConfigError: If a setting is not valid, or if the tokenizer cannot be loaded.
        MissingExtraError: If `tokenizer` is given and transformers is not installed.
    """
    from context_agent.policies.tokens.engines.vllm import VllmEngine

    engine = VllmEngine(
        base_url,
        model,
        api_key_env=api_key_env,
        seeded=seeded,
        cache_salt=cache_salt,
        timeout=timeout,
        retries=retries,
        concurrency=concurrency,
    )
    renderer = templated(tokenizer) if tokenizer else HarmonyRenderer(effort=reasoning_effort, parallel=parallel)
    return TokenPolicy(engine, renderer, temperature=temperature, top_p=top_p, max_tokens=max_tokens)


def local(
    model: str = "smollm2",
    *,
    adapter: str | Path | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    max_tokens: int | None = None,
    threads: int = 0,
    batch: int = 16,
) -> TokenPolicy:
    """Load a model into this process as a policy.

    Args:
        model: A packaged model, which plays in the profile `lean`, or a folder: of a run of `ctx1 train`, of one of its
            models, or of any model of transformers.
        adapter: A folder of LoRA adapters for the model. By default a packaged model has the adapter that ships.
        temperature: The sampling temperature. If it is 0, sampling is greedy.
        top_p: The probability mass for nucleus sampling.
        max_tokens: Maximum number of tokens of one reply. Defaults to the limit in training. For a packaged model, it
            is 128.
        threads: The number of threads of torch. If it is 0, torch's own default applies.
        batch: Maximum number of episodes that sample together.

    Returns:
        The policy. Its engine runs on the GPU if there is one.

    Raises:
        ConfigError: If the folder has no model, or if the model cannot be loaded or cannot search an index.
        MissingExtraError: If torch, transformers or peft is missing.
    """
    torch, transformers = import_libraries()
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    if threads:
        torch.set_num_threads(threads)
    if (packaged := packaged_policy(model)) is not None:
        trained: Path | None = Path(adapter or packaged.folder)
        if adapter is None and not packaged.folder.is_dir():
            raise ConfigError(
                f"no adapter ships for {model}. Train one (docs/smollm2.md), and name its folder with --adapter."
            )
        about = packaged.about
        folder = model_folder(model)
        label: str | None = MODELS[model].label
    else:
        found = trained_model(model)
        about = found.about
        if found.is_adapter and adapter is not None:
            raise ConfigError(f"{model} is an adapter itself. Remove --adapter, or name its base with --model.")
        folder = model_folder(about.base) if found.is_adapter else str(found.folder)
        trained = found.folder if found.is_adapter else None if adapter is None else Path(adapter)
        label = None
    tokenizer, renderer = _local_renderer(folder, about, name=model)
    options = {
        "dtype": torch.bfloat16 if torch.cuda.is_available() else torch.float32,
        "revision": about.revision,
        "use_safetensors": True,
        "trust_remote_code": False,
        "local_files_only": True,
    }
    try:
        weights = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"cannot load the model {folder!r} ({reason_of(error)}). Check its name, or pass a folder."
        ) from error
    if trained is not None:
        weights = with_adapter(weights, trained, base=label)
    weights = weights.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    engine = TransformersEngine(
        weights,
        name=model,
        version="" if trained is None else adapter_digest(trained),
        max_batch=batch,
        pad_id=tokenizer.pad_token_id,
    )
    limit = about.max_tokens or MAX_TOKENS
    return TokenPolicy(engine, renderer, temperature=temperature, top_p=top_p, max_tokens=max_tokens or limit)


def _local_renderer(folder: str, about: PolicyDescription, *, name: str) -> tuple[Any, TokenRenderer]:
    """Return the tokenizer of a model in a folder, and the renderer that the model was trained with."""
    from context_agent.policies.tokens.lines import LinesRenderer
    from context_agent.policies.tokens.template import TemplateRenderer

    _, transformers = import_libraries()
    if about.renderer == "words":
        raise ConfigError(
            f"{name} knows only the words of its toy environment, so it cannot search an index. Train on your "
            "documents, or look at its episodes with `ctx1 view`."
        )
    try:
        check_model(folder)
        # Adapters name their base. It is never fetched for them.
        options = {"revision": about.revision, "trust_remote_code": False, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"cannot load the tokenizer of {folder!r} ({reason_of(error)}). If the model is on the hub, run `hf "
            f"download {folder}` first."
        ) from error
    if about.renderer == "lines":
        return tokenizer, LinesRenderer(tokenizer, name=name)
    if about.renderer == "template":
        return tokenizer, TemplateRenderer(tokenizer, name=name)
    return tokenizer, harmony_renderer(tokenizer, effort=about.reasoning_effort, parallel=about.parallel)


def templated(tokenizer: str, *, lines: bool = False) -> TokenRenderer:
    """Return the renderer for a tokenizer's chat template.

    Args:
        tokenizer: A folder, a packaged model or a model's name.
        lines: True for replies as lines of commands (`renderer = "lines"`).

    Raises:
        ConfigError: If the tokenizer cannot be loaded.
        MissingExtraError: If transformers is not installed.
    """
    from context_agent.policies.tokens.lines import LinesRenderer
    from context_agent.policies.tokens.template import TemplateRenderer

    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "train") from None
    try:
        check_model(folder := model_folder(tokenizer))
        loaded = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"cannot load the tokenizer {tokenizer!r} ({reason_of(error)}). Check its name, or pass a folder."
        ) from error
    return (LinesRenderer if lines else TemplateRenderer)(loaded, name=tokenizer)
