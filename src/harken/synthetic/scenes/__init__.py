"""Pictures that Harken makes: shapes in colours, with captions and the place of every word."""
