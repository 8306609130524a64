"""Four tokenizers, one interface: exact, deterministic, never fooled by "[PAD]"; words, n-grams and pairs of words."""

import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each

from glassformer.config import TextConfig
from glassformer.errors import CheckpointError, DataError, UsageError
from glassformer.nn.ngram_embeddings import BigramEmbedding
from glassformer.text.long_text import truncate
from glassformer.text.ngrams import FEWEST, FIRST, MOST, NgramVocabulary, common_bigrams, ngrams_of, surface_forms
from glassformer.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from glassformer.text.words import first_tokens, read_running, word_spans

KINDS = ["word", "char", "byte-bpe", "bpe"]
TEXTS = [
    "Two young, White males are outside near many bushes.",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "A man in a blue shirt isn't reading \u201cthe news\u201d\u2026  He's asleep!\n",
    "Un homme en bleu dort, l'air tranquille.\tIl a 34 ans.",
    "the [PAD] and the [EOS] and the [PAD] again: [PAD] [PAD] [PAD] [PAD]",
] * 3
ALPHABET = sorted(set("".join(TEXTS)))


def train(kind: str, vocab_size: int = 400, extra: tuple[str, ...] = (), lowercase: bool = False) -> Tokenizer:
    return Tokenizer.train(TEXTS, TextConfig(tokenizer=kind, vocab_size=vocab_size, lowercase=lowercase), extra)


TRAINED = {kind: train(kind) for kind in KINDS}


@for_each("kind", KINDS)
def test_special_tokens_come_first_and_never_from_text(kind):
    tokenizer = TRAINED[kind]
    specials = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id)
    assert specials == (0, 1, 2, 3, 4) and tokenizer.tokens(specials) == list(SPECIAL_TOKENS)
    for token in SPECIAL_TOKENS:
        text = f"the {token} and{token}"
        assert set(tokenizer.encode(text)).isdisjoint({0, 2, 3, 4})
        assert set(tokenizer.encode_batch([text, token])[1]).isdisjoint({0, 2, 3, 4})


@pytest.mark.parametrize("kind", ["char", "byte-bpe", "bpe"])
@given(text=st.text(alphabet=ALPHABET, max_size=40))
@settings(max_examples=50, deadline=None)
def test_extra_tokens_are_kept_whole_and_restored(kind, text):
    tokenizer = TRAINED_WITH_TAGS[kind]
    tagged = f"[de_DE] {text}[x]"
    ids = tokenizer.encode(tagged)
    assert tokenizer.tokens(ids)[:: len(ids) - 1] == ["[de_DE]", "[x]"]
    assert tokenizer.decode(ids) == tagged


TRAINED_WITH_TAGS = {kind: train(kind, extra=("[de_DE]", "[x]")) for kind in KINDS}


def test_extra_tokens_lend_no_letters_to_the_alphabet():
    tokenizer = Tokenizer.train(["[de_DE] 3", "[x] 4"], TextConfig(tokenizer="char"), ("[de_DE]", "[x]"))
    assert tokenizer.vocab_size == 5 + len({" ", "3", "4"}) + 2


