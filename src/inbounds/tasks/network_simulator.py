"""The packet network as pure JAX functions: bursts, exponential service, queues of 500 packets, in windows of 0.05 s.

Every link delays a packet by 0.05 s or more, so nothing that happens inside a window of 0.05 s can reach another
link within the same window: all links advance through a window independently. On one link the arrivals of a window,
in the order of their times t_1 <= t_2 <= ..., begin service at (Lindley's recursion, solved)

    start_n = A_n + max(B, max_{m <= n} (t_m - A_m)),    A_n = S_1 + ... + S_{n-1},

with B the time at which the link has served what it held before, and S_n exponential with mean 0.02 s. Packet n
reaches its next link at start_n + 0.05. This is the event-driven simulation itself, up to four simplifications that
are below its sampling noise: access links delay by 0.05 s without a queue (their waits are below 1e-5 s), an
acknowledgement takes 5e-5 s per link without a queue, an interval ends at its nominal end instead of at the next
event (up to 0.002 s later), and packets whose round-robin tags or arrival times agree within float32 resolution
may change places.

Times are float32 seconds since the beginning of the interval, so that precision does not fade with the episode.

Buffers. All have a fixed size; passing one adds to `overflow` in the state and turns the reward into NaN, which the
host forms raise as an error. None can be passed under a feasible action:

- `QUEUE_SLOTS` = 576 packets per link: at most 499 wait, and those on the wire began service within the last two
  windows, 2 + Poisson(5) of them at most; more than 76 has probability < 1e-58. The same buffer holds the packets
  that are on an access link, at most 320 sent in an interval and 39 from before.
- `LEAVING` = 40 packets leaving one link in one window: 1 + Poisson(2.5) at most for a trunk (more than 40 has
  probability < 1e-33); slots are at least 1/756 s apart, so the access links release 39 at most.
- `ARRIVALS` = 160 packets moving in one window in the whole network: at most 15 + Poisson(37.5) from the trunks and
  39 from the access links; more than 160 has probability < 1e-18.
- `SLOTS` = 512 slots in an interval: 500 on average with standard deviation 1.
- `most_packets` of the layout per interval: the largest feasible total rate plus one per flow. An infeasible action
  is what passes this one.
- 2**27 ticks of 2**-20 s = 128 s of waiting per packet: 7 trunks with at most 500 services each wait 70 s with
  standard deviation 1.2 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inbounds.tasks.compiled import CompiledStep
from inbounds.tasks.network_layout import (
    PROPAGATION,
    SLOTS_PER_SECOND,
    SLOTS_PER_SECOND_AT_RESET,
    TRUNK_CAPACITY,
    NetworkLayout,
)
from inbounds.tasks.network_order import Returns
from inbounds.tasks.network_sending import draw_gaps, plan_sending
from inbounds.tasks.network_window import (
    ACCESS,
    ARRIVALS,
    LINKS,
    QUEUE_SLOTS,
    WINDOW,
    Queues,
    Tally,
    advance_window,
    empty_queues,
    empty_tally,
    next_departure,
)

WINDOWS = 20
"""Windows in an interval of one second."""
HORIZON = 1000
INTERVALS_SEEN = 10
FEATURES = ("send rate", "receive rate", "round-trip time", "loss")
PACKET_RATE_SCALE = 8 * 1500 / 1e7
"""From packets per second to the unit of the observed rates: 10 megabits per second, at 1500 bytes a packet."""
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


class _Interval(NamedTuple):
    queues: Queues
    next_slot: jax.Array
    tally: Tally
    slots: jax.Array
    duration: jax.Array


@dataclass(frozen=True)
class NetworkEnvironment:
    """The Markov decision process of one layout: rates in, throughput, round-trip time and drops out.

    reward = sum over senders of ln max(T, e^-17.5) - 1.5 ln max(D, e^-5) - 0.5 ln max(drops, 1), with T the
    packets acknowledged per second (less one packet) and D their mean round-trip time in seconds.
    """

    layout: NetworkLayout

    @property
    def observation_size(self) -> int:
        """Four features of ten intervals."""
        return INTERVALS_SEEN * len(FEATURES)

    @property
    def action_size(self) -> int:
        """One rate per flow."""
        return self.layout.flows

    @property
    def horizon(self) -> int:
        """Steps until truncation."""
        return HORIZON

    def reset(self, key: jax.Array) -> tuple[NetworkState, jax.Array]:
        """Fill an empty network with two short intervals of one packet per flow and forget what they observed."""
        layout = self.layout
        senders = layout.senders
        queues = empty_queues()
        next_slot = jnp.zeros(())
        rates = jnp.full(layout.flows, 1.0 / 6.0, jnp.float32)
        nominal = jnp.asarray(layout.first_windows * WINDOW, jnp.float32)
        overflow = jnp.zeros((), jnp.int32)
        for part in jax.random.split(key):
            interval = self._interval(
                queues, next_slot, rates, nominal, part, layout.first_windows, SLOTS_PER_SECOND_AT_RESET
            )
            queues, next_slot = interval.queues, interval.next_slot
            overflow = overflow + interval.tally.overflow
        returns = interval.tally.returns
        state = NetworkState(
            queues=queues,
            next_slot=next_slot,
            due_count=returns.count[senders:],
            due_round_trip=returns.round_trip[senders:],
            history=jnp.zeros((INTERVALS_SEEN, len(FEATURES))),
            steps=jnp.zeros((), jnp.int32),
            overflow=overflow,
            throughput=jnp.zeros(senders),
            round_trip=jnp.zeros(senders),
            drops=jnp.zeros(layout.paths),
            arrivals=jnp.zeros(LINKS),
            duration=interval.duration,
        )
        return state, state.history.reshape(-1)

    def step(self, state: NetworkState, action: jax.Array, key: jax.Array) -> CompiledStep:
        """Send with the rates `action` for one interval."""
        layout = self.layout
        rates = action.astype(jnp.float32) + jnp.float32(layout.rate_offset)
        nominal = jnp.where(state.steps == 0, jnp.float32(layout.first_windows * WINDOW), jnp.float32(1.0))
        interval = self._interval(
            state.queues, state.next_slot, rates, nominal, key, WINDOWS, SLOTS_PER_SECOND
        )
        tally, duration, senders = interval.tally, interval.duration, layout.senders
        count = tally.returns.count[:senders] + state.due_count
        round_trip = tally.returns.round_trip[:senders] + state.due_round_trip
        round_trip = round_trip / jnp.maximum(count, 1.0)
        throughput = (count - 1.0) / duration
        overflow = state.overflow + tally.overflow
        reward = self._reward(throughput, round_trip, tally.drops)
        lost = tally.drops.sum()
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
            due_count=tally.returns.count[senders:],
            due_round_trip=tally.returns.round_trip[senders:],
            history=history,
            steps=steps,
            overflow=overflow,
            throughput=throughput,
            round_trip=round_trip,
            drops=tally.drops,
            arrivals=tally.arrivals,
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
            f"{int(state.overflow)} packets did not fit the fixed buffers of the simulator, which are laid out for "
            f"feasible actions of at most {self.layout.most_packets} packets per interval"
        )

    def _reward(self, throughput: jax.Array, round_trip: jax.Array, drops: jax.Array) -> jax.Array:
        gained = jnp.log(jnp.maximum(throughput, np.exp(-17.5)))
        delayed = jnp.log(jnp.maximum(round_trip, np.exp(-5.0)))
        dropped = jnp.log(jnp.maximum(drops, 1.0))
        charged = dropped[: self.layout.senders].sum()
        return gained.sum() - 1.5 * delayed.sum() - 0.5 * charged

    def _interval(
        self,
        queues: Queues,
        next_slot: jax.Array,
        rates: jax.Array,
        nominal: jax.Array,
        key: jax.Array,
        windows: int,
        slot_rate: int,
    ) -> _Interval:
        """Advance by one interval and move the origin of time to its end.

        As in the published simulator an interval ends with the first event at or after its nominal end; that
        event still belongs to it.
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

            return jax.lax.scan(window, (queues, empty_tally(self.layout)), (ends, services))[0]

        # The rule for full queues is costly and rarely needed: only then is the interval run again with it. What
        # the second run reads must depend on the loop, or the compiler moves it out and always executes it.
        moved, tally = jax.lax.while_loop(
            lambda carry: carry[1].may_drop,
            lambda carry: run(jnp.where(carry[1].may_drop, ends, 0.0), is_exact=True),
            run(ends, is_exact=False),
        )
        duration = jnp.minimum(next_departure(moved), jnp.min(tally.returns.next_event))
        ends_with_slot = slot_after <= duration
        duration = jnp.minimum(duration, slot_after)
        length = moved.length.at[ACCESS].add(-(has_packet_after & ~ends_with_slot).astype(jnp.int32))
        slots = slots + ends_with_slot
        moved = moved._replace(
            departure=moved.departure - duration, busy_until=moved.busy_until - duration, length=length
        )
        tally = tally._replace(
            returns=_with_last(tally.returns, duration), overflow=tally.overflow + has_overflow + cannot_send
        )
        return _Interval(moved, times[jnp.minimum(slots, SLOTS)] - duration, tally, slots, duration)

    def _send(
        self, queues: Queues, rates: jax.Array, times: jax.Array, slot_after: jax.Array
    ) -> tuple[Queues, jax.Array, jax.Array]:
        """Put the packets of an interval on the access links, that of the slot after its nominal end included.

        Also return whether a buffer was passed, and whether that last slot sends a packet at all.
        """
        most = self.layout.most_packets
        plan = plan_sending(rates, most)
        sent_at = times[jnp.minimum(plan.slot, SLOTS)]
        is_sent = (jnp.arange(most) < plan.total) & (sent_at <= slot_after)
        position = queues.head[ACCESS] + queues.length[ACCESS] + plan.order
        position = position - jnp.where(position >= QUEUE_SLOTS, QUEUE_SLOTS, 0)
        position = jnp.where(is_sent, position, QUEUE_SLOTS)
        length = queues.length.at[ACCESS].add(is_sent.sum())
        filled = queues._replace(
            departure=queues.departure.at[ACCESS, position].set(
                sent_at + PROPAGATION, mode="drop", unique_indices=True
            ),
            packet=queues.packet.at[ACCESS, position].set(
                plan.flow.astype(jnp.uint32), mode="drop", unique_indices=True
            ),
            length=length,
        )
        has_overflow = (plan.total > most) | (length[ACCESS] > QUEUE_SLOTS)
        return filled, has_overflow, jnp.any(is_sent & (sent_at == slot_after))


def _with_last(returns: Returns, duration: jax.Array) -> Returns:
    """Count the acknowledgement that closes an interval, if one does, in that interval."""
    is_last = returns.first_time <= duration + 1e-6
    moved = is_last.astype(jnp.float32)
    trip = jnp.where(is_last, returns.first_round_trip, 0.0)
    return returns._replace(
        count=returns.count + jnp.concatenate([moved, -moved]),
        round_trip=returns.round_trip + jnp.concatenate([trip, -trip]),
    )
