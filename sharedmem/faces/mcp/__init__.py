"""The MCP face: shared memory as tools of the Model Context Protocol, for coding agents, assistants and frameworks.

`sharedmem serve mcp` starts it over standard input and output, or over HTTP with `--http`. `McpService` is the same
for a server of one's own, and `mount_mcp` answers beside another application, such as that of REST.

Raises (when imported):
    UnsupportedError: the package `mcp` is not installed.
"""

from sharedmem.errors import UnsupportedError

try:
    import mcp.server  # noqa: F401  # the door
    import starlette  # noqa: F401  # likewise
except ImportError as error:
    raise UnsupportedError("the MCP face", "pip install 'sharedmem-hub[mcp]'") from error

from sharedmem.faces.mcp.http import McpApplication, McpEndpoint, mount_mcp
from sharedmem.faces.mcp.options import McpOptions, Profile
from sharedmem.faces.mcp.service import McpService

__all__ = ["McpApplication", "McpEndpoint", "McpOptions", "McpService", "Profile", "mount_mcp"]
