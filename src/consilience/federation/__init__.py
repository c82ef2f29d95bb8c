"""A federation: parties on a network, the one loop over a protocol's rounds, and the record of them."""
