"""Do for one text what `predict` does, and record how: its tokens, the search, the candidates, the answer.

The text becomes tokens as its task reads it, cut to what the model and an explanation hold (`FAMILIES`; a new family is
an entry there). A text to generate is found with the functions of `decode/`, and the search is logged. From logits come
the predictions, and from these or from the text the answer in one line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glassformer.config import DecodeConfig
from glassformer.config.recipes import override
from glassformer.decode.incremental import ModelDecoder, TranslationDecoder
from glassformer.decode.jobs import translate_ids
from glassformer.decode.sampling import sample
from glassformer.decode.search import Hypothesis, SearchLog, SearchStep, beam_search
from glassformer.errors import DivergedError, UsageError
from glassformer.explain.capture.exact_inference import exact_no_grad
from glassformer.explain.capture.sites import Step
from glassformer.explain.request import MAX_EDITED_TOKENS, MAX_TOKENS, TraceRequest
from glassformer.explain.streams import (
    Span,
    Stream,
    add_bigrams,
    add_hashed_ngrams,
    add_ngrams,
    decoded_spans,
    make_stream,
)
from glassformer.explain.subject import Answer, Subject, View
from glassformer.models import LanguageModel, Translator
from glassformer.models.ensemble import Ensemble, members_of
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.tasks import Task
from glassformer.tasks.pretrain import Pretrain
from glassformer.text import answers as masked_text
from glassformer.text.answers import Decision, number_text, written_number
from glassformer.text.long_text import length_limit, window_start
from glassformer.text.tokenizer import MASK, Tokenizer
from glassformer.text.words import read_running

SHOWN = 4
"""Numbers of a vector in a headline."""


def vector_answer(vector: Tensor, before: Tensor | None = None) -> Answer:
    """Return the answer of a bare encoder: the first numbers of its vector (P,), and its length.

    Of an edited pass in place of the length the cosine with the vector `before` the edits.
    """
    numbers = " ".join(f"{x:.4f}" for x in vector[:SHOWN].tolist()).replace("-", "−")
    if before is None:
        detail = f"length {vector.norm().item():.3f}"
    else:
        detail = f"cosine {F.cosine_similarity(vector, before, dim=0).item():.4f} with the vector without edits"
    more = " …" if len(vector) > SHOWN else ""
    return {"headline": f"{numbers}{more} ({len(vector)} numbers)", "detail": detail}


NUMBER = "number"
"""What the only output of a regressor is called."""


def number_answer(decision: Decision, output: Tensor, before: Tensor | None = None) -> Answer:
    """Return the answer of a regressor: the number of its output (1,), and how it is computed from that.

    Of an edited pass in place of that the change from the output `before` the edits.
    """
    number, (mean, sd) = float(decision.numbers(output.cpu().numpy()).item()), decision.scale
    detail = f"{number_text(mean)} + {number_text(sd)} × {output.item():.4f}"
    if before is not None:
        was = float(decision.numbers(before.cpu().numpy()).item())
        detail = f"{number - was:+.4g} from {number_text(was)} without edits"
    return {"headline": written_number(number), "detail": detail.replace("-", "−")}


def class_answer(prediction: Prediction, threshold: float | None) -> Answer:
    """Return the answer of a classifier: its most probable class; of one of several labels what its threshold says."""
    best = prediction.top[0]
    if threshold is not None:  # the second class is the label, the first that a text has it not, as in `predict`
        answered = any(c.id and math.exp(c.log_prob) >= threshold for c in prediction.top)
        best = next(c for c in prediction.top if c.id == answered)
    p = math.exp(best.log_prob)
    return {"headline": best.piece, "detail": ">99.9%" if p > 0.999 else f"{100 * p:.1f}%"}


def text_answer(text: str, decode: DecodeLog) -> Answer:
    """Return the answer of a translator or language model: its best text, with the log-probability of that."""
    best = decode.hypotheses[0]
    log_prob = f"{best.log_prob:.3g}".replace("-", "−")
    n = len(best.ids) + best.finished
    tokens = "1 token" if n == 1 else f"{n} tokens"
    truncated = "" if best.finished or decode.kind == "given" else ", truncated before its end"
    return {"headline": text, "detail": f"log-probability {log_prob} over {tokens}{truncated}"}


MAX_CANDIDATES = 50
"""Maximum candidates of a prediction."""


@dataclass(frozen=True)
class Candidate:
    """A class or token with its logit and log-probability (nats)."""

    id: int
    piece: str
    """The class, or the token in readable form."""
    logit: float
    log_prob: float


@dataclass(frozen=True)
class Prediction:
    """The prediction at one position, or for a whole text."""

    position: int | None
    """null: for the whole text, by a classifier."""
    logsumexp: float
    top: list[Candidate]
    """At most 50, best first; all classes, for a classifier."""
    actual: Candidate | None
    """The token that actually follows."""
    rank: int | None = None
    """Number of tokens with a larger logit than it."""


def top_predictions(
    task: Task, logits: Float[Tensor, "N C"], positions: Sequence[int | None], following: Sequence[int | None]
) -> list[Prediction]:
    """Return the predictions at N positions; a bare encoder, or a regressor, has none.

    Args:
        task: the task, with its classes or tokenizer.
        logits: the logits at each position.
        positions: the index of each position in its stream; None for a classifier.
        following: the token after each position, None where nothing follows.
    """
    logits = finite(logits).detach().cpu()
    values, norms = logits.numpy(), logits.double().logsumexp(dim=1).tolist()
    n_top = min(MAX_CANDIDATES, values.shape[1])
    best = np.argpartition(-values, n_top - 1, axis=1)[:, :n_top]
    # By logit, then by id: of equal logits a greedy search takes the first.
    order = np.lexsort((best, -np.take_along_axis(values, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)

    def candidate(row: int, i: int) -> Candidate:
        logit = values[row, i]  # as the shortest decimal that rounds to it: as exact, and half as long in JSON
        return Candidate(i, readable(task, i), float(str(logit)), round(float(logit) - norms[row], 7))

    predictions: list[Prediction] = []
    for row, (position, token) in enumerate(zip(positions, following, strict=True)):
        top = [candidate(row, i) for i in best[row].tolist()]
        actual = None if token is None else candidate(row, token)
        rank = None if token is None else int((values[row] > values[row, token]).sum())
        predictions.append(Prediction(position, norms[row], top, actual, rank))
    return predictions


def finite(output: Tensor) -> Tensor:
    """Return the output of a model; raise DivergedError for NaN or infinity."""
    if not output.isfinite().all():
        message = "the model's output is NaN or infinite, so there is nothing to explain"
        raise DivergedError(message, "the model diverged in training: use an earlier checkpoint")
    return output


def rows_of(logits: Float[Tensor, "*P C"]) -> Float[Tensor, "N C"]:
    """Return logits with a row per prediction: a classifier has one, of the whole text."""
    return logits.reshape(-1, logits.shape[-1])


def output_of(records: Mapping[str, Step]) -> Tensor:
    """Return the output of a model: its logits, or the vector (P,) of a bare encoder."""
    return records["logits" if "logits" in records else "pooled"].value


def readable(task: Task, id: int) -> str:
    """Return the class, or the token in readable form."""
    if task.explain_as == "regressor":
        return NUMBER
    return task.label_names[id] if task.label_names else task.tokenizer.tokens([id])[0]


@dataclass(frozen=True)
class BeamCandidate:
    """One extension of one hypothesis."""

    parent: int
    """Row among the live hypotheses of the previous step; 0 in the first step."""
    id: int
    piece: str
    log_prob: float
    """Log-probability of this token."""
    total: float
    """Sum of log-probabilities so far."""
    score: float
    """total / length ** length_penalty."""
    row: int | None
    """Row among the live hypotheses after this step; null: pruned or finished."""
    finished: bool


@dataclass(frozen=True)
class LoggedHypothesis:
    """One decoded text."""

    ids: list[int]
    pieces: list[str]
    text: str
    score: float
    log_prob: float
    finished: bool
    end: tuple[int, int] | None
    """Step, and index among the candidates of that step, of its last candidate."""


@dataclass(frozen=True)
class DecodeLog:
    """How the text was decoded: where generated tokens begin, and how they were found."""

    kind: Literal["beam", "sample", "given", "none"]
    """given: the target was part of the request; none: a classifier."""
    settings: DecodeConfig
    """Settings of decoding."""
    hypotheses: list[LoggedHypothesis] = field(default_factory=list)
    """Best first: the `n_best` results, then the other finished hypotheses of a beam search."""
    steps: list[list[BeamCandidate]] = field(default_factory=list)
    """The candidates of each step of a beam search, best first."""
    prefix: list[int] = field(default_factory=list)
    """Ids of the forced prefix."""
    first: int = 0
    """Position before the first generated token, or, for a given translation, before its first token; 0 for a
    classifier."""
    n_fixed: int = 0
    """Number of tokens of the last stream that no prefix can change: [BOS], or the prompt."""
    suppressed: list[int] = field(default_factory=list)
    """Ids that are never generated."""
    masked: list[int] | None = None
    """Positions of [MASK], where the model predicts the token itself; null: it predicts the next token, or a class."""


def logged(h: Hypothesis, t: Tokenizer, end: tuple[int, int] | None = None) -> LoggedHypothesis:
    """Return a hypothesis with its tokens and text."""
    return LoggedHypothesis(h.ids, t.tokens(h.ids), t.decode(h.ids), h.score, h.log_prob, h.finished, end)


def logged_search(search: Callable[[SearchLog], list[Hypothesis]], t: Tokenizer) -> tuple[list[Any], list[Any]]:
    """Return of the search for one text the results, then the other finished hypotheses, and the candidates by step."""
    steps, finished = list[list[BeamCandidate]](), list[Hypothesis]()
    live: dict[int, list[int]] = {0: []}
    ends: dict[tuple[tuple[int, ...], bool], tuple[int, int]] = {}

    def log(step: SearchStep) -> None:
        columns = (step.parent, step.token, step.log_prob, step.total, step.score, step.row, step.finished)
        before, candidates = dict(live), list[BeamCandidate]()
        live.clear()
        for parent, token, log_prob, total, score, row, ended in zip(*(x[0].tolist() for x in columns), strict=True):
            if total == float("-inf"):
                continue
            ids = before[parent] if ended else [*before[parent], token]
            ends[tuple(ids), ended] = len(steps), len(candidates)
            if ended:
                finished.append(Hypothesis(ids, score, total, True))
            if row >= 0:
                live[row] = ids
            piece, kept = t.tokens([token])[0], row if row >= 0 else None
            candidates.append(BeamCandidate(parent, token, piece, log_prob, total, score, kept, ended))
        steps.append(candidates)

    results = search(log)
    others = [h for h in finished if h.ids not in [one.ids for one in results if one.finished]]
    found = [*results, *sorted(others, key=lambda h: -h.score)]
    return [logged(h, t, ends.get((tuple(h.ids), h.finished))) for h in found], steps


def translate(
    model: Translator | Ensemble, t: Tokenizer, source: Sequence[int], config: DecodeConfig, prefix: list[int]
) -> DecodeLog:
    """Translate one source (EOS included) as `Translate.predict` does, and return the log."""
    if config.sample:
        with exact_no_grad(model):
            special = (t.pad_id, t.bos_id, t.eos_id)
            found = translate_ids(model, [source], config, special, prefixes=[prefix] if prefix else None)[0]
        return DecodeLog("sample", config, [logged(h, t) for h in found], prefix=prefix)
    limit = length_limit(len(source), model.max_len, config.max_new_tokens)
    if len(prefix) >= limit:
        raise UsageError(
            f"a prefix of {len(prefix)} tokens leaves nothing to generate of the {limit} tokens allowed",
            "shorten the prefix or raise max_new_tokens",
        )
    with exact_no_grad(model):
        decoder = TranslationDecoder(model, torch.tensor([list(source)], device=next(model.parameters()).device))
        special = {"bos": t.bos_id, "eos": t.eos_id, "pad": t.pad_id}
        hypotheses, steps = logged_search(
            lambda log: beam_search(decoder, [limit], config, **special, prefixes=[prefix], log=log)[0], t
        )
    return DecodeLog("beam", config, hypotheses, steps, prefix)


PARTS = {"head": "beginning", "tail": "end", "head+tail": "beginning and end", "middle": "middle"}
"""The parts of a text that truncation keeps (`TextConfig.truncate`), and the middle, where [MASK] is."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedText:
    """An encoded text with its decoding, before the forward pass is recorded.

    Attributes:
        model_inputs: arguments of the model by name, with a batch of one: tensors, and a classifier's n-grams.
        streams: their tokens, ["text"] or ["source", "target"].
        positions: positions of the last stream whose prediction is shown; [None] for a classifier, [] for a bare
            encoder.
        following: the actual token after each position, None where there is none.
        decode: the log of decoding.
        text: the generated text; empty for a classifier.
        warnings: notes on the input for the user.
    """

    model_inputs: dict[str, Any]
    streams: list[Stream]
    positions: list[int | None]
    following: list[int | None]
    decode: DecodeLog
    text: str = ""
    warnings: list[str]


