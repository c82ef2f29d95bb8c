"""The commands of a coordinator and of a party."""
