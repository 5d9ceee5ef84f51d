"""One self-contained HTML page from plain values: no tensors, no network, no template engine."""
