"""A federation: parties on a network, the one loop over rounds, and the record of them."""
