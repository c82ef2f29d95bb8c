"""Configuration of a party to be filled in, as ``consilience party init`` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from consilience.lab.config.sections import write_new

TEMPLATE = """\
# A party of a federation. File names are relative to this file.
# When all is filled in:  consilience party check party.toml

name = "my-site"                  # what the others call you; agree on it with the coordinator
public = "public.csv"             # your copy of the public rows; without this line the coordinator sends them
state = "state"                   # your model and your audit log; make backups, share it with nobody
threads = 1                       # processor cores to work with

[data]
path = "data.csv"                 # your rows: .csv with a header line, .parquet, .xlsx or .npz
target = "label"                  # the column to predict
# For survival: time and event, two columns, in place of target; and a section [outcome] with edges.
# classes = ["no", "yes"]         # with limits.epsilon: which there are, for your rows would tell
# labels = false                  # without labels you are taught, and send nothing
# columns = ["age", "pressure"]   # inputs; without it, those of the public rows, in any order
# missing = "allowed"             # take part without columns that you lack
# unknown = "missing"             # read categories that the public rows do not have as missing
test = 0.2                        # share of rows to measure on, never trained on; or a file: "test.csv"
calibration = 0.2                 # share of the other rows for choices along the way

# units = { weight = 0.4536 }     # factors that bring your numbers to the unit of the public rows
# [data.rename]                   # your column = the name that the public rows have for it
# years = "age"

# [data.aliases]                  # your label = the name that the federation uses
# "1" = "ill"

[model]
name = "random-forest"            # consilience list learners; or "package.module:name", "my_model.py:name"
n_estimators = 100                # other keys are the model's own parameters
# sends_rows = true               # where models are exchanged: it may be sent though it holds rows

[limits]                          # what goes beyond is refused, and recorded in the audit log
allow = ["predictions"]           # also: "parameters" (of a network), "models" (whole ones), "others"
rounds = 200                      # in how many rounds you take part, in all
# epsilon = 3.0                   # keep all that leaves you to this privacy: see "Private by a number"
# ledger = "../ledgers"           # with it: a folder that all your federations share, to spend epsilon once,
# subjects = "0000000000000000000000000000000000000000000000000000000000000000"  # and sha256sum data.csv
# masks = true                    # answer in secure sums alone, so that nobody sees what you say by yourself
# federation = "heart"            # take part in this one alone
# protocols = ["scaffold"]        # of those with tasks of their own, these alone
# classes = 1_000                 # how many classes a coordinator may have you tell apart
# public_bytes = 1_000_000_000    # how large public rows from the coordinator may be; 0: your own file alone
# public_sets = 1                 # how many sets of such rows are taken, in all
# overlap = false                 # whether you train on rows of yours that are public rows too
# alpha = 0.1                     # the least weight of your own rows beside the teacher's
# metrics = 1                     # how often in a run you say how good your model is, to three digits
# metrics_in_all = 10             # how often in all
# answers = 5_000                 # how many rows a model with name = "frozen" is asked about, in all

# [limits.density_ratios]         # with this line you give density ratios, as coarse as these settings
# rows = 20                       # of no class with fewer rows
# unit = 5                        # in counts that are multiples of it
# directions = 20                 # in so many directions of the space that all parties share
# sets = 1                        # for so many sets of public rows, in all

# [coordinator]                   # with "consilience party start"; else leave it out
# address = "coordinator.example.org:9092"
# certificate = "ca.pem"          # the coordinator's tls/ca.pem
# key = "party.key"               # yours alone: consilience party key makes it and prints its public half

# [roster]                        # for secure sums: the lines that party key prints at the others,
# east = "ecdsa-sha2-nistp384 …"  # by telephone; without them the coordinator can get between you
"""


def write_template(folder: Path) -> Path:
    """Write a ``party.toml`` with comments, for a party named after its folder.

    Returns:
        The path of the file.

    Raises:
        InvalidInput: there is one already, or the folder cannot be written.
    """
    path, name = folder / "party.toml", json.dumps(folder.resolve().name or "my-site")
    write_new(path, TEMPLATE.replace('"my-site"', name))
    return path
