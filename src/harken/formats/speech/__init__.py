"""Recordings and what is said in them: manifests, folders of corpora, conditions."""
