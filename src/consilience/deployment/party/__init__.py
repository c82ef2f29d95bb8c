"""A party's side of a deployed federation."""
