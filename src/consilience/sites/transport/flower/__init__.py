"""Parties behind Flower: on a SuperLink and SuperNodes, or simulated on Ray."""
