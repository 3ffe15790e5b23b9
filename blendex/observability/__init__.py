"""What a process tells about itself: log lines and metrics. Knows nothing of builds but words for labels."""
