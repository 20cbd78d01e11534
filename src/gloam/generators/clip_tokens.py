"""Texts as CLIP's tokens, by the package `tokenizers` (an extra of gloam)."""

import html
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from gloam import checks

START, END = "<|startoftext|>", "<|endoftext|>"
_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
_FIX = "Fetch the files of the model's folder again."


class Tokenizer:
    """Token numbers of texts.

    Args:
        folder: Folder with ``tokenizer.json``, or with ``vocab.json`` and ``merges.txt``.
        length: Number of tokens of a text, start and end included.
        vocabulary_size: Number of tokens that the model knows.
    """

    def __init__(self, folder: Path, length: int, vocabulary_size: int):
        self.folder, self.length = folder, length
        self._tokenizer = _read(folder)
        ends = [self._tokenizer.token_to_id(token) for token in (START, END)]
        known = None not in ends
        checks.expect(
            known, f"tokenizer in '{folder}'", f"the tokens {START} and {END}", ends, _FIX
        )
        self._start, self._end = ends
        size = self._tokenizer.get_vocab_size()
        checks.expect(
            size <= vocabulary_size,
            f"tokenizer in '{folder}'",
            f"at most the {vocabulary_size} tokens of the model",
            size,
            _FIX,
        )

    def __call__(self, texts: Sequence[str]) -> Int[np.ndarray, "n length"]:
        """Tokens of texts: start, text (cut off if too long), end, then zeros."""
        tokens = np.zeros((len(texts), self.length), np.int32)
        for row, text in enumerate(texts):
            found = self._tokenizer.encode(cleaned(text), add_special_tokens=False).ids
            whole = [self._start, *found[: self.length - 2], self._end]
            tokens[row, : len(whole)] = whole
        return tokens


def cleaned(text: str) -> str:
    """A text as OpenAI's tokenizer cleans it before it looks for words.

    The package `ftfy`, which OpenAI uses, also repairs texts that were decoded by a wrong
    encoding; that is left out.

    Example:
        >>> cleaned(' “fish”  &amp;amp; ﬁsh ')
        '"fish" & fish'
    """
    text = re.sub("[\u02bc\u2018-\u201b]", "'", text)
    text = re.sub("[\u201c-\u201f]", '"', text)
    # Ligatures, and the wide and narrow forms of characters.
    text = re.sub(
        "[\ufb00-\ufb06\uff01-\uffef\u3000]",
        lambda found: unicodedata.normalize("NFKC", found.group()),
        text,
    )
    text = html.unescape(html.unescape(unicodedata.normalize("NFC", text)))
    return re.sub(r"\s+", " ", text).strip()


def _read(folder: Path) -> Any:
    try:
        import tokenizers  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "tokenizers: expected the package to be installed, got none. "
            "Install it: pip install 'gloam[lsi]'."
        ) from None
    whole = folder / "tokenizer.json"
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    found = whole.is_file() or (vocabulary.is_file() and merges.is_file())
    checks.expect(
        found,
        "CLIP",
        "tokenizer.json, or vocab.json and merges.txt, in the folder",
        f"neither in '{folder}'",
        _FIX,
    )
    try:
        if whole.is_file():
            return tokenizers.Tokenizer.from_file(str(whole))
        return _built(tokenizers, json.loads(vocabulary.read_text("utf-8")), _pairs(merges))
    except Exception as error:  # the package raises Exception itself
        raise ValueError(
            f"CLIP: expected the files of a tokenizer, got '{folder}' ({error}). {_FIX}"
        ) from None


def _pairs(merges: Path) -> list[tuple[str, str]]:
    lines = merges.read_text("utf-8").split("\n")
    pairs = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    return [pair for pair in pairs if len(pair) == 2]


def _built(tokenizers: Any, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    """Byte-level BPE on words, in lower case."""
    model = tokenizers.models.BPE(
        vocab=vocabulary,
        merges=merges,
        continuing_subword_prefix="",
        end_of_word_suffix="</w>",
        unk_token=END,
    )
    tokenizer = tokenizers.Tokenizer(model)
    steps = tokenizers.normalizers
    tokenizer.normalizer = steps.Sequence([steps.NFC(), steps.Lowercase()])
    splits = tokenizers.pre_tokenizers
    words = splits.Split(tokenizers.Regex(_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = splits.Sequence([words, splits.ByteLevel(add_prefix_space=False)])
    return tokenizer
