"""The inputs of each family of models from a text.

All else follows from the data, such as the streams or whether a prediction has a position. A new family is an entry of
`FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.config.recipes import override
from glassformer.errors import UsageError
from glassformer.explain.inputs.encoded_text import (
    EncodedText,
    GenerationInfo,
    check_length,
    encode_for_classifier,
    encode_for_tagger,
    encode_for_text_embedder,
    encode_for_translator,
    encode_kept,
    following_tokens,
    framed_spans,
    input_warnings,
)
from glassformer.explain.predictions import (
    Answer,
    class_answer,
    finite,
    generate,
    number_answer,
    rows_of,
    top_predictions,
    vector_answer,
)
from glassformer.explain.request import MAX_FULL_TOKENS, MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import Span, add_hashed_ngrams, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import LanguageModel
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.tasks import Task
from glassformer.tasks.pretrain import Pretrain
from glassformer.text import answers as masked_text
from glassformer.text.long_text import window_start
from glassformer.text.tokenizer import MASK, Tokenizer


def encode_for_masked_language_model(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode a text as in prediction: of one longer than the context, the part with the first [MASK].

    `settings` are not used.
    """
    t, longest = subject.task.tokenizer, subject.task.config.text.max_len
    reads, room = t.room(longest), t.room(min(longest, MAX_LAYERED_TOKENS))
    ids, surfaces = masked_text.encode_masked(t, request.text)
    spans: list[Span | None] = []
    for number, (start, part) in enumerate(masked_text.parts(t, request.text)):
        if number:
            spans.append(None)  # of the [MASK] before this part
        spans += [(start + a, start + b) for a, b in t.offsets(part)]
    # Prediction reads chunks of `reads` tokens; of a long one the part with the mask is shown.
    first = ids.index(t.mask_id) if t.mask_id in ids else 0
    chunk = first // reads * reads
    start = chunk + (first - chunk) // room * room
    kept = range(start, min(start + room, chunk + reads, len(ids)))
    keep = "head" if start == 0 else "tail" if kept.stop == len(ids) else "middle"
    encoded = encode_kept(subject, request, ids, spans, surfaces, kept, keep, min(reads, len(ids) - chunk))
    [stream] = encoded.streams
    masked = [i for i, token in enumerate(stream.ids) if token == t.mask_id]
    none = [] if masked else [f"the text holds no {MASK}, so each token is predicted from a text that shows it"]
    return replace(
        encoded,
        positions=[*range(len(stream))],
        following=[None if token in t.special_ids else token for token in stream.ids],
        warnings=[*encoded.warnings, *none],
        generation=GenerationInfo(masked[0] if masked else 0, len(stream), t.without_text, masked),
    )


def filled_answer(subject: Subject, text: str, logits: Float[Tensor, "N V"]) -> Answer:
    """Return the text with the most probable token in place of each [MASK], and the probabilities of these tokens.

    As in prediction, special tokens are left out.
    """
    task = cast(Pretrain, subject.task)
    if not len(logits):
        return {"headline": text, "detail": f"no {MASK}"}
    kept = torch.ones(logits.shape[1], dtype=torch.bool)
    kept[task.tokenizer.without_text] = False
    ids = kept.nonzero()[:, 0]
    values, tokens = logits[:, ids].double().softmax(dim=-1).max(dim=-1)
    words = [masked_text.written(task.tokenizer, token) for token in ids[tokens].tolist()]
    shares = ", ".join(f"{word} {100 * share:.1f}%" for word, share in zip(words, values.tolist(), strict=True))
    return {"headline": masked_text.filled(text, words), "detail": shares}


def answer_without_decoding(
    view: Subject, text: str, masked: Sequence[int] | None, output: Tensor, before: Tensor | None = None
) -> Answer:
    """Return the answer that is read from the output of a model for a text, where no text is decoded.

    Args:
        view: what is explained.
        text: the text, with [MASK].
        masked: where [MASK] is; None where the model fills in none.
        output: the output.
        before: that without edits, where the pass was edited: a number or a vector is compared with it.
    """
    if masked is not None:
        return filled_answer(view, text, output[masked])
    match view.task.explain_as:
        case "regressor":
            return number_answer(view.task.decision, finite(output), before)
        case "text_embedder":
            return vector_answer(output, before)
    return class_answer(top_predictions(view.task, rows_of(output), [None], [None])[0])


