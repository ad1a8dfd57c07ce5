"""Draw graphs and note chains as diagrams and as self-contained HTML pages."""
