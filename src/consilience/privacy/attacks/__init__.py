"""Privacy attacks on the replies of a party, for use on your runs: membership inference and class shares.

The attacks are functions on arrays. :mod:`~consilience.privacy.attacks.membership` separates members from
other rows with shadow parties, and :mod:`~consilience.privacy.attacks.class_shares` estimates a party's share
of rows in each class. :func:`~consilience.lab.diagnostics.attack_run.attack_run` applies them to a run
folder.
"""
