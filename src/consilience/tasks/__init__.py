"""Tasks: all that may be asked of a party, and the one door out (:mod:`consilience.tasks.outgoing`)."""

# Whoever knows one task knows all that come with the library: they are read from the wire by their names.
from consilience.tasks import lifecycle as lifecycle
from consilience.tasks import parameters as parameters
from consilience.tasks import predictions as predictions
from consilience.tasks import scores as scores
