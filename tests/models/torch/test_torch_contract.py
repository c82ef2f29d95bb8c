"""Modules that break the contract of a learner without an error of shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from consilience import Federation, Party, avg, ensemble_distillation  # noqa: E402
from consilience.core.errors import InvalidInput  # noqa: E402
from consilience.core.learners import as_learner  # noqa: E402
from consilience.models.torch.modules import ModuleBuilder  # noqa: E402

X = np.random.default_rng(0).normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int)


class Of(nn.Module):
    """A linear layer, and a function of the module and its rows in the place of ``forward``."""

    def __init__(self, answer: Any, layer: Any = None) -> None:
        super().__init__()
        self.layer, self.answer = layer or nn.Linear(4, 2), answer
        self.kept: Any = None

    def forward(self, x: Any) -> Any:
        return self.answer(self, x)


def keeps(s: Any, x: Any) -> Any:
    s.kept = s.layer(x)
    return s.kept


def remembers(s: Any, x: Any) -> Any:
    s.kept = s.layer(x).detach()
    return s.layer(x)


def check(module: Any, kind: Any = None, rows: Any = X, outputs: int = 2) -> None:
    learner = as_learner(module, kind=kind)
    learner.bind(outputs)
    learner.check(rows)


PROBABILITIES = {
    "softmax": (nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=1)), "are probabilities"),
    "function": (Of(lambda s, x: F.softmax(s.layer(x), dim=-1)), "are probabilities"),
    "deep": (
        nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2), nn.Softmax(1)),
        "are probabilities",
    ),
    "sigmoid": (nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()), "between 0 and 1"),
    "tanh": (nn.Sequential(nn.Linear(4, 2), nn.Tanh()), "between -1 and 1"),
    "factory": (
        lambda shape, outputs: nn.Sequential(nn.Linear(shape[0], outputs), nn.Softmax(1)),
        "are probabilities",
    ),
}


@pytest.mark.parametrize(("module", "said"), PROBABILITIES.values(), ids=PROBABILITIES)
def test_outputs_that_are_no_logits_are_refused(module: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check(module)


def test_values_may_be_of_any_range() -> None:
    for last in (nn.Sigmoid(), nn.Tanh(), nn.Softmax(dim=1)):
        check(nn.Sequential(nn.Linear(4, 2), last), kind="regression")


def zero() -> nn.Module:
    layer = nn.Linear(4, 2)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


SOUND = {
    "linear": nn.Linear(4, 2),
    "zeros": zero(),
    "log-softmax": nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(dim=1)),
    "relu": nn.Sequential(nn.Linear(4, 2), nn.ReLU()),
    "batch norm": nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
    "layer norm": nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)),
    "hidden sigmoid": nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 2, bias=False)),
    "dropout": nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)),
    "small": Of(lambda s, x: 0.01 * s.layer(x)),
    "weight norm": nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
    "spectral norm": nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.Linear(8, 2)
    ),
    "double": nn.Linear(4, 2).double(),
    "lazy": nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(2)),
    "deep": nn.Sequential(*[nn.Linear(4, 4) for _ in range(80)], nn.Linear(4, 2)),
    "remembers": Of(remembers),
    "writes to its rows": Of(lambda s, x: s.layer(x.div_(2))),
    "looks up": Of(
        lambda s, x: s.layer(x.long().clamp(min=0, max=9)),
        nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(12, 2)),
    ),
}


@pytest.mark.parametrize("module", SOUND.values(), ids=SOUND)
def test_sound_modules_are_taken_as_they_are(module: Any) -> None:
    """Neither they nor torch's random numbers change."""
    before = (
        {name: part.clone() for name, part in module.state_dict().items()}
        if not any(isinstance(part, nn.LazyLinear) for part in module.modules())
        else {}
    )
    stream = torch.random.get_rng_state()
    check(module)
    assert torch.equal(stream, torch.random.get_rng_state())
    for name, part in before.items():
        assert torch.equal(part, module.state_dict()[name])


