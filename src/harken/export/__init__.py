"""Export of trained models to other formats, with verified equal outputs."""
