"""Networks of torch: the learner, its architectures, losses and optimisers."""
