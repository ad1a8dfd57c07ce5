"""Settings: all configurable values, with the origin of each."""

from sharedmem.config.settings import NO_TIER, SCHEMES, Kind, KindRules, Setting, Settings, masked, unknown_environment
from sharedmem.config.sources import CONFIG_VARIABLE, TOKEN_VARIABLE

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
