"""One method with one seed: its rounds, recorded one by one, and its models.

Checkpoints are written when enough time has passed (``checkpoint_seconds``, and never so often that they
take more than a tenth of it); what came after the last one is computed again on resume, and since every
random stream is keyed by (seed, party, round, purpose) it comes out bit for bit the same.
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
from consilience.core.federation.federation import Federation
from consilience.core.federation.history import MAIN_METRICS
from consilience.core.files import inside, write_whole
from consilience.core.learners import Model
from consilience.core.messages.replies import Metrics
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks import (
    LocalNetwork,
    Network,
    Population,
    PopulationNetwork,
    ProcessNetwork,
)
from consilience.core.numerics.randomness import stream
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.party import Party
from consilience.core.party.state import write_mixture
from consilience.core.protocols import Protocol, Round, RoundState
from consilience.core.registry import registered_object
from consilience.core.tasks.lifecycle import Checkpoint, Restore, TakePublic
from consilience.lab.config.experiment import Spec
from consilience.lab.config.methods import MethodSpec, budget_of
from consilience.lab.experiments.measured_rows import row_scores
from consilience.lab.experiments.setup import SimulatedParties
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


@dataclass
class MethodRun:
    """One method with one seed.

    Args:
        spec: the configuration.
        method: the method, one of the configuration's.
        seed: the seed.
        setup: the data and parties of the seed.
        folder: the run folder.
        ledger: of the run.
        report: is called after every round.
        ready: parties that were made from ``setup`` and have done nothing but join; by default new ones.
    """

    spec: Spec
    method: MethodSpec
    seed: int
    setup: SimulatedParties
    folder: Path
    ledger: Ledger
    report: Report
    ready: Iterable[Party] | None = None

    def run(self) -> None:
        """Do the rounds that are not done yet, and keep the models.

        Raises:
            RunFailed: too few parties answered, or nothing can be written.
        """
        parties = self.ready
        budget, central = budget_of(self.method), self.method.aggregate == "central"
        if self.spec.network.kind == "population":
            made, live = self.setup.maker(pooled=central, budget=budget), self.spec.network.live
            parties = Population(
                self.setup.names, lambda name: self._settled(made(name)), live=live
            )
        else:
            if parties is None or budget is not None or central:
                parties = self.setup.parties(pooled=central, budget=budget)
            parties = list(map(self._settled, parties))
        self._late: dict[int, list[Party]] = {}
        self._measured: tuple[str, ...] | None = None
        after = {late.name: late.after for late in self.spec.late}
        if after and self.method.aggregate not in ("local", "central"):
            found = self.ledger.last_checkpoint(self.method.label, self.seed)
            done = found[0] if found else 0
            for party in parties:
                if after.get(party.name, 0) >= max(done, 1):
                    self._late.setdefault(after[party.name], []).append(party)
            waiting = {party.name for group in self._late.values() for party in group}
            parties = [party for party in parties if party.name not in waiting]
        self._network = make_network(self.spec, parties, self.setup.public, self.seed)
        try:
            self._run_rounds()
        except ConsilienceError as error:
            place = f"method {self.method.label}, seed {self.seed}"
            raise (error if error.where else error.located("run")).located(place) from error
        finally:
            self._network.close()

    @property
    def _drawn(self) -> bool:
        """Tell whether only the parties of a round are looked at, of more than anyone would train."""
        alone = self.method.aggregate in ("local", "central")
        return self.spec.network.kind == "population" and not alone

    def _settled(self, party: Party) -> Party:
        """The party, told where in the run folder its files are."""
        party.home = inside(self._states / file_name(party.name), self.folder)
        inside(self._model_folder(party.name), self.folder)
        answers = self.folder / "answers" / f"{file_name(party.name)}.jsonl"
        party.keep_answers(inside(answers, self.folder))
        return party

    def _run_rounds(self) -> None:
        label, seed, ledger = self.method.label, self.seed, self.ledger
        self._federation = Federation.over(
            self._network,
            self.setup.public,
            seed=seed,
            strict=self.spec.strictly,
            threads=self.spec.network.threads,
        )
        state, self._last_checkpoint = self._restored()
        if state is None:
            shutil.rmtree(self._states, ignore_errors=True)
        ledger.mark(label, seed, "running")
        protocol = self._protocol()
        self._rounds = total_rounds(protocol)
        self._saved_at, self._cost = time.perf_counter(), 0.0
        for stop in (*sorted(self._late), None):
            for done in self._driven(protocol, state, stop):
                state = done.round.state
                score = self._mean_metric(done.metrics)
                self.report(Progress(label, seed, done.round.number, self._rounds, score))
            if stop is not None:
                self._federation.admit(self._late[stop])
        models = self._network.models()
        if self._measured is not None:
            models = {name: models[name] for name in self._measured if name in models}
        self._score_rows(models, self._rounds)
        if self.spec.keep_models == "all" or (
            self.spec.keep_models == "first" and seed == self.spec.seed_list[0]
        ):
            self._keep_models(models)
        ledger.mark(label, seed, "done", ledger.last_round(label, seed)[1])
        ledger.forget_states(label, seed)
        shutil.rmtree(self._states, ignore_errors=True)

    def _driven(
        self, protocol: Protocol, state: RoundState | None, stop: int | None
    ) -> Iterator[CompletedRound]:
        """Do the rounds after a state, up to the round ``stop`` or all."""
        if state is not None and state.round == stop:
            return
        for done in drive(
            self._federation,
            protocol,
            state=state,
            seconds=self.ledger.last_round(self.method.label, self.seed)[1],
            evaluate=self._evaluate,
            checkpoint=self._checkpoint,
            record=self._record,
        ):
            yield done
            if done.round.number == stop:
                return

    @property
    def _states(self) -> Path:
        """The folder of the parties' checkpoints."""
        return self.folder / "state"

    def _protocol(self) -> Protocol:
        """The method's protocol; one of the baselines that are told true labels has them from the setup."""
        informed = self.setup.informed(self.method.aggregate)
        return self.spec.protocol_for(self.method, informed, self._secret_labels())

    def _secret_labels(self) -> SecretLabels | None:
        """The public rows whose labels the coordinator knows, drawn by the seed; ``None`` for none."""
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

    def _restored(self) -> tuple[RoundState | None, int]:
        """The state after the last checkpoint and its round, with the parties restored; or nothing."""
        found = self.ledger.last_checkpoint(self.method.label, self.seed)
        self.ledger.forget_after(self.method.label, self.seed, found[0] if found else -1)
        if found is None:
            return None, 0
        number, written = found
        self._federation.form()
        self._network.require(Restore(round=number))
        self._network.deliveries.clear()
        (state,) = decode(written)
        return state, number

    def _evaluate(self, round: Round) -> Mapping[str, Metrics]:
        if self._drawn:
            self._measured = () if round.replies is None else round.replies.parties
        if round.number == self._rounds or round.number % self.spec.evaluate_every == 0:
            return self._federation.evaluate(round.number, parties=self._measured)
        return {}

    def _mean_metric(self, metrics: Mapping[str, Metrics]) -> float | None:
        """The mean over parties of the metric that counts, if any has it."""
        wanted = self.spec.metric
        names = MAIN_METRICS if wanted is None else (wanted,)
        found = [
            next((one.values[name] for name in names if name in one.values), np.nan)
            for one in metrics.values()
        ]
        return float(np.nanmean(found)) if np.isfinite(found).any() else None

    def _checkpoint(self, round: Round, seconds: float) -> bool:
        """Have all parties write their states if it is time to; a party that cannot keeps the run going."""
        now = time.perf_counter()
        pause = max(self.spec.checkpoint_seconds, 10 * self._cost)
        if self._drawn or round.number == self._rounds or now - self._saved_at < pause:
            return False
        task = Checkpoint(round=round.number, previous=self._last_checkpoint)
        kept = self._network.gather(task)
        # When checkpoints fall is chance; the ledger is of what the protocol did.
        self._network.deliveries[:] = [
            one
            for one in self._network.deliveries
            if one.tasks != Checkpoint.__name__ or one.status != "ok"
        ]
        self._saved_at = time.perf_counter()
        self._cost = self._saved_at - now
        if (
            kept.missing
        ):  # the party that is gone keeps the checkpoint before the last one to go back to
            return False
        self._last_checkpoint = round.number
        return True

    def _record(self, done: CompletedRound) -> None:
        label, seed, ledger, round = self.method.label, self.seed, self.ledger, done.round
        truth, classes = self.setup.public_labels, self._network.agreed.classes
        judged = round.teacher is not None and truth is not None and bool(classes)
        accuracy = None
        if judged:
            from consilience.lab.diagnostics.error_parts import (
                teacher_parts,  # not before there is one
            )

            assert round.teacher is not None
            said = np.asarray(classes)[round.teacher.values.argmax(axis=1)]
            accuracy = float((said == truth).mean())
        with ledger.transaction():
            ledger.add_round(label, seed, done, self._network.deliveries, teacher_accuracy=accuracy)
            if judged:
                assert round.teacher is not None and truth is not None
                ledger.add_trust(label, seed, round.number, round.teacher, truth)
                parts = teacher_parts(round, truth, classes)
                ledger.write(
                    "teachers",
                    [(label, seed, round.number, name, value) for name, value in parts.items()],
                )
        self._network.deliveries.clear()
        if self._drawn or round.number:
            return
        if all(one.aggregate != "local" for one in self.spec.methods):
            self._score_rows(self._network.models(), 0)

    def _model_folder(self, party: str) -> Path:
        return model_folder(self.folder, self.method.label, self.seed, party)

    def _score_rows(self, models: Mapping[str, Model], round: int) -> None:
        """Record the scores of single test rows after a round."""
        data = self.setup.dataset
        truth = self.setup.labels(data.y_test)
        scores = row_scores(models, data.X_test, truth, self.setup.outcome)
        where = self.method.label, self.seed, round
        with self.ledger.transaction():
            self.ledger.write("row_scores", [(*where, *one) for one in scores])

    def _keep_models(self, models: Mapping[str, Model]) -> None:
        scaling = self.setup.scaling
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
                "scaling": None
                if scaling is None
                else {"centre": scaling.centre.tolist(), "spread": scaling.spread.tolist()},
            }
            write_whole(folder / "model.json", json.dumps(about, indent=2))


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
    """Make the network that a configuration asks for.

    Args:
        spec: the configuration.
        parties: who lives on it.
        public: the public rows.
        seed: of the run.
    """
    chosen = spec.network
    limits: dict[str, Any] = {"timeout": chosen.timeout, "quorum": chosen.quorum}
    if isinstance(parties, Population):
        return PopulationNetwork(parties, public, **limits)
    if spec.hostile is not None and len(parties) > 1:
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
    return LocalNetwork(parties, public, wire=chosen.kind == "wire", **limits)
