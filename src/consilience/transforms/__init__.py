"""Transforms of messages: compression, at both ends, and a party's noise for privacy on its replies.

Compression of an exchange has four steps. Tasks, protocols and aggregators see messages without it::

    coordinator  Compression.requests    takes arrays out of tasks, says how it wants the replies
    party        restore_tasks           puts them back, before the tasks run
    party        compress_replies        takes arrays out of replies, last before they leave
    coordinator  Compression.decompress  puts them back, first when they arrive

:mod:`consilience.networks.base` calls the first, :mod:`consilience.tasks.outgoing` the two at a party, and
:mod:`consilience.networks.incoming` the last.

:mod:`.codec` has the settings, :mod:`.compressed_messages` what travels, :mod:`.coordinator_compression` and
:mod:`.party_compression` the two ends, and :mod:`.row_coder`, :mod:`.number_coder` and :mod:`.byte_coder` the
bytes of tables, of other arrays, and those of a whole message.
"""
