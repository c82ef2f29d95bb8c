"""Texts for networks: words hashed to buckets, and the mean of their vectors."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.validation.arrays import Array

_FIRST_LENGTH = 0.1
"""Of a normal draw; chosen on held-out rows of TREC."""

_WORD = re.compile(r"\w+")


class WordBag(nn.Module):
    """Mean of a text's word vectors, given to a head.

    Args:
        head: makes the network that takes the mean, ``(n, width)``, once the vectors are drawn.
        buckets: number of buckets for words; words in one bucket share a vector.
        width: length of a word's vector.
        ngrams: length of the longest run of neighbouring words with a separate vector.
        longest: number of words read from a text.
    """

    def __init__(
        self,
        head: Callable[[], nn.Module],
        *,
        buckets: int,
        width: int,
        ngrams: int,
        longest: int,
    ) -> None:
        super().__init__()
        self.buckets, self.ngrams, self.longest = buckets, ngrams, longest
        self.bag = nn.EmbeddingBag(buckets + 1, width, mode="mean", padding_idx=0)
        self.head = head()
        with torch.no_grad():  # a word that is never trained on should say little
            self.bag.weight.mul_(_FIRST_LENGTH)

    def encode(self, texts: Array) -> Array:
        """Number the words of texts, shape ``(n,)``, by :func:`hashed_words`."""
        return hashed_words(texts, buckets=self.buckets, ngrams=self.ngrams, longest=self.longest)

    def forward(self, words: Tensor) -> Tensor:
        """Compute outputs from numbered words, shape ``(n, length)``."""
        used = int((words != 0).any(dim=0).sum())
        outputs: Tensor = self.head(self.bag(words[:, : max(used, 1)]))
        return outputs


def hashed_words(texts: Array, *, buckets: int, ngrams: int, longest: int) -> Array:
    """Number the words of texts by buckets, 1 to ``buckets``, shape ``(n, length)``; 0 behind a text's end.

    A word is a run of letters, digits and underscores, in lower case. Its number is the CRC-32 of its bytes,
    modulo ``buckets``; the number of neighbouring words is that of the words joined by a space. So every
    party gives a word the same number without a vocabulary, which would reveal the words of its texts to
    others. Different words may share a number (Weinberger et al. 2009).

    Args:
        texts: strings, shape ``(n,)``.
        buckets: count of different numbers.
        ngrams: 2 numbers pairs of neighbouring words too, and so on.
        longest: words of a text beyond this many are excluded.

    Returns:
        Whole numbers, shape ``(n, length)``.

    >>> hashed_words(np.array(["To be, or", "to"]), buckets=1000, ngrams=1, longest=2).tolist()
    [[757, 926], [757, 0]]
    """
    lines = [_word_numbers(text, buckets, ngrams, longest) for text in texts.tolist()]
    numbers = np.zeros((len(lines), max(1, *map(len, lines), 1)), dtype=np.int64)
    for row, line in zip(numbers, lines, strict=True):
        row[: len(line)] = line
    return numbers


@lru_cache(maxsize=2**15)  # parties see the same public and test texts in every epoch and round
def _word_numbers(text: str, buckets: int, ngrams: int, longest: int) -> Array:
    words = [word.encode("utf-8", "replace") for word in _WORD.findall(text.lower())[:longest]]
    last = [zlib.crc32(word) for word in words]
    line = list(last)
    for reach in range(1, min(ngrams, len(words))):
        last = [
            zlib.crc32(b" " + word, before)
            for before, word in zip(last, words[reach:], strict=False)
        ]
        line += last
    return np.array(line, dtype=np.int64) % buckets + 1
