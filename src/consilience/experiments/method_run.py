"""One method with one seed: its rounds, recorded one by one, and its models.

Checkpoints are written when enough time has passed (``checkpoint_seconds``, and never so often that they
take more than a tenth of it); what came after the last one is computed again on resume, and since every
random stream is keyed by (seed, party, round, purpose) it comes out bit for bit the same.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.aggregation import Teacher, oracle
from consilience.errors import ConsilienceError
from consilience.experiments.setup import Cohort
from consilience.experiments.spec import Spec
from consilience.federation.federation import Federation
from consilience.federation.ledger import Ledger
from consilience.federation.methods import MethodSpec
from consilience.files import inside, write_whole
from consilience.messages.replies import Predictions
from consilience.messages.schema import Public
from consilience.messages.wire import decode, encode
from consilience.networks import LocalNetwork, Network, ProcessNetwork
from consilience.party.party import Party
from consilience.protocols import Round, RoundState
from consilience.tasks.lifecycle import Checkpoint, Restore


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever shows it.

    Attributes:
        method: label of the method.
        seed: the seed.
        round: rounds done in this arm.
        rounds: rounds of this arm.
        accuracy: mean over parties of the metric that counts, ``None`` where it was not measured.
    """

    method: str
    seed: int
    round: int
    rounds: int
    accuracy: float | None


Report = Callable[[Progress], None]


@dataclass
class Arm:
    """One method with one seed."""

    spec: Spec
    method: MethodSpec
    seed: int
    cohort: Cohort
    folder: Path
    ledger: Ledger
    report: Report

    def run(self) -> None:
        """Do the rounds that are not done yet, and keep the models.

        Raises:
            RunFailed: too few parties answered, or nothing can be written.
        """
        state_folder = self.folder / "state"
        parties = self.cohort.parties(pooled=self.method.aggregate == "central")
        for party in parties:
            party.home = inside(state_folder / file_name(party.name), self.folder)
            inside(self._model_folder(party.name), self.folder)
        network = make_network(self.spec, parties, self.cohort.public)
        try:
            self._run(network, state_folder)
        except ConsilienceError as error:
            place = f"method {self.method.label}, seed {self.seed}"
            raise (error if error.where else error.located("run")).located(place) from error
        finally:
            network.close()

    def _run(self, network: Network, state_folder: Path) -> None:
        label, seed, ledger = self.method.label, self.seed, self.ledger
        federation = Federation.over(
            network,
            self.cohort.public,
            seed=seed,
            strict=self.spec.strictly,
            threads=self.spec.network.threads,
        )
        state, previous = self._restored(federation)
        if state is None:
            shutil.rmtree(state_folder, ignore_errors=True)
        ledger.write("arms", [(label, seed, "running", 0.0)])
        aggregate = None
        if self.method.aggregate == "oracle":
            assert self.cohort.public_labels is not None
            aggregate = oracle(self.cohort.public_labels, self.cohort.holders)
        protocol = self.spec.protocol_for(self.method, aggregate)
        rounds = int(protocol.options["rounds"])
        saved_at, cost = time.perf_counter(), 0.0
        begun = saved_at - self._seconds()
        for round in federation.rounds(protocol, state=state):
            last = round.number == rounds
            metrics = {}
            if last or round.number % self.spec.evaluate_every == 0:
                metrics = federation.evaluate(round.number)
            now = time.perf_counter()
            checkpoint = not last and now - saved_at >= max(self.spec.checkpoint_seconds, 10 * cost)
            if checkpoint:
                kept = network.gather(Checkpoint(round=round.number, previous=previous))
                # A party that is gone keeps the old checkpoint the last one; the run goes on.
                checkpoint = not kept.missing
                # When checkpoints fall is chance; the books are of what the protocol did.
                network.deliveries[:] = [
                    d
                    for d in network.deliveries
                    if d.tasks != Checkpoint.__name__ or d.status != "ok"
                ]
                saved_at = time.perf_counter()
                cost = saved_at - now
                previous = round.number if checkpoint else previous
            with ledger.transaction():
                self._record(round, metrics, network, now - begun, checkpoint)
            wanted = self.spec.metric
            accuracy = [
                m.values.get(
                    wanted or "accuracy", np.nan if wanted else m.values.get("mse", np.nan)
                )
                for m in metrics.values()
            ]
            self.report(
                Progress(
                    label,
                    seed,
                    round.number,
                    rounds,
                    float(np.nanmean(accuracy)) if np.isfinite(accuracy).any() else None,
                )
            )
        if self.spec.keep_models == "all" or (
            self.spec.keep_models == "first" and seed == self.spec.seed_list[0]
        ):
            self._keep_models(network)
        ledger.write("arms", [(label, seed, "done", self._seconds())])
        ledger.forget_states(label, seed)
        shutil.rmtree(state_folder, ignore_errors=True)

    def _seconds(self) -> float:
        """What the recorded rounds took."""
        query = "SELECT coalesce(max(seconds), 0) FROM rounds WHERE method = ? AND seed = ?"
        return float(self.ledger.read(query, self.method.label, self.seed)[0][0])

    def _restored(self, federation: Federation) -> tuple[RoundState | None, int]:
        """The state after the last checkpoint, the parties' models with it; or nothing."""
        found = self.ledger.last_checkpoint(self.method.label, self.seed)
        self.ledger.forget_after(self.method.label, self.seed, found[0] if found else -1)
        if found is None:
            return None, 0
        number, written = found
        federation.form()
        federation.network.require(Restore(round=number))
        federation.network.deliveries.clear()
        (state,) = decode(written)
        return state, number

    def _record(
        self, round: Round, metrics: Any, network: Network, seconds: float, checkpoint: bool
    ) -> None:
        label, seed, ledger = self.method.label, self.seed, self.ledger
        accuracy = None
        truth = self.cohort.public_labels
        if (
            round.teacher is not None
            and truth is not None
            and self.cohort.dataset.classes is not None
        ):
            names = np.asarray(network.agreed.classes)
            accuracy = float((names[round.teacher.values.argmax(axis=1)] == truth).mean())
        if checkpoint:
            ledger.forget_states(label, seed)
        ledger.write(
            "rounds",
            [
                (
                    label,
                    seed,
                    round.number,
                    seconds,
                    encode([round.state]) if checkpoint else None,
                    int(checkpoint),
                    accuracy,
                )
            ],
        )
        measured = {party: one.values for party, one in metrics.items()}
        ledger.exchanged(label, seed, round.number, network.deliveries, measured)
        network.deliveries.clear()
        if round.teacher is not None and accuracy is not None and truth is not None:
            ledger.write("trust", trust(round.teacher, truth, label, seed, round.number))
            parts = teacher_parts(round, truth, network.agreed.classes)
            ledger.write(
                "teachers",
                [(label, seed, round.number, name, value) for name, value in parts.items()],
            )

    def _model_folder(self, party: str) -> Path:
        return model_folder(self.folder, self.method.label, self.seed, party)

    def _keep_models(self, network: Network) -> None:
        scaling = self.cohort.scaling
        for name, model in network.models().items():
            folder = self._model_folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"model{model.learner.suffix}", model.learner.save)
            brought = self.cohort.models[self.cohort.names.index(name)]
            about = {
                "classes": model.classes,
                "outputs": model.learner.n_outputs,
                "model": {"name": brought.name, **brought.options},
                "columns": self.cohort.dataset.columns,
                "row_shape": self.cohort.dataset.X.shape[1:],
                "scaling": None
                if scaling is None
                else {"centre": scaling.centre.tolist(), "spread": scaling.spread.tolist()},
            }
            write_whole(folder / "model.json", json.dumps(about, indent=2))