def test_rounding_in_half_precision_is_no_fault() -> None:
    deep = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
    learner = as_learner(
        nn.Sequential(nn.Linear(4, 64), deep, nn.Linear(64, 2)), recipe={"precision": "bfloat16"}
    )
    learner.bind(2)
    learner.check(X)


class OverBatch(nn.Module):
    """Its rows are taken for the steps of one sequence: ``batch_first`` was forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(x)[0])


APART = {
    "centred": Of(lambda s, x: s.layer(x - x.mean(0))),
    "sequence": OverBatch(),
    "softmax over rows": Of(lambda s, x: 5 * F.softmax(s.layer(x), dim=0)),
    "batch statistics": nn.Sequential(
        nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)
    ),
    "attention over rows": Of(lambda s, x: s.layer(torch.softmax(x @ x.T, dim=1) @ x)),
    "place in the batch": Of(lambda s, x: s.layer(x) + torch.arange(len(x))[:, None]),
}


@pytest.mark.parametrize("module", APART.values(), ids=APART)
@pytest.mark.parametrize("rows", [X, np.repeat(X[:1], 5, axis=0)], ids=["apart", "alike"])
def test_answers_that_hang_on_the_rows_beside_are_refused(module: Any, rows: Any) -> None:
    """Although a batch of one row may be refused by some of them in their own words."""
    with pytest.raises(InvalidInput, match=r"rows beside it|cannot use these inputs"):
        check(module, rows=rows)


def test_random_numbers_in_evaluation_are_refused() -> None:
    with pytest.raises(InvalidInput, match="differently each time"):
        check(Of(lambda s, x: F.dropout(s.layer(x), 0.5)))
    check(Of(lambda s, x: F.dropout(s.layer(x), 0.5, training=s.training)))


class Told(dict[str, Any]):
    """A dictionary whose entries are attributes too, as transformers have."""

    @property
    def logits(self) -> Any:
        return self["logits"]


OTHERS = {
    "dictionary": (Of(lambda s, x: {"out": s.layer(x)}), "gave a dict(.|\n)*keys are 'out'"),
    "attributes": (Of(lambda s, x: Told(logits=s.layer(x))), "gave a Told(.|\n)*it is .logits"),
    "namespace": (Of(lambda s, x: SimpleNamespace(logits=s.layer(x))), "it is .logits"),
    "tuple": (Of(lambda s, x: (s.layer(x), x)), "gave a tuple"),
    "list": (Of(lambda s, x: [s.layer(x)]), "gave a list"),
    "array": (Of(lambda s, x: s.layer(x).detach().float().numpy()), "gave a ndarray"),
    "nothing": (Of(lambda s, x: None), "gave a NoneType"),
    "no row axis": (Of(lambda s, x: s.layer(x).mean()), "turned inputs"),
    "own error": (Of(lambda s, x: s.missing), "cannot use these inputs"),
    "own assertion": (Of(lambda s, x: {}["key"]), "cannot use these inputs"),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("module", "said"), OTHERS.values(), ids=OTHERS)
def test_outputs_that_are_no_tensor_are_refused(module: Any, said: str, precision: str) -> None:
    learner = as_learner(module, recipe={"precision": precision})
    learner.bind(2)
    with pytest.raises(InvalidInput, match=said):
        learner.check(X)


def layers() -> list[nn.Module]:
    return [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)]


def holding(**parts: Any) -> nn.Module:
    module = Of(lambda s, x: s.layer(x))
    for name, part in parts.items():
        setattr(module, name, part)
    return module


@pytest.mark.parametrize(
    "parts",
    [
        {"parts": layers()},
        {"parts": {"a": tuple(layers())}},
        {"parts": torch.zeros(4, 2, requires_grad=True)},
        {"parts": [nn.Parameter(torch.zeros(2))]},
    ],
    ids=["list", "dictionary", "tensor", "list of parameters"],
)
def test_parameters_that_torch_does_not_list_are_refused(parts: dict[str, Any]) -> None:
    """They were never trained, and no file or message had them."""
    with pytest.raises(
        InvalidInput, match=r"attribute 'parts' of Of has parameters(.|\n)*ModuleList"
    ):
        check(holding(**parts))


def test_other_names_of_listed_parameters_are_taken() -> None:
    held = layers()
    check(holding(all=nn.ModuleList(held), first=[held[0]], by_name={"last": held[-1]}))
    check(holding(centre=torch.zeros(4), fixed=[nn.Linear(2, 2).requires_grad_(False)]))
    recurrent = nn.LSTM(4, 2, batch_first=True)
    check(Of(lambda s, x: 5 * s.layer(x[:, None])[0][:, 0], recurrent))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(4, 2).requires_grad_(False),
        Of(lambda s, x: s.layer(x).detach()),
        Of(torch.no_grad()(lambda s, x: s.layer(x))),
    ],
    ids=["fixed", "detached", "no gradient"],
)
def test_a_module_that_training_would_not_change_is_refused(module: nn.Module) -> None:
    with pytest.raises(InvalidInput, match=r"training would change nothing(.|\n)*Frozen"):
        check(module)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_modules_that_cannot_be_copied_are_refused() -> None:
    old = nn.utils.weight_norm
    for module in (nn.Sequential(old(nn.Linear(4, 2))), Of(keeps)):
        with pytest.raises(InvalidInput, match=r"cannot be copied(.|\n)*parametrizations"):
            check(module)
    with pytest.raises(InvalidInput, match="cannot be copied"):
        check(lambda shape, outputs: old(nn.Linear(shape[0], outputs)))


def test_a_run_stops_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=1))
    parties = [
        Party("a", module, X[:25], Y[:25]),
        Party("b", "logistic-regression", X[25:50], Y[25:50]),
    ]
    with pytest.raises(InvalidInput, match="party 'a': Sequential: the module's outputs are prob"):
        Federation(parties, X[50:]).run(ensemble_distillation(aggregate=avg(), rounds=1))
    tried: list[Any] = []
    monkeypatch.setattr(
        "consilience.models.torch.modules.check_contract",
        lambda *given, **how: tried.append(given),
    )
    learner = as_learner(nn.Linear(4, 2), recipe={"first_epochs": 1})
    learner.bind(2)
    learner.check(X)
    learner.fit(X, np.eye(2)[Y], rng=np.random.default_rng(0), phase="first")
    assert len(tried) == 1  # once for rows of a kind
    preset = as_learner("mlp")
    preset.bind(2)
    preset.check(X)
    assert len(tried) == 1 and isinstance(learner.modules, ModuleBuilder)  # type: ignore[attr-defined]


def test_tensors_with_gradients_are_refused_in_words() -> None:
    rows, wanted = torch.tensor(X, requires_grad=True), torch.tensor(Y * 1.0, requires_grad=True)
    for given in ((rows, Y), (X, wanted)):
        for model in ("logistic-regression", "ridge"):
            with pytest.raises(InvalidInput, match="no array can be made of this Tensor"):
                Party("a", model, *given)
    with pytest.raises(InvalidInput, match="no array can be made of this Tensor"):
        Party("a", "logistic-regression", X, Y, test=(rows, Y))
    parties = [Party(name, "logistic-regression", X, Y) for name in "ab"]
    with pytest.raises(InvalidInput, match="public data: no array can be made of this Tensor"):
        Federation(parties, rows)
    history = Federation(parties, X).run(ensemble_distillation(aggregate=avg(), rounds=1))
    with pytest.raises(InvalidInput, match="predict: no array can be made of this Tensor"):
        history.models["a"].predict(rows)
    plain = history.models["a"].predict(rows.detach())  # tensors without one are arrays
    np.testing.assert_array_equal(plain, history.models["a"].predict(X))
