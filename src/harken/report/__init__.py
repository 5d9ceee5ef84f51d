"""Self-contained HTML pages, and figures as SVG and PNG files."""
