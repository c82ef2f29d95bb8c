"""Models as files: written without pickle, read without running what a stranger wrote."""
