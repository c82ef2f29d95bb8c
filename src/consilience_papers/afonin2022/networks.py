"""Figures 4 to 6 and 8 to 15, and conjugate distillation: networks and forests on images.

Every figure takes the name of a :data:`~consilience_papers.afonin2022.problems.SIZES` beside the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from consilience_papers.afonin2022 import any_models, trials
from consilience_papers.afonin2022.curves import (
    Cells,
    Curve,
    beats,
    beats_alone,
    degrades,
    ensemble,
    falls_faster,
    settles,
)
from consilience_papers.afonin2022.panels import about, measured
from consilience_papers.afonin2022.problems import SIZES, Setting
from consilience_papers.exhibit import Claim, Exhibit
from consilience_papers.study import Study

SAME, MODEL, DATA = "same model and data", "different models", "different data"
ALPHAS = (0.0, 0.01, 0.1, 1.0)

SQUARED = Setting()
ENTROPY = Setting(loss="cross-entropy")
CIFAR = Setting(data="cifar-10", loss="cross-entropy")
FOREST = Setting(models="forest")


def figure4(study: Study, size: str = "cpu") -> Exhibit:
    """AKD on MNIST, squared loss."""
    return _alternating(study, "fig4", SQUARED, size)


def figure5(study: Study, size: str = "cpu") -> Exhibit:
    """AvgKD on MNIST, squared loss."""
    return _averaged(study, "fig5", SQUARED, size)


def figure6(study: Study, size: str = "images") -> Exhibit:
    """Run all schemes on MNIST over Alpha, same model; with all images on one core without 0.1."""
    alphas = (0.0, 0.01, 1.0) if size == "images" else ALPHAS
    return _same_model(study, "fig6", SQUARED, size, improves=True, alphas=alphas)


def figure8(study: Study, size: str = "cpu") -> Exhibit:
    """Run all schemes on MNIST over Alpha, different models."""
    return _different_models(study, "fig8", SQUARED, size)


def figure9(study: Study, size: str = "cpu") -> Exhibit:
    """Run all schemes on CIFAR-10 over Alpha, same model, cross-entropy."""
    return _same_model(study, "fig9", CIFAR, size, improves=False)


def figure10(study: Study, size: str = "cpu") -> Exhibit:
    """Run all schemes on CIFAR-10 over Alpha, different models, cross-entropy."""
    return _different_models(study, "fig10", CIFAR, size)


def figure11(study: Study, size: str = "cpu") -> Exhibit:
    """AKD on MNIST, cross-entropy."""
    return _alternating(study, "fig11", ENTROPY, size)


def figure12(study: Study, size: str = "cpu") -> Exhibit:
    """AvgKD on MNIST, cross-entropy."""
    return _averaged(study, "fig12", ENTROPY, size)


def figure13(study: Study, size: str = "cpu") -> Exhibit:
    """AKD and AvgKD of an MLP and a random forest over Alpha."""
    panels = measured(study, "fig13", _alphas(FOREST), ["AKD", "AvgKD"], size)
    claims = [
        degrades(panels.cells, "AKD"),
        _faster_apart(panels.cells, "AKD"),
        settles(panels.cells, "AvgKD"),
    ]
    return panels.exhibit("an MLP and a random forest on MNIST, squared loss", claims)


def figure14(study: Study, size: str = "cpu") -> Exhibit:
    """AvgKD of an MLP and a random forest over Alpha."""
    panels = measured(study, "fig14", _alphas(FOREST), ["AvgKD"], size)
    least, *_, most = (cell["AvgKD"].after(-1).mean(axis=0) for cell in panels.cells.values())
    lowered = Claim(
        "different data lower the accuracy of both agents",
        bool((least < most).all()),
        f"after the last round at Alpha = 0: {least[0]:.3f} and {least[1]:.3f}, at 1: {most[0]:.3f} and "
        f"{most[1]:.3f}",
    )
    claims = [lowered, settles(panels.cells, "AvgKD")]
    title = "AvgKD of an MLP (agent 1) and a random forest (agent 2) on MNIST, squared loss"
    return panels.exhibit(title, claims, apart=True)


def figure15(study: Study, size: str = "cpu") -> Exhibit:
    """AvgKD of five agents over Alpha."""
    settings = _alphas(replace(SQUARED, agents=5), (0.0, 0.01, 0.05, 0.1, 1.0))
    panels = measured(study, "fig15", settings, ["AvgKD"], size)
    late = {
        label: float(cell["AvgKD"].mean.mean(axis=0).max() - cell["AvgKD"].last.mean())
        for label, cell in panels.cells.items()
    }
    claims = [
        beats_alone(panels.cells, [label for label in settings if label != _label(1.0)], round=1),
        Claim(
            "stopping early is better at Alpha < 0.05",
            min(late[_label(alpha)] for alpha in (0.0, 0.01)) > 0.01,
            "best round less last, taken as holding above 0.01: "
            + ", ".join(f"{label}: {value:+.3f}" for label, value in late.items()),
        ),
    ]
    title = "AvgKD of five agents on MNIST, labels 2(i − 1) and 2i − 1 at agent i"
    return panels.exhibit(title, claims, apart=True)


def averaged_apart(study: Study, size: str = "cpu") -> Exhibit:
    """AvgKD of two agents with five classes each: how much is put on the other agent's classes."""
    how = SIZES["mnist"]["quick" if study.quick else size]
    setting = Setting(portion=0.0)
    rows, held = [], []
    models: dict[str, dict[str, bool]] = {
        how.first[0]: {},
        f"{how.first[0]}, goes on from where it was": {"warm_start": True},
        "kernel ridge regression": {"kernel": True},
    }
    for model, options in models.items():
        found = study.repeat(
            trials.averaged_apart,
            study.times(3, 2),
            label=f"averaged-apart, {model}",
            setting=asdict(setting),
            size=asdict(how),
            **options,
        )
        mean = {name: values.mean(axis=0) for name, values in found.items()}
        shown = [t for t in (0, 1, 2, 3, 4, 5, 10, 20) if t <= how.rounds]
        rows += [
            {
                "model": model,
                "round": t,
                "accuracy": float(mean["accuracy"][t]),
                "of each output over its mean": float(mean["divided"][t]),
                "of both models' sum": float(mean["sum"][t]),
                "output on the other's classes": float(mean["foreign"][t]),
                "(1 − (−½)^t)/3": (1 - (-0.5) ** t) / 3,
                "repetitions": len(found["accuracy"]),
            }
            for t in shown
        ]
        held.append(float(mean["divided"][-1] - mean["divided"][1]))
    fixed = Claim(
        "what is known of the other's classes is not lost after round 1, only outvoted (within 0.05)",
        min(held) > -0.05,
        "accuracy of each output over its mean, last round less round 1: "
        + ", ".join(f"{value:+.3f}" for value in held),
    )
    notes = [
        "Not in the paper. Agent 1 learns (y + g²(X¹))/2 on rows of its five classes. If g² puts the share m "
        "there on these classes, the target puts (1 + m)/2 on them and (1 − m)/2 on the other's, and so will "
        "g¹ on the other's rows: m ← (1 − m)/2, which is ½, ¼, ⅜ and goes to ⅓ whatever the model, the rows "
        "and the rounds. Two thirds go to an agent's own classes everywhere, so the largest output is one of "
        "them. Round 1, with one half on each side, is where the paper's gain is to be seen."
    ]
    title = "AvgKD on MNIST, classes 0 to 4 and 5 to 9 apart: why it falls back after round 1"
    return Exhibit("averaged-apart", title, rows, [fixed], [about(how), *notes])


