"""A party at its own machine: its state on the disk, its limits, its audit log and its configuration."""

from consilience.site.audit import AuditLog, Log, read_log
from consilience.site.configuration import (
    ConnectionSpec,
    PartySpec,
    read_party,
    state_of,
    write_template,
)
from consilience.site.dry_run import Trial, alone, tried
from consilience.site.limits import EVERYTHING, GROUPS, Limits
from consilience.site.party_site import AUDIT, PartySite
from consilience.site.public_rows import kept_public
from consilience.site.requests import failure_of
from consilience.site.secret import own_secret
from consilience.site.session import Session, read_session

__all__ = [
    "AUDIT",
    "EVERYTHING",
    "GROUPS",
    "AuditLog",
    "ConnectionSpec",
    "Limits",
    "Log",
    "PartySite",
    "PartySpec",
    "Session",
    "Trial",
    "alone",
    "failure_of",
    "kept_public",
    "own_secret",
    "read_log",
    "read_party",
    "read_session",
    "state_of",
    "tried",
    "write_template",
]
