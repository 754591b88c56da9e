"""How an action is chosen: proposals of a network, acceptance or rejection, and projection as the last resort."""
