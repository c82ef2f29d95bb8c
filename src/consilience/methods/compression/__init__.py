"""Compression of messages, at both ends.

Compression of an exchange has four steps. Tasks, protocols and aggregators see messages without it::

    coordinator  compress_tasks    takes arrays out of tasks, says how it wants the replies
    party        restore_tasks     puts them back, before the tasks run
    party        compress_replies  takes arrays out of replies, last before they leave
    coordinator  restore_replies   puts them back, first when they arrive

:mod:`consilience.core.networks.base` calls the first, :mod:`consilience.core.tasks.outgoing` the two at a
party, and :mod:`consilience.core.networks.incoming` the last.

:mod:`.codec` has the settings, :mod:`.stage` what travels and the four steps. :mod:`.rows`, :mod:`.numbers`
and :mod:`.zstd` have the bytes of tables, of other arrays, and of a whole message. :mod:`.rounds` wraps a
protocol.
"""
