"""Record the trainings of a script that nobody changed.

``smdwidgets run train.py`` runs a script and records its trainings. In an environment in which ``smdwidgets env
install`` was run, ``SMDWIDGETS_HOOK=runs/mine python train.py`` does the same.

How it works:

* :mod:`~smdwidgets.launch.command` puts the directory ``bootstrap`` on PYTHONPATH. Every Python process below imports
  its ``sitecustomize``, which installs a meta path finder; :mod:`~smdwidgets.launch.installation` does so with a
  ``.pth`` file.
* The finder calls :mod:`~smdwidgets.launch.frameworks` when the script has imported a framework.
* One module per framework sees that a training begins, and has :mod:`~smdwidgets.launch.recording` open a hook.
"""
