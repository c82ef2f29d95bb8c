"""Tasks: what protocols and a run ask of a party, and the one door through which its replies leave."""

# Whoever knows one task knows those of all protocols of the library: they are read from the wire by their
# names. A protocol of another package brings its own, and worker processes have one of theirs.
from consilience.tasks import boosting as boosting
from consilience.tasks import class_sums as class_sums
from consilience.tasks import lifecycle as lifecycle
from consilience.tasks import models as models
from consilience.tasks import parameters as parameters
from consilience.tasks import predictions as predictions
from consilience.tasks import scores as scores
from consilience.tasks import secure_sums as secure_sums
