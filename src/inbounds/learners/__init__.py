"""What is learnt: each learner is a few pure functions over one state."""
