"""Linear systems and eigenvalues of small symmetric matrices, by operations that every runtime has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

SWEEPS = 10
"""How often Jacobi's method turns every pair of axes; the error squares with each of the last sweeps."""


class Eigenpairs(NamedTuple):
    """Eigenvalues, in no particular order, and the eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


def solution(xp: Any, matrix: Any, right: Any) -> Any:
    """Solve a symmetric positive definite system by the inverse and one step of refinement."""
    inverse = _inverse(xp, matrix)
    found = xp.matmul(inverse, right)
    return found + xp.matmul(inverse, right - xp.matmul(matrix, found))


def _inverse(xp: Any, matrix: Any) -> Any:
    """Eliminate without exchanging rows, which a positive definite matrix with a diagonal of ones never needs."""
    size = matrix.shape[-1]
    identity = xp.eye(size, dtype=matrix.dtype)
    diagonal = xp.sum(matrix * identity, axis=-1)
    scale = 1.0 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[..., None] * scale[..., None, :]
    both = xp.concat([scaled, xp.broadcast_to(identity, matrix.shape)], axis=-1)
    for index in range(size):
        row = both[..., index : index + 1, :]
        row = row / row[..., index : index + 1]
        is_row = xp.asarray(np.arange(size)[:, None] == index)
        both = xp.where(is_row, row, both - both[..., index : index + 1] * row)
    return both[..., size:] * scale[..., None] * scale[..., None, :]


def eigenpairs(xp: Any, matrix: Any) -> Eigenpairs:
    """Turn pairs of axes until the matrix is diagonal; in each round all entries are in one pair (Jacobi).

    A round turns every axis i towards its partner by J_ij = c_i on the diagonal and s_i at the partner, so that
    one product serves all pairs.
    """
    size = matrix.shape[-1]
    identity = xp.eye(size, dtype=matrix.dtype)
    if size == 1:
        return Eigenpairs(matrix[..., 0], xp.ones_like(matrix))
    before: Eigenpairs | None = xp.graph.recall(("eigenpairs", matrix.name))
    if before is not None:
        return before
    partners = _tournament(size)
    rounds = len(partners)
    # Partner matrices and, at [i, partner of i], +1 where i is the smaller of the two and -1 where the larger.
    exchange = np.zeros((rounds, size, size))
    signs = np.zeros((rounds, size))
    for turn, partner in enumerate(partners):
        for index, other in enumerate(partner):
            if other != index:
                exchange[turn, index, other] = 1.0
                signs[turn, index] = 1.0 if index < other else -1.0
    exchanges, all_signs = xp.asarray(exchange), xp.asarray(signs)

    def one_round(index: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        current, vectors = state
        turn = xp.remainder(index, rounds)
        swap, sign = xp.take(exchanges, turn, axis=0), xp.take(all_signs, turn, axis=0)
        own = xp.sum(current * identity, axis=-1)
        across = xp.sum(current * swap, axis=-1)
        other = xp.sum(swap * own[..., None, :], axis=-1)
        # tan of the angle, the smaller root of t^2 + 2 theta t = 1; 0 where there is nothing to turn.
        is_turned = (xp.abs(across) > 0) & (sign != 0)
        theta = sign * (other - own) / (2.0 * xp.where(is_turned, across, 1.0))
        size_of_theta = xp.abs(theta)
        tangent = 1.0 / (size_of_theta + xp.sqrt(size_of_theta * size_of_theta + 1.0))
        tangent = xp.where(is_turned, xp.where(theta < 0, -tangent, tangent), 0.0)
        cosine = 1.0 / xp.sqrt(tangent * tangent + 1.0)
        sine = sign * tangent * cosine
        rotation = identity * cosine[..., None] + swap * sine[..., None]
        turned = xp.matmul(xp.matmul(xp.matrix_transpose(rotation), current), rotation)
        return turned, xp.matmul(vectors, rotation)

    start = (matrix, xp.broadcast_to(identity, matrix.shape))
    diagonal, vectors = xp.fori_loop(0, SWEEPS * rounds, one_round, start)
    found = Eigenpairs(xp.sum(diagonal * identity, axis=-1), vectors)
    xp.graph.remember(("eigenpairs", matrix.name), found, vectors.depth)
    return found


def _tournament(size: int) -> list[list[int]]:
    """Return rounds in which everybody meets everybody once; who rests is its own partner."""
    even = size + size % 2
    circle = list(range(even))
    rounds = []
    for _ in range(even - 1):
        partner = list(range(size))
        for left, right in zip(circle[: even // 2], reversed(circle[even // 2 :]), strict=True):
            if left < size and right < size:
                partner[left], partner[right] = right, left
        rounds.append(partner)
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds
