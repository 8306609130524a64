"""Encode a text for a classifier."""

from __future__ import annotations

from glassformer.config import DecodeConfig
from glassformer.config.limits import truncate
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.inputs.encoded_text import (
    EncodedText,
    GenerationInfo,
    add_embeddings,
    check_length,
    input_warnings,
    with_padding_mask,
)
from glassformer.explain.request import MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import make_stream
from glassformer.explain.subject import Subject


def encode_for_classifier(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode a text as in training, with its n-grams and bigrams. `settings` are not used."""
    t, text = subject.task.tokenizer, subject.task.config.text
    ids, spans = t.encode(request.text), t.offsets(request.text)
    kept = truncate(list(range(len(ids))), min(text.max_len, MAX_LAYERED_TOKENS), text.truncate)
    warnings = input_warnings(ids, kept, t, "the text", text.truncate, reads=text.max_len)
    ids, spans = [ids[i] for i in kept], [spans[i] for i in kept]
    # An empty text is encoded as one token of padding.
    n_pad = request.pad or (0 if ids else 1)
    check_length(len(ids), n_pad, min(text.max_len, MAX_LAYERED_TOKENS))
    stream = make_stream(t, "text", ids, spans, request.text, n_pad=n_pad)
    inputs = with_padding_mask(stream, subject, "ids", "padding_mask")
    [(_, surfaces)] = t.encode_with_surfaces([request.text]) if t.ngrams else [([], [])]
    stream = add_embeddings(stream, subject, [surfaces[i] for i in kept] if surfaces else [], inputs)
    decode = DecodeLog("none", subject.task.config.decode)
    return EncodedText(
        model_inputs=inputs,
        streams=[stream],
        positions=[None],
        following=[None],
        decode=decode,
        warnings=warnings,
        generation=GenerationInfo(0, 0, []),
    )
