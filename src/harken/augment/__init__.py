"""Change examples: speed, noise, masks over features, random affine maps."""
