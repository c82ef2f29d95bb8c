"""Privacy budgets: mechanisms, losses and the ledger of what was spent."""
