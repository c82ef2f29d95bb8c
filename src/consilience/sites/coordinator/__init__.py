"""The coordinator's side of a deployed federation."""
