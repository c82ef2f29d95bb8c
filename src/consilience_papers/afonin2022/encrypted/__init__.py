"""Predictions of other parties' linear models on a party's own inputs, under encryption.

A party with inputs X wants ``f_α(X) = Σ_j α_j f_j(X)`` of the models of M parties. Sending every model to
every party costs M² models and shows them all. Instead owners send their models once, to a relay, and the
party sends the relay its inputs, encrypted; the relay computes on them without decrypting:

    party:  (n, key) key pair,  x̂ = round(2^f x),  Enc(Σ_i x̂_ij 2^(s i)) for every column j, rows i in slots
    relay:  w = Σ_m α_m w_m,  b = Σ_m α_m b_m  in the clear,  ŵ = round(2^f w),  b̂ = round(2^2f b)
            Π_j Enc(·_j)^ŵ_j · Enc(Σ_i b̂ 2^(s i)) mod n²  =  Enc(Σ_i (ŵ·x̂_i + b̂) 2^(s i))
    party:  decrypts, takes the slots apart, divides by 2^2f

Enc is Paillier's scheme, which adds plaintexts by multiplying ciphertexts. One encrypted product serves any
number of models, because they are combined before it, and the fresh encryption of the constant makes the
answer a uniformly random ciphertext of its plaintext: it tells its reader nothing but the sum.

Such a scheme evaluates what is linear in the encrypted columns: linear models of the inputs, or of features
that the party computes itself because everyone knows them, random Fourier features with a shared seed
(``RBFSampler``) or kernels to public landmarks (``Nystroem``, frozen). A kernel expansion on an owner's
private rows is not: the party cannot compute features of rows that it may not see.

| | the asking party | the relay | other parties | the wire |
| --- | --- | --- | --- | --- |
| inputs X, answers f_α(X) | sees | encrypted | nothing | encrypted |
| numbers of rows, columns, outputs; public key | sees | sees | nothing | sees |
| a single model f_m | its own only | sees | their own only | sees it on its way to the relay |
| the sum f_α | its answers; after d + 1 rows, all of it | sees | nothing | answers, encrypted |
| private key | keeps | nothing | nothing | nothing |

Relay and party are taken to follow the protocol and to be curious: *semi-honest*. A relay that lies about its
answer is not found out, nor is a party that asks with inputs made up to read off coefficients. What can be
inferred from the answers is not hidden: d + 1 rows determine a linear f_α, fewer may do since all digits are
right, and two sums whose weights differ in one model determine that model. The relay's time is not made
constant. A relay and a party that join hands know what both know. Models travel to the relay as they are:
over an encrypted transport.

Source:
    Afonin & Karimireddy 2022, appendix G. Paillier, *Public-key cryptosystems based on composite degree
    residuosity classes* (1999).
"""

from consilience_papers.afonin2022.encrypted.linear import LinearModel, linear_model
from consilience_papers.afonin2022.encrypted.paillier import FixedPoint
from consilience_papers.afonin2022.encrypted.relay import (
    EncryptedAnswer,
    EncryptedQuestion,
    Questioner,
    Relay,
)

__all__ = [
    "EncryptedAnswer",
    "EncryptedQuestion",
    "FixedPoint",
    "LinearModel",
    "Questioner",
    "Relay",
    "linear_model",
]
