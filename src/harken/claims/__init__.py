"""Every statement of the sources that has a formula, executed: predicted against measured.

claim (the records and how a verdict is reached), formulas (the sources' equations in plain numpy),
drawn and layer (random weights and tokens), then the source documents: positions and crosstalk
(problem set on positions), lecture and recurrence (lecture on attention), captioning (problems on
language models), problems and parallel (problems on Transformers), assignment and fragility
(assignment on attention); laboratory (all claims), experiments and truncation (those with figures).
"""
