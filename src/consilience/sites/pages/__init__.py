"""Live pages of a coordinator and of a party, for whoever sits at the machine that serves them."""

PACKAGE = "consilience.sites.pages"
"""Package of the templates."""
