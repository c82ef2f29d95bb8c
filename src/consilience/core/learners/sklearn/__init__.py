"""Models of scikit-learn and of libraries with its interface."""
