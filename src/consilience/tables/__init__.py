"""Tables: reading, checking and matching columns, and outcomes beyond classes and values."""
