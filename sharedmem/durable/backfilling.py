"""Backfilling: foreign records come in line by line through a mapping; what is there already is not written again."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import Field

from sharedmem.durable.archive_files import read_beside, read_blocks, write_beside
from sharedmem.durable.archive_parts import BLOB_PART, LASTING, ArchiveParts, Reference
from sharedmem.durable.archive_sink import Sink
from sharedmem.durable.archives import LeftOut, Progress, Step, _LeaveOut, clock_of
from sharedmem.durable.frames import Place
from sharedmem.durable.landing_tier import take_versions
from sharedmem.durable.living import living
from sharedmem.durable.mapping import Json, Mapped, Mapping, mapped
from sharedmem.durable.snapshots import Snapshots
from sharedmem.durable.texts import member_to_text, to_text
from sharedmem.errors import InternalError, InvalidError
from sharedmem.models import DurableRecord
from sharedmem.models.record import Record
from sharedmem.wire.codec import JSON, encode, encode_member, encode_set_member
from sharedmem.wire.keys import KeySpace

