"""The run's directory, the queue to the writer, and the files of a step."""