def conjugate_networks(study: Study, size: str = "cpu") -> Exhibit:
    """Conjugate gradients with networks and forests, for which they are not meant, beside EKD."""
    settings = {
        "same model": Setting(portion=0.0),
        "different models": Setting(models="different", portion=0.0),
        "MLP and forest": Setting(models="forest", portion=0.0),
    }
    panels = measured(study, "conjugate-networks", settings, ["EKD"], size)
    cells = {}
    for label, setting in settings.items():
        found = study.repeat(
            any_models.learners,
            study.times(3, 2),
            label=f"conjugate-networks, {label}, conjugate",
            setting=asdict(setting),
            size=asdict(panels.size),
            rounds=min(10, panels.size.rounds),
        )
        cells[label] = {**panels.cells[label], "conjugate": Curve(found["accuracy"][:, :, None])}
    claims = [ensemble(cells, improves=True, scheme=scheme) for scheme in ("EKD", "conjugate")]
    title = "conjugate gradients and EKD on MNIST, squared loss, Alpha = 0"
    return replace(panels, cells=cells).exhibit(title, claims)


# --- figures of one form ------------------------------------------------------------------------------


def _alternating(study: Study, name: str, setting: Setting, size: str) -> Exhibit:
    settings = {"no regularisation": replace(setting, decay=0.0), **_three(setting)}
    panels = measured(study, name, settings, ["AKD"], size)
    curves = {label: cell["AKD"] for label, cell in panels.cells.items()}
    pairs = [
        ("regularisation speeds it up", SAME, "no regularisation"),
        ("different models speed it up", MODEL, SAME),
        ("different data speed it up", DATA, SAME),
        ("different data speed it up more than different models", DATA, MODEL),
    ]
    claims = [degrades(panels.cells, "AKD")]
    claims += [falls_faster(text, (a, curves[a]), (b, curves[b])) for text, a, b in pairs]
    return panels.exhibit(f"AKD on MNIST, {_loss(setting)}", claims, apart=True)


