"""The hooks for XGBoost and LightGBM, whose steps are boosting rounds."""
