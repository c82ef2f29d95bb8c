"""A party at its own machine: its state on the disk, its limits, its audit log and its configuration."""

from consilience.sites.party.audit import AUDIT, AuditLog, Log, read_log
from consilience.sites.party.configuration import (
    ConnectionSpec,
    PartySpec,
    read_party,
    state_of,
)
from consilience.sites.party.dry_run import DryRunReport, join_alone, try_out
from consilience.sites.party.limits import EVERYTHING, GROUPS, Limits
from consilience.sites.party.public_rows import kept_public
from consilience.sites.party.secret import own_secret
from consilience.sites.party.session import Session, read_session
from consilience.sites.party.site import PartySite
from consilience.sites.party.template import write_template

__all__ = [
    "AUDIT",
    "EVERYTHING",
    "GROUPS",
    "AuditLog",
    "ConnectionSpec",
    "DryRunReport",
    "Limits",
    "Log",
    "PartySite",
    "PartySpec",
    "Session",
    "join_alone",
    "kept_public",
    "own_secret",
    "read_log",
    "read_party",
    "read_session",
    "state_of",
    "try_out",
    "write_template",
]
