"""The product's errors: one tree, so that a caller catches by kind and never by text.

CoresliceError
├── NeuronError            the machine can't be read as a whole (dra_driver.neuron)
├── SettingsError          a flag or environment variable makes no sense (dra_driver.settings)
├── KubeletError           sockets or registration (dra_driver.kubelet)
└── ApiError               the Kubernetes API (dra_driver.cluster.errors)
"""


class CoresliceError(Exception):
    """Base of all errors raised on purpose; its text is meant for a user."""


class NeuronError(CoresliceError):
    """The hardware tree as a whole can't be read; the text names the path and the remedy."""


class SettingsError(CoresliceError):
    """A setting that makes no sense; the text names the flag, the value and what is allowed."""


class KubeletError(CoresliceError):
    """A socket can't be served or a registration can't be made; the text names the path."""
