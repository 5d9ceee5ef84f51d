"""Generate data: people, sentences, speech, scenes."""
