"""Tasks of protocols and runs for a party, and the single exit for its replies.

Tasks are read from the wire by their names. A package registers each under
``consilience.tasks.GROUP``.
"""