def model_folder(run: Path, method: str, seed: int, party: str) -> Path:
    """Where a run keeps a party's trained model."""
    return run / "models" / file_name(method) / f"seed-{seed}" / file_name(party)


def file_name(name: str) -> str:
    """A method's or party's name as a file name: what a file system might mind is written ``%XX``.

    >>> file_name("a/b"), file_name("..")
    ('a%2Fb', '%2E.')
    """
    return re.sub(r'[%/\\\\:*?"<>|\x00-\x1f]|^\.', lambda found: f"%{ord(found[0]):02X}", name)


def teacher_parts(round: Round, labels: NDArray[Any], classes: tuple[str, ...]) -> dict[str, float]:
    """What the squared error of a round's weighted mean of probabilities is made of, by name.

    The reference is the true class, and rows of one class stand for one another: Lemma 4.1 of Kovalchuk et
    al. 2026 (:func:`~consilience.aggregation.error_parts.teacher_error`). Nothing where the teacher is no
    such mean, as of a rule that weighs classes, or after a consensus step.
    """
    teacher = round.teacher
    said = [] if round.replies is None else round.replies.of(Predictions)
    if teacher is None or teacher.weights is None or not said or said[0].kind != "probabilities":
        return {}
    counted = np.isclose(teacher.weights.sum(axis=0), 1)  # others are not taught
    if not counted.any():
        return {}
    weights, truth = teacher.weights[:, counted], labels[counted]
    outputs = np.stack([one.values[counted] for one in said])
    mean = np.einsum("mn,mnk->nk", weights, outputs)
    if not np.allclose(mean, teacher.values[counted], atol=1e-4):
        return {}
    from consilience.aggregation.error_parts import (
        teacher_error,  # not before there is a teacher to judge
    )

    return asdict(teacher_error(outputs, weights, np.asarray(classes) == truth[:, None], truth))


def trust(
    teacher: Teacher, labels: NDArray[Any], method: str, seed: int, round: int
) -> Iterator[tuple[Any, ...]]:
    """Mean weight of every party on the public rows of every class, as rows of the ledger."""
    if teacher.weights is None:
        return
    for label in np.unique(labels):
        means = teacher.weights[:, labels == label].mean(axis=1)
        for party, weight in zip(teacher.parties, means, strict=True):
            yield method, seed, round, party, str(label), float(weight)


def make_network(spec: Spec, parties: list[Party], public: Public) -> Network:
    """The network that a configuration asks for."""
    chosen = spec.network
    limits: dict[str, Any] = {"timeout": chosen.timeout, "quorum": chosen.quorum}
    if chosen.kind == "processes":
        return ProcessNetwork(
            parties, public, processes=chosen.processes, threads=chosen.threads, **limits
        )
    if chosen.kind == "ray":
        from consilience.networks.flower.ray import RayNetwork

        return RayNetwork(parties, public, threads=chosen.threads, **limits)
    return LocalNetwork(parties, public, wire=chosen.kind == "wire", **limits)
