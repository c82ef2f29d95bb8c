"""Protocols in which parameters of models leave a party: FedAvg and its kin."""
