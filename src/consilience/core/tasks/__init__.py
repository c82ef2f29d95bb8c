"""Tasks: what protocols and a run ask of a party, and the one door through which its replies leave.

Tasks are read from the wire by their names. A package registers each under
``consilience.tasks.GROUP``.
"""