def following_tokens(ids: Sequence[int], finished: bool, eos: int, n: int) -> list[int | None]:
    """Return the token after each of n positions, given the tokens after the first position."""
    after = [*ids, *[eos] * finished][:n]
    return [*after, *[None] * (n - len(after))]


def framed_spans(t: Tokenizer, spans: Sequence[Span | None]) -> list[Span | None]:
    """Return the characters of the tokens of a text with what belongs around it, which stands for none."""
    return [*[None] * len(t.prefix), *spans, *[None] * len(t.suffix)]


def input_warnings(n: int, kept: Sequence[int], t: Tokenizer, name: str, keep: str, reads: int) -> list[str]:
    """Return a sentence each for an empty text, truncation and unknown tokens.

    Of n tokens the model reads `kept`, the part `keep` of `PARTS`; prediction `reads` so many.
    """
    warnings: list[str] = []
    if not n:
        warnings.append(f"{name} is empty")
    if len(kept) < n:
        warnings.append(f"{name} was truncated from {n} to {len(kept)} tokens, keeping its {PARTS[keep]}")
        if len(kept) < min(n, reads):
            warnings.append(
                f"an explanation shows at most {MAX_TOKENS} tokens, and prediction reads up to {reads}: "
                "it may answer differently"
            )
    if n_unknown := kept.count(t.unk_id):
        verb = "is" if n_unknown == 1 else "are"
        ngrams = ", but the model reads their n-grams" if t.ngrams else ""
        warnings.append(f"{n_unknown} of {len(kept)} tokens of {name} {verb} unknown to the model{ngrams}")
    return warnings


