"""The durable tier behind a Redis server: what hubs keep there, how it comes back, and what is known of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sharedmem.clock import Clock
from sharedmem.config import Kind, Settings
from sharedmem.durable.draining import Drainer
from sharedmem.durable.images import DataImager
from sharedmem.durable.joining import Joiner
from sharedmem.durable.living import has_expired
from sharedmem.durable.loading import Loader
from sharedmem.durable.opening import Opened
from sharedmem.durable.outbox import records_of
from sharedmem.errors import AccessDeniedError
from sharedmem.models import DurableRecord
from sharedmem.tasks import Background
from sharedmem.telemetry import Counters
from sharedmem.wire.changes import as_list
from sharedmem.wire.keeping import Keeping
from sharedmem.wire.keys import KeySpace, Target
from sharedmem.wire.line import Line
from sharedmem.wire.sender import Sender
from sharedmem.wire.tier import BY_RULE, LOG, Imager, Keep
