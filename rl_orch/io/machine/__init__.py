"""The machine: cores, memory, GPUs, control groups, disks and what they can do."""
