"""Encode a prompt for a language model, and sample its continuation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch

from glassformer.config import DecodeConfig
from glassformer.config.limits import window_start
from glassformer.explain.decode_log import generate
from glassformer.explain.inputs.encoded_text import (
    EncodedText,
    GenerationInfo,
    check_length,
    following_tokens,
    input_warnings,
)
from glassformer.explain.ngram_streams import add_hashed_ngrams
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import Span, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import LanguageModel
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.text.tokenizer import Tokenizer

DEFAULT_NEW_TOKENS = 40
"""Default maximum of generated tokens, fewer than in prediction, for the page."""


def language_model_settings(config: DecodeConfig) -> DecodeConfig:
    """Return the settings of a language model for an explanation: sampling, and fewer tokens."""
    return replace(config, sample=True, max_new_tokens=min(DEFAULT_NEW_TOKENS, config.max_new_tokens))


def encode_for_language_model(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode the prompt, truncated to the context, and sample tokens after it."""
    t, model = subject.task.tokenizer, cast("LanguageModel | Ensemble", subject.model)
    prompt_ids, prompt_spans = t.encode(request.text), t.offsets(request.text)
    warnings = input_warnings(prompt_ids, range(len(prompt_ids)), t, "the prompt", "tail")
    prompt: list[int] = [*(prompt_ids or [t.eos_id]), *request.prefix]
    # The start of the sampler's window, for a prompt longer than the context.
    context = min(model.max_len, MAX_LAYERED_TOKENS)
    start = window_start(len(prompt), context)
    if start:
        warnings.append(f"the prompt was truncated from {len(prompt)} to {len(prompt) - start} tokens, keeping its end")
    room = max(1, context - (len(prompt) - start))
    of_context = f"the context of {context} tokens"
    if context < model.max_len:
        of_context = f"the {context} tokens of an explanation"
        if start:
            warnings.append(f"prediction reads up to {model.max_len} tokens: it may answer differently")
    if "max_new_tokens" not in request.decode:
        limit = MAX_FULL_TOKENS - len(prompt) if len(prompt) < MAX_FULL_TOKENS else DEFAULT_NEW_TOKENS
        settings = replace(settings, max_new_tokens=min(settings.max_new_tokens, limit, room))
    elif settings.max_new_tokens > room:
        warnings.append(f"max_new_tokens was lowered to {room}, to fit into {of_context}")
        settings = replace(settings, max_new_tokens=room)
    suppressed = subject.task.suppress_tokens
    # The random number of a token depends on its position in the whole text, so prediction's decoder gets all of it.
    read = prompt if context == model.max_len else prompt[start:]
    decode, new = generate(model, t, read, settings, suppressed)
    decode = replace(decode, prefix=list(request.prefix))
    all_ids = [*prompt, *new.ids]
    text, spans = _join(t, request.text, prompt_spans, all_ids, len(prompt_ids))
    ids = all_ids[start : start + context]
    check_length(len(ids), request.pad, context)
    stream = make_stream(
        t, "text", ids, spans[start : start + len(ids)], text, n_given=len(prompt) - start, n_pad=request.pad
    )
    # A causal model needs no mask for padding at the end.
    inputs = {"ids": torch.tensor([stream.ids], device=subject.device)}
    # All ensemble members have the same table size.
    ngrams = cast(LanguageModel, members_of(model)[0]).ngrams
    if ngrams is not None:
        stream = add_hashed_ngrams(stream, ngrams)
    following = following_tokens(all_ids[start + 1 :], new.finished, t.eos_id, len(ids))
    generation = GenerationInfo(stream.n_given - 1, stream.n_given - len(request.prefix), suppressed)
    return EncodedText(
        model_inputs=inputs,
        streams=[stream],
        positions=[*range(len(ids))],
        following=following,
        decode=decode,
        answer=t.decode(new.ids),
        warnings=warnings,
        generation=generation,
        log_start=generation.first,
    )


def _join(
    t: Tokenizer, prompt: str, spans: Sequence[Span], ids: list[int], n_prompt: int
) -> tuple[str, list[Span | None]]:
    """Return prompt and continuation as one text, and the characters of each token."""
    # An empty prompt is one end token.
    begin = len(ids[:n_prompt]) or 1
    whole, all_spans = decoded_spans(t, ids)
    shift = len(prompt) - len(t.decode(ids[:begin]))
    text = prompt + whole[len(prompt) - shift :]
    first: list[Span | None] = [*spans] if n_prompt else [None]
    low = len(prompt)
    rest: list[Span | None] = [
        None if s is None else (max(low, s[0] + shift), max(low, s[1] + shift)) for s in all_spans[begin:]
    ]
    return text, [*first, *rest]