@for_each("kind", KINDS)
def test_spans_point_at_the_text(kind):
    tokenizer = TRAINED[kind]
    text = "A man isn't “reading”  34 👍."
    spans = tokenizer.offsets(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    covered = "".join(text[i] for i in sorted({i for start, end in spans for i in range(start, end)}))
    assert covered.replace(" ", "") == text.replace(" ", "")


def test_words_are_words_and_marks_and_breaks_are_spaces():
    tokenizer = Tokenizer.train(["I DON'T know.<br /><br />Really?"] * 2, TextConfig(tokenizer="word", lowercase=True))
    ids = tokenizer.encode("Really, I don't<BR/>know...")
    assert tokenizer.tokens(ids) == ["really", "[UNK]", "i", "don't", "know", ".", ".", "."]
    assert tokenizer.decode(ids) == "really i don't know . . ."
    text = "know<br />i"
    assert [text[a:b] for a, b in tokenizer.offsets(text)] == ["know", "i"]


def test_word_keeps_the_most_frequent():
    tokenizer = Tokenizer.train(["a a a b b c"], TextConfig(tokenizer="word", vocab_size=7))
    assert tokenizer.vocab_size == 7
    assert [piece != "[UNK]" for piece in tokenizer.tokens(tokenizer.encode("a b c"))] == [True, True, False]


def test_char_takes_every_character_whatever_vocab_size_says():
    tokenizer = train("char", vocab_size=6)
    assert tokenizer.vocab_size == 5 + len(ALPHABET)
    assert tokenizer.encode("日")[0] == tokenizer.unk_id


@for_each("kind", KINDS)
def test_training_is_deterministic_and_the_hash_tells_tokenizers_apart(kind):
    assert train(kind).sha256 == TRAINED[kind].sha256
    other = Tokenizer.train([*TEXTS, "quiz quiz quiz ж"], TextConfig(tokenizer=kind, vocab_size=400))
    assert other.sha256 != TRAINED[kind].sha256


def test_merges_never_spell_a_special_token():
    content = json.loads(TRAINED["bpe"]._backend.to_str())
    assert not {"".join(merge) for merge in content["model"]["merges"]} & set(SPECIAL_TOKENS)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind, tmp_path):
    tokenizer = TRAINED_WITH_TAGS[kind]
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    text = "[de_DE] A man [PAD] isn't  “here” 😀\n"
    assert (loaded.kind, loaded.vocab_size, loaded.sha256) == (kind, tokenizer.vocab_size, tokenizer.sha256)
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert loaded.offsets(text) == tokenizer.offsets(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_a_checkpoint_error(kind, tmp_path):
    whole = TRAINED[kind]._backend.to_str(pretty=True).encode()
    path = tmp_path / "tokenizer.json"
    for content in (b"\xff\xfe", *(whole[:cut] for cut in range(0, len(whole) - 1, len(whole) // 20))):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            Tokenizer.load(path)


def test_a_missing_or_foreign_file_is_a_checkpoint_error(tmp_path):
    with pytest.raises(CheckpointError, match="no tokenizer here"):
        Tokenizer.load(tmp_path / "tokenizer.json")
    content = json.loads(TRAINED["word"]._backend.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary["[EOS]"], vocabulary["[BOS]"] = vocabulary["[BOS]"], vocabulary["[EOS]"]
    content["added_tokens"] = []
    (tmp_path / "other.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match="first tokens should be"):
        Tokenizer.load(tmp_path / "other.json")


@for_each("kind", ["byte-bpe", "bpe"])
def test_a_vocabulary_that_cannot_hold_the_alphabet_is_a_usage_error(kind):
    with pytest.raises(UsageError, match="vocab_size 20 is less than"):
        train(kind, vocab_size=20)


@for_each("kind", KINDS)
@for_each("texts", [[], ["", " \n"]])
def test_no_text_is_a_data_error(kind, texts):
    with pytest.raises(DataError, match="no text to train"):
        Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=400))


def test_half_a_surrogate_pair_is_a_data_error_that_says_where():
    with pytest.raises(DataError, match="text 2, character 3"):
        TRAINED["char"].encode_batch(["fine", "no\ud800"])
    with pytest.raises(DataError, match="text 1, character 1"):
        TRAINED["byte-bpe"].offsets("\udfff")


@pytest.mark.parametrize("keep", ["head", "tail", "head+tail"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_cut_to_the_ids_of_the_whole(kind, keep):
    tokenizer, texts = TRAINED[kind], ["a cat", "the cat's hat " * 400, "", "dogs"]
    ids, cut = tokenizer.encode_batch(texts), tokenizer.encode_cut(texts, 7, keep)
    assert [one.ids for one in cut] == [truncate(each, 7, keep) for each in ids]
    assert ["truncated" in one.mark for one in cut] == [len(each) > 7 for each in ids]


def test_a_word_of_any_length_is_trained_on(caplog):
    """In parts: each merge visits the whole of a word that holds it, which takes quadratic time."""
    unbroken = "".join(random.Random(1).choices("ACGT", k=1 << 18))
    tokenizer = Tokenizer.train([unbroken, "a cat"], TextConfig(tokenizer="bpe", vocab_size=400))
    assert "words of more than 1,024 characters are cut" in caplog.text
    assert tokenizer.decode(tokenizer.encode(unbroken[:5000])) == unbroken[:5000]


def test_pieces_are_readable():
    tokenizer = TRAINED["byte-bpe"]
    assert tokenizer.tokens(tokenizer.encode("the 本\n"))[-5:] == ["▁", "<E6>", "<9C>", "<AC>", "\\n"]
    with pytest.raises(DataError, match="id 99999 is not in this vocabulary"):
        tokenizer.tokens([99999])


@for_each("kind", KINDS)
@for_each("lowercase", [True, False])
@for_each("extra", [(), ("[x]",)])
def test_lowercasing_is_known_of_every_kind(kind, lowercase, extra):
    config = TextConfig(tokenizer=kind, vocab_size=400, lowercase=lowercase)
    tokenizer = Tokenizer.train(["Some Text", "more TEXT"], config, extra)
    assert tokenizer.lowercases == lowercase
    assert (tokenizer.encode("SOME Text") == tokenizer.encode("some text")) == lowercase


SCRIPTS = (
    "Ünïcode straße, Ελληνικά, русский язык, 日本語と中文, ภาษาไทย, हिन्दी, العربية, שלום, "
    "한국어, e\u0301 👩‍👩‍👧🏽 <0x41>"
)
UNICODE = st.text(max_size=60) | st.text(alphabet=SCRIPTS, max_size=60)
"""Of these letters most were never seen in training: they are spelled in bytes."""


@pytest.mark.parametrize("kind", ["char", "byte-bpe", "bpe", "bpe with tags"])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_decoding_restores_the_text_and_every_character_is_known(kind, data):
    """Whatever it is; with single characters, a text of those in training."""
    text = data.draw(st.text(alphabet=ALPHABET, max_size=60) if kind == "char" else UNICODE)
    if kind.startswith("bpe"):
        text = text.replace("▁", "")  # the one character that pieces cannot tell from a space
    tokenizer = (TRAINED | {"bpe with tags": TRAINED_WITH_TAGS["bpe"]})[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and set(ids).isdisjoint(range(5))


def test_bytes_spell_what_was_seen_once_and_are_never_found_in_text():
    texts = ["ab ba ab ba", "a b ж ab ж 本"]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="bpe", vocab_size=300))
    assert tokenizer.tokens(tokenizer.encode("ж本")) == ["▁ж", "<0xE6>", "<0x9C>", "<0xAC>"]
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"
    assert "<0x41>" not in tokenizer.tokens(tokenizer.encode("<0x41> A"))[:-1]
    assert tokenizer.decode(tokenizer.encode("本")[:-1]) == "��"


def test_an_alphabet_larger_than_the_vocabulary_leaves_its_rarest_letters_to_the_bytes():
    texts = ["aaaa bbbb cccc dd ee ff"]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer="bpe", vocab_size=5 + 256 + 5))
    assert tokenizer.vocab_size <= 266
    assert [len(tokenizer.encode(letter)) for letter in "abcde"] == [2, 2, 2, 2, 2]
    assert tokenizer.tokens(tokenizer.encode("f"))[1:] == ["<0x66>"]


# Running text cut into words, and the place of each word's first token


@for_each(
    ("text", "words"),
    [
        ("Two men, don't!", ["Two", "men", ",", "don't", "!"]),
        ("state-of-the-art -x x-", ["state-of-the-art", "-", "x", "x", "-"]),
        ("3,000.50 at 12:30, a/b 1/2", ["3,000.50", "at", "12:30", ",", "a", "/", "b", "1/2"]),
        ("(U.S.) wait...", ["(", "U.S", ".", ")", "wait", "..."]),
        ("e\u0301te\u0301 हिन्दी", ["e\u0301te\u0301", "हिन्दी"]),
        (" \n", []),
    ],
)
def test_words_are_cut_by_space_and_punctuation(text, words):
    assert read_running(text).words == words


@given(st.text(st.sampled_from("ab1 .,-'’\n\u0301é!")))
def test_words_hold_all_that_is_no_space_in_order(text):
    spans = word_spans(text)
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())
    assert all(a < b for a, b in spans) and all(b <= c for (_, b), (c, _) in itertools.pairwise(spans))
    read = read_running(text)
    of_words = [(start, start + len(word)) for start, word in zip(read.starts, read.words, strict=True)]
    assert [read.text[a:b] for a, b in of_words] == read.words and read.given(of_words) == spans


@pytest.mark.parametrize("kind", ["word", "char", "byte-bpe"])
def test_the_first_token_of_a_word_covers_its_beginning(kind):
    texts = ["Two men don't walk , they run .", "a é 日本 x.y ..."]
    tokenizer = Tokenizer.train(texts, TextConfig(tokenizer=kind, vocab_size=300))  # pyright: ignore
    for text in texts:
        read = read_running(text)
        [(ids, offsets)] = tokenizer.encode_with_offsets([read.text])
        assert ids == tokenizer.encode(read.text)
        first = first_tokens(read.starts, read.words, offsets)
        assert sorted(first) == first and len({*first}) == len(first) and first[0] == 0
        for start, token in zip(read.starts, first, strict=True):
            assert offsets[token][0] in (start, start - 1) and offsets[token][1] > start


def test_a_word_without_a_token_has_no_place():
    assert first_tokens([0, 2, 4], ["a", "b", "c"], [(0, 1), (3, 5)]) == [0, -1, 1]
    assert first_tokens([], [], []) == []


# N-grams and pairs of words: which are listed, that the tokenizer's file keeps them, and which rows a token gets


CONFIG = TextConfig(tokenizer="word", vocab_size=200, lowercase=True, ngrams=1000)
SHARING = ["Refund the refunding funds", "a fund is funded", "I like it", "我喜欢这个", "他喜欢那个"]


def test_ngrams_by_hand():
    assert list(ngrams_of("<it>")) == ["<it", "<it>", "it>"]
    assert list(ngrams_of("<a>")) == ["<a>"]
    assert list(ngrams_of("喜欢这")) == ["喜欢", "喜欢这"]
    assert list(ngrams_of("欢")) == []


def test_a_script_without_spaces_is_cut_into_characters_that_look_ahead():
    text = "ab 我喜欢, 你x"
    spans = [(0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (8, 9), (9, 10)]
    assert surface_forms(text, spans) == ["<ab>", "我喜欢", "喜欢", "欢", "<,>", "你", "<x>"]


def test_only_what_words_share_is_listed():
    vocabulary = NgramVocabulary.train(["<refund>", "<fund>", "<fund>", "<once>", "喜欢这", "喜欢那"], 100)
    assert {"fun", "fund", "und>"} <= set(vocabulary.ngrams)
    assert "onc" not in vocabulary.ngrams and "<fu" not in vocabulary.ngrams  # in one word, however often
    assert "喜欢" in vocabulary.ngrams and "喜欢这" not in vocabulary.ngrams
    assert len(NgramVocabulary.train(["<refund>", "<fund>"], 3)) == FIRST + 3


def test_a_word_without_a_listed_ngram_is_spelled_by_its_bytes():
    vocabulary = NgramVocabulary(["<it"])
    assert vocabulary.lookup("<it>") == [FIRST]
    assert vocabulary.lookup("<é>") == [1 + 0xC3, 1 + 0xA9]
    assert vocabulary.lookup("喜欢这") == [1 + byte for byte in "喜".encode()]
    assert len(vocabulary.lookup("<" + "z" * 500 + ">")) == MOST


WITH_PAIRS = TextConfig(tokenizer="word", vocab_size=200, lowercase=True, ngrams=50, bigrams=100)
PAIRED = ["not good", "Not good at all", "it is not good", "not bad , not bad", "not bad", "so not bad", "refund funds"]


@given(texts=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=20), most=st.integers(1, 20))
def test_pairs_are_those_in_the_most_texts(texts, most):
    """And never with a special token (here those below 3)."""
    found = common_bigrams(texts, vocab_size=10, special=3, max_bigrams=most)
    counts = Counter(pair for text in texts for pair in {p for p in pairwise(text) if min(p) >= 3})  # texts, not times
    listed = sorted(((-n, pair) for pair, n in counts.items() if n >= FEWEST))
    assert found == [pair for _, pair in listed[:most]]


def test_a_token_gets_the_row_of_the_pair_that_it_ends():
    table = BigramEmbedding([(7, 5), (5, 7), (6, 5)], vocab_size=10, d_model=3, std=1.0)
    ids = torch.tensor([[5, 7, 5, 6, 5], [7, 7, 7, 5, 0], [5, 0, 0, 0, 0]])
    assert table.lookup_ids(ids).tolist() == [[0, 1, 3, 0, 2], [0, 0, 0, 3, 0], [0, 0, 0, 0, 0]]
    vectors = table(ids)
    torch.testing.assert_close(vectors[0, 2], table.weight[3])
    assert not vectors[0, 0].any() and not vectors[2].any()
    vectors.sum().backward()
    assert table.weight.grad is not None and not table.weight.grad[0].any()  # what is not listed stays zero
    assert [*table.state_dict()] == ["weight"], "the tokenizer's file has the pairs"


@for_each(("texts", "config"), [(SHARING, CONFIG), (PAIRED, WITH_PAIRS)])
def test_the_file_of_a_tokenizer_keeps_both_and_other_readers_pass_over_them(texts, config, tmp_path):
    trained, path = Tokenizer.train(texts, config), tmp_path / "tokenizer.json"
    trained.save(path)
    loaded, plain = Tokenizer.load(path), Tokenizer.train(texts, replace(config, ngrams=0, bigrams=0))
    assert trained.ngrams and loaded.ngrams and loaded.ngrams.ngrams == trained.ngrams.ngrams
    assert loaded.bigrams == trained.bigrams and loaded.vocab_size == plain.vocab_size
    assert loaded.sha256 == trained.sha256 != plain.sha256
    assert loaded.encode_batch(texts) == plain.encode_batch(texts)
    assert tokenizers.Tokenizer.from_file(str(path)).encode(texts[2]).ids == trained.encode(texts[2])
    if config is WITH_PAIRS:
        assert [tuple(trained.tokens(pair)) for pair in loaded.bigrams] == [("not", "bad"), ("not", "good")]
        return
    text = "A FUNDED 😀 我喜欢猫"
    [(ids, surfaces)] = loaded.read([text])
    assert [(ids, surfaces)] == [*trained.read([text])] and ids == loaded.encode(text)
    assert surfaces == ["<a>", "<funded>", "<😀>", "我喜欢", "喜欢猫", "欢猫", "猫"]
    assert all(loaded.ngrams.lookup(word) for word in surfaces)


@for_each("kind", ["char", "bpe", "byte-bpe"])
@for_each("name", ["ngrams", "bigrams"])
def test_both_are_of_words(kind, name):
    with pytest.raises(UsageError, match=f"{name} are of words"):
        Tokenizer.train(SHARING, TextConfig(tokenizer=kind, vocab_size=600, **{name: 10}))  # pyright: ignore
