"""Hold the bodies of the commands beside the campaign."""
