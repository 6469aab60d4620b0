"""Find out what is wrong with a run: since when, why, and what to try.

`diagnose` reads the scalars of a run and, where they were saved, statistics of its tensors. A detector is a function
``detector(data: RunData) -> Iterable[Candidate]``; it reads `RunData` and yields what it sees, without deciding
whether that is a cause or a symptom. `causes` orders the candidates, drops causes without a symptom, and merges what
one cause explains. `words` turns the facts of a candidate into sentences.

How a detector of tensors plugs in:

- `inputs.TensorColumn` holds the statistics of one tensor: ``steps`` and one float64 array per statistic, aligned with
  ``steps``. `inputs.TensorColumns` holds all of them in forward order and finds them by role, layer, mode and worker.
- the kind of a candidate is a key of `causes.TAXONOMY`, which has its place in the order and what it explains.
- ``facts`` fill in the placeholders of its text in `words` or `tensor_words`.
- the detector is listed in `tensor_detectors.DETECTORS`.
"""
