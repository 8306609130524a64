"""A text that is to be put into a class: encoded as in training, with what is read beside the words."""

from __future__ import annotations

from glassformer.config import DecodeConfig
from glassformer.data.corpus import truncate
from glassformer.explain.decode_log import DecodeLog
from glassformer.explain.ngram_streams import add_bigrams, add_ngrams
from glassformer.explain.preparing.prepared import Prepared, Wrote, check_room, padded, warnings_of
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import make_stream
from glassformer.explain.subject import Subject
from glassformer.models.bigrams import BigramEmbedding


def prepare(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> Prepared:
    """One text, cut as in training; nothing is written, so that the settings of writing are told as they came."""
    t, text = subject.task.tokenizer, subject.task.config.text
    ids, spans = t.encode(request.text), t.spans(request.text)
    kept = truncate(list(range(len(ids))), text.max_len, text.truncate)
    notes = warnings_of(ids, kept, t, "the text", text.truncate)
    ids, spans = [ids[i] for i in kept], [spans[i] for i in kept]
    # A batch of one empty text is one token of padding, which takes no part.
    n_pad = request.pad or (0 if ids else 1)
    check_room(len(ids), n_pad, text.max_len)
    stream = make_stream(t, "text", ids, spans, request.text, n_pad=n_pad)
    inputs = padded(stream, subject, "ids", "padding_mask")
    if t.spelling is not None:
        stream, spelling = add_ngrams(t, stream, kept)
        inputs["spelling"] = spelling.to(subject.device)
    if isinstance(bigrams := getattr(subject.model, "bigrams", None), BigramEmbedding):
        stream = add_bigrams(stream, bigrams)
    decode = DecodeLog("none", subject.task.config.decode)
    return Prepared(inputs, [stream], [None], [None], decode, "", notes, Wrote(0, 0, []), 0)
