"""Federation by exchanged predictions: it runs with numpy, scipy, scikit-learn and safetensors."""
