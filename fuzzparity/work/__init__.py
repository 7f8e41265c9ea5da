"""Own the processes: loader, children, announcements, limits."""
