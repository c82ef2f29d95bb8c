"""Attacks on a finished run: measure how much the data sent by its parties reveal about their rows.

A run's folder records the configuration and the kinds of sent data, but not the numbers themselves. The
rounds are therefore computed again from the configuration, bit-identically, and compared with the ledger;
only the noise for privacy is redrawn, because it is never stored. Shadow parties with hold-out rows then
answer the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed, nearest
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import ClassRatios
from consilience.core.numerics.randomness import limited_threads, stream
from consilience.core.tasks.base import bookkeeping_tasks
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.lab.config.experiment_sections import LateSpec
from consilience.lab.config.methods import MethodSpec, budget_of
from consilience.lab.experiments import SimulatedParties, Spec, gather, stored_spec
from consilience.lab.experiments.late import read_late
from consilience.lab.runs.folder import LEDGER, locked, read_configuration, run_of
from consilience.lab.runs.ledger import Ledger
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.attacks.class_shares import (
    divergence,
    shares_from_predictions,
    shares_from_sums,
)
from consilience.privacy.attacks.inversion import rows_rebuilt
from consilience.privacy.attacks.membership import (
    FEWEST_SHADOWS,
    area_under_curve,
    confidence_likelihood,
    highest_area,
    public_row_likelihood,
    relative_likelihood,
    true_positives,
)
from consilience.privacy.attacks.shadows import (
    FEWEST_ROWS,
    Answers,
    Candidates,
    RecordedNetwork,
    Shadows,
    on_one_scale,
)
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.sums import CONSTANT, SCALE
from consilience.privacy.secure_aggregation.messages import MaskedInput

ATTACKS = ("membership", "class-shares", "lira", "rmia", "inversion")
"""``lira`` and ``rmia`` ask the model about the rows themselves, as a coordinator can that lays them among
the public rows."""

FIGURES = (
    "AUC", "AUC sd", "TPR at 1 % FPR", "TPR at 0.1 % FPR", "AUC of this run", "highest AUC",
    "KL of shares", "KL of equal shares", "rebuilt at", "public row at",
)  # fmt: skip
"""Figures of the table: means over simulated parties, and the run's own; how far no attack gets where a
budget was set; the divergence of guessed class shares from the true ones, and of equal ones, in nats; the
distances of :func:`.inversion.nearest_rows`."""


@dataclass(frozen=True)
class Leak:
    """Result of one attack on one party of a run.

    Attributes:
        method: label of the method.
        party: name of the party.
        model: name of its model.
        attack: name of the attack.
        figures: some of :data:`FIGURES`.
        why_not: reason for which the attack could not be made, or empty.
    """

    method: str
    party: str
    model: str
    attack: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    why_not: str = ""


@dataclass(frozen=True)
class AttackedRun:
    """Results of attacks on a run.

    Attributes:
        leaks: of every method, party and attack.
        about: one sentence on the seed, the hold-out and the shadows.
    """

    leaks: tuple[Leak, ...]
    about: str

    def table(self) -> list[list[str]]:
        """Give the results as texts: a head, and a line for each; without the distances, where none are."""
        far = any(FIGURES[-1] in leak.figures for leak in self.leaks)
        names = FIGURES if far else FIGURES[:-2]
        lines = [["method", "party", "model", "attack", *names]]
        for leak in self.leaks:
            attack = leak.attack + f" ({leak.why_not})" * bool(leak.why_not)
            shown = (f"{leak.figures[name]:.3f}" if name in leak.figures else "–" for name in names)
            lines.append([leak.method, leak.party, leak.model, attack, *shown])
        return lines


def attack_run(
    folder: Path,
    attacks: Sequence[str] = ATTACKS[:2],
    *,
    methods: Sequence[str] = (),
    parties: Sequence[str] = (),
    seed: int | None = None,
    holdout: Path | None = None,
    shadows: int = 192,
    targets: int = 32,
    rows: int = 200,
    report: Callable[[str, int, int], None] = lambda what, done, all: None,
) -> AttackedRun:
    """Attack the parties of a finished simulated run, and write the results into its ledger.

    Model code from outside of the trusted packages runs only inside of :func:`consilience.models.trusting`.

    Args:
        folder: the run folder.
        attacks: some of :data:`ATTACKS`.
        methods: labels of methods; by default all in which parties send data.
        parties: names of parties; by default the first of each model.
        seed: the seed; by default the run's first.
        holdout: a file of labelled rows that no party has, with the columns of the run's; by default the test
            rows of the run.
        shadows: number of shadow parties, for each party, that train the attack.
        targets: number of simulated parties under attack in addition to the run's own.
        rows: largest number of rows for membership inference; half of them are the party's own.
        report: function called with the attack, shadows done, and shadows in all.

    Returns:
        The measured leaks by method, party and attack.

    Raises:
        InvalidInput: no such attack, method or party; a deployed or unfinished run, or other data than its;
            a hold-out with too few rows; before anything is trained.
        RunFailed: the run computed again is not the run of the ledger, or a shadow cannot answer.
    """
    folder = run_of(folder)
    for attack in attacks:
        _check_known("attack", attack, ATTACKS, "--with")
    check_number("shadows", shadows, at_least=FEWEST_SHADOWS, whole=True, where="attack")
    check_number("targets", targets, at_least=1, whole=True, where="attack")
    check_number("rows", rows, at_least=20, whole=True, where="attack")
    spec = _attackable(folder)
    seed = spec.seed_list[0] if seed is None else seed
    _check_known("seed", str(seed), [str(one) for one in spec.seed_list], "--seed")
    chosen = _methods(folder, spec, seed, methods)
    setup = gather(spec, seed)
    _check_rows(folder, setup, seed)
    whose = zip(setup.names, setup.models, strict=True)
    labelled = {name: of.name for name, of in whose if of.labels and of.name != "frozen"}
    for name in parties:
        _check_known("party with rows", name, labelled, "--party")
    first = {model: name for name, model in reversed(labelled.items())}
    setup, n = _with_others(spec, setup, holdout), len(setup.dataset.X)
    attacked = setup.attacked()
    told = [one for one in attacks if one not in ("class-shares", "inversion")]
    known = {
        name: Candidates.of(attacked, name, n, rows, stream(seed, name, 0, "attack candidates"))
        for name in (parties or sorted(first.values()))
        if told
    }
    leaks: list[Leak] = []
    with limited_threads(spec.network.threads):
        for method in chosen:
            network = _recomputed(folder, spec, method, seed, setup)
            for name in parties or sorted(first.values()):
                about = Leak(method.label, name, labelled[name])
                if network.first(name, MaskedInput):
                    why_not = "sums alone left, and no party is attacked by a sum"
                    leaks += [replace(about, attack=one, why_not=why_not) for one in attacks]
                    continue
                if "class-shares" in attacks:
                    leaks.append(_shares(about, network, setup))
                if "inversion" in attacks:
                    values, why_not = rows_rebuilt(name, network, attacked)
                    leak = replace(about, attack="inversion", why_not=why_not)
                    figures = dict(zip(FIGURES[-2:], values, strict=False))
                    leaks.append(replace(leak, figures=figures))
                if told:
                    shadow = Shadows(attacked, name, network.questions[name], budget_of(method))
                    draws = stream(seed, name, 0, "attack shadows")
                    asks = told != ["membership"]
                    told_of = shadow.answers(
                        known[name], shadows + targets, draws, report, ask_rows=asks
                    )
                    spent = network.spent(name)
                    leaks += _memberships(about, told, shadow, told_of, shadows, spent)
    of = "the test rows of the run" if holdout is None else holdout.name
    said = (
        f"Seed {seed}; rows that are nobody's: {len(setup.dataset.X) - n:,}, {of}; for each party {shadows} "
        f"shadows, and {targets} simulated parties under attack."
    )
    found = AttackedRun(tuple(leaks), said)
    with closing(locked(folder)), closing(Ledger(folder / LEDGER)) as ledger:
        ledger.note(attacks=found.table(), attacks_about=said)
    return found


# --- before any work ---------------------------------------------------------------------------------


def _check_known(what: str, name: str, known: Collection[str], where: str) -> None:
    if name not in known:
        raise InvalidInput(f"no {what} is called {name!r}", where=where, mend=nearest(name, known))


def _attackable(folder: Path) -> Spec:
    """Configuration of a run whose rounds can be computed again."""
    if read_configuration(folder).kind == "deployed":
        raise InvalidInput(
            "this run was deployed: its parties' rows and answers are not here",
            where=str(folder),
            mend="Attack a simulation with the same protocol, models and numbers of rows: consilience run. "
            "What left a party stands in its own audit log.",
        )
    spec = stored_spec(folder)
    if spec.late:
        raise InvalidInput(
            "parties joined this run late, and its rounds are not computed again",
            where=str(folder),
            mend="Attack the run that they joined.",
        )
    return spec


def _methods(folder: Path, spec: Spec, seed: int, wanted: Sequence[str]) -> list[MethodSpec]:
    """Select the finished methods in which parties send data."""
    exchanging = {m.label: m for m in spec.methods if m.aggregate not in ("local", "central")}
    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        done = ledger.done
    if not exchanging:
        raise InvalidInput("nothing leaves the parties in this run", where=str(folder))
    for label in wanted or exchanging:
        _check_known("method in which something leaves", label, exchanging, "--method")
        if (label, seed) not in done:
            raise InvalidInput(
                f"method {label} is not done with seed {seed}",
                where=str(folder),
                mend="Finish the run first: consilience resume.",
            )
    return [exchanging[label] for label in wanted or exchanging]


def _check_rows(folder: Path, setup: SimulatedParties, seed: int) -> None:
    """Raise ``InvalidInput`` where the data are no longer those of the run."""
    split = setup.holdings
    now = {
        (party, label, int(count))
        for party, row in zip(split.parties, split.counts, strict=True)
        for label, count in zip(split.classes, row, strict=True)
    }
    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        tests = ledger.read("SELECT DISTINCT test FROM own_rows WHERE seed = ?", seed)
        held = ledger.read("SELECT party, class, rows FROM holdings WHERE seed = ?", seed)
    if set(held) != now or tests not in ([], [(Public(setup.dataset.X_test).key,)]):
        raise InvalidInput(
            "the data are not those of the run any more",
            where=str(folder),
            mend="Restore the files that its configuration names, or run it anew.",
        )


def _with_others(spec: Spec, setup: SimulatedParties, holdout: Path | None) -> SimulatedParties:
    """Put rows that no party has behind those of the dataset."""
    data = setup.dataset
    X, y = data.X_test, data.y_test
    if holdout is not None:
        keys = ("target", "time", "event", "kind")
        given = {key: spec.data.options[key] for key in keys if key in spec.data.options}
        late: dict[str, Any] = {
            "name": "holdout",
            "after": 1,
            "data": {"path": holdout, "test": holdout, **given},
            "model": {"name": spec.models[0].name},
        }
        read = read_late(LateSpec.model_validate(late), data)
        X = read.X_test if setup.scaling is None else setup.scaling(read.X_test)
        y = read.y_test
    X, y = np.concatenate([data.X, X]), np.concatenate([data.y, y])
    return replace(setup, dataset=replace(data, X=X, y=y, group=None, group_test=None))


def _recomputed(
    folder: Path, spec: Spec, method: MethodSpec, seed: int, setup: SimulatedParties
) -> RecordedNetwork:
    """Compute the rounds of a method again on a network that records all requests and replies."""
    parties, public = setup.parties(budget=budget_of(method)), setup.public
    network = RecordedNetwork(parties, public, quorum=spec.network.quorum)
    options: dict[str, Any] = {"strict": spec.strictly, "threads": spec.network.threads}
    federation = federation_over(network, public, seed=seed, **options)
    for _ in federation.rounds(spec.protocol_for(method, setup.informed(method.aggregate))):
        pass
    aside = set(bookkeeping_tasks())
    now = [
        (one.party, one.round, one.tasks, one.left)
        for one in network.deliveries
        if not aside.issuperset(one.tasks.split("+"))
    ]
    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        then = ledger.read(
            "SELECT party, round, tasks, left FROM deliveries "
            "WHERE method = ? AND seed = ? AND bookkeeping = 0",
            method.label,
            seed,
        )
    if sorted(now) != sorted(then):
        raise RunFailed(
            f"computed again, {len(now)} replies leave the parties, and not the {len(then)} of the ledger",
            where=f"method {method.label}, seed {seed}",
            mend="Were the models or their packages changed since? Then run it anew.",
        )
    return network


# --- attacks -----------------------------------------------------------------------------------------


def _memberships(
    about: Leak,
    attacks: Sequence[str],
    shadow: Shadows,
    told: Answers,
    count: int,
    spent: PrivacyLoss,
) -> Iterator[Leak]:
    """Results of the attacks of membership on one party; the first ``count`` answers are shadows'."""
    there, asked = told.members[:count], told.members[count:]
    seen = on_one_scale(told.numbers, like=count)
    for attack in attacks:
        leak, why_not = replace(about, attack=attack), shadow.cannot_be_asked
        if attack == "membership":
            why_not = "" if seen.shape[1] else "no numbers left it"
        elif attack == "rmia" and not why_not and told.others.shape[1] < FEWEST_ROWS:
            why_not = "no rows of the hold-out are left to compare with"
        if why_not:
            yield replace(leak, why_not=why_not)
            continue
        if attack == "membership":
            scores = public_row_likelihood(seen[:count], there, seen[count:])
        elif attack == "lira":
            scores = confidence_likelihood(told.rows[:count], there, told.rows[count:])
        else:
            aside: Any = {
                "elsewhere": told.others[:count],
                "targets_elsewhere": told.others[count:],
            }
            scores = relative_likelihood(told.rows[:count], there, told.rows[count:], **aside)
        areas = [area_under_curve(*pair) for pair in zip(scores, asked, strict=True)]
        simulated = scores[:-1], asked[:-1]  # the last is the run's own
        values = [
            float(np.mean(areas[:-1])),
            float(np.std(areas[:-1])),
            true_positives(*simulated),
            true_positives(*simulated, false_positives=0.001),
            areas[-1],
        ]
        if shadow.budget is not None and shadow.budget.adjacency == "add-remove":
            values.append(highest_area(spent))
        yield replace(leak, figures=dict(zip(FIGURES, values, strict=False)))


