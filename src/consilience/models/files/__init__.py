"""Models as files: written without pickle, and read without running code from the file."""
