"""Processes between machines, over Flower: those of a coordinator and those of a party.

What is run is what :mod:`consilience.experiments` runs, and what a party answers is
:class:`consilience.site.PartySite`'s; here is what starts them, connects them, and sees them to the end.
Nothing is imported here: a party imports one module of this room for every message.
"""
