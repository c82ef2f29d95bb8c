"""Privacy budgets: mechanisms, privacy losses and the ledger of past releases."""
