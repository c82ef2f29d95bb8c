"""Live pages of a coordinator and of a party, for the user of the machine that serves them."""

PACKAGE = "consilience.sites.pages"
"""Package of the templates."""
