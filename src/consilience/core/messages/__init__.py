"""Messages between coordinator and party: their fields, their checks and their bytes."""
