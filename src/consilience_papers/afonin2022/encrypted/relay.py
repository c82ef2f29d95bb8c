"""Questioner and relay: a party asks with encrypted inputs, the relay answers without decrypting."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.message import message
from consilience.core.validation.arrays import Array, check_inputs
from consilience_papers.afonin2022.encrypted.linear import INPUTS, LinearModel, shared_features
from consilience_papers.afonin2022.encrypted.paillier import FixedPoint, PrivateKey, PublicKey

WHERE = "secure relay"


@message
class EncryptedQuestion:
    """A party's inputs, encrypted for itself.

    Attributes:
        modulus: its public key, uint8 of shape ``(key_length / 8,)``.
        fraction: of its :class:`FixedPoint`; ``inputs`` and ``answers`` likewise.
        features: what the columns are, as
            :func:`~consilience_papers.afonin2022.encrypted.linear.shared_features` says.
        n_rows: number of rows.
        ciphertexts: uint8 of shape ``(n_blocks, d, key_length / 4)``; a block holds as many rows as fit.

    Raises:
        KnowledgeRefused: sizes that do not fit one another.
    """

    modulus: Array
    fraction: int
    inputs: int
    answers: int
    features: str
    n_rows: int
    ciphertexts: Array

    def __post_init__(self) -> None:
        try:
            rows = self.fixed_point.rows(8 * len(self.modulus))
        except InvalidInput as error:
            raise KnowledgeRefused(f"no fixed-point numbers: {error.what}", where=WHERE) from error
        if rows < 1:
            raise KnowledgeRefused("its key is too short for its numbers", where=WHERE)
        _check_ciphertexts(self.ciphertexts, -(-self.n_rows // rows), self.modulus)

    @property
    def fixed_point(self) -> FixedPoint:
        """Fixed-point format of its numbers."""
        return FixedPoint(self.fraction, self.inputs, self.answers)

    @property
    def counts(self) -> list[int]:
        """Rows of every block."""
        rows = self.fixed_point.rows(8 * len(self.modulus))
        return [min(rows, self.n_rows - start) for start in range(0, self.n_rows, rows)]

    @property
    def key(self) -> str:
        """Digest of the question, which its answer repeats."""
        plain = (self.fraction, self.inputs, self.answers, self.features, self.n_rows)
        digest = hashlib.sha256(repr((*plain, self.ciphertexts.shape)).encode())
        digest.update(self.modulus.tobytes() + self.ciphertexts.tobytes())
        return digest.hexdigest()


@message
class EncryptedAnswer:
    """Predictions of the models' sum, encrypted for the party that asked.

    Attributes:
        question: :attr:`EncryptedQuestion.key` of what it answers.
        ciphertexts: uint8 of shape ``(n_blocks, n_outputs, key_length / 4)``.
    """

    question: str
    ciphertexts: Array


class Questioner:
    """A party's end: it makes a key pair, asks, and reads the answers.

    Keys live as long as this object: it cannot be copied, pickled or printed.

    Args:
        key_length: bits of the key, from 2048; 3072 are worth 128 bits of security.
        fixed_point: how precisely inputs and models are written, and how large they may be.
        features: the fitted features that the federation's models share, ``None`` for the inputs themselves.

    Raises:
        InvalidInput: a key length out of range, or features that other parties cannot have.
        MissingExtra: phe is not installed.

    >>> questioner = Questioner(key_length=2048)
    >>> W, b = np.array([[2.0], [-1.0]]), np.array([0.5])
    >>> relay = Relay([LinearModel(coefficients=W, intercept=b)])
    >>> question = questioner.ask([[1.0, 3.0], [0.25, 0.0]])
    >>> questioner.read(relay.answer(question), question).tolist()
    [[-0.5], [1.0]]
    """

    def __init__(
        self,
        *,
        key_length: int = 3072,
        fixed_point: FixedPoint | None = None,
        features: Any = None,
    ) -> None:
        self.fixed_point = fixed_point or FixedPoint()
        self._features = features
        self._named = INPUTS if features is None else shared_features(features)
        self._key = PrivateKey(key_length)
        self._rows = self.fixed_point.rows(key_length)

    def ask(self, X: Any) -> EncryptedQuestion:
        """Encrypt inputs: d encryptions for as many rows as fit one ciphertext.

        Args:
            X: shape ``(n, d)``, before the features.

        Raises:
            InvalidInput: not a table of finite numbers, or numbers too large.
        """
        X = np.asarray(X)
        if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "fiub":
            raise InvalidInput(
                f"inputs of type {X.dtype} and shape {X.shape}",
                where=WHERE,
                mend="Give numbers of shape (n_rows, n_columns).",
            )
        check_inputs(X, where=WHERE)
        if self._features is not None:
            X = self._features.transform(X)
        X = X.astype(np.float64)
        largest = np.abs(X).max(axis=0)
        if largest.max() >= 2**self.fixed_point.inputs:
            raise InvalidInput(
                f"column {largest.argmax()} holds values up to {largest.max():.3g}, and inputs are below "
                f"2^{self.fixed_point.inputs}",
                where=WHERE,
                mend="Scale it, as all parties do, or give FixedPoint more bits for inputs and answers.",
            )
        packed = [
            [self.fixed_point.pack(self.fixed_point.whole(column)) for column in block.T]
            for block in np.split(X, range(self._rows, len(X), self._rows))
        ]
        return EncryptedQuestion(
            modulus=self._key.public.modulus,
            fraction=self.fixed_point.fraction,
            inputs=self.fixed_point.inputs,
            answers=self.fixed_point.answers,
            features=self._named,
            n_rows=len(X),
            ciphertexts=np.stack([self._key.public.encrypt(block) for block in packed]),
        )

    def read(self, answer: EncryptedAnswer, question: EncryptedQuestion) -> Array:
        """Decrypt an answer.

        Returns:
            f_α(X), shape ``(n_rows, n_outputs)``, as precise as :class:`FixedPoint` says.

        Raises:
            InvalidInput: the question was asked with another key pair.
            KnowledgeRefused: the answer is to another question, was damaged, or is no answer at all.
        """
        if not np.array_equal(question.modulus, self._key.public.modulus):
            raise InvalidInput(
                "the question was asked with another key pair",
                where=WHERE,
                mend="Read an answer with the Questioner that asked.",
            )
        if answer.question != question.key:
            raise KnowledgeRefused("it answers another question", where=WHERE)
        _check_ciphertexts(answer.ciphertexts, len(question.ciphertexts), question.modulus)
        fixed, blocks = question.fixed_point, []
        for block, count in zip(answer.ciphertexts, question.counts, strict=True):
            columns = [fixed.unpack(total, count) for total in self._key.decrypt(block)]
            blocks.append(np.stack([fixed.real(column) for column in columns], axis=1))
        return np.concatenate(blocks)


class Relay:
    """The server's end: it holds everyone's models, and answers what it cannot read.

    Args:
        models: what their owners sent, M of them, with the same columns, outputs and features.

    Raises:
        InvalidInput: none, or models that differ in these.
    """

    def __init__(self, models: Sequence[LinearModel]) -> None:
        outlines = {(m.coefficients.shape, m.features) for m in models}
        if len(outlines) != 1:
            differences = "; ".join(
                f"shape {shape}, {features}" for shape, features in sorted(outlines)
            )
            raise InvalidInput(
                f"models differ: {differences}" if models else "there are no models",
                where=WHERE,
                mend="Give at least one; all need the same columns, outputs and shared features.",
            )
        self.models = tuple(models)

    def combined(self, weights: Any = None) -> LinearModel:
        """``Σ_m α_m f_m``, in the clear.

        Args:
            weights: α, shape ``(M,)``, of any sign; ``None`` for the mean.

        Raises:
            InvalidInput: another shape, or values that are not finite.
        """
        M = len(self.models)
        alpha = np.full(M, 1 / M) if weights is None else np.asarray(weights, dtype=np.float64)
        if alpha.shape != (M,) or not np.isfinite(alpha).all():
            raise InvalidInput(
                f"weights are not {M} finite numbers", where=WHERE, mend="Give one for each model."
            )
        return LinearModel(
            coefficients=np.tensordot(alpha, [m.coefficients for m in self.models], 1),
            intercept=alpha @ [m.intercept for m in self.models],
            features=self.models[0].features,
        )

    def answer(self, question: EncryptedQuestion, weights: Any = None) -> EncryptedAnswer:
        """Evaluate the sum on encrypted inputs: M d sums in the clear, then one encrypted product.

        Args:
            question: what a party asked.
            weights: as in :meth:`combined`; the federation's choice, never that of the party, which could
                choose a single model.

        Raises:
            InvalidInput: another number of columns or other features than the models', bad weights, or a sum
                too large for the fixed-point numbers.
            KnowledgeRefused: a public key or ciphertexts that cannot be.
            MissingExtra: phe is not installed.
        """
        model, fixed = self.combined(weights), question.fixed_point
        n_columns = question.ciphertexts.shape[1]
        if question.features != model.features or n_columns != len(model.coefficients):
            raise InvalidInput(
                f"asked with {n_columns} columns of {question.features}, and the models take "
                f"{len(model.coefficients)} of {model.features}",
                where=WHERE,
                mend="Ask with the features that the models were fitted on.",
            )
        factors = np.array([fixed.whole(row) for row in model.coefficients], dtype=object)
        constants = fixed.whole(model.intercept, times=2)
        one = 1 << (fixed.fraction + fixed.inputs)
        largest = max(np.abs(factors).sum(axis=0) * one + [abs(c) for c in constants])
        if largest >= 1 << (2 * fixed.fraction + fixed.answers):
            reached = int(largest).bit_length() - 2 * fixed.fraction
            raise InvalidInput(
                f"answers may overflow: with inputs up to 2^{fixed.inputs} these models reach "
                f"2^{reached}, and there is room for 2^{fixed.answers}",
                where=WHERE,
                mend=f"Ask with FixedPoint(answers={reached}), or scale inputs and give them fewer bits.",
            )
        key = PublicKey(question.modulus)
        blocks = [
            key.combine(block, factors, [fixed.pack([c] * count) for c in constants])
            for block, count in zip(question.ciphertexts, question.counts, strict=True)
        ]
        return EncryptedAnswer(question=question.key, ciphertexts=np.stack(blocks))


def _check_ciphertexts(ciphertexts: Array, n_blocks: int, modulus: Array) -> None:
    """Raise ``KnowledgeRefused`` unless they are blocks of ciphertexts of that key's size."""
    shape, size = ciphertexts.shape, 2 * len(modulus)
    if len(shape) != 3 or shape[0] != n_blocks or 0 in shape or shape[2] != size:
        raise KnowledgeRefused(
            f"ciphertexts of shape {shape}, expected ({n_blocks}, columns, {size})", where=WHERE
        )
    if not ciphertexts.dtype == modulus.dtype == np.uint8 or modulus.ndim != 1:
        raise KnowledgeRefused("ciphertexts are not bytes", where=WHERE)
