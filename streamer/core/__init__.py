"""What both cores stand on: their protocol, plans, snapshots, and the columns of Arrow."""
