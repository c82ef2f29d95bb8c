"""One method with one seed: its rounds, recorded one by one, and its models.

A checkpoint is written when enough time has passed (``checkpoint_seconds``, and seldom enough that
checkpoints take at most a tenth of the time). On resume, the rounds after the last checkpoint are computed
again; they are bit-identical, because every random stream is keyed by (seed, party, round, purpose).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.aggregation.guard import SecretLabels
from consilience.core.errors import ConsilienceError, InvalidInput
from consilience.core.federation.driver import CompletedRound, drive, total_rounds
from consilience.core.federation.federation import Federation, federation_over
from consilience.core.files import inside, write_whole
from consilience.core.learners import Model
from consilience.core.messages.replies import Metrics
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.metrics.metrics import main_metric
from consilience.core.networks import Network, Population, ProcessNetwork, in_process_network
from consilience.core.numerics.randomness import stream
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.party import Party
from consilience.core.party.state import write_mixture
from consilience.core.protocols import Protocol, Round, RoundState
from consilience.core.registry import registered_object
from consilience.core.tasks.base import tasks_of
from consilience.core.tasks.lifecycle import Checkpoint, Restore, TakePublic
from consilience.lab.config.experiment import Spec
from consilience.lab.config.methods import MethodSpec, budget_of
from consilience.lab.experiments.measured_rows import row_scores
from consilience.lab.experiments.setup import SimulatedParties, everyone
from consilience.lab.runs.folder import file_name, model_folder, public_file
from consilience.lab.runs.ledger import Ledger
from consilience.privacy.robust.hostile import HostileNetwork


@dataclass(frozen=True)
class Progress:
    """Progress of a run, for a display.

    Attributes:
        method: label of the method.
        seed: the seed.
        round: rounds done with this method and seed.
        rounds: rounds of this method and seed.
        score: mean over parties of the metric that counts, ``None`` where it was not measured.
    """

    method: str
    seed: int
    round: int
    rounds: int
    score: float | None


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class MethodRun:
    """One method with one seed, and its places in the run folder.

    Attributes:
        spec: the configuration.
        method: the method, one of the configuration's.
        seed: the seed.
        setup: data and parties of the seed.
        folder: the run folder.
    """

    spec: Spec
    method: MethodSpec
    seed: int
    setup: SimulatedParties
    folder: Path

    @property
    def key(self) -> tuple[str, int]:
        """The method's label and the seed, by which the ledger records the run."""
        return self.method.label, self.seed

    @property
    def alone(self) -> bool:
        """Whether the parties exchange no messages, so that all of them start at once."""
        return self.method.aggregate in ("local", "central")

    @property
    def drawn(self) -> bool:
        """Tell whether only the parties of a round are looked at, of more than anyone would train."""
        return self.spec.network.kind == "population" and not self.alone

    def parties(self, ready: Iterable[Party] | None) -> list[Party] | Population:
        """Make the parties with their files in the run folder; use the ready ones if they fit the method."""
        budget, central = budget_of(self.method), self.method.aggregate == "central"
        if ready is None or isinstance(ready, Population) or budget is not None or central:
            make = self.setup.maker(pooled=central, budget=budget)
            return everyone(self.spec, self.setup.names, lambda name: self._settled(make(name)))
        return list(map(self._settled, ready))

    def _settled(self, party: Party) -> Party:
        """Set the folders and files of the party inside the run folder, and return the party."""
        party.keep_states_in(inside(self._states / file_name(party.name), self.folder))
        inside(self._model_folder(party.name), self.folder)
        answers = self.folder / "answers" / f"{file_name(party.name)}.jsonl"
        party.keep_answers(inside(answers, self.folder))
        return party

    @property
    def _states(self) -> Path:
        """The folder of the parties' checkpoints."""
        return self.folder / "state"

    def forget_states(self) -> None:
        """Delete the parties' checkpoints."""
        shutil.rmtree(self._states, ignore_errors=True)

    def _model_folder(self, party: str) -> Path:
        return model_folder(self.folder, *self.key, party)

    def protocol(self) -> Protocol:
        """Make the method's protocol; baselines with true labels get them from the setup."""
        informed = self.setup.informed(self.method.aggregate)
        return self.spec.protocol_for(self.method, informed, self._secret_labels())

    def _secret_labels(self) -> SecretLabels | None:
        """Draw, by the seed, public rows whose labels the coordinator holds; ``None`` if not configured."""
        self.spec.robustness.check_parties(self.setup.names)
        count, truth = self.spec.robustness.secret_labels, self.setup.public_labels
        if count is None:
            return None
        if not isinstance(count, int) or truth is None or not 0 < count < len(truth):
            known = 0 if truth is None else len(truth)
            raise InvalidInput(
                f"secret_labels is {count}, of {known:,} public rows whose class is known",
                where="robustness",
                mend="In an experiment give a number of these rows, fewer than all.",
            )
        rows = stream(self.seed, "coordinator", 0, "secret-labels").permutation(len(truth))[:count]
        return SecretLabels(rows, tuple(str(label) for label in truth[rows]))

    def keep_models(self, models: Mapping[str, Model]) -> None:
        """Write models into the run folder, with all that reading them needs."""
        scaling = self.setup.scaling
        scaled = scaling and {"centre": scaling.centre.tolist(), "spread": scaling.spread.tolist()}
        for name, model in models.items():
            folder = self._model_folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"model{model.learner.suffix}", model.learner.save)
            if isinstance(model, MixedModel):
                write_mixture(model, folder)
                rows = public_file(self.folder, self.seed)
                if model.region is not None and not rows.exists():
                    rows.parent.mkdir(exist_ok=True)
                    write_whole(rows, encode([TakePublic.of(self.setup.public)]))
            brought = self.setup.models[self.setup.names.index(name)]
            about = {
                "classes": model.classes,
                "outcome": "" if model.outcome is None else model.outcome.key,
                "outputs": model.learner.n_outputs,
                "model": {"name": brought.name, **brought.options},
                "schema": None if model.learner.schema is None else model.learner.schema.to_json(),
                "row_shape": self.setup.dataset.X.shape[1:],
                "scaling": scaled,
            }
            write_whole(folder / "model.json", json.dumps(about, indent=2))


