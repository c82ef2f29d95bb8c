"""Exact unlearning of a party: a certificate that a run was computed again without it.

The party's contribution is not subtracted from models. Every round is computed again from the rows of the
remaining parties, so the models equal those of a run in which the party never took part. The certificate
lists the recomputed rounds and models, with the digest of each round's record and of each model before and
after. It holds no path and does not depend on the original run, which can then be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput, nearest
from consilience.core.files import write_whole
from consilience.core.tasks.scores import asked_once
from consilience.lab.runs.folder import now, versions
from consilience.lab.runs.ledger import Ledger
from consilience.models.files.store import model_digest

BEFORE = "before.json"
"""File in a run folder with the record of the run that it does again."""

CERTIFICATE = "certificate.json"
READABLE = "certificate.txt"

Record = Mapping[str, Any]
"""Record of a run: ``parties``, ``config`` (a digest), ``rounds`` (``[method, seed, round, digest]``),
``models`` (``[file, digest]``), and of parties that are to leave ``left`` and ``answers`` (by name), and
``remains`` (sentences), where it differs from that of parties at machines of their own."""

_RECORDED = {
    "deliveries": "party, round, tasks, status, left, bytes_down, bytes_up",
    "metrics": "party, name, value",
    "trust": "party, class, weight",
    "teachers": "part, value",
}
"""Columns of a round's record that are the same whenever the round is computed again; times are not, nor
what a run that was stopped had to ask a second time."""

REMAINS = {
    "read": "Whoever read an answer or a teacher of the run before has read it, and deletes its copy itself.",
    "public": "Public rows are those of the run before, also where some came from a party that left.",
    "dealt": "Rows of one table were dealt to the parties before anybody left. As in the run before, of all "
    "rows: who holds which, test rows and public rows, the columns with their kinds, categories and gaps, "
    "names of classes, and the bounds of the report's subgroups.",
}
"""What no computation takes back."""


def record_of(run: Path, ledger: Ledger, left: Sequence[str]) -> Record:
    """Take the record of a run that parties are to leave.

    Args:
        run: the run folder.
        ledger: of the run.
        left: names of the parties.

    Raises:
        InvalidInput: a party was never there, or all would leave.
    """
    there = [party for (party,) in ledger.read("SELECT DISTINCT party FROM deliveries ORDER BY 1")]
    if strangers := sorted(set(left) - set(there)):
        raise InvalidInput(
            f"{strangers[0]!r} took no part in this run",
            where="--without",
            mend=nearest(strangers[0], there),
        )
    if not set(there) - set(left):
        raise InvalidInput("no party would be left", where="--without", mend="Name fewer.")
    answers = ledger.read(
        "SELECT party, count(*) FROM deliveries WHERE status = 'ok' GROUP BY party"
    )
    return {
        **_digests(run, ledger),
        "left": sorted(set(left)),
        "answers": {party: count for party, count in answers if party in left},
    }


def keep_record(run: Path, before: Record) -> None:
    """Put the record of the run before into the folder of the one that does it again."""
    write_whole(run / BEFORE, json.dumps(before))


def certify(run: Path, ledger: Ledger) -> None:
    """Write the certificate of a finished run if it repeats another run without some parties.

    Args:
        run: the run folder.
        ledger: ledger of the run.
    """
    if not (run / BEFORE).exists():
        return
    before: Record = json.loads((run / BEFORE).read_text(encoding="utf-8"))
    after = _digests(run, ledger)
    again = [_compared(before, after, kind) for kind in ("rounds", "models")]
    # What is said before round 0 counts too: classes are agreed on by it.
    back = dict(
        ledger.read(
            "SELECT party, min(within) FROM deliveries WHERE status = 'ok' "
            "AND (tasks = 'Join' OR within = 0) GROUP BY party"
        )
    )
    document = {
        "left": before["left"],
        "came_back_in_round": {name: back[name] for name in before["left"] if name in back},
        "answers_that_they_had_given": before["answers"],
        "parties": after["parties"],
        "as_they_were": sorted({*before["parties"]} - {*before["left"]} - {*after["parties"]}),
        "config": {"before": before["config"], "after": after["config"]},
        "rounds": again[0],
        "models": again[1],
        "remains": before.get("remains", [REMAINS["read"], REMAINS["public"]]),
        "written": now(),
        "versions": versions(),
    }
    write_whole(run / CERTIFICATE, json.dumps(document, indent=2))
    write_whole(run / READABLE, _readable(document))


def _digests(run: Path, ledger: Ledger) -> dict[str, Any]:
    """The names of the joined parties, and the digests of the run's configuration, rounds and models."""
    joined = "SELECT DISTINCT party FROM deliveries WHERE tasks = 'Join' AND status = 'ok'"
    parties = [party for (party,) in ledger.read(joined)]
    rounds = ledger.read("SELECT method, seed, round FROM rounds ORDER BY 1, 2, 3")
    models = sorted(path for path in (run / "models").rglob("*") if path.is_file())
    return {
        "parties": sorted(parties),
        "config": sha256((run / "config.json").read_bytes()).hexdigest(),
        "rounds": [[*one, _round_digest(ledger, *one)] for one in rounds],
        "models": [[path.relative_to(run).as_posix(), model_digest(path)] for path in models],
    }


