"""Reading the log of a server that died at its start; the lines are what real servers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharedmem.embedded.data_dir import LaunchAttempt, diagnose, from_os_error
from sharedmem.errors import ConfigError, SharedMemoryError, UnavailableError, UnsupportedError

ATTEMPT = LaunchAttempt(
    binary=Path("/bin/redis-server"), data_dir=Path("/data"), log=Path("/data/redis.log"), port=7000
)


@pytest.mark.parametrize(
    ("tail", "kind", "words"),
    [
        (
            (
                "1:M # Module /w/falkordb.so failed to load: libgomp.so.1: cannot open shared object file: No such file"
                " or directory\n1:M # Can't load module from /w/falkordb.so: server aborting"
            ),
            UnsupportedError,
            ["falkordb.so", "libgomp.so.1", "apt-get install libgomp1", "fewer modules"],
        ),
        (
            "1:M # Module /w w/falkordb.so failed to load: libssl.so.3: cannot open shared object file: No such file",
            UnsupportedError,
            ["falkordb.so", "apt-get install libssl3"],
        ),
        (
            (
                "/bin/redis-server: error while loading shared libraries: libssl.so.1.1: cannot open shared object"
                " file: No such file or directory"
            ),
            UnsupportedError,
            ["/bin/redis-server", "libssl.so.1.1", "SHAREDMEM_REDIS_URL"],
        ),
        (
            (
                "1:M # Module /w/falkordb.so failed to load: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.35' not"
                " found (required by /w/falkordb.so)"
            ),
            UnsupportedError,
            ["falkordb.so", "GLIBC_2.35", "newer system"],
        ),
        (
            (
                "/bin/redis-server: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by"
                " /bin/redis-server)"
            ),
            UnsupportedError,
            ["/bin/redis-server", "GLIBC_2.34"],
        ),
        (
            "1:M # Module /w/rejson.so failed to load: It does not have execute permissions.",
            UnsupportedError,
            ["rejson.so", "execute permissions"],
        ),
        (
            (
                "1:M # Warning: Could not create server TCP listening socket 127.0.0.1:7000: bind: Address already in"
                " use\n1:M # Failed listening on port 7000 (tcp), aborting."
            ),
            ConfigError,
            ["embedded_port", "port 7000", "Address already in use"],
        ),
        (
            "1:M # Failed opening Unix socket: bind: Operation not permitted",
            ConfigError,
            ["Operation not permitted", "local disk", "SHAREDMEM_DATA_DIR"],
        ),
        (
            "1:M # Write error writing append only file on disk: No space left on device",
            UnavailableError,
            ["disk of /data is full"],
        ),
        (
            "1:M # Can't handle RDB format version 80\n1:M # Error reading the RDB base file x, AOF loading aborted",
            UnsupportedError,
            ["/data", "format version 80", "newer server than /bin/redis-server"],
        ),
        (
            "1:M # The RDB file contains AUX module data I can't load: no matching module 'graphdata'",
            UnsupportedError,
            ["module 'graph'", "/data"],
        ),
        (
            "1:M # The RDB file contains module data I can't load: no matching module type 'MBbloom--'",
            UnsupportedError,
            ["a module that supports 'MBbloom--'"],
        ),
        (
            "1:M # Unknown command 'FT.CREATE' reading the append only file appendonly.aof.1.incr.aof",
            UnsupportedError,
            ["module 'search'"],
        ),
        (
            "1:M # Bad file format reading the append only file appendonly.aof.1.incr.aof: make a backup of your AOF",
            ConfigError,
            ["damaged", "appendonly.aof.1.incr.aof", "/data/redis/appendonlydir", "/data/redis.log"],
        ),
        (
            "1:M # Bad file format reading the append only file appendonly.aof.1.base.rdb: make a backup of your AOF",
            UnsupportedError,
            ["appendonly.aof.1.base.rdb", "another product, Redis or Valkey"],
        ),
        ("1:M # >>> 'hello'\n\n1:M # Invalid AOF manifest file format", ConfigError, ["damaged", "manifest"]),
        (
            "1:M # Unable to obtain the AOF file appendonly.aof.1.base.rdb length. stat: No such file or directory",
            ConfigError,
            ["damaged", "appendonly.aof.1.base.rdb"],
        ),
        ("1:M # Out Of Memory allocating 4096 bytes!", UnavailableError, ["too little free memory"]),
        (
            "*** FATAL CONFIG FILE ERROR ***\n>>> 'dir \"/data\"'\nPermission denied",
            ConfigError,
            ["no permission", "/data"],
        ),
        ("something new\n", UnavailableError, ["/bin/redis-server", "exit code 1", "something new"]),
        ("", UnavailableError, ["exit code 1", "wrote nothing", "/data/redis.log"]),
    ],
)
def test_the_end_of_the_log_becomes_an_error_that_says_what_to_do(
    tail: str, kind: type[SharedMemoryError], words: list[str]
) -> None:
    error = diagnose(tail, 1, ATTEMPT)

    assert type(error) is kind
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize(
    ("refused", "kind", "words"),
    [
        (OSError(28, "No space left on device"), UnavailableError, "disk of /data is full"),
        (PermissionError(13, "Permission denied", "/data"), ConfigError, "no permission for /data"),
        (OSError(30, "Read-only file system", "/data"), ConfigError, "Read-only file system"),
        (OSError(8, "Exec format error"), UnsupportedError, "another processor"),
        (OSError(24, "Too many open files"), UnavailableError, "Too many open files"),
    ],
)
def test_a_refusal_of_the_system_becomes_an_error_that_says_what_to_do(
    refused: OSError, kind: type[SharedMemoryError], words: str
) -> None:
    error = from_os_error(refused, ATTEMPT)

    assert type(error) is kind
    assert words in str(error)
