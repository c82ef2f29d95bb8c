"""Processes between machines, over Flower: those of a coordinator and those of a party.

The protocol is driven by :mod:`consilience.core.federation`, as in an experiment, and a party answers by
:class:`consilience.sites.party.PartySite`; here is what starts them, connects them, and sees them to the end.
Nothing is imported here: a party imports one module of this room for every message.
"""
