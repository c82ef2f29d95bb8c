"""The private side of a party: its rows, its model, its training and its scores of rows."""
