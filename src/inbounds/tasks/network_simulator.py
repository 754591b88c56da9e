"""The packet network as pure JAX functions: bursts, exponential service, finite queues, windows of 0.05 s.

Every link delays a packet by 0.05 s or more, so nothing that happens inside a window of 0.05 s can reach
another link within the same window: all links advance through a window independently. On one link the
arrivals of a window, in the order of their times t_1 <= t_2 <= ..., begin service at (Lindley's recursion,
solved)

    start_n = A_n + max(B, max_{m <= n} (t_m - A_m)),    A_n = S_1 + ... + S_{n-1},

with B the time at which the link has served what it held before, and S_n exponential with mean 0.02 s. Packet
n reaches its next link at start_n + 0.05: its own service delays only those behind it.

This is the event-driven simulation itself up to simplifications far below its sampling noise: access links
delay by 0.05 s without a queue (the waits left out are below 1e-5 s), an acknowledgement takes 5e-5 s per link
without a queue, one that itself closes an interval counts in the next, and packets whose times or round-robin
tags agree within float32 resolution may change places.

Times are float32 seconds since the interval began, so that precision does not fade with the episode.

Buffers have fixed sizes. Passing one adds to `overflow` in the state and turns every further reward into NaN,
which the host forms raise as an error. Feasible actions cannot pass them:

- `QUEUE_SLOTS`, 576 packets per link: at most 499 wait, and what is on the wire began service within the last
  two windows, at most 2 + Poisson(5); more than 77 has probability 1e-60. On the access links there are at
  most the packets of one interval (see below) and 39 of the one before.
- `LEAVING`, fewer than 40 packets leaving one link in one window: at most 1 + Poisson(2.5) for a trunk (40
  has probability 1e-31); slots are at least 1/756 s apart, so at most 39 leave the access links.
- `ARRIVALS`, 160 packets moving in one window in the whole network: at most 15 + Poisson(37.5) from the trunks
  and 39 from the access links; more has probability 1e-19.
- `SLOTS`, fewer than 512 opportunities to send in an interval: 500 on average with standard deviation 1; 512
  has probability below 1e-31.
- `NetworkLayout.most_packets` sent in an interval: the largest feasible total rate plus one packet per flow.
  Only an infeasible action passes it.
- 128 s of waiting per packet: at most 7 trunks with 500 services each are 70 s, with standard deviation 1.2 s.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.network_layout import (
    PROPAGATION,
    SLOTS_PER_SECOND,
    SLOTS_PER_SECOND_AT_RESET,
    TRUNK_CAPACITY,
    NetworkLayout,
)
from inbounds.tasks.network_order import draw_gaps, plan_sending
from inbounds.tasks.network_window import (
    ACCESS,
    ARRIVALS,
    LINKS,
    QUEUE_SLOTS,
    RINGS,
    WINDOW,
    Queues,
    Tally,
    advance_window,
    as_words,
    empty_queues,
    empty_tally,
    next_departure,
    shift_origin,
    wrap,
)

WINDOWS = 20
"""Windows in an interval of one second."""
HORIZON = 1000
INTERVALS_SEEN = 10
FEATURES = ("send rate", "receive rate", "round-trip time", "loss")
PACKET_RATE_SCALE = 8 * 1500 / 1e7
"""From packets per second to the unit of the observed rates, 10 Mbit/s, at 1500 bytes a packet."""
SLOTS = 512
"""The most opportunities to send that one interval can have."""


class NetworkState(NamedTuple):
    """One network between two decisions."""

    queues: Queues
    next_slot: jax.Array
    """Seconds until the next opportunity to send."""
    due_count: jax.Array
    """(senders,): acknowledgements on their way that count in the coming interval."""
    due_round_trip: jax.Array
    """(senders,): the sum of their round-trip times."""
    history: jax.Array
    """(10, 4): what sender 0 saw in the last ten intervals, oldest first."""
    steps: jax.Array
    overflow: jax.Array
    """How often a buffer was passed; anything but 0 makes the reward NaN."""
    throughput: jax.Array
    """(senders,): packets acknowledged per second in the last interval, less one packet."""
    round_trip: jax.Array
    """(senders,): mean round-trip time in the last interval, in seconds; 0 without acknowledgements."""
    drops: jax.Array
    """(paths,): packets dropped in the last interval, by path index."""
    arrivals: jax.Array
    """(trunks,): packets that arrived at each trunk in the last interval."""
    duration: jax.Array
    """Length of the last interval in seconds."""


class Interval(NamedTuple):
    """What an interval leaves, with times counted from its end, and what it counted."""

    queues: Queues
    next_slot: jax.Array
    tally: Tally
    slots: jax.Array
    duration: jax.Array


def interval_reward(throughput: jax.Array, round_trip: jax.Array, drops: jax.Array) -> jax.Array:
    """Return sum_s ln max(T_s, e^-17.5) - 1.5 ln max(D_s, e^-5) - 0.5 ln max(L_s, 1) over the senders s.

    T are the packets acknowledged per second (less one packet), D their mean round-trip times in seconds (0
    without any), L the dropped packets with path index s: of a sender's number, not of its own.
    """
    gained = jnp.log(jnp.maximum(throughput, np.exp(-17.5)))
    delayed = jnp.log(jnp.maximum(round_trip, np.exp(-5.0)))
    dropped = jnp.log(jnp.maximum(drops[: throughput.shape[0]], 1.0))
    return gained.sum() - 1.5 * delayed.sum() - 0.5 * dropped.sum()


class NetworkEnvironment:
    """The Markov decision process of one layout: rates in, throughput, round-trip time and drops out."""

    def __init__(self, layout: NetworkLayout) -> None:
        """Simulate the network of `layout`."""
        self.layout = layout
        self.observation_size = INTERVALS_SEEN * len(FEATURES)
        self.action_size = layout.flows
        self.horizon = HORIZON

    def reset(self, key: jax.Array) -> tuple[NetworkState, jax.Array]:
        """Send one packet per flow in each of two short intervals; what they observe is forgotten."""
        layout = self.layout
        senders = layout.senders
        rates = jnp.full(layout.flows, 1.0 / 6.0, jnp.float32)
        nominal = jnp.asarray(layout.first_windows * WINDOW, jnp.float32)

        def fill(
            carry: tuple[Queues, jax.Array], part: jax.Array
        ) -> tuple[tuple[Queues, jax.Array], tuple[Tally, jax.Array]]:
            windows, slot_rate = layout.first_windows, SLOTS_PER_SECOND_AT_RESET
            interval = self.interval(*carry, rates, nominal, part, windows, slot_rate, can_fill=False)
            return (interval.queues, interval.next_slot), (interval.tally, interval.duration)

        (queues, next_slot), (tallies, durations) = jax.lax.scan(
            fill, (empty_queues(), jnp.zeros(())), jax.random.split(key)
        )
        due = slice(senders, 2 * senders)
        state = NetworkState(
            queues=queues,
            next_slot=next_slot,
            due_count=tallies.returned[-1, due],
            due_round_trip=tallies.round_trip[-1, due],
            history=jnp.zeros((INTERVALS_SEEN, len(FEATURES))),
            steps=jnp.zeros((), jnp.int32),
            overflow=tallies.overflow.sum(),
            throughput=jnp.zeros(senders),
            round_trip=jnp.zeros(senders),
            drops=jnp.zeros(layout.paths),
            arrivals=jnp.zeros(LINKS),
            duration=durations[-1],
        )
        return state, state.history.reshape(-1)

    def step(self, state: NetworkState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Send with the rates `action` for one interval."""
        layout = self.layout
        rates = action.astype(jnp.float32) + jnp.float32(layout.rate_offset)
        nominal = jnp.where(state.steps == 0, jnp.float32(layout.first_windows * WINDOW), jnp.float32(1.0))
        interval = self.interval(
            state.queues,
            state.next_slot,
            rates,
            nominal,
            key,
            WINDOWS,
            SLOTS_PER_SECOND,
            can_fill=True,
        )
        tally, duration = interval.tally, interval.duration
        now, due = slice(layout.senders), slice(layout.senders, 2 * layout.senders)
        count = tally.returned[now] + state.due_count
        round_trip = (tally.round_trip[now] + state.due_round_trip) / jnp.maximum(count, 1.0)
        drops = tally.drops[: layout.paths]
        throughput = (count - 1.0) / duration
        overflow = state.overflow + tally.overflow
        reward = interval_reward(throughput, round_trip, drops)
        lost = drops.sum()
        features = jnp.stack(
            [
                PACKET_RATE_SCALE * interval.slots / duration,
                PACKET_RATE_SCALE * throughput[0],
                round_trip[0],
                lost / jnp.maximum(lost + count[0], 1.0),
            ]
        )
        history = jnp.concatenate([state.history[1:], features[None]])
        steps = state.steps + 1
        following = NetworkState(
            queues=interval.queues,
            next_slot=interval.next_slot,
            due_count=tally.returned[due],
            due_round_trip=tally.round_trip[due],
            history=history,
            steps=steps,
            overflow=overflow,
            throughput=throughput,
            round_trip=round_trip,
            drops=drops,
            arrivals=tally.arrivals[:LINKS],
            duration=duration,
        )
        return CompiledStep(
            state=following,
            observation=history.reshape(-1),
            reward=jnp.where(overflow > 0, jnp.nan, reward),
            terminated=jnp.zeros((), bool),
            truncated=steps >= HORIZON,
        )

    def explain_failure(self, state: NetworkState) -> str:
        """Say in words why a reward is not a number."""
        return (
            "more packets were on their way than the simulator's fixed buffers hold, which are laid out for "
            f"feasible actions, at most {self.layout.most_packets} packets per interval "
            f"(buffers passed so far: {int(state.overflow)})"
        )

    def interval(
        self,
        queues: Queues,
        next_slot: jax.Array,
        rates: jax.Array,
        nominal: jax.Array,
        key: jax.Array,
        windows: int,
        slot_rate: int,
        *,
        can_fill: bool,
    ) -> Interval:
        """Advance by one interval and move the origin of time to its end.

        As in the published simulator an interval ends with the first event at or after its nominal end; that
        event still belongs to it. `can_fill` tells whether a queue may reach its limit at all. `nominal` must lie below
        SLOTS / slot_rate; beyond it only what is counted means something: slots end, which counts as an overflow.
        """
        slot_key, service_key = jax.random.split(key)
        gaps = draw_gaps(slot_key, slot_rate, SLOTS)
        times = next_slot + jnp.concatenate([jnp.zeros(1), jnp.cumsum(gaps)])
        slots = jnp.sum(times < nominal)
        has_overflow = slots >= SLOTS
        slot_after = times[jnp.minimum(slots, SLOTS)]
        queues, cannot_send, has_packet_after = self._send(queues, rates, times, slot_after)
        services = jax.random.exponential(service_key, (windows, ARRIVALS)) / TRUNK_CAPACITY
        # In a shorter interval the windows after its end find nothing left to do.
        ends = jnp.minimum(jnp.arange(1, windows + 1) * jnp.float32(WINDOW), nominal)

        def run(ends: jax.Array, is_exact: bool) -> tuple[Queues, Tally]:
            def window(
                carry: tuple[Queues, Tally], inputs: tuple[jax.Array, jax.Array]
            ) -> tuple[tuple[Queues, Tally], None]:
                return advance_window(self.layout, *carry, *inputs, nominal, is_exact=is_exact), None

            return jax.lax.scan(window, (queues, empty_tally()), (ends, services))[0]

        # The rule for full queues is costly and rarely needed: only then is the interval run again with it.
        # What the second run reads must depend on the loop, or the compiler moves it out and always runs it.
        moved, tally = run(ends, is_exact=False)
        if can_fill:
            moved, tally = jax.lax.while_loop(
                lambda carry: carry[1].may_drop,
                lambda carry: run(jnp.where(carry[1].may_drop, ends, 0.0), is_exact=True),
                (moved, tally),
            )
        duration = jnp.minimum(next_departure(moved), tally.next_event[0])
        ends_with_slot = slot_after <= duration
        duration = jnp.minimum(duration, slot_after)
        length = moved.length.at[ACCESS].add(-(has_packet_after & ~ends_with_slot).astype(jnp.int32))
        slots = slots + ends_with_slot
        moved = shift_origin(moved._replace(length=length), duration)
        tally = tally._replace(overflow=tally.overflow + has_overflow + cannot_send)
        return Interval(moved, times[jnp.minimum(slots, SLOTS)] - duration, tally, slots, duration)

    def _send(
        self, queues: Queues, rates: jax.Array, times: jax.Array, slot_after: jax.Array
    ) -> tuple[Queues, jax.Array, jax.Array]:
        """Put the packets of an interval on the access links, that of the slot after its end included.

        Also return whether a buffer was passed, and whether that last slot sends a packet at all.
        """
        most = self.layout.most_packets
        plan = plan_sending(rates, most)
        sent_at = times[jnp.minimum(plan.slot, SLOTS)]
        is_sent = (jnp.arange(most) < plan.total) & (sent_at <= slot_after)
        position = wrap(wrap(queues.head[ACCESS] + queues.length[ACCESS]) + plan.order)
        place = jnp.where(is_sent, ACCESS * QUEUE_SLOTS + position, RINGS * QUEUE_SLOTS)
        words = as_words(sent_at + PROPAGATION, plan.flow.astype(jnp.uint32))
        length = queues.length.at[ACCESS].add(is_sent.sum())
        filled = queues._replace(
            packets=queues.packets.at[place].set(words, mode="drop", unique_indices=True), length=length
        )
        has_overflow = (plan.total > most) | (length[ACCESS] > QUEUE_SLOTS)
        return filled, has_overflow, jnp.any(is_sent & (sent_at == slot_after))
