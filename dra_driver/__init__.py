"""coreslice: a Dynamic Resource Allocation driver for AWS Neuron chips."""

__version__ = "0.1.0"
