"""Encode a text with [MASK] for a masked language model, and fill in what it predicts."""

from __future__ import annotations

from typing import cast

from jaxtyping import Float
from torch import Tensor

from glassformer.config import DecodeConfig
from glassformer.explain.answers import Answer
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
from glassformer.explain.streams import Span, make_stream
from glassformer.explain.subject import Subject
from glassformer.tasks.pretrain.task import Pretrain
from glassformer.text import masked as masked_text
from glassformer.text.tokenizer import MASK


def encode_for_masked_language_model(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode a text as in prediction: of one longer than the context, the part with the first [MASK].

    `settings` are not used.
    """
    task = cast(Pretrain, subject.task)
    t, reads = task.tokenizer, task.config.text.max_len
    max_len = min(reads, MAX_LAYERED_TOKENS)
    ids, surfaces = masked_text.encode_masked(task.tokenizer, request.text)
    spans: list[Span | None] = []
    for number, (start, part) in enumerate(masked_text.parts(task.tokenizer, request.text)):
        if number:
            spans.append(None)  # of the [MASK] before this part
        spans += [(start + a, start + b) for a, b in t.offsets(part)]
    # Prediction reads chunks of `reads` tokens; of a long one the part with the mask is shown.
    first = ids.index(t.mask_id) if t.mask_id in ids else 0
    chunk = first // reads * reads
    start = chunk + (first - chunk) // max_len * max_len
    kept = range(start, min(start + max_len, chunk + reads, len(ids)))
    keep = "head" if start == 0 else "tail" if kept.stop == len(ids) else "middle"
    warnings = input_warnings(ids, kept, t, "the text", keep, reads=min(reads, len(ids) - chunk))
    ids, spans, surfaces = ids[start : kept.stop], spans[start : kept.stop], surfaces[start : kept.stop]
    # An empty text is encoded as one token of padding.
    n_pad = request.pad or (0 if ids else 1)
    check_length(len(ids), n_pad, max_len)
    stream = make_stream(t, "text", ids, spans, request.text, n_pad=n_pad)
    inputs = with_padding_mask(stream, subject, "ids", "padding_mask")
    stream = add_embeddings(stream, subject, surfaces, inputs)
    masked = [i for i, token in enumerate(ids) if token == t.mask_id]
    if not masked:
        warnings.append(f"the text holds no {MASK}, so each token is predicted from a text that shows it")
    following = [None if token <= t.mask_id else token for token in stream.ids]
    special = list(range(t.mask_id + 1))
    generation = GenerationInfo(masked[0] if masked else 0, len(stream), special, masked)
    decode = DecodeLog("none", task.config.decode)
    return EncodedText(
        model_inputs=inputs,
        streams=[stream],
        positions=[*range(len(stream))],
        following=following,
        decode=decode,
        warnings=warnings,
        generation=generation,
    )


def filled_answer(subject: Subject, text: str, logits: Float[Tensor, "N V"]) -> Answer:
    """Return the text with the most probable token in place of each [MASK], and the probabilities of these tokens.

    As in prediction, special tokens are left out.
    """
    task = cast(Pretrain, subject.task)
    if not len(logits):
        return {"headline": text, "detail": f"no {MASK}"}
    special = task.tokenizer.mask_id + 1
    values, tokens = logits[:, special:].double().softmax(dim=-1).max(dim=-1)
    words = [masked_text.written(task.tokenizer, token + special) for token in tokens.tolist()]
    shares = ", ".join(f"{word} {100 * share:.1f}%" for word, share in zip(words, values.tolist(), strict=True))
    return {"headline": masked_text.filled(text, words), "detail": shares}
