"""The private side of a party: its rows, its model, its training and its scores of rows.

It is the same in a simulation and at a hospital. There :mod:`consilience.sites.party` puts limits, a state on
the disk and an audit log around it, :mod:`consilience.sites.party` runs the processes that connect it, and
``consilience party`` is their command line.
"""
