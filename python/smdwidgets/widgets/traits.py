"""View state of a widget.

The traits are synchronized with the browser, and restored when a cell is executed again.

Each trait is documented in docs/widget-protocol.md.
"""

from __future__ import annotations

import traitlets
from traitlets import Bool, Dict, Enum, Float, Int, List, Unicode

PANELS = ("histogram", "history", "heatmap", "statistics", "values", "pr_curve", "scalars", "rules")


class ViewState(traitlets.HasTraits):
    """The state of a view. ``step`` is a global step; -1 means the last one."""

    step = Int(-1).tag(sync=True)
    follow = Bool(True).tag(sync=True)
    speed = Float(10.0).tag(sync=True)
    mode = Enum(("", "TRAIN", "EVAL", "PREDICT", "GLOBAL"), "").tag(sync=True)
    tensor = Unicode("").tag(sync=True)
    run = Int(0).tag(sync=True)
    worker = Unicode("").tag(sync=True)
    compare = Dict().tag(sync=True)
    view = Enum(("a", "b", "side", "diff", "blink"), "side").tag(sync=True)
    selection = Dict().tag(sync=True)
    panels = List(Enum(PANELS), ["histogram", "heatmap", "history", "statistics", "values"]).tag(sync=True)
    hist_scale = Enum(("linear", "log", "symlog"), "linear").tag(sync=True)
    hist_bins = Enum(("shared", "own"), "shared").tag(sync=True)
    log_counts = Bool(False).tag(sync=True)
    history = Enum(("strip", "ridge"), "strip").tag(sync=True)
    axes = List(Int()).tag(sync=True)
    fixed = List(Int()).tag(sync=True)
    pool = Enum(("mean", "min", "max", "maxabs"), "maxabs").tag(sync=True)
    palette = Unicode("auto").tag(sync=True)
    clip = List(Float()).tag(sync=True)
    scale_over = Enum(("steps", "step"), "steps").tag(sync=True)
    zoom = List(Float()).tag(sync=True)
    stats = List(Unicode(), ["mean", "std", "abs_max"]).tag(sync=True)
    series = List(Dict()).tag(sync=True)
    smoothing = Float(0.0).tag(sync=True)
    x_axis = Enum(("step", "relative", "wall"), "step").tag(sync=True)
    charts = Unicode("").tag(sync=True)
    log_x = Bool(False).tag(sync=True)
    log_y = Bool(False).tag(sync=True)
    range = List(Float()).tag(sync=True)
    query = Unicode("").tag(sync=True)
    cell_scale = Enum(("", "shared", "own"), "").tag(sync=True)
    height = Int(0).tag(sync=True)
    map_stat = Enum(("growth", "surprise", "size", "l2", "update", "zeros", "not_finite"), "growth").tag(sync=True)
    map_order = Enum(("model", "suspicious", "change", "name"), "model").tag(sync=True)
    map_fit = Bool(False).tag(sync=True)
    unfolded = List(Unicode(), None, allow_none=True).tag(sync=True)
    inspect = Bool(False).tag(sync=True)
    bookmarks = List(Dict()).tag(sync=True)
    lane = Unicode("").tag(sync=True)
    table = Bool(False).tag(sync=True)
    runs_query = Unicode("").tag(sync=True)
    runs_sort = List(Dict()).tag(sync=True)
    runs_tag = Unicode("").tag(sync=True)
    checked = List(Dict(), None, allow_none=True).tag(sync=True)


STATE = tuple(ViewState.class_trait_names())
"""Names of the traits that make up a view."""
