"""A permanent-magnet motor from gym-electric-motor: a voltage circle, and a power limit that depends on the current.

In the coordinates of the rotor (d, q) the inverter can deliver any voltage of a circle, whichever way the rotor
points. A weak battery adds u_d i_d + u_q i_q <= bound: a half-plane whose direction is the measured current.
Needs `pip install gym-electric-motor`, or this library's extra `envs`.
"""

import gym_electric_motor as gem
import numpy as np
from gym_electric_motor.physical_system_wrappers import DqToAbcActionProcessor

import inbounds as ib


def motor():
    """Track a current reference; states, references and voltages are relative to their limits."""
    return gem.make("Cont-CC-PMSM-v0", physical_system_wrappers=(DqToAbcActionProcessor.make("PMSM"),))


print(
    list(enumerate(motor().unwrapped.state_names))
)  # where in the first part of the observation the currents are
current = ib.obs["0", 5:7]  # i_sd and i_sq, relative to 400 A
circle = ib.Ball(radius_squared=1.0)  # of 150 V
battery = ib.Polytope(current.reshape(1, 2), [0.1])  # 3/2 u i: 90 kW x 0.1 = 9 kW

task = ib.Task(motor, circle & battery, name="motor-drive", horizon=200, reward_shift=1.0)
print(task.observation_parts, ib.check_task(task), sep="\n")

run = ib.train(task, ib.Aram(hidden=(64, 64)), steps=600, evaluate_every=0, episodes=3)
print(run)

policy = ib.load(run.path)
environment = task.make_environment()
observation, _ = environment.reset(seed=0)
highest = -np.inf
for _ in range(300):
    voltage = policy.act(observation)
    highest = max(highest, 90.0 * float(voltage @ observation[5:7]))
    observation, _, terminated, truncated, _ = environment.step(voltage)
    if terminated or truncated:
        observation, _ = environment.reset()
print(f"highest power drawn: {highest:.2f} kW of 9")
