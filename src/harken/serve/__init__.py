"""The server of `harken serve`: a workbench in the browser, a JSON API and the OpenAI API."""
