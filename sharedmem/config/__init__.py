"""Settings: every value that can be chosen, and where each choice came from."""

from sharedmem.config.environment import TOKEN_VARIABLE
from sharedmem.config.files import CONFIG_VARIABLE
from sharedmem.config.settings import NO_TIER, SCHEMES, Kind, KindRules, Setting, Settings, masked, unknown_environment

__all__ = [
    "CONFIG_VARIABLE",
    "NO_TIER",
    "SCHEMES",
    "TOKEN_VARIABLE",
    "Kind",
    "KindRules",
    "Setting",
    "Settings",
    "masked",
    "unknown_environment",
]
