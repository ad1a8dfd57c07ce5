"""Conformance tests of `search.protocol.Index`; a test class inherits them.

    class TestMyIndex(IndexSuite):
        @pytest.fixture
        def index(self, line, keyspace, suite_family):
            return MyIndex(line, keyspace, suite_family)

The fixtures `line` (a `wire.line.Line`) and `keyspace` come from the test file. Each test has a family of its own, and
deletes the records that it wrote; the index itself is deleted by the test file. Requires pytest and pytest-asyncio with
`asyncio_mode = "auto"`.
"""

import sharedmem.testing.pytest_required  # noqa: F401  # the entry point: it needs pytest
from sharedmem.testing.index_suite.base import IndexedNamespace, suite_family
from sharedmem.testing.index_suite.namespaces import IndexMigrationTests, IndexPageTests, NamespaceIsolationTests
from sharedmem.testing.index_suite.search import IndexFilterTests, IndexRankingTests, IndexSearchTests

__all__ = [
    "IndexFilterTests",
    "IndexMigrationTests",
    "IndexPageTests",
    "IndexRankingTests",
    "IndexSearchTests",
    "IndexSuite",
    "IndexedNamespace",
    "NamespaceIsolationTests",
    "suite_family",
]


class IndexSuite(
    IndexSearchTests, IndexRankingTests, IndexFilterTests, NamespaceIsolationTests, IndexPageTests, IndexMigrationTests
):
    """All tests; a test class inherits it and provides the fixture `index`."""