def encode_for_classifier(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode a text as in training, with its n-grams and bigrams; of a tagger its words, joined by single spaces."""
    t, config = subject.task.tokenizer, subject.task.config.text
    words = read_running(request.text) if subject.task.explain_as == "tagger" else None
    text, keep = (words.text, "head") if words else (request.text, config.truncate)
    [(ids, surfaces)], offsets = t.read([text]), t.offsets(text)
    spans = words.given(offsets) if words else offsets
    kept = t.truncate(ids, t.room(min(config.max_len, MAX_TOKENS)), keep, [*zip(ids, spans, surfaces, strict=True)])
    return encode_kept(subject, request, len(ids), kept, keep, t.room(config.max_len))


def encode_kept(
    subject: Subject, request: TraceRequest, n: int, kept: Sequence[tuple[int, Span | None, str]], keep: str, reads: int
) -> EncodedText:
    """Encode for a text encoder the tokens of a text that it reads, with their n-grams and bigrams.

    Args:
        subject: what is explained.
        request: the request.
        n: the number of all tokens of the text.
        kept: those that the model reads, each with its characters and its surface form.
        keep: which part that is, of `PARTS`.
        reads: how many of them prediction reads.
    """
    t, predicts = subject.task.tokenizer, subject.task.explain_as not in ("regressor", "text_embedder")
    warnings = input_warnings(n, [id for id, *_ in kept], t, "the text", keep, reads)
    ids, spans = t.framed([id for id, *_ in kept]), framed_spans(t, [span for _, span, _ in kept])
    stream = make_stream(t, "text", ids, spans, request.text)
    inputs: dict[str, Any] = {"ids": torch.tensor([stream.ids], device=subject.device)}
    if any(stream.padding):
        inputs["padding_mask"] = ~torch.tensor([stream.padding], device=subject.device)
    if t.ngrams is not None:
        stream, ngram_batch = add_ngrams(t, stream, [surface for *_, surface in kept] or [""])
        inputs["ngram_batch"] = ngram_batch.to(subject.device)
    if isinstance(bigrams := getattr(subject.model, "bigrams", None), BigramEmbedding):
        stream = add_bigrams(stream, bigrams)
    return EncodedText(
        model_inputs=inputs,
        streams=[stream],
        positions=[None] * predicts,
        following=[None] * predicts,
        decode=DecodeLog("none", subject.task.config.decode),
        warnings=warnings,
    )


def encode_for_translator(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode the source with its end token, and the target after [BOS]: the best hypothesis or the given target."""
    t, model = subject.task.tokenizer, cast("Translator | Ensemble", subject.model)
    settings, empty = decode_settings(subject, request), not request.text.strip()
    reads = subject.task.config.text.max_len
    max_len = min(reads, MAX_TOKENS - 1)  # and [EOS], or [BOS]
    ids, spans = ([], []) if empty else (t.encode(request.text), t.offsets(request.text))
    room = t.room(max_len)
    warnings = input_warnings(len(ids), ids[:room], t, "the text", "head", t.room(reads))
    source = t.with_end(t.framed(ids[:room])) or [t.pad_id]
    src = make_stream(t, "source", source, framed_spans(t, spans[:room]), request.text)
    if request.target is not None:
        target, text = t.of_targets.encode(request.target), request.target
        output, finished, output_spans = target[:max_len], True, [*t.of_targets.offsets(text)[:max_len]]
        warnings += input_warnings(len(target), output, t, "the target", "head", reads)
        decode = DecodeLog("given", settings)
    else:
        if empty:  # as in prediction, it has an empty translation
            hypotheses = [logged(Hypothesis([], 0.0, 0.0, True), t)]
            decode = DecodeLog("sample" if settings.sample else "beam", settings, hypotheses)
        else:
            decode = translate(model, t, source, settings, list(request.prefix))
        output, finished = decode.hypotheses[0].ids, decode.hypotheses[0].finished
        text, output_spans = decoded_spans(t, output)
        if not finished:
            warnings.append(f"the translation was truncated at {len(output)} tokens, without an end token")
    tgt_in = [t.bos_id, *output][: min(model.max_len, MAX_TOKENS)]
    if len(tgt_in) <= len(output):
        warnings.append(f"the translation has {len(output)} tokens, of which the first {len(tgt_in) - 1} are shown")
    first = len(request.prefix)
    n_given = None if decode.kind == "given" else 1 + first
    tgt = make_stream(t, "target", tgt_in, [None, *output_spans][: len(tgt_in)], text, n_given=n_given)
    read = {"src": src, "tgt_in": tgt}
    return EncodedText(
        model_inputs={name: torch.tensor([x.ids], device=subject.device) for name, x in read.items()},
        streams=[src, tgt],
        positions=[*range(len(tgt_in))],
        following=following_tokens(output, finished, t.eos_id, len(tgt_in)),
        decode=replace(decode, first=first, n_fixed=1, suppressed=subject.task.suppress_tokens),
        text=text,
        warnings=warnings,
    )


def encode_for_masked_language_model(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode a text as in prediction: of one longer than the context, the part with the first [MASK]."""
    t, longest = subject.task.tokenizer, subject.task.config.text.max_len
    reads, room = t.room(longest), t.room(min(longest, MAX_TOKENS))
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
    stop = min(start + room, chunk + reads, len(ids))
    keep = "head" if start == 0 else "tail" if stop == len(ids) else "middle"
    kept = [*zip(ids, spans, surfaces, strict=True)][start:stop]
    encoded = encode_kept(subject, request, len(ids), kept, keep, min(reads, len(ids) - chunk))
    [stream] = encoded.streams
    masked = [i for i, token in enumerate(stream.ids) if token == t.mask_id]
    decode = replace(encoded.decode, n_fixed=len(stream))
    none = [] if masked else [f"the text holds no {MASK}, so each token is predicted from a text that shows it"]
    return replace(
        encoded,
        positions=[*range(len(stream))],
        following=[None if token in t.special_ids else token for token in stream.ids],
        warnings=[*encoded.warnings, *none],
        decode=replace(decode, first=masked[0] if masked else 0, suppressed=t.without_text, masked=masked),
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
    view: View, text: str, masked: Sequence[int] | None, output: Tensor, before: Tensor | None = None
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
    [prediction], labels = top_predictions(view.task, rows_of(output), [None], [None]), view.look and view.look.labels
    answer = class_answer(prediction, labels and labels.each[labels.shown].threshold)
    return labels.about(answer) if labels else answer


DEFAULT_NEW_TOKENS = 40
"""Default maximum of generated tokens, fewer than in prediction, for the page."""


def encode_for_language_model(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode the prompt, truncated to the context, and sample tokens after it, or take those of the target.

    The last token of a target is only predicted.
    """
    t, model = subject.task.tokenizer, cast("LanguageModel | Ensemble", subject.model)
    prompt_ids = t.framed(t.encode(request.text))
    prompt_spans = framed_spans(t, t.offsets(request.text))
    settings, given = decode_settings(subject, request), t.encode(request.target or "")
    prompt: list[int] = [*(prompt_ids or [t.start_id]), *request.prefix, *given]
    # The start of the sampler's window, for a prompt longer than the context.
    context = min(model.max_len, MAX_TOKENS)
    start = window_start(len(prompt), context)
    read = prompt if prompt_ids else []
    warnings = input_warnings(len(read), read[start:], t, "the prompt", "tail", model.max_len)
    suppressed = subject.task.suppress_tokens
    if given:
        decode, new, finished = DecodeLog("given", settings), list[int](), False
    else:
        room, limit = max(1, context - (len(prompt) - start)), MAX_EDITED_TOKENS - len(prompt)
        fewer = min(settings.max_new_tokens, room)
        if "max_new_tokens" not in request.decode:
            fewer = min(fewer, limit) if limit > 0 else fewer
        elif fewer < settings.max_new_tokens:
            warnings.append(f"max_new_tokens was lowered to {room}, to fit into the {context} tokens shown")
        settings = replace(settings, max_new_tokens=fewer)
        # A random number depends on the position in the whole text, so prediction's decoder gets all of it.
        whole = [prompt if context == model.max_len else prompt[start:]]
        with exact_no_grad(model):
            limits, more = [fewer], {"eos": t.eos_id, "suppress_tokens": suppressed}
            [found] = sample(ModelDecoder(model), whole, settings, limits=limits, rows=[0], **more)
        decode = DecodeLog("sample", settings, [logged(found, t)], prefix=list(request.prefix))
        new, finished = found.ids, found.finished
    all_ids = [*prompt, *new]
    text, spans = _join(t, request.text, prompt_spans, all_ids)
    ids = all_ids[start : -1 if given else start + context]
    n_prompt = len(prompt) - start - len(given)
    n_given = min(len(ids), len(prompt) - start)
    stream = make_stream(t, "text", ids, spans[start : start + len(ids)], text, n_given=n_given)
    # All ensemble members have the same table size.
    if (ngrams := cast(LanguageModel, members_of(model)[0]).ngrams) is not None:
        stream = add_hashed_ngrams(stream, ngrams)
    return EncodedText(
        model_inputs={"ids": torch.tensor([ids], device=subject.device)},
        streams=[stream],
        positions=[*range(len(ids))],
        following=following_tokens(all_ids[start + 1 :], finished, t.eos_id, len(ids)),
        decode=replace(decode, first=n_prompt - 1, n_fixed=n_prompt - len(request.prefix), suppressed=suppressed),
        text=t.decode(given or new),
        warnings=warnings,
    )


def _join(t: Tokenizer, prompt: str, spans: Sequence[Span | None], ids: list[int]) -> tuple[str, list[Span | None]]:
    """Return prompt and continuation as one text, and the characters of each token."""
    first = spans or [None]  # an empty prompt is one end token
    whole, all_spans = decoded_spans(t, ids)
    low, n_decoded = len(prompt), len(t.decode(ids[: len(first)]))
    shift = low - n_decoded
    rest = [(max(low, start + shift), max(low, end + shift)) for start, end in all_spans[len(first) :]]
    return prompt + whole[n_decoded:], [*first, *rest]


Stacks = Literal["encoder", "encoder-decoder", "decoder"]


FAMILIES: dict[str, tuple[Stacks, Callable[[Subject, TraceRequest], EncodedText]]] = {
    **dict.fromkeys(("classifier", "multilabel_classifier", "tagger"), ("encoder", encode_for_classifier)),
    **dict.fromkeys(("regressor", "text_embedder"), ("encoder", encode_for_classifier)),
    "masked_language_model": ("encoder", encode_for_masked_language_model),
    "translator": ("encoder-decoder", encode_for_translator),
    "language_model": ("decoder", encode_for_language_model),
}
"""The stacks of each family and what encodes a text as in prediction, by `Task.explain_as`."""


def encode(subject: Subject, request: TraceRequest) -> EncodedText:
    """Encode and decode a text as in prediction."""
    stacks, encoder = FAMILIES[subject.task.explain_as]
    for name, reads in (("target", stacks == "encoder-decoder"), ("prefix", stacks != "encoder")):
        if getattr(request, name) and not reads:
            raise UsageError(f"{name} does not apply to the task {subject.task.name}", f"remove {name}")
    if request.prefix and request.target is not None:
        raise UsageError("a request has a target or a prefix, not both", "remove one of them")
    t = subject.task.tokenizer
    for index, token in enumerate(request.prefix):
        if not 0 <= token < t.vocab_size:
            raise UsageError(f"prefix[{index}] must be an id from 0 to {t.vocab_size - 1}, got {token}")
        if token in t.special_ids - {t.unk_id, t.mask_id}:
            raise UsageError(f"prefix[{index}] must be an ordinary token, got {t.tokens([token])[0]}")
    return encoder(subject, request)


def decode_settings(subject: Subject, request: TraceRequest) -> DecodeConfig:
    """Return the decode settings for an explanation; a language model samples, and fewer tokens than in prediction."""
    config = subject.task.config
    if subject.task.explain_as == "language_model":
        n_new = min(DEFAULT_NEW_TOKENS, config.decode.max_new_tokens)
        config = replace(config, decode=replace(config.decode, sample=True, max_new_tokens=n_new))
    return override(config, {"decode": dict(request.decode)}, "request").decode
