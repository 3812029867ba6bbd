"""The commands of `vernier`, by what they are about. They import what they need when they run."""
