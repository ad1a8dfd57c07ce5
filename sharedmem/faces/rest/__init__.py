"""The REST face: all of shared memory over HTTP, for agents in any language.

`sharedmem serve rest` starts it; `create_app` is the same as an application for a server of one's own.

Raises (when imported):
    UnsupportedError: Starlette or uvicorn is not installed.
"""

from sharedmem.errors import UnsupportedError

try:
    import starlette  # noqa: F401  # the door
    import uvicorn  # noqa: F401  # likewise
except ImportError as error:
    raise UnsupportedError("the REST face", "pip install 'sharedmem-hub[server]'") from error

from sharedmem.faces.rest.app import RestApplication, create_app, lifespan_of
from sharedmem.faces.rest.console import Console, LoginCode
from sharedmem.faces.rest.context import Call, Endpoint, Handler, RestOptions
from sharedmem.faces.rest.server import RestServer, quick_loop

__all__ = [
    "Call",
    "Console",
    "Endpoint",
    "Handler",
    "LoginCode",
    "RestApplication",
    "RestOptions",
    "RestServer",
    "create_app",
    "lifespan_of",
    "quick_loop",
]
