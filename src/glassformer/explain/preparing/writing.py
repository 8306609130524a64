"""A prompt, and what a language model writes after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch

from glassformer.config import DecodeConfig
from glassformer.decode.sampling import window_start
from glassformer.explain.decode_log import generate
from glassformer.explain.ngram_streams import add_hashed_ngrams
from glassformer.explain.preparing.prepared import Prepared, Wrote, check_room, following_of, warnings_of
from glassformer.explain.request import MAX_FULL_TOKENS, TraceRequest
from glassformer.explain.streams import Span, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import LanguageModel
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.text.tokenizer import Tokenizer

NEW_TOKENS = 40
"""What a language model writes for an explanation unless told otherwise; a page is soon full."""


def own_settings(config: DecodeConfig) -> DecodeConfig:
    """A language model always samples, and writes less than it would elsewhere."""
    return replace(config, sample=True, max_new_tokens=min(NEW_TOKENS, config.max_new_tokens))


def prepare(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> Prepared:
    """The prompt as far as it is seen, and what is sampled after it."""
    t, model = subject.task.tokenizer, cast("LanguageModel | Ensemble", subject.model)
    own, own_spans = t.encode(request.text), t.spans(request.text)
    notes = warnings_of(own, range(len(own)), t, "the prompt", "tail")
    prompt: list[int] = [*(own or [t.eos_id]), *request.prefix]
    # What the sampler sees of a prompt beyond the context, and goes on seeing until its window jumps.
    seen_from = window_start(len(prompt), model.max_len)
    if seen_from:
        notes.append(f"of {len(prompt)} tokens of the prompt only the last {len(prompt) - seen_from} are read")
    room = max(1, model.max_len - (len(prompt) - seen_from))
    if "max_new_tokens" not in request.decode:
        shown = MAX_FULL_TOKENS - len(prompt) if len(prompt) < MAX_FULL_TOKENS else NEW_TOKENS
        settings = replace(settings, max_new_tokens=min(settings.max_new_tokens, shown, room))
    elif settings.max_new_tokens > room:
        notes.append(f"only {room} more tokens fit in the {model.max_len} that the model sees at once")
        settings = replace(settings, max_new_tokens=room)
    banned = subject.task.suppress_tokens
    decode, new = generate(model, t, prompt, settings, banned)
    decode = replace(decode, prefix=list(request.prefix))
    everything = [*prompt, *new.ids]
    text, spans = _joined(t, request.text, own_spans, everything, len(own))
    ids = everything[seen_from : seen_from + model.max_len]
    check_room(len(ids), request.pad, model.max_len)
    stream = make_stream(
        t,
        "text",
        ids,
        spans[seen_from : seen_from + len(ids)],
        text,
        n_given=len(prompt) - seen_from,
        n_pad=request.pad,
    )
    inputs = {"ids": torch.tensor([stream.ids], device=subject.device)}  # causal: padding behind is not seen
    ngrams = cast(LanguageModel, members_of(model)[0]).ngrams  # members of one run read the same
    if ngrams is not None:
        stream = add_hashed_ngrams(stream, ngrams)
    following = following_of(everything[seen_from + 1 :], new.finished, t.eos_id, len(ids))
    wrote = Wrote(stream.n_given - 1, stream.n_given - len(request.prefix), banned)
    written = t.decode(new.ids)
    return Prepared(inputs, [stream], [*range(len(ids))], following, decode, written, notes, wrote, wrote.first)


def _joined(
    t: Tokenizer, prompt: str, spans: Sequence[Span], ids: list[int], n_own: int
) -> tuple[str, list[Span | None]]:
    """Prompt and continuation as one text, and the characters of each token: the prompt's as it was typed.

    Args:
        t: the tokenizer. prompt: what was typed. spans: of its tokens.
        ids: all tokens. n_own: how many of them the prompt was encoded to.
    """
    begin = len(ids[:n_own]) or 1  # an empty prompt is one end token
    whole, all_spans = decoded_spans(t, ids)
    shift = len(prompt) - len(t.decode(ids[:begin]))
    text = prompt + whole[len(prompt) - shift :]
    own: list[Span | None] = [*spans] if n_own else [None]
    low = len(prompt)
    rest: list[Span | None] = [
        None if s is None else (max(low, s[0] + shift), max(low, s[1] + shift)) for s in all_spans[begin:]
    ]
    return text, [*own, *rest]