def _round_digest(ledger: Ledger, method: str, seed: int, round: int) -> str:
    """Digest of the reproducible part of a round's record."""
    digest, again = sha256(), asked_once()
    for table, columns in _RECORDED.items():
        within = "within" if table == "deliveries" else "round"
        rows = ledger.read(
            f"SELECT {columns} FROM {table} WHERE method = ? AND seed = ? AND {within} = ? "
            f"ORDER BY {columns}",
            *(method, seed, round),
        )
        if table == "deliveries":
            rows = [row for row in rows if not set(row[2].split("+")) <= again]
        digest.update(json.dumps([table, rows]).encode())
    return digest.hexdigest()


def _compared(before: Record, after: Record, kind: str) -> list[dict[str, Any]]:
    """Records of a kind before and after, with both digests; ``None`` for what one run has not."""
    old, new = ({tuple(key): digest for *key, digest in one[kind]} for one in (before, after))
    names = ("method", "seed", "round") if kind == "rounds" else ("file",)
    return [
        {**dict(zip(names, key, strict=True)), "before": old.get(key), "after": new.get(key)}
        for key in sorted(old.keys() | new.keys())
    ]


def _readable(document: Mapping[str, Any]) -> str:
    """The certificate as text for people; names are quoted as JSON, so that no name can add a line."""

    def shown(digest: str | None) -> str:
        return "-" * 16 if digest is None else digest[:16]

    names, stay, away = (
        ", ".join(map(json.dumps, document[key])) for key in ("left", "parties", "as_they_were")
    )
    given, back = document["answers_that_they_had_given"].values(), document["came_back_in_round"]
    claim = [
        f"Computed again as if {names} had never been there: every round, from the rows of the others alone."
    ]
    if back:
        since = ", ".join(f"{json.dumps(name)} since round {round}" for name, round in back.items())
        claim = [
            f"Computed again without {names}, who came back while this was done: {since}.",
            "The models are not those of a federation that never had it.",
        ]
    remains = list(document["remains"])
    if away:
        remains.append(
            f"Not in this run, each with the model that it had in the run before: {away}."
        )
    lines = [
        *claim,
        "",
        f"joined       {stay}",
        f"answers of those that left, in the run before: {sum(given):,}",
        f"written      {document['written']}, consilience {document['versions']['consilience']}",
        "",
        f"{'before':16}  {'after':16}  the record of",
    ]
    for one in document["rounds"]:
        what = f"{json.dumps(one['method'])}, seed {one['seed']}, round {one['round']}"
        lines.append(f"{shown(one['before'])}  {shown(one['after'])}  {what}")
    if any(one["after"] is None for one in document["rounds"]):
        lines.append(f"{'-' * 16}  a round that was not computed again: this run has fewer")
    if document["models"]:
        lines += ["", f"{'before':16}  {'after':16}  the model file"]
    else:
        lines += ["", "No models were kept in this folder."]
    for one in document["models"]:
        lines.append(f"{shown(one['before'])}  {shown(one['after'])}  {json.dumps(one['file'])}")
    lines += ["", "What no computation takes back:", *(f"- {line}" for line in remains)]
    return "\n".join(lines) + "\n"
