"""Further methods, each in one folder: parameters, model exchange, boosting, kernels, comparison rules,
compression."""
