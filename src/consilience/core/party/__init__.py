"""The private side of a party: its rows, its model, its training and its scores of rows.

The same code runs in a simulation and at a hospital. At a hospital, :mod:`consilience.sites.party` adds
limits, saved state and an audit log, and runs the processes that connect the party. ``consilience party`` is
its command line.
"""
