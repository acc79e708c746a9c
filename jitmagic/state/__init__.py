"""What a function closes over: paths, what it reads and writes, snapshots, constants and their names."""
