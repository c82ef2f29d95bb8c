"""Messages between machines, over Flower."""