def _shares(about: Leak, network: RecordedNetwork, setup: SimulatedParties) -> Leak:
    """Infer a party's class shares from its first sums, ratios or probabilities."""
    leak, classes = replace(about, attack="class-shares"), network.agreed.classes
    if not classes or setup.outcome is not None:
        return replace(leak, why_not="it is for classes")
    sums, ratios, said = (
        {party: found for party in network.questions if (found := network.first(party, kind))}
        for kind in (ClassSums, ClassRatios, Predictions)
    )
    name, guess = about.party, None
    if name in sums:
        guess = shares_from_sums(sums[name].values[:, -1] / SCALE / CONSTANT)
    elif name in ratios:
        guess = shares_from_sums(ratios[name].values.sum(axis=0))
    elif name in said and said[name].kind == "probabilities":
        everyone = np.mean([one.values for one in said.values()], axis=0)
        guess = shares_from_predictions(said[name].values, everyone)
    if guess is None:
        return replace(leak, why_not="neither probabilities, ratios nor sums left it")
    own = setup.labels(setup.dataset.y[setup.rows[setup.names.index(name)]])
    truth: Array = np.array([(own == label).mean() for label in classes])
    values = divergence(truth, guess), divergence(truth, np.full(len(truth), 1 / len(truth)))
    return replace(leak, figures=dict(zip(FIGURES[-4:-2], values, strict=True)))
