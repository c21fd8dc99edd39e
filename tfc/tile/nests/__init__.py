"""One builder for each kind of kernel, instantiated with a schedule for the target."""
