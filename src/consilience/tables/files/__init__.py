"""Read and check files of tables."""
