"""Tests of the pauses of a worker whose keys fail."""

from __future__ import annotations

import unittest
import unittest.mock

from deltaq import Queue, Worker
from deltaq.breaker import Breaker

# With the limit 3. The key and the outcome of a handler end with "!" if a pause begins, and with "+" if the worker goes on. A number is the length of the
# pause in seconds, which passes.
SCRIPTS = [
    "a:nack b:nack c:nack! 1 d:nack! 2 e:nack! 4 f:ack+ a:nack b:nack c:nack! 1",
    "a:nack a:nack a:nack a:nack b:nack c:nack!",
    "a:nack b:nack c:ack a:nack b:nack c:done a:nack b:nack c:reject a:nack b:nack c:release d:nack!",
    "a:nack b:nack c:nack! 1 a:release 1 a:release 1 a:nack! 2 b:reject+ c:nack",
    "a:nack b:nack c:nack! 1 x:nack! 2 x:nack! 4 x:nack! 8 x:nack! 16 x:nack! 32 x:nack! 60 x:nack! 60 x:done+",
]


class Breakers(unittest.TestCase):
    def test_scripts(self) -> None:
        for script in SCRIPTS:
            with self.subTest(script):
                self.run_script(script.split())

    def run_script(self, steps: list[str]) -> None:
        breaker, now = Breaker(3), 1000.0
        for number, step in enumerate(steps):
            if step.isdecimal():
                self.assertEqual((breaker.room(now), breaker.wait(now)), (0, float(step)))
                now += float(step)
                self.assertEqual((breaker.room(now), breaker.wait(now)), (1, None))
                continue
            key, how = step.rstrip("!+").split(":")
            self.assertNotEqual(breaker.room(now), 0)
            breaker.started(str(number))
            self.assertEqual(breaker.room(now), 0 if breaker.pause else None)
            event = breaker.ended(now, str(number), key, how)
            self.assertEqual(event, {"!": "pauses", "+": "goes on"}.get(step[-1]), step)

    def test_handlers_that_began_before_a_pause_do_not_end_it(self) -> None:
        breaker = Breaker(1)
        for lease_id in ("1", "2", "3"):
            breaker.started(lease_id)
        self.assertEqual(breaker.ended(0.0, "1", "a", "nack"), "pauses")
        self.assertIsNone(breaker.ended(0.0, "2", "b", "ack"))
        breaker.started("4")
        self.assertIsNone(breaker.ended(1.0, "3", "c", "ack"))
        self.assertEqual(breaker.room(99.0), 0)
        self.assertEqual(breaker.ended(1.0, "4", "d", "ack"), "goes on")

    def test_without_a_limit_nothing_pauses(self) -> None:
        breaker = Breaker(None)
        self.assertEqual({breaker.ended(0.0, "1", str(number), "nack") for number in range(5000)}, {None})
        self.assertIsNone(breaker.room(0.0))

    def test_a_limit_out_of_range_is_refused(self) -> None:
        for limit in (0, -1, 1001):
            with self.assertRaisesRegex(ValueError, "breaker must be from 1 to 1000"):
                Worker(Queue(unittest.mock.Mock(), "q"), lambda item, context: None, breaker=limit)


if __name__ == "__main__":
    unittest.main()
