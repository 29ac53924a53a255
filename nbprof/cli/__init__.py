"""How is nbprof asked from a shell? The command `nbprof`, one module per subcommand."""
