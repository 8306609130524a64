"""A text as a model's input, and the inputs of classifiers and translators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from glassformer.config import DecodeConfig
from glassformer.decode.search import Hypothesis
from glassformer.errors import UsageError
from glassformer.explain.predictions import DecodeLog, LoggedHypothesis, translate
from glassformer.explain.request import MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import Span, Stream, add_bigrams, add_ngrams, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import Translator
from glassformer.models.ensemble import Ensemble
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import read_running

PARTS = {"head": "beginning", "tail": "end", "head+tail": "beginning and end", "middle": "middle"}
"""The parts of a text that truncation keeps (`TextConfig.truncate`), and the middle, where [MASK] is."""


@dataclass(frozen=True)
class GenerationInfo:
    """Where generated tokens begin, and which tokens are never generated."""

    first: int
    """Position before the first generated token, or, for a given translation, before its first token; 0 for a
    classifier."""
    n_fixed: int
    """Number of tokens of the last stream that no prefix can change: [BOS], or the prompt."""
    suppressed: list[int]
    """Ids that are never generated."""
    masked: list[int] | None = None
    """Positions of [MASK], where the model predicts the token itself; null: it predicts the next token, or a class."""


@dataclass(frozen=True, kw_only=True)
class EncodedText:
    """An encoded text with its decoding, before the forward pass is recorded.

    Attributes:
        model_inputs: arguments of the model by name, with a batch of one: tensors, and a classifier's n-grams.
        streams: their tokens, ["text"] or ["source", "target"].
        positions: positions of the last stream whose prediction is shown; [None] for a classifier, [] for a bare
            encoder.
        following: the actual token after each position, None where there is none.
        decode: the log of decoding.
        answer: the generated text; empty for a classifier.
        warnings: notes on the input for the user.
        generation: where generated tokens begin.
        log_start: the position before the first token of the log's hypotheses.
    """

    model_inputs: dict[str, Any]
    streams: list[Stream]
    positions: list[int | None]
    following: list[int | None]
    decode: DecodeLog
    answer: str = ""
    warnings: list[str]
    generation: GenerationInfo
    log_start: int = 0


def following_tokens(ids: Sequence[int], finished: bool, eos: int, n: int) -> list[int | None]:
    """Return the token after each of n positions, given the tokens after the first position."""
    after: list[int | None] = [*ids, eos] if finished else [*ids]
    return [after[i] if i < len(after) else None for i in range(n)]


def with_padding_mask(stream: Stream, subject: Subject, ids: str, mask: str) -> dict[str, Any]:
    """Return the ids (1, L) by name, and the mask of real tokens if there is padding."""
    inputs = {ids: torch.tensor([stream.ids], device=subject.device)}
    if any(stream.padding):
        inputs[mask] = ~torch.tensor([stream.padding], device=subject.device)
    return inputs


def framed_spans(t: Tokenizer, spans: Sequence[Span | None]) -> list[Span | None]:
    """Return the characters of the tokens of a text with what belongs around it, which stands for none."""
    return [*[None] * len(t.prefix), *spans, *[None] * len(t.suffix)]


def input_warnings(
    ids: Sequence[int],
    kept: Sequence[int],
    t: Tokenizer,
    name: str,
    keep: str,
    *,
    reads: int = 0,
    warn_if_empty: bool = True,
) -> list[str]:
    """Return a sentence each for an empty text, truncation and unknown tokens.

    The model reads the tokens with the indices `kept`, the part `keep` of `PARTS`; in prediction it `reads` so many.
    """
    warnings: list[str] = []
    if not ids and warn_if_empty:
        warnings.append(f"{name} is empty")
    if len(kept) < len(ids):
        warnings.append(f"{name} was truncated from {len(ids)} to {len(kept)} tokens, keeping its {PARTS[keep]}")
        if len(kept) < min(len(ids), reads):
            warnings.append(
                f"an explanation shows at most {MAX_LAYERED_TOKENS} tokens, and prediction reads up to {reads}: "
                "it may answer differently"
            )
    n_unknown = sum(ids[i] == t.unk_id for i in kept)
    if n_unknown:
        verb = "is" if n_unknown == 1 else "are"
        ngrams = ", but the model reads their n-grams" if t.ngrams else ""
        warnings.append(f"{n_unknown} of {len(kept)} tokens of {name} {verb} unknown to the model{ngrams}")
    return warnings


def check_length(n_tokens: int, n_pad: int, max_len: int) -> None:
    """Check that tokens and padding fit into the model's context."""
    if n_pad and n_tokens + n_pad > max_len:
        raise UsageError(
            f"the model reads at most {max_len} tokens, got {n_tokens} and {n_pad} of padding",
            f"pad with {max(0, max_len - n_tokens)} or fewer",
        )


