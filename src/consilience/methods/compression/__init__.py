"""Compress messages between the coordinator and the parties.

Compression of an exchange has four steps. Tasks, protocols and aggregators see messages without it::

    coordinator  Compression.send        takes arrays out of tasks, adds the codec for the replies
    party        CompressedRequest.open  puts them back, before the tasks run
    party        CompressedRequest.seal  takes arrays out of replies, before sending
    coordinator  Compression.receive     puts them back, after receiving

:mod:`consilience.core.tasks.requests` calls ``send``, ``open`` and ``receive``, and
:mod:`consilience.core.tasks.outgoing` calls ``seal``.

:mod:`.codec` has the settings; :mod:`.stage` has the message types and the four steps. :mod:`.rows`,
:mod:`.numbers` and :mod:`.zstd` encode tables, other arrays, and whole messages. :mod:`.rounds` wraps a
protocol.
"""
