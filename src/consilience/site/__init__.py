"""A party where its data is: its state on the disk, its limits, its audit log and its configuration."""

from consilience.site.answering import AUDIT, PartySite, Session, failure_of, read_session
from consilience.site.audit import AuditLog, Log, read_log
from consilience.site.limits import EVERYTHING, GROUPS, Limits

__all__ = [
    "AUDIT",
    "EVERYTHING",
    "GROUPS",
    "AuditLog",
    "Limits",
    "Log",
    "PartySite",
    "Session",
    "failure_of",
    "read_log",
    "read_session",
]