class Checkpoints:
    """States that the parties write when enough time has passed.

    Args:
        network: the parties.
        pause: seconds between two checkpoints, at least.
        last: round of the last one; 0 for none.
    """

    def __init__(self, network: Network, pause: float, last: int) -> None:
        self._network, self._pause, self._last = network, pause, last
        self._saved_at, self._cost = time.perf_counter(), 0.0

    def write(self, round: int) -> bool:
        """Have all parties write their states if it is time to; a party that cannot keeps the run going."""
        now = time.perf_counter()
        if now - self._saved_at < max(self._pause, 10 * self._cost):
            return False
        kept = self._network.gather(Checkpoint(round=round, previous=self._last))
        # When checkpoints fall is chance; the ledger is of what the protocol did.
        sent, writing = self._network.deliveries, tasks_of("checkpoint")
        sent[:] = [one for one in sent if one.tasks not in writing or one.status != "ok"]
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - now
        if kept.missing:  # they keep the checkpoint before the last one, to go back to
            return False
        self._last = round
        return True


@dataclass(frozen=True)
class _Rounds:
    """Rounds of a protocol: each is measured, kept and written down.

    Attributes:
        method: the method and seed.
        ledger: ledger of the run.
        federation: the parties present from the start.
        protocol: protocol of the method.
        checkpoints: checkpoints of the parties.
    """

    method: MethodRun
    ledger: Ledger
    federation: Federation
    protocol: Protocol
    checkpoints: Checkpoints

    @property
    def total(self) -> int:
        """Number of rounds, round 0 aside."""
        return total_rounds(self.protocol)

    def after(
        self, state: RoundState | None, late: Mapping[int, list[Party]]
    ) -> Iterator[CompletedRound]:
        """Do the rounds after a state, from the start if it is ``None``; late parties join after theirs."""
        for stop in (*sorted(late), None):
            if state is None or state.round != stop:
                for done in drive(
                    self.federation,
                    self.protocol,
                    state=state,
                    seconds=self.ledger.last_round(*self.method.key)[1],
                    evaluate=self._evaluate,
                    checkpoint=self._checkpoint,
                    record=self._record,
                ):
                    state = done.round.state
                    yield done
                    if done.round.number == stop:
                        break
            if stop is not None:
                self.federation.admit(late[stop])

    def measured(self, round: Round) -> tuple[str, ...] | None:
        """Names of the parties that a round is measured at; ``None`` for all."""
        if not self.method.drawn:
            return None
        return () if round.replies is None else round.replies.parties

    def _evaluate(self, round: Round) -> Mapping[str, Metrics]:
        if round.number == self.total or round.number % self.method.spec.evaluate_every == 0:
            return self.federation.evaluate(round.number, parties=self.measured(round))
        return {}

    def _checkpoint(self, round: Round, seconds: float) -> bool:
        kept = not self.method.drawn and round.number != self.total
        return kept and self.checkpoints.write(round.number)

    def _record(self, done: CompletedRound) -> None:
        ledger, network, round = self.ledger, self.federation.network, done.round
        teacher, truth = round.teacher, self.method.setup.public_labels
        classes, accuracy = network.agreed.classes, None
        with ledger.transaction():
            if teacher is not None and truth is not None and classes:
                # Not imported before there is a teacher.
                from consilience.lab.diagnostics.error_parts import teacher_parts

                said = np.asarray(classes)[teacher.values.argmax(axis=1)]
                accuracy = float((said == truth).mean())
                ledger.add_trust(*self.method.key, round.number, teacher, truth)
                parts = teacher_parts(round, truth, classes)
                ledger.write(
                    "teachers", [(*self.method.key, round.number, *part) for part in parts.items()]
                )
            ledger.add_round(*self.method.key, done, network.deliveries, teacher_accuracy=accuracy)
        network.deliveries.clear()
        alone = any(one.aggregate == "local" for one in self.method.spec.methods)
        if round.number == 0 and not alone and not self.method.drawn:
            self.score_rows(network.models(), 0)

    def score_rows(self, models: Mapping[str, Model], round: int) -> None:
        """Record the scores of single test rows after a round."""
        setup = self.method.setup
        data, truth = setup.dataset, setup.labels(setup.dataset.y_test)
        scores = row_scores(models, data.X_test, truth, setup.outcome)
        with self.ledger.transaction():
            self.ledger.write("row_scores", [(*self.method.key, round, *one) for one in scores])