DEFAULT_NEW_TOKENS = 40
"""Default maximum of generated tokens, fewer than in prediction, for the page."""


def encode_for_language_model(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode the prompt, truncated to the context, and sample tokens after it."""
    t, model = subject.task.tokenizer, cast("LanguageModel | Ensemble", subject.model)
    prompt_ids = t.framed(t.encode(request.text))
    prompt_spans = framed_spans(t, t.offsets(request.text))
    warnings = input_warnings(prompt_ids, range(len(prompt_ids)), t, "the prompt", "tail")
    prompt: list[int] = [*(prompt_ids or [t.start_id]), *request.prefix]
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
    t: Tokenizer, prompt: str, spans: Sequence[Span | None], ids: list[int], n_prompt: int
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


Stacks = Literal["encoder", "encoder-decoder", "decoder"]


class ModelFamily(NamedTuple):
    """A family of models: its stacks, what encodes a text as in prediction, what else of a request it reads."""

    stacks: Stacks
    encode: Callable[[Subject, TraceRequest, DecodeConfig], EncodedText]
    reads: tuple[str, ...] = ()


FAMILIES = {
    "classifier": ModelFamily("encoder", encode_for_classifier),
    "multilabel_classifier": ModelFamily("encoder", encode_for_classifier),
    "tagger": ModelFamily("encoder", encode_for_tagger),
    "regressor": ModelFamily("encoder", encode_for_text_embedder),
    "masked_language_model": ModelFamily("encoder", encode_for_masked_language_model),
    "text_embedder": ModelFamily("encoder", encode_for_text_embedder),
    "translator": ModelFamily("encoder-decoder", encode_for_translator, ("target", "prefix")),
    "language_model": ModelFamily("decoder", encode_for_language_model, ("prefix",)),
}
"""The families by `Task.explain_as`."""


def family_of(task: Task) -> ModelFamily:
    """Return the family of a task's models."""
    return FAMILIES[task.explain_as]


def encode(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode and decode a text as in prediction."""
    family = family_of(subject.task)
    for name in ("target", "prefix"):
        if getattr(request, name) and name not in family.reads:
            raise UsageError(f"{name} does not apply to the task {subject.task.name}", f"remove {name}")
    if request.prefix and request.target is not None:
        raise UsageError("a request has a target or a prefix, not both", "remove one of them")
    _check_prefix(request.prefix, subject.task.tokenizer)
    return family.encode(subject, request, decode_settings(subject, dict(request.decode)))


def decode_settings(subject: Subject, changes: dict[str, Any]) -> DecodeConfig:
    """Return the decode settings for an explanation, with some changes; a language model samples, and fewer tokens."""
    unknown = sorted(changes.keys() - {f.name for f in fields(DecodeConfig)})
    if unknown:
        raise UsageError(f"decode has no field {unknown[0]!r}")
    config = subject.task.config
    if subject.task.explain_as == "language_model":
        n_new = min(DEFAULT_NEW_TOKENS, config.decode.max_new_tokens)
        config = replace(config, decode=replace(config.decode, sample=True, max_new_tokens=n_new))
    return override(config, {"decode": changes}, "request").decode


def _check_prefix(prefix: Sequence[int], t: Tokenizer) -> None:
    for index, token in enumerate(prefix):
        if not 0 <= token < t.vocab_size:
            raise UsageError(f"prefix[{index}] must be an id from 0 to {t.vocab_size - 1}, got {token}")
        if token in t.special_ids - {t.unk_id, t.mask_id}:
            raise UsageError(f"prefix[{index}] must be an ordinary token, got {t.tokens([token])[0]}")
