"""The table of operations: what every face offers, once, as plain rows.

A face turns its input into the request that a row `takes`, runs the row on a store, and spells the
answer. It decides nothing itself: rights, limits and defaults belong to the store.

`find_operation` imports the module with the row that a face needs; `operations` imports all.
"""

from sharedmem.api.operation import FeedOperation, Operation

__all__ = ["FeedOperation", "Operation"]
