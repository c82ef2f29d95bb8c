"""Tasks: everything that a party may be asked, and the one door through which its replies leave."""

# Whoever knows one task knows all that come with the library: they are read from the wire by their names.
from consilience.tasks import lifecycle as lifecycle
from consilience.tasks import parameters as parameters
from consilience.tasks import predictions as predictions
from consilience.tasks import scores as scores
