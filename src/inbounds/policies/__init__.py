"""How an action is chosen: networks and policy heads, written once for every array library, and acceptance-rejection.

Training runs these lines on JAX arrays, a deployed policy on NumPy arrays, and an export records them as ONNX nodes.
"""
