"""What is remembered: rings of transitions on the device, sampled in given shares."""
