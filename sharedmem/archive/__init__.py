"""Export, import, copy and backfill whole namespaces. Imported lazily: `import sharedmem` does not load it."""