def run_method(
    run: MethodRun, ledger: Ledger, report: Report, ready: Iterable[Party] | None = None
) -> None:
    """Run the remaining rounds of a method, and store the models.

    Args:
        run: the method and seed.
        ledger: ledger of the run.
        report: function called after every round.
        ready: parties made from the run's setup, which have joined a federation but not trained; by default
            new ones are made.

    Raises:
        RunFailed: too few parties answered, or a file cannot be written.
    """
    parties = run.parties(ready)
    late = _late_parties(run, parties, ledger)
    if late:
        parties = [one for one in parties if all(one not in group for group in late.values())]
    network = make_network(run.spec, parties, run.setup.public, run.seed)
    try:
        _run_rounds(run, ledger, report, network, late)
    except ConsilienceError as error:
        place = f"method {run.method.label}, seed {run.seed}"
        raise (error if error.where else error.located("run")).located(place) from error
    finally:
        network.close()


def _late_parties(
    run: MethodRun, parties: Iterable[Party], ledger: Ledger
) -> dict[int, list[Party]]:
    """Group the parties yet to join by the round after which they join."""
    after = {late.name: late.after for late in run.spec.late}
    late: dict[int, list[Party]] = {}
    if after and not run.alone:
        done, _ = ledger.last_checkpoint(*run.key) or (0, b"")
        for party in parties:
            if after.get(party.name, 0) >= max(done, 1):
                late.setdefault(after[party.name], []).append(party)
    return late


