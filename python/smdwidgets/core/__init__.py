"""Re-exports under the import paths of `smdebug.core`."""
