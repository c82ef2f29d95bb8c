"""A party at its own machine: its state on the disk, its limits, its audit log and its configuration."""

from consilience.site.audit import AUDIT, AuditLog, Log, read_log
from consilience.site.configuration import (
    ConnectionSpec,
    PartySpec,
    read_party,
    state_of,
)
from consilience.site.dry_run import DryRunReport, join_alone, try_out
from consilience.site.limits import EVERYTHING, GROUPS, Limits
from consilience.site.party_site import PartySite
from consilience.site.public_rows import kept_public
from consilience.site.secret import own_secret
from consilience.site.session import Session, read_session
from consilience.site.template import write_template

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