def _averaged(study: Study, name: str, setting: Setting, size: str) -> Exhibit:
    panels = measured(study, name, _three(setting), ["AvgKD"], size)
    curves = {label: cell["AvgKD"].values.mean(axis=0) for label, cell in panels.cells.items()}
    alone_is_best = Claim(
        "no model is better than agent 1 alone",
        all(curve[0, 0] == curve.max() for curve in curves.values()),
        "agent 1 alone, and the best: "
        + "; ".join(f"{label}: {c[0, 0]:.3f}, {c.max():.3f}" for label, c in curves.items()),
    )
    claims = [settles(panels.cells, "AvgKD"), alone_is_best]
    return panels.exhibit(f"AvgKD on MNIST, {_loss(setting)}", claims, apart=True)


def _same_model(
    study: Study,
    name: str,
    setting: Setting,
    size: str,
    *,
    improves: bool,
    alphas: Sequence[float] = ALPHAS,
) -> Exhibit:
    schemes = ["AKD", "PKD", "AvgKD", "EKD", "FedAvg"]
    panels = measured(study, name, _alphas(setting, alphas), schemes, size)
    small = [_label(0.0), _label(0.01)]
    claims = [
        *_everywhere(panels.cells),
        *(beats(panels.cells, small, one, "FedAvg") for one in ("AvgKD", "EKD")),
        ensemble(panels.cells, improves=improves),
    ]
    title = f"all schemes on {setting.data.upper()}, same model, {_loss(setting)}"
    return panels.exhibit(title, claims)


def _different_models(study: Study, name: str, setting: Setting, size: str) -> Exhibit:
    schemes = ["AKD", "PKD", "AvgKD", "EKD"]
    settings = _alphas(replace(setting, models="different"))
    panels = measured(study, name, settings, schemes, size)
    mixed = _label(1.0)
    alike = measured(study, name, _alphas(setting, (1.0,)), schemes[:2], size).cells[mixed]
    faster = [
        falls_faster(
            f"{scheme} degrades faster than with the same model at {mixed}",
            ("different", panels.cells[mixed][scheme]),
            ("same", alike[scheme]),
        )
        for scheme in schemes[:2]
    ]
    claims = [*_everywhere(panels.cells), *faster, ensemble(panels.cells, improves=False)]
    title = f"all schemes on {setting.data.upper()}, different models, {_loss(setting)}"
    return panels.exhibit(title, claims)


def _everywhere(cells: Cells) -> list[Claim]:
    """Claims that figures 6, 8, 9 and 10 share."""
    small = [_label(0.0), _label(0.01)]
    return [
        *(degrades(cells, scheme) for scheme in ("AKD", "PKD")),
        *(_faster_apart(cells, scheme) for scheme in ("AKD", "PKD")),
        settles(cells, "AvgKD"),
        *(beats_alone(cells, small, round=t) for t in (1, -1)),
        *(beats(cells, list(cells), "AvgKD", other) for other in ("AKD", "PKD")),
    ]


def _three(setting: Setting) -> dict[str, Setting]:
    return {
        SAME: setting,
        MODEL: replace(setting, models="different"),
        DATA: replace(setting, portion=0.1),
    }


def _alphas(setting: Setting, alphas: Sequence[float] = ALPHAS) -> Mapping[str, Setting]:
    return {_label(alpha): replace(setting, portion=alpha) for alpha in alphas}


def _label(alpha: float) -> str:
    return f"Alpha = {alpha:g}"


def _loss(setting: Setting) -> str:
    return {"squared": "squared loss", "cross-entropy": "cross-entropy"}[setting.loss]


def _faster_apart(cells: Cells, scheme: str) -> Claim:
    least, most = _label(0.0), _label(1.0)
    return falls_faster(
        f"{scheme} degrades faster with different data",
        (least, cells[least][scheme]),
        (most, cells[most][scheme]),
    )
