"""Recordings that Harken makes: words spoken by no one, and words of people, joined."""