def _run_rounds(
    run: MethodRun, ledger: Ledger, report: Report, network: Network, late: dict[int, list[Party]]
) -> None:
    """Do the rounds on a network, and keep the models."""
    spec, threads = run.spec, run.spec.network.threads
    federation = federation_over(
        network, run.setup.public, seed=run.seed, strict=spec.strictly, threads=threads
    )
    state = _restored(run, ledger, federation)
    if state is None:
        run.forget_states()
    ledger.mark(*run.key, "running")
    last, _ = ledger.last_checkpoint(*run.key) or (0, b"")
    checkpoints = Checkpoints(network, spec.checkpoint_seconds, last)
    rounds = _Rounds(run, ledger, federation, run.protocol(), checkpoints)
    measured = None
    for done in rounds.after(state, late):
        measured, score = rounds.measured(done.round), _mean_metric(spec, done.metrics)
        report(Progress(*run.key, done.round.number, rounds.total, score))
    models = network.models()
    if measured is not None:
        models = {name: models[name] for name in measured if name in models}
    rounds.score_rows(models, rounds.total)
    kept = {"all": spec.seed_list, "first": spec.seed_list[:1], "none": ()}
    if run.seed in kept[spec.keep_models]:
        run.keep_models(models)
    ledger.mark(*run.key, "done", ledger.last_round(*run.key)[1])
    ledger.forget_states(*run.key)
    run.forget_states()


def _restored(run: MethodRun, ledger: Ledger, federation: Federation) -> RoundState | None:
    """Restore the parties to the last checkpoint; the protocol's state then, ``None`` without any."""
    found = ledger.last_checkpoint(*run.key)
    ledger.forget_after(*run.key, found[0] if found else -1)
    if found is None:
        return None
    federation.form()
    federation.network.require(Restore(round=found[0]))
    federation.network.deliveries.clear()
    state: RoundState
    (state,) = decode(found[1])
    return state


def _mean_metric(spec: Spec, metrics: Mapping[str, Metrics]) -> float | None:
    """The mean over parties of the metric that counts, if any has it."""
    name = spec.metric or main_metric(name for one in metrics.values() for name in one.values)
    found = [np.nan if name is None else one.values.get(name, np.nan) for one in metrics.values()]
    return float(np.nanmean(found)) if np.isfinite(found).any() else None


def check_liars(spec: Spec) -> None:
    """Raise ``InvalidInput`` where parties would lie elsewhere than in this process, in memory."""
    if spec.hostile is not None and spec.network.kind not in ("local", "wire"):
        raise InvalidInput(
            f"parties lie in this process alone, and network.kind is {spec.network.kind!r}",
            where="hostile",
            mend='Set network.kind = "local".',
        )


def make_network(
    spec: Spec, parties: Sequence[Party] | Population, public: Public, seed: int
) -> Network:
    """Make the configured network.

    Args:
        spec: the configuration.
        parties: parties on the network.
        public: the public rows.
        seed: seed of the run.

    Returns:
        The network; with hostile parties in the configuration, a network that makes them lie.
    """
    chosen = spec.network
    limits: dict[str, Any] = {"timeout": chosen.timeout, "quorum": chosen.quorum}
    if spec.hostile is not None and not isinstance(parties, Population) and len(parties) > 1:
        lies: dict[str, Any] = {"hostile": spec.hostile.hostile(), "seed": seed}
        return HostileNetwork(parties, public, wire=chosen.kind == "wire", **lies, **limits)
    if chosen.kind == "processes":
        return ProcessNetwork(
            parties, public, processes=chosen.processes, threads=chosen.threads, **limits
        )
    if chosen.kind == "ray":
        network = registered_object("consilience.networks", chosen.kind)
        made: Network = network(parties, public, threads=chosen.threads, **limits)
        return made
    return in_process_network(parties, public, wire=chosen.kind == "wire", **limits)