def encode_for_classifier(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode a text as in training, with its n-grams and bigrams. `settings` are not used."""
    t, keep = subject.task.tokenizer, subject.task.config.text.truncate
    return _encoded(subject, request, request.text, t.offsets(request.text), keep)


def encode_for_tagger(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode the words of a text, joined by single spaces, as in training. `settings` are not used."""
    read = read_running(request.text)
    spans = read.given(subject.task.tokenizer.offsets(read.text))
    return _encoded(subject, request, read.text, spans, "head")


def _encoded(
    subject: Subject, request: TraceRequest, read: str, spans: Sequence[Span | None], keep: str
) -> EncodedText:
    """Encode the text that is `read`, whose tokens cover `spans` of the text that was given; cut it to its `keep`."""
    t, text = subject.task.tokenizer, subject.task.config.text
    ids = t.encode(read)
    [(_, surfaces)] = t.encode_with_surfaces([read]) if t.ngrams else [([], [])]
    kept = t.truncate(ids, t.room(min(text.max_len, MAX_LAYERED_TOKENS)), keep, list(range(len(ids))))
    return encode_kept(subject, request, ids, spans, surfaces, kept, keep, t.room(text.max_len))


def encode_kept(
    subject: Subject,
    request: TraceRequest,
    ids: Sequence[int],
    spans: Sequence[Span | None],
    surfaces: Sequence[str],
    kept: Sequence[int],
    keep: str,
    reads: int,
) -> EncodedText:
    """Encode, for a text encoder, the tokens with the indices `kept`, with their n-grams and bigrams.

    Args:
        subject: what is explained.
        request: the request.
        ids: the tokens of the text.
        spans: their characters in the text of the request.
        surfaces: their surface forms, for n-grams; may be empty.
        kept: which of them the model reads.
        keep: which part that is, of `PARTS`.
        reads: how many of them prediction reads.
    """
    t, longest = subject.task.tokenizer, min(subject.task.config.text.max_len, MAX_LAYERED_TOKENS)
    warnings = input_warnings(ids, kept, t, "the text", keep, reads=reads)
    ids, spans = t.framed([ids[i] for i in kept]), framed_spans(t, [spans[i] for i in kept])
    # An empty text is encoded as one token of padding.
    n_pad = request.pad or (0 if ids else 1)
    check_length(len(ids), n_pad, longest)
    stream = make_stream(t, "text", ids, spans, request.text, n_pad=n_pad)
    inputs = with_padding_mask(stream, subject, "ids", "padding_mask")
    if t.ngrams is not None:
        stream, ngram_batch = add_ngrams(t, stream, [surfaces[i] for i in kept] if surfaces else [])
        inputs["ngram_batch"] = ngram_batch.to(subject.device)
    if isinstance(bigrams := getattr(subject.model, "bigrams", None), BigramEmbedding):
        stream = add_bigrams(stream, bigrams)
    return EncodedText(
        model_inputs=inputs,
        streams=[stream],
        positions=[None],
        following=[None],
        decode=DecodeLog("none", subject.task.config.decode),
        warnings=warnings,
        generation=GenerationInfo(0, 0, []),
    )


def encode_for_text_embedder(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode a text as in prediction; nothing is predicted from its vector. `settings` are not used."""
    encoded = encode_for_classifier(subject, request, settings)
    return replace(encoded, positions=[], following=[])


def encode_for_translator(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode the source with its end token, and the target after [BOS]: the best hypothesis or the given target."""
    t, model = subject.task.tokenizer, cast("Translator | Ensemble", subject.model)
    reads, empty = subject.task.config.text.max_len, not request.text.strip()
    max_len = min(reads, MAX_LAYERED_TOKENS - 1)  # and [EOS], or [BOS]
    ids, spans = ([], []) if empty else (t.encode(request.text), t.offsets(request.text))
    room = t.room(max_len)
    warnings = input_warnings(ids, range(min(room, len(ids))), t, "the text", "head", reads=t.room(reads))
    source = t.with_end(t.framed(ids[:room])) or [t.pad_id]
    source_spans = framed_spans(t, spans[:room])
    source_spans += [None] * (len(source) - len(source_spans))
    check_length(len(source), request.pad, min(model.max_len, MAX_LAYERED_TOKENS))
    src = make_stream(t, "source", source, source_spans, request.text, n_pad=request.pad)
    if request.target is not None:
        target, target_spans = t.of_targets.encode(request.target), t.of_targets.offsets(request.target)
        warnings += input_warnings(
            target, range(min(max_len, len(target))), t, "the target", "head", reads=reads, warn_if_empty=False
        )
        output, text = Hypothesis(target[:max_len], 0.0, 0.0, True), request.target
        output_spans: list[Span | None] = [*target_spans[:max_len]]
        decode = DecodeLog("given", settings)
    else:
        # As in prediction, an empty text has an empty translation.
        if empty:
            hypothesis = LoggedHypothesis.from_hypothesis(Hypothesis([], 0.0, 0.0, True), t)
            decode = DecodeLog("sample" if settings.sample else "beam", settings, [hypothesis])
        else:
            decode = translate(model, t, source, settings, list(request.prefix))
        best = decode.hypotheses[0]
        output = Hypothesis(best.ids, best.score, best.log_prob, best.finished)
        text, output_spans = decoded_spans(t, best.ids)
        warnings += (
            [] if best.finished else [f"the translation was truncated at {len(best.ids)} tokens, without an end token"]
        )
    tgt_in = [t.bos_id, *output.ids][: min(model.max_len, MAX_LAYERED_TOKENS)]
    if len(tgt_in) <= len(output.ids):
        warnings.append(f"the translation has {len(output.ids)} tokens, of which the first {len(tgt_in) - 1} are shown")
    n_given = len(tgt_in) if decode.kind == "given" else 1 + len(request.prefix)
    tgt = make_stream(t, "target", tgt_in, [None, *output_spans][: len(tgt_in)], text, n_given=n_given)
    inputs = with_padding_mask(src, subject, "src", "src_padding_mask")
    inputs["tgt_in"] = torch.tensor([tgt_in], device=subject.device)
    following = following_tokens(output.ids, output.finished, t.eos_id, len(tgt_in))
    generation = GenerationInfo(0 if decode.kind == "given" else n_given - 1, 1, subject.task.suppress_tokens)
    return EncodedText(
        model_inputs=inputs,
        streams=[src, tgt],
        positions=[*range(len(tgt_in))],
        following=following,
        decode=decode,
        answer=text,
        warnings=warnings,
        generation=generation,
    )
